//! Who wins, who is refused, and what the apiserver gets to see. The table is what kube-apiserver v1.36.2 answered.

use std::net::Ipv4Addr;

use http::HeaderMap;
use rcgen::{DnType, ExtendedKeyUsagePurpose, date_time_ymd};

use super::*;
use crate::reload::Outcome;
use crate::tls::testing::{Authority, Folder, Leaf, client};

const NOW: i64 = 1_800_000_000; // 2027-01-15

struct World {
    folder: Folder,
    clients: Authority,
    fronts: Authority,
    options: Options,
}

fn world() -> World {
    let folder = Folder::new();
    let (clients, fronts) = (Authority::new("clients"), Authority::new("fronts"));
    let tokens = "tok-bob,bob,uid-bob,\"dev,ops\"\ntok-admin,root,uid-root,system:masters\n";
    let options = Options {
        client_ca_file: Some(folder.write("client-ca.crt", &clients.pem)),
        front_proxy: FrontProxyOptions {
            client_ca_file: Some(folder.write("front-ca.crt", &fronts.pem)),
            allowed_names: vec!["front-proxy-client".into()],
            ..FrontProxyOptions::default()
        },
        token_auth_file: Some(folder.write("tokens.csv", tokens)),
        service_account_key_files: vec![folder.write("sa.pub", include_str!("testdata/sa.pub"))],
        service_account_issuers: vec!["https://kubernetes.default.svc".into()],
        ..Options::default()
    };
    World { folder, clients, fronts, options }
}

fn address() -> SocketAddr {
    (Ipv4Addr::new(192, 0, 2, 7), 1234).into()
}

fn map(lines: &[(&str, &str)]) -> HeaderMap {
    let name = |name: &str| HeaderName::try_from(name).expect("a name");
    let value = |value: &str| HeaderValue::from_bytes(value.as_bytes()).expect("a value");
    lines.iter().map(|(key, text)| (name(key), value(text))).collect()
}

fn say(caller: &Caller) -> String {
    format!("{:?} {} {}", caller.handover, caller.identity.name, caller.identity.groups.join(","))
}

fn ask(authenticator: &Authenticator, leaf: Option<&Leaf>, lines: &[(&str, &str)]) -> String {
    let chain: Vec<_> = leaf.iter().map(|leaf| leaf.der.clone()).collect();
    let connection = authenticator.connection(address(), &chain, NOW);
    let headers = map(lines);
    say(&authenticator.request(&connection, &headers, headers.get("upgrade"), NOW))
}

const BOB: (&str, &str) = ("authorization", "Bearer tok-bob");
const BAD: (&str, &str) = ("authorization", "Bearer nope");
const BASIC: (&str, &str) = ("authorization", "Basic YTpi");
const ZOE: (&str, &str) = ("x-remote-user", "zoe");

const IS_ANONYMOUS: &str = "Anonymous system:anonymous system:unauthenticated";
const IS_UNAUTHORIZED: &str = "Unauthorized system:anonymous system:unauthenticated";
const IS_UNKNOWN_TOKEN: &str = "Token system:anonymous system:unauthenticated";
const IS_BOB: &str = "Token bob dev,ops,system:authenticated";
const IS_ALICE: &str = "FrontProxy alice zebra,dev,system:authenticated";

