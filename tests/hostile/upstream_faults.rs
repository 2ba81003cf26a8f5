//! Upstreams that refuse, break off, or never answer.

use std::io::Write as _;
use std::net::TcpStream;

use crate::upstream::{Next, Upstream};
use crate::usher::{Setup, free_address, until};

const PATH: &str = "/api/v1/namespaces/default/configmaps/x";

#[test]
fn an_upstream_that_is_not_there_is_502_or_503_with_a_status() {
    let usher = Setup::new(free_address()).start();
    let mut client = usher.connect();
    client.get(PATH, "alice");
    let answer = client.answer().expect("an answer");
    assert!(matches!(answer.status, 502 | 503), "{}", answer.status);
    let status: serde_json::Value = serde_json::from_slice(&answer.body).expect("a metav1.Status");
    assert_eq!((&status["kind"], &status["apiVersion"]), (&"Status".into(), &"v1".into()));
    assert_eq!(status["code"], answer.status);
    usher.all_seats_are_back();
}

#[test]
fn an_upstream_that_hangs_up_before_it_answers_is_502_and_not_asked_twice() {
    let upstream = Upstream::with(|_, _, _| Ok(Next::Close));
    let usher = Setup::new(upstream.address).start();
    let mut client = usher.connect();
    let answer = client.ask(format!(
        "POST {PATH} HTTP/1.1\r\nHost: usher\r\nAuthorization: Bearer alice\r\nContent-Length: 2\r\n\r\n{{}}"
    ));
    assert_eq!(answer.status, 502, "{}", answer.text());
    assert_eq!(upstream.seen().len(), 1, "a write that may have happened is not repeated");
    usher.all_seats_are_back();
}

#[test]
fn an_upstream_that_breaks_off_in_the_body_does_not_look_complete() {
    let upstream = Upstream::with(|request, stream, _| {
        let framing = if request.target.contains("chunked") {
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
        } else {
            "Content-Length: 100\r\n\r\nhello"
        };
        write!(stream, "HTTP/1.1 200 OK\r\n{framing}")?;
        Ok(Next::Close)
    });
    let usher = Setup::new(upstream.address).start();
    for path in
        ["/api/v1/namespaces/default/configmaps/length", "/api/v1/namespaces/default/configmaps/chunked"]
    {
        let mut client = usher.connect();
        client.get(path, "alice");
        let answer = client.answer().expect("an answer");
        assert_eq!((answer.status, answer.whole), (200, false), "{path}");
        usher.all_seats_are_back();
    }
}

#[test]
fn an_upstream_that_never_answers_is_504_within_the_request_timeout() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).flag("--request-timeout=1s").start();
    let mut client = usher.connect();
    client.get("/api/v1/namespaces/default/configmaps/hold", "alice");
    let answer = client.answer().expect("an answer");
    assert_eq!(answer.status, 504, "{}", answer.text());
    let status: serde_json::Value = serde_json::from_slice(&answer.body).expect("a metav1.Status");
    assert_eq!((&status["kind"], &status["reason"]), (&"Status".into(), &"Timeout".into()));
    usher.all_seats_are_back();
}

#[test]
fn an_upstream_that_answers_nonsense_is_502() {
    for nonsense in [
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        "HTTP/1.1 OK\r\n\r\n",
    ] {
        let upstream = Upstream::with(move |_, stream: &mut TcpStream, _| {
            stream.write_all(nonsense.as_bytes())?;
            Ok(Next::Close)
        });
        let usher = Setup::new(upstream.address).start();
        let mut client = usher.connect();
        client.get(PATH, "alice");
        assert_eq!(client.answer().expect("an answer").status, 502, "{nonsense:?}");
        usher.all_seats_are_back();
    }
}

#[test]
fn an_upstream_whose_certificate_nobody_vouches_for_is_502() {
    // An upstream by TLS with an authority of its own: usher is told of another.
    let other = Setup::new(free_address()).start();
    let usher = Setup::bare()
        .flag(format!("--upstream=https://{}", other.address))
        .flag("--upstream-ca-file={folder}/ca.crt")
        .start();
    let mut client = usher.connect();
    client.get(PATH, "alice");
    assert!(matches!(client.answer().expect("an answer").status, 502 | 503));
    usher.all_seats_are_back();
}

#[test]
fn the_next_request_finds_the_upstream_again() {
    let upstream = Upstream::with(|request, stream, _| {
        if request.target.contains("break") {
            return Ok(Next::Close);
        }
        crate::upstream::answer(stream, "200 OK", "well")
    });
    let usher = Setup::new(upstream.address).start();
    for _ in 0..5 {
        let mut client = usher.connect();
        client.get("/api/v1/namespaces/default/configmaps/break", "alice");
        assert_eq!(client.answer().expect("an answer").status, 502);
        client.get(PATH, "alice");
        assert_eq!(client.answer().expect("an answer").status, 200);
    }
    usher.all_seats_are_back();
}

#[test]
fn readiness_says_that_no_upstream_is_healthy() {
    let usher = Setup::new(free_address()).start();
    until("not ready", || {
        let (status, reasons) = usher.ask_admin("/readyz?verbose").expect("it answers");
        status == 500 && reasons.contains("[-]upstream failed: no apiserver is healthy")
    });
}
