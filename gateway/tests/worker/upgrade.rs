//! Connections that stop being HTTP.

use std::sync::Arc;

use http::{HeaderValue, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use usher::identity::{Authenticator, Options};

use crate::stub::text;
use crate::world::{World, patiently};

const EXEC: &str = "POST /api/v1/namespaces/a/pods/p/exec HTTP/1.1\r\nHost: usher\r\nConnection: Upgrade\r\n\
                    Upgrade: SPDY/3.1\r\nContent-Length: 0\r\nX-Stream-Protocol-Version: v5\r\n\
                    X-Stream-Protocol-Version: v4\r\nX-Stream-Protocol-Version: v3\r\n\
                    X-Stream-Protocol-Version: v2\r\nX-Stream-Protocol-Version: v1\r\n\r\n";

#[tokio::test]
async fn a_switched_connection_carries_bytes_both_ways_and_half_closes() {
    let mut world = World::new().await;
    let mut client = world.client().await;
    client.send(EXEC).await;
    let mut seen = world.stub.next().await;
    let headers = seen.request.headers();
    assert_eq!(headers.get_all("x-stream-protocol-version").iter().count(), 5);
    assert_eq!(
        (headers["upgrade"].as_bytes(), headers["connection"].as_bytes()),
        (&b"SPDY/3.1"[..], &b"Upgrade"[..])
    );
    let switched = hyper::upgrade::on(&mut seen.request);
    let mut response: Response<_> = text("");
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in
        [("connection", "Upgrade"), ("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", "v5")]
    {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    seen.answer(response);
    let head = client.head().await;
    assert_eq!((head.status, head.header("upgrade")), (101, Some("SPDY/3.1")));
    assert_eq!(head.header("x-stream-protocol-version"), Some("v5"));
    let mut apiserver = TokioIo::new(patiently("the switch", switched).await.unwrap());

    client.send("up").await;
    let mut read = [0; 2];
    patiently("bytes up", apiserver.read_exact(&mut read)).await.unwrap();
    assert_eq!(&read, b"up");
    client.0.shutdown().await.unwrap(); // its input is at an end
    assert_eq!(patiently("the end", apiserver.read(&mut read)).await.unwrap(), 0);
    apiserver.write_all(b"still down").await.unwrap();
    apiserver.shutdown().await.unwrap();
    assert_eq!(client.read_all().await, "still down");
    let snapshot = world.until("the tunnel to end", |snapshot| snapshot.counters.tunnels_open == 0).await;
    assert_eq!(snapshot.counters.upgrades, 1);
    world.done().await;
}

#[tokio::test]
async fn a_web_socket_is_known_by_the_token_among_its_protocols() {
    let options = Options { anonymous_auth: false, ..Options::default() };
    let authenticator = Arc::new(Authenticator::new(&options).unwrap());
    let mut world = World::with(|settings| settings.authenticator = authenticator).await;
    let mut client = world.client().await;
    let ask = |protocols: &str| {
        format!(
            "GET /api/v1/namespaces/a/pods/p/exec HTTP/1.1\r\nHost: usher\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Protocol: {protocols}\r\n\r\n"
        )
    };
    client.send(ask("v5.channel.k8s.io")).await;
    assert_eq!(client.answer().await.status, 401, "nobody may be nobody here");
    // A token that only the apiserver knows: it is asked, and sees what the client sent.
    let protocols = "base64url.bearer.authorization.k8s.io.dG9rLWJvYg, v5.channel.k8s.io";
    client.send(ask(protocols)).await;
    let seen = world.stub.next().await;
    assert_eq!(seen.request.headers()["sec-websocket-protocol"], protocols);
    seen.answer(text("no such pod"));
    assert_eq!(client.answer().await.status, 200);
    world.done().await;
}

#[tokio::test]
async fn a_refused_switch_is_an_ordinary_answer() {
    let mut world = World::new().await;
    let mut client = world.client().await;
    client.send(EXEC).await;
    let mut response = text("no such pod");
    *response.status_mut() = StatusCode::NOT_FOUND;
    world.stub.next().await.answer(response);
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.body.as_str()), (404, "no such pod"));
    world.done().await;
}
