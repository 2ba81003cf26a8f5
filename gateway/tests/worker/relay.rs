//! What goes through unchanged.

use http::{HeaderMap, HeaderValue, Response};
use http_body_util::BodyExt;

use crate::stub::{open, text};
use crate::world::{World, get, get2, patiently, post2};

#[tokio::test]
async fn a_request_and_its_answer_over_http1() {
    let mut world = World::new().await;
    let mut client = world.client().await;
    let head = "POST /api/v1/namespaces/a/pods?x=%20 HTTP/1.1\r\nHost: usher\r\nX-Own: 1\r\nContent-Length: 4\r\n\
                Connection: x-hop\r\nX-Hop: 1\r\nAudit-ID: audit\r\n\r\nbody";
    client.send(head).await;
    let mut seen = world.stub.next().await;
    assert_eq!(seen.request.uri(), "/api/v1/namespaces/a/pods?x=%20");
    assert_eq!(seen.request.headers()["x-own"], "1");
    assert_eq!(seen.request.headers()["audit-id"], "audit");
    assert_eq!(seen.request.headers()["host"], "usher");
    assert!(!seen.request.headers().contains_key("x-hop"), "of the connection");
    assert_eq!(seen.read().await.0, "body");
    let mut response = text("made");
    *response.status_mut() = http::StatusCode::CREATED;
    response.headers_mut().insert("x-kubernetes-pf-flowschema-uid", HeaderValue::from_static("behind"));
    response.headers_mut().insert("warning", HeaderValue::from_static("299 - \"old\""));
    response.headers_mut().insert("proxy-authenticate", HeaderValue::from_static("Basic"));
    seen.answer(response);
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.body.as_str()), (201, "made"));
    assert_eq!(answer.header("warning"), Some("299 - \"old\""));
    assert_eq!(answer.header("proxy-authenticate"), None, "of the connection");
    assert_eq!(answer.header("X-Kubernetes-PF-FlowSchema-UID"), Some("schema-uid"));
    assert_eq!(answer.header("X-Kubernetes-PF-PriorityLevel-UID"), Some("level-uid"));

    client.send(get("/version")).await; // the same connections once more
    let mut response = text("v1");
    response.headers_mut().insert("connection", HeaderValue::from_static("x-hop"));
    response.headers_mut().insert("x-hop", HeaderValue::from_static("1"));
    response.headers_mut().insert("x-kubernetes-pf-flowschema-uid", HeaderValue::from_static("behind"));
    world.stub.next().await.answer(response);
    let answer = client.answer().await;
    assert_eq!(
        (answer.body.as_str(), answer.header("x-hop"), answer.header("connection")),
        ("v1", None, None)
    );
    assert_eq!(answer.header("x-kubernetes-pf-flowschema-uid"), Some("schema-uid"));
    world.done().await;
}

#[tokio::test]
async fn a_request_and_its_answer_over_http2() {
    let mut world = World::new().await;
    let mut client = world.client2().await;
    let answer = tokio::spawn(client.send_request(post2("/api/v1/namespaces/a/pods", b"body".to_vec())));
    let mut seen = world.stub.next().await;
    assert_eq!(seen.request.headers()["host"], "usher");
    assert_eq!(seen.read().await.0, "body");
    seen.answer(text("made"));
    let answer = patiently("the answer", answer).await.unwrap().unwrap();
    assert_eq!(answer.headers()["x-kubernetes-pf-prioritylevel-uid"], "level-uid");
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "made");
    world.done().await;
}

#[tokio::test]
async fn trailers_both_ways() {
    let mut world = World::new().await;
    let mut client = world.client().await;
    client
        .send(
            "POST /x HTTP/1.1\r\nHost: usher\r\nTE: trailers\r\nConnection: TE\r\nTrailer: x-sum\r\n\
             Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nx-sum: 2\r\n\r\n",
        )
        .await;
    let mut seen = world.stub.next().await;
    let (body, trailers) = seen.read().await;
    assert_eq!(body, "ab");
    assert_eq!(trailers.expect("trailers")["x-sum"], "2");
    let (pen, mut response) = open();
    response.headers_mut().insert("trailer", HeaderValue::from_static("x-total"));
    seen.answer(response);
    pen.write("cd");
    pen.trailers(HeaderMap::from_iter([("x-total".parse().unwrap(), HeaderValue::from_static("4"))]));
    drop(pen);
    let answer = client.answer().await;
    assert_eq!((answer.body.as_str(), answer.header("x-total")), ("cd", Some("4")));
    world.done().await;
}

