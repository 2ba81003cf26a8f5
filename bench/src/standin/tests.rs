//! The stand-in answers as a client of the real API expects, where it answers at all.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::{Manner, Standin};

async fn standin() -> Standin {
    let manner = Manner { service_time: Duration::ZERO, concurrency: 4, namespaces: 2, pods: 3, nodes: 2 };
    Standin::start(manner).await.expect("loopback has a free port")
}

async fn ask(
    standin: &Standin,
    method: Method,
    path: &str,
    body: Value,
) -> (StatusCode, hyper::body::Incoming) {
    let stream = TcpStream::connect(standin.address).await.expect("it listens");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("it speaks HTTP/1.1");
    tokio::spawn(connection);
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "standin")
        .body(Full::new(body))
        .expect("a request");
    let response = sender.send_request(request).await.expect("it answers");
    (response.status(), response.into_body())
}

async fn read(standin: &Standin, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
    let (status, body) = ask(standin, method, path, body).await;
    let bytes = body.collect().await.expect("a whole body").to_bytes();
    (status, serde_json::from_slice(&bytes).expect("JSON"))
}

#[tokio::test]
async fn lists_know_namespaces() {
    let standin = standin().await;
    let (_, all) = read(&standin, Method::GET, "/api/v1/pods", Value::Null).await;
    let (_, one) = read(&standin, Method::GET, "/api/v1/namespaces/team-1/pods", Value::Null).await;
    assert_eq!(
        (all["items"].as_array().map(Vec::len), one["items"].as_array().map(Vec::len)),
        (Some(6), Some(3))
    );
    assert_eq!(all["kind"], "PodList");
}

#[tokio::test]
async fn a_write_is_seen_by_a_watch() {
    let standin = standin().await;
    let (status, mut events) =
        ask(&standin, Method::GET, "/api/v1/namespaces/team-0/configmaps?watch=1", Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    let made = json!({"metadata": {"name": "new"}, "data": {"a": "1"}});
    let (status, _) =
        read(&standin, Method::POST, "/api/v1/namespaces/team-0/configmaps", made.clone()).await;
    assert_eq!(status, StatusCode::CREATED);
    let (status, _) = read(&standin, Method::POST, "/api/v1/namespaces/team-0/configmaps", made).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let patch = json!({"data": {"b": "2"}});
    let (_, patched) = read(&standin, Method::PATCH, "/api/v1/namespaces/team-0/configmaps/new", patch).await;
    assert_eq!(patched["data"], json!({"a": "1", "b": "2"}));
    for expected in ["ADDED", "MODIFIED"] {
        let frame =
            events.frame().await.expect("the watch goes on").expect("whole").into_data().expect("data");
        let event: Value = serde_json::from_slice(&frame).expect("one JSON line");
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!(expected), &json!("new")));
    }
}

#[tokio::test]
async fn what_it_does_not_serve_is_not_found() {
    let standin = standin().await;
    for path in ["/api/v1/secrets", "/apis/apps/v1/deployments", "/nowhere", "/api/v1/namespaces/x/pods/none"]
    {
        let (status, answer) = read(&standin, Method::GET, path, Value::Null).await;
        assert_eq!((status, &answer["kind"]), (StatusCode::NOT_FOUND, &json!("Status")), "{path}");
    }
}
