//! Slow peers hurt only themselves.

use std::io::Write as _;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;

use crate::upstream::{Next, Upstream};
use crate::usher::{PATIENCE, Setup, Usher, until};

#[test]
fn slow_headers_time_out_without_a_seat() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).flag("--header-timeout=1s").start();
    let mut slow = usher.connect();
    slow.send("GET /api/v1/pods HTTP/1.1\r\nHost: us").expect("usher reads");
    assert_eq!(usher.occupied(), [0.0; 3], "a head that is not there yet holds nothing");
    // It ends by itself, within the limit that the flag names (and the patience of the test).
    let said = String::from_utf8_lossy(&slow.until_closed()).into_owned();
    assert!(
        said.is_empty() || said.starts_with("HTTP/1.1 408") || said.starts_with("HTTP/1.1 400"),
        "{said}"
    );
    usher.all_seats_are_back();
}

#[test]
fn a_handshake_that_never_comes_times_out() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).flag("--handshake-timeout=1s").start();
    let mut socket = std::net::TcpStream::connect(usher.address).expect("usher listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let mut said = Vec::new();
    std::io::Read::read_to_end(&mut socket, &mut said).expect("it hangs up");
    usher.all_seats_are_back();
}

#[test]
fn silent_strangers_take_no_turn_for_a_handshake_from_others() {
    let upstream = Upstream::start();
    let usher =
        Setup::new(upstream.address).flag("--max-handshakes=1").flag("--handshake-timeout=1h").start();
    let silent: Vec<_> =
        (0..8).map(|_| std::net::TcpStream::connect(usher.address).expect("usher listens")).collect();
    let mut client = usher.connect();
    client.get("/api/v1/namespaces/default/configmaps/x", "alice");
    assert_eq!(client.answer().expect("served").status, 200);
    drop(silent);
    usher.all_seats_are_back();
}

#[test]
fn a_slow_body_holds_its_own_seat_only_until_the_request_timeout() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).flag("--request-timeout=2s").start();
    let mut slow = usher.connect();
    let head = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: usher\r\nAuthorization: Bearer alice\r\nContent-Length: 1000\r\n\r\nslow";
    slow.send(head).expect("usher reads");
    usher.until_executing(1.0);
    let answer = slow.answer().expect("an answer");
    assert!(matches!(answer.status, 408 | 504), "{}", answer.status);
    usher.all_seats_are_back();
}

#[test]
fn a_client_that_does_not_read_hurts_nobody_else() {
    let upstream = Upstream::with(|request, stream, _| {
        if !request.target.contains("large") {
            return crate::upstream::answer(stream, "200 OK", "small");
        }
        const LARGE: usize = 48 << 20;
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n")?;
        let block = vec![b'x'; 1 << 20];
        for _ in 0..LARGE >> 20 {
            stream.write_all(&block)?;
        }
        Ok(Next::Keep)
    });
    let usher = Setup::new(upstream.address).start();
    let mut slow = usher.connect();
    slow.get("/api/v1/namespaces/default/configmaps/large", "alice");
    usher.until_executing(1.0);
    // Another level is served all the while.
    for _ in 0..50 {
        let mut master = usher.connect();
        master.get("/api/v1/namespaces/default/configmaps/small", "master");
        assert_eq!(master.answer().expect("served").status, 200);
    }
    // And the slow one gets all of its answer as soon as it reads.
    let answer = slow.answer().expect("an answer");
    assert!(answer.whole && answer.body.len() == 48 << 20, "{} bytes", answer.body.len());
    usher.all_seats_are_back();
}

/// Endless answers for `large`.
fn torrent() -> Upstream {
    Upstream::with(|request, stream, _| {
        if !request.target.contains("large") {
            return crate::upstream::answer(stream, "200 OK", "small");
        }
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1_u64 << 40)?;
        let block = vec![b'x'; 1 << 16];
        loop {
            stream.write_all(&block)?;
        }
    })
}