#[test]
fn the_order_of_credentials() {
    let world = world();
    let authenticator = Authenticator::new(&world.options).expect("good files");
    let alice = &world.clients.client("alice", &["zebra", "dev"]);
    let front = &world.fronts.client("front-proxy-client", &[]);
    let check = |leaf: Option<&Leaf>, lines: &[(&str, &str)], expected: &str| {
        assert_eq!(ask(&authenticator, leaf, lines), expected, "{lines:?}");
    };
    check(None, &[], IS_ANONYMOUS);
    check(None, &[BASIC], IS_ANONYMOUS);
    check(None, &[BOB], IS_BOB);
    check(None, &[BAD], IS_UNKNOWN_TOKEN);
    check(None, &[ZOE], IS_ANONYMOUS);
    check(None, &[ZOE, BOB], IS_BOB);
    check(Some(alice), &[], IS_ALICE);
    check(Some(alice), &[BOB], IS_ALICE);
    check(Some(alice), &[BAD], IS_ALICE);
    check(Some(alice), &[ZOE], IS_ALICE);
    check(Some(front), &[ZOE], "FrontProxy zoe system:authenticated");
    check(Some(front), &[ZOE, BOB], "FrontProxy zoe system:authenticated");
    check(Some(front), &[], IS_UNAUTHORIZED);
    check(Some(front), &[("x-remote-group", "g")], IS_UNAUTHORIZED);
    check(Some(front), &[BOB], IS_BOB);
    check(Some(front), &[BAD], IS_UNKNOWN_TOKEN);
    check(Some(front), &[("x-remote-user", "system:anonymous")], "FrontProxy system:anonymous ");
    let no_more = [ZOE, ("x-remote-group", "system:unauthenticated")];
    check(Some(front), &no_more, "FrontProxy zoe system:unauthenticated");
}

#[test]
fn certificates_that_nobody_vouches_for() {
    let world = world();
    let authenticator = Authenticator::new(&world.options).expect("good files");
    let made = |change: fn(&mut rcgen::CertificateParams)| {
        let mut params = client("mallory", &[MASTERS]);
        change(&mut params);
        world.clients.sign(&params)
    };
    for (leaf, why) in [
        (made(|params| params.not_after = date_time_ymd(2020, 1, 1)), "expired"),
        (made(|params| params.not_before = date_time_ymd(2040, 1, 1)), "not yet valid"),
        (
            made(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]),
            "for servers",
        ),
        (
            made(|params| params.distinguished_name.remove(DnType::CommonName).then_some(()).expect("there")),
            "nameless",
        ),
        (Authority::new("clients").client("mallory", &[MASTERS]), "unknown authority"),
        (world.fronts.client("somebody", &[]), "a front proxy of another name"),
    ] {
        assert_eq!(ask(&authenticator, Some(&leaf), &[]), IS_UNAUTHORIZED, "{why}");
        assert_eq!(ask(&authenticator, Some(&leaf), &[BASIC]), IS_UNAUTHORIZED, "{why}");
        assert_eq!(ask(&authenticator, Some(&leaf), &[ZOE]), IS_UNAUTHORIZED, "{why}");
        assert_eq!(ask(&authenticator, Some(&leaf), &[BOB, ZOE]), IS_BOB, "{why}");
        assert_eq!(ask(&authenticator, Some(&leaf), &[BAD]), IS_UNKNOWN_TOKEN, "{why}");
    }
    assert_eq!(authenticator.counts().unauthorized, 18);
}

#[test]
fn without_authorities_certificates_say_nothing() {
    let world = world();
    let alice = world.clients.client("alice", &[]);
    let authenticator = Authenticator::new(&Options::default()).expect("no files");
    assert_eq!(ask(&authenticator, Some(&alice), &[ZOE]), IS_ANONYMOUS);
    let closed =
        Authenticator::new(&Options { anonymous_auth: false, ..Options::default() }).expect("no files");
    assert_eq!(ask(&closed, None, &[]), IS_UNAUTHORIZED);
    assert_eq!(ask(&closed, None, &[BOB]), IS_UNKNOWN_TOKEN, "the apiserver may know it");
}

#[test]
fn names_that_headers_would_change_are_refused_not_changed() {
    let world = world();
    let authenticator = Authenticator::new(&world.options).expect("good files");
    let nearly = world.clients.client(" admin ", &[]);
    assert_eq!(ask(&authenticator, Some(&nearly), &[]), "Unauthorized  admin  system:authenticated");
    let nearly = world.clients.client("alice", &[" system:masters"]);
    assert!(ask(&authenticator, Some(&nearly), &[]).starts_with("Unauthorized alice"));
}

