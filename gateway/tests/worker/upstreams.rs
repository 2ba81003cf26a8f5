//! Towards apiservers: which connection a request goes over, and where it goes when one is away.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use usher::identity::{Authenticator, Options};
use usher::tls;
use usher::upstream::{self, Http2, Server};
use usher::worker::AdmissionSettings;
use usher_flowcontrol::units::Seats;

use crate::stub::{Body, Pen, open, text};
use crate::world::{Client, World, get, get2, patiently, post2};

/// What an apiserver over TLS saw of a request.
struct Arrived {
    connection: usize,
    version: Version,
    /// Whether its connection came with a client certificate.
    certificate: bool,
    remote_user: Option<String>,
    pen: Pen,
}

/// A watch of somebody who is known.
pub(crate) const WATCH: &str =
    "GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: usher\r\nAuthorization: Bearer secret\r\n\r\n";

/// Certificates in a folder: `ca.crt`, and `NAME.crt` with `NAME.key` for each name.
pub(crate) fn certificates(folder: &Path, names: &[&str]) {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.distinguished_name.push(DnType::CommonName, "the test's authority");
    std::fs::write(folder.join("ca.crt"), ca.self_signed(&ca_key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(ca, ca_key);
    for name in names {
        let key = KeyPair::generate().unwrap();
        let mut leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        leaf.distinguished_name = rcgen::DistinguishedName::new();
        leaf.distinguished_name.push(DnType::CommonName, *name);
        std::fs::write(folder.join(format!("{name}.crt")), leaf.signed_by(&key, &issuer).unwrap().pem())
            .unwrap();
        std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

/// Where an apiserver over TLS listens, with the certificates in `folder`.
pub(crate) async fn secure_listener(folder: &Path) -> (Server, TcpListener, TlsAcceptor) {
    let files = tls::ServerFiles {
        certificate: folder.join("server.crt"),
        private_key: folder.join("server.key"),
        client_ca: Some(folder.join("ca.crt")),
        requestheader_client_ca: None,
    };
    let config = tls::Server::new(files).unwrap().current();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    (server, listener, TlsAcceptor::from(config))
}

/// An apiserver over TLS that keeps every answer open, two streams to an HTTP/2 connection.
async fn secure_stub(folder: &Path) -> (Server, mpsc::UnboundedReceiver<Arrived>) {
    let (server, listener, acceptor) = secure_listener(folder).await;
    let (sender, arrived) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let connections = AtomicUsize::new(0);
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let connection = connections.fetch_add(1, Ordering::Relaxed);
            let (acceptor, sender) = (acceptor.clone(), sender.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let session = stream.get_ref().1;
                let certificate = session.peer_certificates().is_some();
                let is_http2 = session.alpn_protocol() == Some(b"h2");
                let service = service_fn(move |request| {
                    std::future::ready(arrive(&sender, connection, certificate, &request))
                });
                if is_http2 {
                    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = builder
                        .max_concurrent_streams(2)
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                } else {
                    let builder = hyper::server::conn::http1::Builder::new();
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                }
            });
        }
    });
    (server, arrived)
}

fn arrive(
    sender: &mpsc::UnboundedSender<Arrived>,
    connection: usize,
    certificate: bool,
    request: &Request<Incoming>,
) -> Result<Response<Body>, std::convert::Infallible> {
    if request.uri().path() == "/readyz" {
        return Ok(text("ok"));
    }
    let remote_user = request.headers().get("x-remote-user").map(|user| user.to_str().unwrap().to_owned());
    let (pen, response) = open();
    let version = request.version();
    let _ = sender.send(Arrived { connection, version, certificate, remote_user, pen });
    Ok(response)
}

async fn next(arrived: &mut mpsc::UnboundedReceiver<Arrived>) -> Arrived {
    patiently("a request to arrive", arrived.recv()).await.unwrap()
}

fn client_files(folder: &Path) -> tls::ClientFiles {
    tls::ClientFiles {
        ca: folder.join("ca.crt"),
        proxy_client: Some((folder.join("proxy.crt"), folder.join("proxy.key"))),
        server_name: None,
    }
}

/// A worker that knows Alice, in front of an apiserver over TLS.
async fn secure_world(folder: &Path, http2: Http2) -> (World, mpsc::UnboundedReceiver<Arrived>) {
    certificates(folder, &["server", "proxy"]);
    let (server, arrived) = secure_stub(folder).await;
    (world_before(server, folder, http2).await, arrived)
}

/// A worker that knows Alice, in front of this apiserver.
pub(crate) async fn world_before(server: Server, folder: &Path, http2: Http2) -> World {
    let tls = Arc::new(tls::Client::new(client_files(folder)).unwrap());
    let tokens = folder.join("tokens.csv");
    std::fs::write(&tokens, "secret,alice,1\n").unwrap();
    let options = Options { token_auth_file: Some(tokens), ..Options::default() };
    let authenticator = Arc::new(Authenticator::new(&options).unwrap());
    World::with(|settings| {
        settings.authenticator = authenticator;
        settings.upstream = upstream::Settings::new(vec![server], Some(tls));
        settings.upstream.http2 = http2;
        settings.watch_quiet = Duration::from_millis(1);
        settings.admission = AdmissionSettings::FlowControl { server_limit: Seats(100), together: None };
    })
    .await
}

