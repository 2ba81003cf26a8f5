//! Request lines, targets and headers that are not what they should be.

use crate::upstream::Upstream;
use crate::usher::Setup;

/// Sends one malformed request a connection; all must be refused with one of those, none may reach the
/// upstream.
fn refused(cases: &[(&str, &[u16])]) {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    for (bytes, statuses) in cases {
        let answer = usher.connect().ask(bytes);
        assert!(statuses.contains(&answer.status), "{bytes:?} was answered {}", answer.status);
    }
    assert!(upstream.seen().is_empty(), "reached the upstream: {:?}", upstream.seen());
    usher.all_seats_are_back();
}

#[test]
fn malformed_request_lines_are_refused() {
    refused(&[
        ("GARBAGE\r\n\r\n", &[400]),
        ("GET\r\n\r\n", &[400]),
        ("GET /version\r\n\r\n", &[400]),
        ("GET /version HTTP/9.9\r\nHost: usher\r\n\r\n", &[400, 505]),
        ("GET  /version HTTP/1.1\r\nHost: usher\r\n\r\n", &[400]),
        ("G\u{1}T /version HTTP/1.1\r\nHost: usher\r\n\r\n", &[400]),
        ("\u{16}\u{3}\u{1} /version HTTP/1.1\r\nHost: usher\r\n\r\n", &[400]),
    ]);
}

#[test]
fn malformed_targets_are_refused() {
    refused(&[
        ("GET /api/v1/pods%zz HTTP/1.1\r\nHost: usher\r\nAuthorization: Bearer alice\r\n\r\n", &[400]),
        ("GET /api/v1/pods% HTTP/1.1\r\nHost: usher\r\nAuthorization: Bearer alice\r\n\r\n", &[400]),
        ("GET version HTTP/1.1\r\nHost: usher\r\n\r\n", &[400]),
        ("GET * HTTP/1.1\r\nHost: usher\r\n\r\n", &[400]),
        ("GET /vers\u{0}ion HTTP/1.1\r\nHost: usher\r\n\r\n", &[400]),
        // parity: kube-apiserver takes these.
        ("GET /a<b HTTP/1.1\r\nHost: usher\r\n\r\n", &[400]),
        ("GET /a`b HTTP/1.1\r\nHost: usher\r\n\r\n", &[400]),
        ("GET /version?a>b HTTP/1.1\r\nHost: usher\r\n\r\n", &[400]),
    ]);
}

#[test]
fn a_target_without_kind_is_our_500_as_in_kube_apiserver() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let answer = usher
        .connect()
        .ask("GET /api/v1/watch HTTP/1.1\r\nHost: usher\r\nAuthorization: Bearer alice\r\n\r\n");
    assert_eq!(answer.status, 500, "{}", answer.text());
    assert!(upstream.seen().is_empty());
    usher.all_seats_are_back();
}

#[test]
fn a_malformed_timeout_is_refused_before_admission() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let mut client = usher.connect();
    client.get("/api/v1/pods?timeout=soon", "alice");
    assert_eq!(client.answer().expect("an answer").status, 400);
    assert!(upstream.seen().is_empty());
    usher.all_seats_are_back();
}

#[test]
fn oversize_headers_are_refused() {
    let long = format!("GET /version HTTP/1.1\r\nHost: usher\r\nX-Long: {}\r\n\r\n", "x".repeat(2 << 20));
    let many: String = (0..5000).map(|number| format!("X-{number}: y\r\n")).collect();
    let many = format!("GET /version HTTP/1.1\r\nHost: usher\r\n{many}\r\n");
    let target = format!("GET /version?{} HTTP/1.1\r\nHost: usher\r\n\r\n", "q".repeat(2 << 20));
    refused(&[(&long, &[400, 431]), (&many, &[400, 431]), (&target, &[400, 414, 431])]);
}

#[test]
fn a_request_without_host_or_with_two_is_refused() {
    refused(&[
        ("GET /version HTTP/1.1\r\n\r\n", &[400]),
        ("GET /version HTTP/1.1\r\nHost: one\r\nHost: two\r\n\r\n", &[400]),
    ]);
}