#[test]
fn a_certificate_that_ends_during_its_connection() {
    let world = world();
    let authenticator = Authenticator::new(&world.options).expect("good files");
    let mut params = client("alice", &[]);
    (params.not_before, params.not_after) = (date_time_ymd(2027, 1, 1), date_time_ymd(2028, 1, 1));
    let leaf = world.clients.sign(&params).der;
    let (begins, ends) =
        (date_time_ymd(2027, 1, 1).unix_timestamp(), date_time_ymd(2028, 1, 1).unix_timestamp());
    let connection = authenticator.connection(address(), &[leaf], begins - 2);
    let at = |now: i64| authenticator.request(&connection, &HeaderMap::new(), None, now).handover;
    assert_eq!(at(begins - 2), Handover::Unauthorized);
    assert_eq!(at(begins), Handover::FrontProxy);
    assert_eq!(at(ends), Handover::FrontProxy);
    assert_eq!(at(ends + 1), Handover::Unauthorized);
}

#[test]
fn new_authorities_are_asked_about_old_connections() {
    let world = world();
    let authenticator = Authenticator::new(&world.options).expect("good files");
    let alice = world.clients.client("alice", &[]).der;
    let connection = authenticator.connection(address(), &[alice], NOW);
    let handover = || authenticator.request(&connection, &HeaderMap::new(), None, NOW).handover;
    let check = || authenticator.reloads().iter().map(|each| each.check()).collect::<Vec<_>>();
    assert_eq!(handover(), Handover::FrontProxy);
    world.folder.write("client-ca.crt", "");
    assert!(check().iter().any(|outcome| matches!(outcome, Outcome::Refused(_))));
    assert_eq!(handover(), Handover::FrontProxy, "an empty bundle is refused, the old one stays");
    world.folder.write("client-ca.crt", Authority::new("clients").pem);
    assert!(check().contains(&Outcome::Reloaded));
    assert_eq!(handover(), Handover::Unauthorized);
    world.folder.write("client-ca.crt", &world.clients.pem);
    check();
    assert_eq!(handover(), Handover::FrontProxy);
}

const SA_TIME: i64 = 1_795_263_800;
const SA_NAME: &str = "system:serviceaccount:lab:sa";

fn sa_line() -> String {
    format!("Bearer {}", include_str!("testdata/sa-pod.token").trim())
}

#[test]
fn service_account_tokens_are_verified_once_and_forgotten_with_their_key() {
    let world = world();
    let authenticator = Authenticator::new(&world.options).expect("good files");
    let connection = authenticator.connection(address(), &[], SA_TIME);
    let headers = map(&[("authorization", &sa_line())]);
    let name = |now: i64| authenticator.request(&connection, &headers, None, now).identity.name.clone();
    for _ in 0..3 {
        assert_eq!(name(SA_TIME), SA_NAME);
    }
    let counts = authenticator.counts();
    assert_eq!((counts.tokens_verified, counts.tokens_remembered, counts.tokens_unknown), (1, 2, 0));
    assert_eq!(name(SA_TIME + 4000), ANONYMOUS, "expired");
    let other = rcgen::KeyPair::generate().expect("a key").public_key_pem();
    world.folder.write("sa.pub", other);
    authenticator.reloads().iter().for_each(|each| drop(each.check()));
    assert_eq!(name(SA_TIME), ANONYMOUS, "its key is gone");
    let jwks = || Keys::from_jwks(include_bytes!("testdata/jwks.json")).expect("keys");
    assert!(authenticator.set_fetched_keys(jwks()));
    assert!(!authenticator.set_fetched_keys(jwks()), "the same again");
    assert_eq!(name(SA_TIME), SA_NAME, "its key was fetched");
    assert!(authenticator.set_fetched_issuer("https://elsewhere".into()));
    assert_eq!(name(SA_TIME), ANONYMOUS, "not its issuer");
    assert!(authenticator.set_fetched_issuer("https://kubernetes.default.svc".into()));
    assert_eq!(name(SA_TIME), SA_NAME, "its issuer was fetched");
}

