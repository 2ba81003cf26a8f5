//! Each case was tried on kube-apiserver v1.36.2 with SelfSubjectReview; the group lists are its answers.

use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let name = |name: &str| HeaderName::try_from(name).expect("a name");
    lines.iter().map(|(key, value)| (name(key), HeaderValue::try_from(*value).expect("a value"))).collect()
}

fn master(name: &str) -> Identity {
    Identity { name: name.into(), groups: vec![MASTERS.into(), AUTHENTICATED.into()], ..Identity::default() }
}

fn user(name: &str) -> (&str, &str) {
    ("impersonate-user", name)
}

fn group(name: &str) -> (&str, &str) {
    ("impersonate-group", name)
}

fn check(lines: &[(&str, &str)], name: &str, groups: &[&str]) {
    let user = impersonated(&headers(lines), &master("admin"), &OldWay::new()).expect("a user");
    assert_eq!(user.name, name);
    assert_eq!(user.groups, groups, "{lines:?}");
}

#[test]
fn groups_as_the_apiserver_computes_them() {
    let account = "system:serviceaccount:ns:sa";
    check(&[user("zoe")], "zoe", &[AUTHENTICATED]);
    check(&[user("zoe"), group("b"), group("a")], "zoe", &["b", "a", AUTHENTICATED]);
    check(&[user("zoe"), group(AUTHENTICATED), group("a")], "zoe", &[AUTHENTICATED, "a"]);
    check(&[user("zoe"), group(UNAUTHENTICATED), group("a")], "zoe", &[UNAUTHENTICATED, "a"]);
    check(&[user("zoe"), group("")], "zoe", &["", AUTHENTICATED]);
    check(&[user("zoe"), group(MASTERS)], "zoe", &[MASTERS, AUTHENTICATED]);
    check(&[user(account)], account, &["system:serviceaccounts", "system:serviceaccounts:ns", AUTHENTICATED]);
    check(&[user(account), group("g")], account, &["g", AUTHENTICATED]);
    for odd in [
        "system:serviceaccount:NS:sa",
        "system:serviceaccount:a:b:c",
        "system:serviceaccount:ns:",
        "system:node:N_1",
    ] {
        check(&[user(odd)], odd, &[AUTHENTICATED]);
    }
    check(&[user("system:node:n1")], "system:node:n1", &[NODES, AUTHENTICATED]);
    check(&[user("system:node:n1"), group("g")], "system:node:n1", &["g", AUTHENTICATED]);
    check(&[user("system:node:n1"), ("impersonate-uid", "u")], "system:node:n1", &[AUTHENTICATED]);
    check(&[user(ANONYMOUS)], ANONYMOUS, &[UNAUTHENTICATED]);
    check(&[user(ANONYMOUS), group("g")], ANONYMOUS, &["g", UNAUTHENTICATED]);
    check(&[user(ANONYMOUS), group(AUTHENTICATED)], ANONYMOUS, &[AUTHENTICATED, UNAUTHENTICATED]);
    check(&[user("a1"), user("b1")], "a1", &[AUTHENTICATED]);
}

#[test]
fn all_of_the_user_is_read() {
    let lines = [
        user("zoe"),
        ("impersonate-uid", "u"),
        ("impersonate-extra-A%2fB", "x"),
        ("impersonate-extra-a%2fb", "y"),
    ];
    let zoe = impersonated(&headers(&lines), &master("admin"), &OldWay::new()).expect("a user");
    assert_eq!((zoe.uid.as_str(), zoe.extra), ("u", vec![("a/b".into(), vec!["x".into(), "y".into()])]));
}

#[test]
fn nobody_is_impersonated_without_a_name_or_without_being_a_master() {
    let nobody = |lines: &[(&str, &str)], by: &Identity| {
        assert_eq!(impersonated(&headers(lines), by, &OldWay::new()), None, "{lines:?}");
    };
    nobody(&[], &master("admin"));
    nobody(&[user("")], &master("admin"));
    nobody(&[user(""), user("zoe")], &master("admin"));
    nobody(&[group("g")], &master("admin"));
    nobody(&[("impersonate-uid", "u"), ("impersonate-extra-a", "b")], &master("admin"));
    nobody(
        &[user("zoe")],
        &Identity { name: "admin".into(), groups: vec![AUTHENTICATED.into()], ..Identity::default() },
    );
    let mut opaque = headers(&[user("zoe")]);
    opaque.insert("impersonate-group", HeaderValue::from_bytes(b"\xff").expect("opaque"));
    assert_eq!(impersonated(&opaque, &master("admin"), &OldWay::new()), None);
}

#[test]
fn once_the_old_way_was_needed_a_requestors_nodes_have_no_group() {
    let node = headers(&[user("system:node:n1")]);
    for needs_it in [
        vec![user("system:serviceaccount:ns:sa"), group("g")],
        vec![user("system:node:n1"), group("g")],
        vec![user("zoe"), group(MASTERS)],
        vec![user("zoe"), group("")],
        vec![user("zoe"), ("impersonate-extra-plain", "v")],
        vec![user("zoe"), ("impersonate-extra-acme.io%2ffoo", "")],
    ] {
        let old_way = OldWay::new();
        let groups = |by: &str| impersonated(&node, &master(by), &old_way).expect("a node").groups;
        assert_eq!(groups("admin"), [NODES, AUTHENTICATED]);
        impersonated(&headers(&needs_it), &master("admin"), &old_way);
        assert_eq!(groups("admin"), [AUTHENTICATED], "{needs_it:?}");
        assert_eq!(groups("root2"), [NODES, AUTHENTICATED], "another requestor");
    }
}

#[test]
fn what_the_constrained_ways_take_leaves_no_trace() {
    let old_way = OldWay::new();
    for fine in [
        vec![user("zoe"), group("g"), ("impersonate-uid", "u"), ("impersonate-extra-acme.io%2ffoo", "v")],
        vec![user("system:serviceaccount:ns:sa")],
        vec![user("system:node:N_1"), group("g")],
    ] {
        impersonated(&headers(&fine), &master("admin"), &old_way);
        assert!(!old_way.holds("admin"), "{fine:?}");
    }
}

proptest! {
    #[test]
    fn never_panics(name in "[a-z:.*é-]{0,20}", key in "[a-z%0-9f/-]{0,10}", value in "\\PC{0,8}") {
        let name = HeaderValue::from_bytes(name.as_bytes()).expect("a value");
        let value = HeaderValue::from_bytes(value.as_bytes()).expect("a value");
        let mut map = HeaderMap::new();
        map.insert("impersonate-user", name);
        if let Ok(key) = HeaderName::try_from(format!("impersonate-extra-{key}")) {
            map.insert(key, value);
        }
        let _ = impersonated(&map, &master("admin"), &OldWay::new());
    }
}