#[tokio::test]
async fn short_requests_share_http2_connections_if_told_to_but_for_those_of_strangers() {
    let folder = tempfile::tempdir().unwrap();
    let (world, mut arrived) = secure_world(folder.path(), Http2::All).await;
    let mut connections = Vec::new();
    let mut seen = Vec::new();
    for request in
        [WATCH, &WATCH.replace("?watch=1", ""), &WATCH.replace("GET /api/v1/pods?watch=1", "DELETE /x")]
    {
        let mut client = world.client().await;
        client.send(request).await;
        let short = next(&mut arrived).await;
        assert_eq!(short.version, Version::HTTP_2, "{request}");
        connections.push(short.connection);
        seen.push((client, short));
    }
    assert_eq!(connections[0], connections[1], "two streams to a connection");
    assert_ne!(connections[0], connections[2], "and no third");
    let mut stranger = world.client().await;
    stranger.send(get("/api/v1/pods")).await;
    assert_eq!(next(&mut arrived).await.version, Version::HTTP_11);
    for (mut client, short) in seen {
        drop(short.pen);
        assert_eq!(client.answer().await.status, 200);
    }
    drop(stranger);
    world.done().await;
}

#[tokio::test]
async fn reads_of_http2_clients_share_http2_connections_if_told_to_and_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let (world, mut arrived) = secure_world(folder.path(), Http2::Reads).await;
    let mut client = world.client2().await;
    let reads = (get2("/api/v1/pods"), Version::HTTP_2);
    let write = (post2("/api/v1/namespaces/a/pods", b"{}".to_vec()), Version::HTTP_11);
    for (mut request, version) in [reads, write] {
        request.headers_mut().insert(AUTHORIZATION, HeaderValue::from_static("Bearer secret"));
        let answer = tokio::spawn(client.send_request(request));
        let seen = next(&mut arrived).await;
        assert_eq!(seen.version, version);
        drop(seen.pen);
        assert_eq!(answer.await.unwrap().unwrap().status(), 200);
    }
    let mut over_http1 = world.client().await;
    over_http1.send(&WATCH.replace("?watch=1", "")).await;
    let seen = next(&mut arrived).await;
    assert_eq!(seen.version, Version::HTTP_11, "a read over HTTP/1.1");
    drop(seen.pen);
    assert_eq!(over_http1.answer().await.status, 200);
    drop(client);
    world.done().await;
}

#[tokio::test]
async fn watches_share_http2_connections_and_short_requests_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let (world, mut arrived) = secure_world(folder.path(), Http2::Watches).await;
    let mut watchers = Vec::new();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let mut watcher = world.client().await;
        watcher.send(WATCH).await;
        seen.push(next(&mut arrived).await);
        assert_eq!(watcher.head().await.status, 200);
        watchers.push(watcher);
    }
    assert!(seen.iter().all(|watch| watch.version == Version::HTTP_2 && !watch.certificate));
    assert_eq!(seen[0].connection, seen[1].connection, "two streams to a connection");
    assert_ne!(seen[0].connection, seen[2].connection, "and no third");
    seen[1].pen.write("{}\n");
    watchers[1].read_until("{}\n\r\n").await;

    let mut client = world.client().await;
    let mut used = Vec::new();
    for _ in 0..2 {
        client.send(get("/api/v1/pods")).await;
        let short = next(&mut arrived).await;
        assert_eq!(short.version, Version::HTTP_11);
        used.push(short.connection);
        drop(short.pen);
        assert_eq!(client.answer().await.status, 200);
    }
    assert_eq!(used[0], used[1], "used again");

    drop(watchers.remove(0)); // a client that leaves makes room on its connection
    seen[0].pen.abandoned().await;
    let mut another = world.client().await;
    another.send(WATCH).await;
    assert_eq!(next(&mut arrived).await.connection, seen[1].connection);

    // Many at once share connections as well.
    let mut herd = Vec::new();
    for _ in 0..12 {
        let mut watcher = world.client().await;
        watcher.send(WATCH).await;
        herd.push(watcher);
    }
    let mut connections = std::collections::BTreeMap::new();
    for _ in 0..herd.len() {
        let watch = next(&mut arrived).await;
        *connections.entry(watch.connection).or_insert(0) += 1;
        seen.push(watch); // keeps it open
    }
    assert!(connections.len() <= 9 && connections.values().all(|streams| *streams <= 2), "{connections:?}");

    let mut stranger = world.client().await; // who would make kube-apiserver end the connection
    stranger.send(get("/api/v1/pods?watch=1")).await;
    assert_eq!(next(&mut arrived).await.version, Version::HTTP_11);
    world.done().await;
}