#[test]
fn a_changed_token_file_counts_at_once() {
    let world = world();
    let authenticator = Authenticator::new(&world.options).expect("good files");
    assert_eq!(ask(&authenticator, None, &[BOB]), IS_BOB);
    world.folder.write("tokens.csv", "tok-bob,bob\n");
    authenticator.reloads().iter().for_each(|each| drop(each.check()));
    assert_eq!(ask(&authenticator, None, &[BOB]), IS_BOB, "a bad file is refused");
    world.folder.write("tokens.csv", "tok-bob,robert,1\n");
    authenticator.reloads().iter().for_each(|each| drop(each.check()));
    assert_eq!(ask(&authenticator, None, &[BOB]), "Token robert system:authenticated");
}

#[test]
fn a_huge_token_is_passed_on_unread() {
    let world = world();
    let authenticator = Authenticator::new(&world.options).expect("good files");
    let huge = format!("Bearer {}", "a".repeat(TOKEN_BYTES_MAX + 1));
    for _ in 0..2 {
        assert_eq!(ask(&authenticator, None, &[("authorization", &huge)]), IS_UNKNOWN_TOKEN);
    }
    assert_eq!((authenticator.counts().tokens_unknown, authenticator.counts().tokens_remembered), (2, 0));
}

#[test]
fn a_web_socket_may_carry_its_token_as_a_protocol() {
    let world = world();
    let authenticator = Authenticator::new(&world.options).expect("good files");
    let bob = "base64url.bearer.authorization.k8s.io.dG9rLWJvYg";
    let upgrade = [("upgrade", "websocket")];
    let with = |lines: &[(&str, &str)]| ask(&authenticator, None, &[&upgrade[..], lines].concat());
    assert_eq!(with(&[("sec-websocket-protocol", &format!("{bob},x"))]), IS_BOB);
    assert_eq!(with(&[BAD, ("sec-websocket-protocol", &format!("{bob},x"))]), IS_BOB);
    assert_eq!(with(&[("sec-websocket-protocol", bob)]), IS_UNKNOWN_TOKEN, "unusable: the apiserver's 401");
    assert_eq!(with(&[("sec-websocket-protocol", "x")]), IS_ANONYMOUS);
}

#[test]
fn the_flow_follows_the_impersonated_only_for_masters() {
    let world = world();
    let authenticator = Authenticator::new(&world.options).expect("good files");
    let connection = authenticator.connection(address(), &[], NOW);
    let flow = |token: &str| {
        let headers =
            map(&[("authorization", token), ("impersonate-user", "zoe"), ("impersonate-group", "g")]);
        let caller = authenticator.request(&connection, &headers, None, NOW);
        (caller.identity.name.clone(), caller.flow.name.clone(), caller.flow.groups.join(","))
    };
    let words = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
    assert_eq!(flow("Bearer tok-admin"), words("root", "zoe", "g,system:authenticated"));
    assert_eq!(flow("Bearer tok-bob"), words("bob", "bob", "dev,ops,system:authenticated"));
    assert_eq!(flow("Bearer nope"), words(ANONYMOUS, ANONYMOUS, UNAUTHENTICATED));
}

fn rewritten(
    authenticator: &Authenticator,
    leaf: Option<&Leaf>,
    lines: &[(&str, &str)],
) -> (Vec<(String, String)>, usize) {
    let chain: Vec<_> = leaf.iter().map(|leaf| leaf.der.clone()).collect();
    let connection = authenticator.connection(address(), &chain, NOW);
    let mut headers = map(lines);
    let caller = authenticator.request(&connection, &headers, None, NOW);
    let forged = authenticator.rewrite(&connection, &caller, &mut headers);
    let text = |value: &HeaderValue| String::from_utf8(value.as_bytes().to_vec()).expect("text");
    let mut lines: Vec<_> = headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    lines.sort();
    (lines, forged)
}

