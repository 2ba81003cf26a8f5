//! Every line here was sent to kube-apiserver v1.36.2: what it took for a token, and what it did not.

use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let name = |name: &str| HeaderName::try_from(name).expect("a name");
    lines.iter().map(|(key, value)| (name(key), HeaderValue::try_from(*value).expect("a value"))).collect()
}

fn token(token: &str) -> Found<'_> {
    Found::Token(token.into())
}

#[test]
fn authorization_lines() {
    let check = |line: &str, expected: Found<'_>| {
        assert_eq!(authorization(&headers(&[("authorization", line)])), expected)
    };
    check("Bearer t", token("t"));
    check("bearer t", token("t"));
    check("  BEARER t  ", token("t"));
    check("Bearer t behind it", token("t"));
    check("Bearer  t", Found::Nothing);
    check("Bearer\tt", Found::Nothing);
    check("Bearer ", Found::Nothing);
    check("Bearer", Found::Nothing);
    check("Basic YTpi", Found::Nothing);
    check("", Found::Nothing);
    assert_eq!(authorization(&HeaderMap::new()), Found::Nothing);
    let two = headers(&[("authorization", "Bearer a"), ("authorization", "Bearer b")]);
    assert_eq!(authorization(&two), token("a"), "the first line counts");
    let two = headers(&[("authorization", ""), ("authorization", "Bearer b")]);
    assert_eq!(authorization(&two), Found::Nothing);
    let mut raw = HeaderMap::new();
    raw.insert(AUTHORIZATION, HeaderValue::from_bytes(b"Bearer \xff").expect("opaque"));
    assert_eq!(authorization(&raw), Found::Unusable);
}

#[test]
fn web_socket_protocols() {
    let bob = &format!("{PROTOCOL_PREFIX}dG9rLWJvYg");
    let check = |protocols: &[&str], expected: Found<'_>| {
        let lines: Vec<_> = protocols.iter().map(|protocol| ("sec-websocket-protocol", *protocol)).collect();
        let upgrade = HeaderValue::from_static("WebSocket");
        assert_eq!(web_socket(&headers(&lines), Some(&upgrade)), expected, "{protocols:?}");
    };
    check(&[bob, "x"], token("tok-bob"));
    check(&[&format!("{bob} , x")], token("tok-bob"));
    check(&["x"], Found::Nothing);
    check(&[], Found::Nothing);
    check(&[PROTOCOL_PREFIX, "x"], Found::Nothing);
    check(&[bob], Found::Unusable);
    check(&[bob, bob, "x"], Found::Unusable);
    check(&[&format!("{bob}="), "x"], Found::Unusable);
    check(&[&format!("{PROTOCOL_PREFIX}!!"), "x"], Found::Unusable);
    check(&[&format!("{PROTOCOL_PREFIX}_w"), "x"], Found::Unusable);
}

#[test]
fn protocols_outside_a_web_socket_are_no_tokens() {
    let bob = format!("{PROTOCOL_PREFIX}dG9rLWJvYg, x");
    let lines = headers(&[("sec-websocket-protocol", bob.as_str())]);
    for upgrade in [None, Some(HeaderValue::from_static("h2c"))] {
        assert_eq!(web_socket(&lines, upgrade.as_ref()), Found::Nothing);
    }
}

proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(32u8..=255, 0..80)) {
        let bytes: Vec<u8> = bytes.into_iter().filter(|byte| *byte != 127).collect();
        let value = HeaderValue::from_bytes(&bytes).expect("a value");
        let mut map = HeaderMap::new();
        map.insert(AUTHORIZATION, value.clone());
        map.insert(SEC_WEBSOCKET_PROTOCOL, value);
        let upgrade = HeaderValue::from_static("websocket");
        let _ = (authorization(&map), web_socket(&map, Some(&upgrade)));
    }
}