#[tokio::test]
async fn only_who_is_vouched_for_goes_with_the_front_proxy_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    certificates(folder.path(), &["server", "proxy", "alice"]);
    let (server, mut arrived) = secure_stub(folder.path()).await;
    let upstream_tls = Arc::new(tls::Client::new(client_files(folder.path())).unwrap());
    let serving = tls::ServerFiles {
        certificate: file("server.crt"),
        private_key: file("server.key"),
        client_ca: Some(file("ca.crt")),
        requestheader_client_ca: None,
    };
    let serving = Arc::new(tls::Server::new(serving).unwrap());
    let options = Options { client_ca_file: Some(file("ca.crt")), ..Options::default() };
    let authenticator = Arc::new(Authenticator::new(&options).unwrap());
    let world = World::with(|settings| {
        settings.authenticator = authenticator;
        settings.listeners[0].tls = Some(serving);
        settings.upstream = upstream::Settings::new(vec![server], Some(upstream_tls));
    })
    .await;
    let presents = |pair: Option<&str>| tls::ClientFiles {
        ca: file("ca.crt"),
        proxy_client: pair.map(|name| (file(&format!("{name}.crt")), file(&format!("{name}.key")))),
        server_name: None,
    };
    let request =
        "GET /version HTTP/1.1\r\nHost: usher\r\nX-Remote-User: forged\r\nConnection: close\r\n\r\n";
    for (certificate, expected) in [(Some("alice"), Some("alice")), (None, None)] {
        let config = tls::Client::new(presents(certificate)).unwrap();
        let kind = if certificate.is_some() { tls::Presents::FrontProxy } else { tls::Presents::Nothing };
        let config = config.current(kind, tls::Protocol::Http1).unwrap();
        let Client(stream) = world.client().await;
        let name = "127.0.0.1".try_into().unwrap();
        let mut stream = tokio_rustls::TlsConnector::from(config).connect(name, stream).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
        let seen = next(&mut arrived).await;
        assert_eq!((seen.certificate, seen.remote_user.as_deref()), (expected.is_some(), expected));
        drop(seen.pen);
        let mut answer = String::new();
        let read = tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut answer);
        patiently("the answer", read).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert_eq!(world.counters().await.forged_identity_lines, 2);
    world.done().await;
}

#[tokio::test]
async fn a_request_that_was_not_sent_goes_to_another_apiserver_with_its_body() {
    let away = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody: Server = format!("http://{}", away.local_addr().unwrap()).parse().unwrap();
    drop(away);
    let mut world = World::with(|settings| {
        settings.upstream.servers.insert(0, nobody.clone());
        settings.upstream.servers.push(nobody);
    })
    .await;
    let mut client = world.client().await;
    for _ in 0..3 {
        client.send("POST /x HTTP/1.1\r\nHost: usher\r\nContent-Length: 4\r\n\r\nbody").await;
        let mut seen = world.stub.next().await;
        assert_eq!(seen.read().await.0, "body");
        seen.answer(text("here"));
        assert_eq!(client.answer().await.body, "here");
    }
    let healthy = |snapshot: &usher::worker::Snapshot| {
        snapshot.upstreams.iter().filter(|upstream| upstream.healthy).count()
    };
    let snapshot = world.until("health to be known", |snapshot| healthy(snapshot) == 1).await;
    assert_eq!(snapshot.upstreams.len(), 3);
    world.done().await;
}

#[tokio::test]
async fn an_apiserver_with_a_strange_certificate_gets_nothing() {
    let (folder, strange) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    certificates(folder.path(), &["proxy"]);
    certificates(strange.path(), &["server"]);
    let (server, mut arrived) = secure_stub(strange.path()).await;
    let tls = Arc::new(tls::Client::new(client_files(folder.path())).unwrap());
    let world =
        World::with(|settings| settings.upstream = upstream::Settings::new(vec![server], Some(tls))).await;
    let mut client = world.client().await;
    client.send(get("/x")).await;
    assert_eq!(client.answer().await.status, 503);
    assert!(arrived.try_recv().is_err());
    assert_eq!(world.counters().await.upstream_unavailable, 1);
    world.done().await;
}

#[tokio::test]
async fn a_connection_that_the_apiserver_has_closed_is_not_used_again() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server: Server = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let (sender, mut answered) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut read = vec![0; 4096];
            let length = stream.read(&mut read).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
            if !read[..length].starts_with(b"GET /readyz") {
                let _ = sender.send(());
            } // and closes without a word
        }
    });
    let world = World::with(|settings| settings.upstream = upstream::Settings::new(vec![server], None)).await;
    let mut client = world.client().await;
    for _ in 0..20 {
        client.send("POST /x HTTP/1.1\r\nHost: usher\r\nContent-Length: 0\r\n\r\n").await;
        patiently("an answer up there", answered.recv()).await.unwrap();
        assert_eq!(client.answer().await.body, "ok");
        let closed = |snapshot: &usher::worker::Snapshot| snapshot.upstreams[0].http1_idle == 0;
        world.until("the connection to be known as closed", closed).await;
    }
    world.done().await;
}