#[tokio::test]
async fn a_body_is_asked_for_when_the_apiserver_asks() {
    let mut world = World::new().await;
    let mut client = world.client().await;
    let head = "POST /x HTTP/1.1\r\nHost: usher\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    client.send(head).await;
    let mut seen = world.stub.next().await; // the head is there before the body
    let read = async {
        let body = seen.read().await.0; // hyper says 100 Continue when the body is read
        seen.answer(text("done"));
        body
    };
    let write = async {
        assert_eq!(client.head().await.status, 100);
        client.send("body").await;
        client.answer().await
    };
    let (body, answer) = tokio::join!(read, write);
    assert_eq!((&body[..], answer.body.as_str()), (&b"body"[..], "done"));

    client.send(head).await;
    let mut refused = text("no");
    *refused.status_mut() = http::StatusCode::FORBIDDEN;
    world.stub.next().await.answer(refused);
    assert_eq!(client.head().await.status, 403, "without 100 Continue: nobody wants the body");
    world.done().await;
}

#[tokio::test]
async fn answers_without_a_body() {
    let mut world = World::new().await;
    let mut client = world.client().await;
    client.send("HEAD /x HTTP/1.1\r\nHost: usher\r\n\r\n").await;
    let seen = world.stub.next().await;
    assert_eq!(seen.request.method(), "HEAD");
    seen.answer(text("twelve bytes"));
    let answer = client.head().await;
    assert_eq!((answer.status, answer.header("content-length")), (200, Some("12")));
    for status in [204, 304] {
        client.send(get("/x")).await;
        let mut response = text("");
        *response.status_mut() = status.try_into().unwrap();
        response.headers_mut().insert("etag", HeaderValue::from_static("\"e\""));
        world.stub.next().await.answer(response);
        let answer = client.head().await;
        assert_eq!((answer.status, answer.header("etag")), (status, Some("\"e\"")));
    }
    let mut client2 = world.client2().await;
    let mut head = get2("/x");
    *head.method_mut() = http::Method::HEAD;
    let answer = tokio::spawn(client2.send_request(head));
    world.stub.next().await.answer(text("twelve bytes"));
    let answer = patiently("the answer", answer).await.unwrap().unwrap();
    assert_eq!(answer.headers()["content-length"], "12");
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "");
    world.done().await;
}

#[tokio::test]
async fn a_large_answer_meets_a_slow_reader_and_back_pressure() {
    let mut world = World::new().await;
    let mut client = world.client().await;
    client.send(get("/x")).await;
    let chunk = bytes::Bytes::from(vec![b'x'; 1 << 20]);
    let (pen, response) = open();
    world.stub.next().await.answer(response);
    for _ in 0..16 {
        assert!(pen.write_bytes(chunk.clone()));
    }
    drop(pen);
    let answer = client.answer().await;
    assert_eq!(answer.body.len(), 16 << 20);
    world.done().await;
}

#[tokio::test]
async fn five_lines_of_one_header_stay_five() {
    let mut world = World::new().await;
    let mut client = world.client().await;
    client.send("GET /x HTTP/1.1\r\nHost: usher\r\nAccept: a\r\nAccept: b\r\nAccept: c\r\n\r\n").await;
    let seen = world.stub.next().await;
    assert_eq!(seen.request.headers().get_all("accept").iter().count(), 3);
    let mut response: Response<_> = text("");
    for value in ["1", "2"] {
        response.headers_mut().append("warning", HeaderValue::from_static(value));
    }
    seen.answer(response);
    assert_eq!(client.answer().await.head.to_lowercase().matches("warning:").count(), 2);
    world.done().await;
}
