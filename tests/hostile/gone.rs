//! Clients that go away: while they wait, while they are served, in both versions of HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;

use crate::raw::Raw;
use crate::upstream::Upstream;
use crate::usher::{Setup, Usher, until};

const HOLD: &str = "/api/v1/namespaces/default/configmaps/hold";

#[test]
fn gone_while_waiting_over_http1() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let mut seated = usher.connect();
    seated.get(HOLD, "alice");
    until("the first is served", || upstream.held() == 1);
    let mut waiting = usher.connect();
    waiting.get(HOLD, "alice");
    usher.until_waiting(1.0);
    waiting.vanish();
    usher.until_waiting(0.0);
    let cancelled = usher.metric("apiserver_flowcontrol_rejected_requests_total", "reason=\"cancelled\"");
    assert!((cancelled - 1.0).abs() < 0.5, "{cancelled}");
    upstream.release(1);
    assert_eq!(seated.answer().expect("served").status, 200);
    assert_eq!(upstream.held(), 1, "the one that left never ran");
    usher.all_seats_are_back();
}

#[test]
fn gone_while_executing_over_http1() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let mut seated = usher.connect();
    seated.get(HOLD, "alice");
    until("it is served", || upstream.held() == 1);
    seated.vanish();
    usher.all_seats_are_back();
    // The seat serves the next one although the upstream still holds the first.
    let mut next = usher.connect();
    next.get("/api/v1/namespaces/default/configmaps/free", "alice");
    assert_eq!(next.answer().expect("served").status, 200);
    usher.all_seats_are_back();
}

#[test]
fn gone_with_half_a_request_body() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let mut client = usher.connect();
    let head = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: usher\r\nAuthorization: Bearer alice\r\nContent-Length: 1000\r\n\r\nhalf";
    client.send(head).expect("usher reads");
    usher.until_executing(1.0);
    client.vanish();
    usher.all_seats_are_back();
}

/// Bytes of a body that are more than usher takes ahead and less than its kernel does.
const BEHIND: usize = 100 * 1024;
/// More than both, and what the client's kernel takes of it.
const FAR_BEHIND: usize = 64 << 20;

/// A write of so many bytes that waits for its seat, and what it could send of it.
fn waiting_write(usher: &Usher, bytes: usize) -> Raw {
    let mut client = usher.connect();
    let head = format!(
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: usher\r\nAuthorization: Bearer alice\r\nContent-Length: {}\r\n\r\n",
        bytes + 1
    );
    client.send(head).expect("usher reads");
    usher.until_waiting(1.0);
    let all = client.push(vec![b'x'; bytes]);
    assert_eq!(all, bytes == BEHIND, "the window is open, or shut");
    client
}

#[test]
fn gone_behind_bytes_that_nobody_reads() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let mut seated = usher.connect();
    seated.get(HOLD, "alice");
    until("the first is served", || upstream.held() == 1);
    // Receiving has stopped. What the kernel has is seen all the same: an end behind bytes, and a reset at any time.
    waiting_write(&usher, BEHIND).vanish();
    usher.until_waiting(0.0);
    waiting_write(&usher, FAR_BEHIND).abort();
    usher.until_waiting(0.0);
    let cancelled = usher.metric("apiserver_flowcontrol_rejected_requests_total", "reason=\"cancelled\"");
    assert!((cancelled - 2.0).abs() < 0.5, "{cancelled}");
    upstream.release(1);
    assert_eq!(seated.answer().expect("served").status, 200);
    assert_eq!(upstream.held(), 1, "those that left never ran");
    usher.all_seats_are_back();
}

/// An end that the client's kernel cannot send, because the window before it is shut, nobody can see. Until its turn
/// comes the request waits, as long as any may; then its body is read, and with the window the end comes.
#[test]
fn gone_behind_a_shut_window_ends_with_its_turn() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    for _ in 0..2 {
        let mut seated = usher.connect();
        seated.get(HOLD, "alice");
        usher.until_executing(1.0);
        let _half_closed = waiting_write(&usher, FAR_BEHIND).half_close();
        usher.until_waiting(1.0);
        upstream.release(1);
        assert_eq!(seated.answer().expect("served").status, 200);
        usher.all_seats_are_back();
    }
}

#[test]
fn gone_while_waiting_and_executing_over_http2() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let tls = usher.tls(None, &[b"h2"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut client = connect(usher.address, tls).await;
        let executing = tokio::spawn(client.send_request(request(usher.address)));
        tokio::task::spawn_blocking({
            let held = upstream.counter();
            move || until("the first is served", || held() == 1)
        })
        .await
        .expect("served");
        let waiting = tokio::spawn(client.send_request(request(usher.address)));
        // Let the connection's task send what was asked.
        let (usher, executing, waiting) = tokio::task::spawn_blocking(move || {
            usher.until_waiting(1.0);
            (usher, executing, waiting)
        })
        .await
        .expect("it waits");
        // Dropping the future resets the stream; the connection stays.
        waiting.abort();
        let usher = tokio::task::spawn_blocking(move || {
            usher.until_waiting(0.0);
            usher
        })
        .await
        .expect("it left");
        executing.abort();
        tokio::task::spawn_blocking(move || usher.all_seats_are_back()).await.expect("back");
    });
    assert_eq!(upstream.held(), 1, "the one that left never ran");
}

/// An honest HTTP/2 client.
pub(crate) async fn connect(address: SocketAddr, tls: Arc<ClientConfig>) -> http2::SendRequest<Empty<Bytes>> {
    let socket = tokio::net::TcpStream::connect(address).await.expect("usher listens");
    let name = ServerName::IpAddress(address.ip().into());
    let stream = tokio_rustls::TlsConnector::from(tls).connect(name, socket).await.expect("TLS");
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .adaptive_window(true)
        .handshake(TokioIo::new(stream))
        .await
        .expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

fn request(address: SocketAddr) -> Request<Empty<Bytes>> {
    Request::get(format!("https://{address}{HOLD}"))
        .header("authorization", "Bearer alice")
        .body(Empty::new())
        .expect("a request")
}
