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

use crate::upstream::Upstream;
use crate::usher::{Setup, until};

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