#[test]
fn readers_who_do_not_read_leave_the_seats_of_their_level_to_others() {
    let upstream = torrent();
    let usher = Setup::new(upstream.address)
        .flag("--slow-reader-grace=200ms")
        .flag("--stalled-streams-max=4")
        .start();
    let mut slow = Vec::new();
    for number in 0..8 {
        let mut client = usher.connect();
        client.get("/api/v1/namespaces/default/configmaps/large", "alice");
        slow.push(client);
        until("its seat is free again", || {
            usher.metric("usher_seats_released_for_stalled_total", "") > f64::from(number) + 0.5
        });
        let mut other = usher.connect();
        other.get("/api/v1/namespaces/default/configmaps/small", "alice");
        assert_eq!(other.answer().expect("served").status, 200);
    }
    until("all but four are cut", || usher.metric("usher_stalled_cut_total", "streams") > 3.5);
    until("four are left", || (usher.metric("usher_stalled_responses", "") - 4.0).abs() < 0.5);
    assert_eq!(usher.occupied(), [0.0; 3]);
    drop(slow);
    until("none is left", || usher.metric("usher_stalled_responses", "") < 0.5);
    usher.all_seats_are_back();
}

#[test]
fn streams_that_nobody_reads_leave_their_seats_and_the_slowest_is_reset() {
    let upstream = torrent();
    let usher = Setup::new(upstream.address)
        .flag("--slow-reader-grace=200ms")
        .flag("--stalled-streams-max=2")
        .start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("threads");
    let client = runtime.block_on(connect2(&usher));
    let ask = |target: &str| {
        let request =
            http::Request::get(format!("https://usher/api/v1/namespaces/default/configmaps/{target}"))
                .header("authorization", "Bearer alice")
                .body(Empty::<Bytes>::new())
                .expect("a request");
        runtime.block_on(client.clone().send_request(request)).expect("an answer")
    };
    let mut slow = Vec::new();
    for number in 0..4 {
        slow.push(ask("large")); // all on one connection, which goes on
        until("its seat is free again", || {
            usher.metric("usher_seats_released_for_stalled_total", "") > f64::from(number) + 0.5
        });
        assert_eq!(ask("small").status(), 200);
    }
    until("two are cut", || usher.metric("usher_stalled_cut_total", "streams") > 1.5);
    // The first of them learns it behind what it had been sent before.
    let first = slow.remove(0).into_body().collect();
    assert!(runtime.block_on(first).is_err(), "reset");
    assert_eq!(ask("small").status(), 200);
    drop((slow, runtime));
    usher.all_seats_are_back();
}

/// An HTTP/2 connection.
async fn connect2(usher: &Usher) -> http2::SendRequest<Empty<Bytes>> {
    let socket = tokio::net::TcpStream::connect(usher.address).await.expect("usher listens");
    let name = ServerName::IpAddress(usher.address.ip().into());
    let stream = TlsConnector::from(usher.tls(None, &[b"h2"])).connect(name, socket).await.expect("TLS");
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

#[test]
fn waiting_has_an_end() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).flag("--request-timeout=4s").start();
    let mut seated = usher.connect();
    seated.get("/api/v1/namespaces/default/configmaps/hold", "alice");
    until("the first is served", || upstream.held() == 1);
    let mut waiting = usher.connect();
    waiting.get("/api/v1/namespaces/default/configmaps/other", "alice");
    usher.until_waiting(1.0);
    let answer = waiting.answer().expect("an answer");
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")), "{}", answer.text());
    assert_eq!(answer.text(), "Too many requests, please try again later.\n");
    upstream.release(1);
    assert_eq!(seated.answer().expect("served").status, 200);
    usher.all_seats_are_back();
}

#[test]
fn a_full_queue_is_told_to_come_back() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let mut clients = Vec::new();
    for number in 0..3 {
        let mut client = usher.connect();
        client.get("/api/v1/namespaces/default/configmaps/hold", "alice");
        if number == 0 {
            until("the first is served", || upstream.held() == 1);
        } else {
            usher.until_waiting(f64::from(number));
        }
        clients.push(client);
    }
    let mut refused = usher.connect();
    refused.get("/api/v1/namespaces/default/configmaps/hold", "alice");
    let answer = refused.answer().expect("an answer");
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")));
    assert_eq!(
        answer.header("x-kubernetes-pf-prioritylevel-uid"),
        Some("11111111-1111-1111-1111-111111111111")
    );
    assert_eq!(answer.header("x-kubernetes-pf-flowschema-uid"), Some("22222222-2222-2222-2222-222222222222"));
    upstream.release(3);
    for client in &mut clients {
        assert_eq!(client.answer().expect("served").status, 200);
    }
    usher.all_seats_are_back();
}