fn owned(lines: &[(&str, &str)]) -> Vec<(String, String)> {
    lines.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn what_strangers_forge_is_dropped_and_counted() {
    let world = world();
    let authenticator = Authenticator::new(&world.options).expect("good files");
    let forged = [
        ZOE,
        ("x-remote-user", "again"),
        ("x-remote-group", MASTERS),
        ("x-remote-uid", "0"),
        ("x-remote-extra-scopes", "all"),
        BOB,
        ("impersonate-user", "stays"),
        ("audit-id", "kept"),
        ("x-forwarded-for", "198.51.100.1"),
        ("x-forwarded-for", "198.51.100.2, 198.51.100.3"),
    ];
    let (lines, count) = rewritten(&authenticator, None, &forged);
    assert_eq!(count, 5);
    assert_eq!(authenticator.counts().forged_lines, 5);
    let expected = [
        ("audit-id", "kept"),
        BOB,
        ("impersonate-user", "stays"),
        ("x-forwarded-for", "198.51.100.1, 198.51.100.2, 198.51.100.3, 192.0.2.7"),
    ];
    assert_eq!(lines, owned(&expected));
}

#[test]
fn a_certificate_user_is_handed_over_without_its_token() {
    let world = world();
    let authenticator = Authenticator::new(&world.options).expect("good files");
    let alice = world.clients.client("alice", &["zebra", "dev"]);
    let (lines, count) = rewritten(&authenticator, Some(&alice), &[BOB, ("x-remote-group", MASTERS)]);
    assert_eq!(count, 1, "a client certificate is no front proxy's");
    let credential =
        certificate::user(&alice.der).expect("well-formed").expect("a user").extra[0].1[0].clone();
    let expected = [
        ("x-forwarded-for", "192.0.2.7"),
        ("x-remote-extra-authentication.kubernetes.io%2fcredential-id", &credential),
        ("x-remote-group", "dev"),
        ("x-remote-group", "system:authenticated"),
        ("x-remote-group", "zebra"),
        ("x-remote-user", "alice"),
    ];
    assert_eq!(lines, owned(&expected));
}

#[test]
fn a_front_proxys_user_is_handed_on() {
    let world = world();
    let authenticator = Authenticator::new(&world.options).expect("good files");
    let front = world.fronts.client("front-proxy-client", &[]);
    let said =
        [ZOE, ("x-remote-uid", "7"), ("x-remote-group", "g"), ("x-remote-extra-acme.io%2fk", "v"), BOB];
    let (lines, count) = rewritten(&authenticator, Some(&front), &said);
    assert_eq!(count, 0);
    let expected = [
        ("x-forwarded-for", "192.0.2.7"),
        ("x-remote-extra-acme.io%2fk", "v"),
        ("x-remote-group", "g"),
        ("x-remote-group", "system:authenticated"),
        ("x-remote-uid", "7"),
        ("x-remote-user", "zoe"),
    ];
    assert_eq!(lines, owned(&expected));
}

#[test]
fn ipv4_in_ipv6_is_told_as_ipv4() {
    let mut headers = HeaderMap::new();
    let address = "[::ffff:192.0.2.7]:1".parse().expect("an address");
    append_forwarded_for(&mut headers, &connection::forwarded_for(address));
    assert_eq!(headers["x-forwarded-for"], "192.0.2.7");
}

#[test]
fn bad_options_are_named() {
    let front_proxy =
        FrontProxyOptions { group_headers: vec!["two words".into()], ..FrontProxyOptions::default() };
    let fault = Authenticator::new(&Options { front_proxy, ..Options::default() }).expect_err("no name");
    assert!(
        fault.to_string().contains("--requestheader") && fault.to_string().contains("two words"),
        "{fault}"
    );
    let missing = Options { token_auth_file: Some("/nonexistent".into()), ..Options::default() };
    assert!(Authenticator::new(&missing).expect_err("no file").to_string().contains("/nonexistent"));
}
