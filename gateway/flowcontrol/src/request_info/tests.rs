//! What the vectors do not say: borrowing, words of errors, bytes from anywhere.
use super::*;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use proptest::prelude::*;

/// Verb, group, resource, namespace, name and path flag in one line.
fn summary(method: &str, target: &str) -> String {
    match RequestInfo::parse(method, target) {
        Ok(info) => {
            let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
            alloc::format!(
                "{} {}/{}{}{} ns={} name={}",
                info.verb(),
                text(info.api_group()),
                text(info.resource()),
                if info.subresource().is_empty() { "" } else { "/" },
                text(info.subresource()),
                text(info.namespace()),
                text(info.name()),
            )
        }
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn check(request: &str, expected: &str) {
    let (method, target) = request.split_once(' ').expect("method and target");
    assert_eq!(summary(method, target), expected, "{request}");
}

#[test]
fn selectors_name_the_object() {
    check("GET /api/v1/pods?fieldSelector=metadata.name%3Db,metadata.name%3Da", "list /pods ns= name=a");
    // The operator takes part in the order: `=` is less than `a`, so `==b` comes before `=a`.
    check("GET /api/v1/pods?fieldSelector=metadata.name%3D%3Db,metadata.name%3Da", "list /pods ns= name=b");
    check("GET /api/v1/pods?fieldSelector=metadata.name%3Da%5C,b", "list /pods ns= name=a,b");
    check("GET /api/v1/pods?fieldSelector=metadata.name%3Da%5Cb", "list /pods ns= name=");
    check(
        "GET /api/v1/pods?fieldSelector=metadata.name%3D%5C%5C%E2%82",
        "list /pods ns= name=\\\\\\xef\\xbf\\xbd\\xef\\xbf\\xbd",
    );
    check("GET /api/v1/pods?fieldSelector=metadata.name%3D%E2%82", "list /pods ns= name=\\xe2\\x82");
}

#[test]
fn a_long_s_is_false_only_where_options_decode() {
    check("GET /api/v1/pods?watch=fal%C5%BFe", "list /pods ns= name=");
    check("GET /api/v1/pods?watch=fal%C5%BFe&limit=", "watch /pods ns= name=");
}

#[test]
fn label_selectors_are_the_references() {
    let valid = |selector: &str| label_selector::check(selector.as_bytes()).is_ok();
    for selector in [
        "",
        " ",
        "a",
        "!a",
        "! a",
        "a=",
        "a==,b",
        "a!=b",
        "in in (in,notin)",
        "notin",
        "a in ()",
        "a in (,)",
        "a in (,,)",
        "a in (b,)",
        "a in (,b)",
        "a in (b,,)",
        "x.y/a in (b)",
        "a>1",
        "a<1",
        "a=b\0,c",
        "a=b \0((((",
        "\0(((",
        "a\0in(b)",
        "a =\tb\r\n, c",
    ] {
        assert!(valid(selector), "{selector:?}");
    }
    for selector in [
        "(",
        ",",
        "a,",
        ",a",
        "a b",
        "a=b=c",
        "a in",
        "a in (b",
        "a in (b c)",
        "!a=b",
        "a=_b",
        "-a",
        "/a",
        "A.b/c",
        "a/b/c",
        "a>",
        "a>x",
        "a<-1",
        "a>+1",
        "a===b",
        "a=b\0c",
        "a in (b))",
        "a > 1 2",
    ] {
        assert!(!valid(selector), "{selector:?}");
    }
    assert!(valid(&"k".repeat(63)) && !valid(&"k".repeat(64)));
    assert!(
        valid(&alloc::format!("{}/k", "d".repeat(253))) && !valid(&alloc::format!("{}/k", "d".repeat(254)))
    );
}

#[test]
fn too_many_pairs_are_no_pairs() {
    let query = |pairs: usize| alloc::format!("/api/v1/pods?{}watch=1", "&".repeat(pairs - 1));
    assert_eq!(
        RequestInfo::parse("GET", &query(10_000)).map(|info| info.verb().to_string()).ok().as_deref(),
        Some("watch")
    );
    assert_eq!(
        RequestInfo::parse("GET", &query(10_001)).map(|info| info.verb().to_string()).ok().as_deref(),
        Some("list")
    );
}

#[test]
fn targets_that_are_none() {
    for target in ["", "*", "api", "http://h/", "?x", "/%", "/%1", "/%g0", "/a\u{7f}", "/a\n"] {
        let error = RequestInfo::parse("GET", target).expect_err(target);
        assert_eq!((error, error.status()), (TargetError::Malformed, 400), "{target:?}");
    }
}

#[test]
fn a_verb_without_a_resource_is_told_in_the_servers_words() {
    let target = "/api/v1/watch?a=\"<&>";
    let error = RequestInfo::parse("GET", target).expect_err("nothing to watch");
    assert_eq!(error.status(), 500);
    assert_eq!(
        error.message(target),
        "Internal Server Error: \"/api/v1/watch?a=\\\"&lt;&amp;&gt;\": failed to create RequestInfo: \
         unable to determine kind and namespace from url, /api/v1/watch?a=\"&lt;&amp;&gt;"
    );
}

#[test]
fn ordinary_requests_are_borrowed() {
    let info =
        RequestInfo::parse("GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=x").expect("valid");
    assert!(matches!(info.verb, Cow::Borrowed(_)));
    assert!(matches!(info.path, Cow::Borrowed(_)));
    assert!(matches!(info.selected_name, Some(Cow::Borrowed(b"x"))));
    let owned = info.clone().into_owned();
    assert_eq!((owned.verb(), owned.name(), owned.namespace()), (info.verb(), info.name(), info.namespace()));
}

#[test]
fn methods_that_look_like_verbs() {
    let info = RequestInfo::parse("Watch", "/healthz?fieldSelector=a").expect("valid");
    assert!(info.is_long_running() && !info.bypasses_flow_control());
    assert!(info.field_selector().is_empty(), "selectors are for resources");
}

/// The segments as a list, the way a first draft would have them.
fn naive_parts(path: &[u8]) -> Vec<&[u8]> {
    let start = path.iter().take_while(|&&byte| byte == b'/').count();
    let end = path.len() - path.iter().rev().take_while(|&&byte| byte == b'/').count();
    if start >= end { Vec::new() } else { path[start..end].split(|&byte| byte == b'/').collect() }
}

fn segment() -> impl Strategy<Value = &'static str> {
    prop::sample::select(
        ["", "api", "apis", "v1", "watch", "proxy", "namespaces", "status", "x", "pods", "%2f", "%C3"]
            .as_slice(),
    )
}

proptest! {
    #[test]
    fn nothing_panics(method in "\\PC{0,8}", target in "/?[ -~\\PC\0]{0,200}") {
        if let Ok(info) = RequestInfo::parse(&method, &target) {
            let _ = (info.is_long_running(), info.parts().count(), info.field_selector(), info.label_selector());
            let _ = ListOptions::decode(info.query()).map(|options| options.into_required(b"spec.nodeName"));
        }
    }

    #[test]
    fn selectors_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = field_selector::required(&bytes, b"a");
        let _ = label_selector::check(&bytes);
    }

    #[test]
    fn selectors_of_their_own_letters_never_panic(text in "[a=!\\\\,() \0<>in1]{0,24}") {
        let _ = field_selector::required(text.as_bytes(), b"a");
        let _ = label_selector::check(text.as_bytes());
    }

    #[test]
    fn the_least_of_the_sorted_terms_wins(terms in prop::collection::vec("(a|b|aa)(=|==|!=)[a-c]{0,2}", 0..6)) {
        let selector = terms.join(",");
        let mut sorted = terms.clone();
        sorted.sort();
        let expected = sorted.iter().find_map(|term| {
            let (key, value) = term.split_once('=').expect("an operator");
            (key == "a").then(|| value.strip_prefix('=').unwrap_or(value).as_bytes().to_vec())
        });
        let found = field_selector::required(selector.as_bytes(), b"a").expect("valid");
        prop_assert_eq!(found.map(Cow::into_owned), expected);
    }

    #[test]
    fn parts_are_a_tail_of_the_segments(segments in prop::collection::vec(segment(), 0..9)) {
        let target = alloc::format!("/{}", segments.join("/"));
        if let Ok(info) = RequestInfo::parse("GET", &target) {
            let all = naive_parts(info.path());
            let parts: Vec<&[u8]> = info.parts().collect();
            prop_assert!(all.ends_with(&parts));
            prop_assert_eq!(info.is_resource_request(), !parts.is_empty());
            prop_assert_eq!(info.resource(), parts.first().copied().unwrap_or_default());
            prop_assert_eq!(info.name(), parts.get(1).copied().unwrap_or_default());
        }
    }
}
