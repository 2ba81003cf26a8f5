//! Credentials that are wrong, forged or contradictory.

use crate::upstream::Upstream;
use crate::usher::{Authority, Setup, Usher};

fn ask(usher: &Usher, headers: &str) -> u16 {
    let head =
        format!("GET /api/v1/namespaces/default/configmaps/x HTTP/1.1\r\nHost: usher\r\n{headers}\r\n");
    usher.connect().ask(head).status
}

#[test]
fn forged_remote_user_headers_never_reach_the_upstream() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let forged = "Authorization: Bearer alice\r\nX-Remote-User: root\r\nx-remote-group: system:masters\r\nX-Remote-Extra-Scopes: all\r\nX-Remote-Uid: 0\r\n";
    assert_eq!(ask(&usher, forged), 200);
    let seen = upstream.seen();
    let heads: Vec<String> = seen.iter().map(|request| request.head.to_ascii_lowercase()).collect();
    assert_eq!(heads.len(), 1);
    assert!(
        !heads[0].contains("system:masters") && !heads[0].contains("x-remote-extra-scopes"),
        "{}",
        heads[0]
    );
    assert!(!heads[0].contains("x-remote-user: root"), "{}", heads[0]);
    let classified =
        usher.metric("apiserver_flowcontrol_dispatched_requests_total", "priority_level=\"one-seat\"");
    assert!((classified - 1.0).abs() < 0.5, "the forger paid with its own flow: {classified}");
    usher.all_seats_are_back();
}

#[test]
fn impersonation_moves_the_flow_only_for_masters() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let dispatched = |level: &str| {
        usher
            .metric("apiserver_flowcontrol_dispatched_requests_total", &format!("priority_level=\"{level}\""))
    };
    assert_eq!(
        ask(
            &usher,
            "Authorization: Bearer alice\r\nImpersonate-User: root\r\nImpersonate-Group: system:masters\r\n"
        ),
        200
    );
    assert!((dispatched("one-seat") - 1.0).abs() < 0.5, "alice pays for herself");
    assert_eq!(ask(&usher, "Authorization: Bearer master\r\nImpersonate-User: alice\r\n"), 200);
    assert!((dispatched("one-seat") - 2.0).abs() < 0.5, "a master pays as whom it impersonates");
    assert!(
        upstream.seen().iter().all(|request| request.head.to_ascii_lowercase().contains("impersonate-user:"))
    );
    usher.all_seats_are_back();
}

#[test]
fn tokens_that_cannot_be_verified_are_passed_on_unauthenticated() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    // {"alg":"none"} and {"sub":"system:serviceaccount:kube-system:root"}
    let none = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6a3ViZS1zeXN0ZW06cm9vdCJ9.";
    let long = "x".repeat(64 * 1024);
    for token in ["wrong", none, "a.b.c", "..", &long] {
        let status = ask(&usher, &format!("Authorization: Bearer {token}\r\n"));
        assert!(matches!(status, 200 | 431), "{status} for {:.40}", token);
    }
    let exempt = usher.metric("apiserver_flowcontrol_dispatched_requests_total", "priority_level=\"exempt\"");
    assert!(exempt < 0.5, "nobody got past the limits: {exempt}");
    usher.all_seats_are_back();
}

#[test]
fn certificates_out_of_time_or_of_strangers_are_no_identity() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let stranger = Authority::new("stranger");
    let masters = &["system:masters"][..];
    let cases = [
        ("expired", usher.authority().client("root", masters, -10..-1)),
        ("not yet valid", usher.authority().client("root", masters, 1..10)),
        ("unknown authority", stranger.client("root", masters, -1..10)),
    ];
    for (name, credential) in cases {
        let mut client = usher.connect_as(credential);
        let answer =
            client.ask("GET /api/v1/namespaces/default/configmaps/x HTTP/1.1\r\nHost: usher\r\n\r\n");
        assert_eq!(answer.status, 401, "{name}");
    }
    assert!(upstream.seen().is_empty());
    usher.all_seats_are_back();
}

#[test]
fn a_certificate_of_ours_is_its_user() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let credential = usher.authority().client("bob", &["system:masters"], -1..10);
    let mut client = usher.connect_as(credential);
    let answer = client.ask("GET /api/v1/namespaces/default/configmaps/x HTTP/1.1\r\nHost: usher\r\n\r\n");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let heads: Vec<String> =
        upstream.seen().iter().map(|request| request.head.to_ascii_lowercase()).collect();
    assert_eq!(heads.len(), 1);
    for line in
        ["x-remote-user: bob", "x-remote-group: system:masters", "x-remote-group: system:authenticated"]
    {
        assert!(heads[0].contains(line), "{line} is missing: {}", heads[0]);
    }
    let exempt = usher.metric("apiserver_flowcontrol_dispatched_requests_total", "priority_level=\"exempt\"");
    assert!((exempt - 1.0).abs() < 0.5, "a member of system:masters is exempt: {exempt}");
    usher.all_seats_are_back();
}
