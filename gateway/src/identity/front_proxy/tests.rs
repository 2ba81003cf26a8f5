//! Identity in headers, there and back.

use http::HeaderValue;
use proptest::prelude::*;

use super::*;

fn usual() -> Headers {
    Headers::parse(&FrontProxyOptions::default()).expect("good names")
}

fn map(lines: &[(&str, &str)]) -> HeaderMap {
    let name = |name: &str| HeaderName::try_from(name).expect("a name");
    lines.iter().map(|(key, value)| (name(key), HeaderValue::try_from(*value).expect("a value"))).collect()
}

fn extra(pairs: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
    let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    pairs.iter().map(|(key, values)| ((*key).to_owned(), owned(values))).collect()
}

#[test]
fn reads_as_kube_apiserver_reads() {
    let read = usual().read(&map(&[
        ("X-Remote-User", "zoe"),
        ("X-Remote-User", "other"),
        ("X-Remote-Uid", "u1"),
        ("X-Remote-Uid", "u2"),
        ("X-Remote-Group", "b"),
        ("X-Remote-Group", ""),
        ("X-Remote-Group", "a,c"),
        ("X-Remote-Extra-Foo", "1"),
        ("X-Remote-Extra-foo", "2"),
        ("X-Remote-Extra-a%2fB%2Fc", "v"),
        ("X-Remote-Extra-bad%zz", "w"),
        ("X-Remote-Extra-", "empty"),
        ("X-Remote-Extra-e", ""),
    ]));
    let mut user = read.expect("text").expect("a user");
    user.extra.sort();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("zoe", "u1"));
    assert_eq!(user.groups, ["b", "a,c"]);
    let expected: &[(&str, &[&str])] =
        &[("", &["empty"]), ("a/b/c", &["v"]), ("bad%zz", &["w"]), ("e", &[""]), ("foo", &["1", "2"])];
    assert_eq!(user.extra, extra(expected));
}

#[test]
fn no_name_is_no_user() {
    for lines in [&[("x-remote-group", "g")][..], &[("x-remote-user", ""), ("x-remote-user", "zoe")], &[]] {
        assert_eq!(usual().read(&map(lines)), Ok(None));
    }
}

#[test]
fn bytes_that_are_no_text_name_nobody() {
    let mut headers = map(&[("x-remote-user", "zoe")]);
    headers.insert("x-remote-group", HeaderValue::from_bytes(b"\xff").expect("opaque"));
    assert_eq!(usual().read(&headers), Err(NotText));
    let headers = map(&[("x-remote-user", "zoe"), ("x-remote-extra-%ff", "v")]);
    assert_eq!(usual().read(&headers), Err(NotText));
}

#[test]
fn configured_names_are_read_in_their_order_and_stripped_beside_the_usual_ones() {
    let options = FrontProxyOptions {
        username_headers: vec!["X-User".into(), " X-Other-User ".into()],
        group_headers: vec!["X-Second".into(), "X-First".into()],
        extra_headers_prefixes: vec!["X-More-".into()],
        ..FrontProxyOptions::default()
    };
    let headers = Headers::parse(&options).expect("good names");
    let mut lines = map(&[
        ("x-user", ""),
        ("x-other-user", "zoe"),
        ("x-first", "1"),
        ("x-second", "2"),
        ("x-more-k", "v"),
        ("x-remote-user", "forged"),
        ("x-remote-extra-k", "forged"),
        ("x-remote-extra-k", "forged again"),
        ("x-innocent", "stays"),
    ]);
    let user = headers.read(&lines).expect("text").expect("a user");
    assert_eq!((user.name.as_str(), user.groups), ("zoe", vec!["2".to_owned(), "1".to_owned()]));
    assert_eq!(headers.strip(&mut lines), 8);
    assert_eq!(lines, map(&[("x-innocent", "stays")]));
    for bad in ["", "a b", "ü"] {
        let options = FrontProxyOptions { uid_headers: vec![bad.into()], ..FrontProxyOptions::default() };
        assert_eq!(Headers::parse(&options).expect_err("no name"), bad);
    }
}

#[test]
fn names_that_headers_would_change_are_not_written() {
    let named = |name: &str| Identity { name: name.into(), ..Identity::default() };
    for name in [" admin", "admin ", "admin\t", "ad\nmin", "ad\0min", "admin\r"] {
        assert_eq!(write(&named(name)), None, "{name:?}");
        let grouped = Identity { groups: vec!["ok".into(), name.into()], ..named("zoe") };
        assert_eq!(write(&grouped), None, "{name:?}");
    }
    assert!(write(&named("jürgen schmidt")).is_some());
}

#[test]
fn what_is_written_is_what_was_seen_to_arrive() {
    let user = Identity {
        name: "jürgen".into(),
        uid: String::new(),
        groups: vec!["größe".into(), String::new(), "system:authenticated".into()],
        extra: extra(&[
            ("authentication.kubernetes.io/credential-id", &["X509SHA256=00"]),
            ("Up", &["1", "2"]),
        ]),
    };
    let lines = write(&user).expect("can be said");
    let lines: Vec<_> = lines.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let expected: &[(&str, &[u8])] = &[
        ("x-remote-user", "jürgen".as_bytes()),
        ("x-remote-group", "größe".as_bytes()),
        ("x-remote-group", b"system:authenticated"),
        ("x-remote-extra-authentication.kubernetes.io%2fcredential-id", b"X509SHA256=00"),
        ("x-remote-extra-%55p", b"1"),
        ("x-remote-extra-%55p", b"2"),
    ];
    assert_eq!(lines, expected);
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        name in "\\PC{1,8}", uid in "[!-~]{0,5}", groups in proptest::collection::vec("[!-~é]{1,5}", 0..4),
        keys in proptest::collection::btree_map("\\PC{0,6}", proptest::collection::vec("[!-~]{0,4}", 1..3), 0..4),
    ) {
        let user = Identity { name, uid, groups, extra: keys.into_iter().collect() };
        if let Some(lines) = write(&user) {
            let headers: HeaderMap = lines.into_iter().collect();
            let mut read = usual().read(&headers).expect("text").expect("a user");
            read.extra.sort();
            prop_assert_eq!(read, user);
        }
    }

    #[test]
    fn unescape_never_panics(text in "[%0-9a-fx\\PC]{0,12}") {
        let _ = unescape(&text);
    }

    #[test]
    fn every_key_is_escaped_to_a_header_name_and_back(key in "\\PC{0,12}") {
        let escaped = escape(&key);
        let name = HeaderName::try_from(["x-", &escaped].concat());
        prop_assert!(name.is_ok());
        prop_assert_eq!(unescape(&escaped), Ok(key));
    }
}
