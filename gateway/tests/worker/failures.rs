//! What goes wrong on either side, and that it costs no seat.

use std::time::Duration;

use http_body_util::BodyExt;
use tokio::io::AsyncWriteExt;

use crate::stub::{open, text};
use crate::world::{World, get, get2, is_free, patiently};

#[tokio::test]
async fn a_client_that_leaves_while_executing_ends_the_work() {
    let mut world = World::new().await;
    let mut client = world.client().await;
    client.send(get("/x")).await;
    let mut seen = world.stub.next().await;
    drop(client);
    seen.abandoned().await;
    world.until("the seat to be free", is_free).await;

    let mut client2 = world.client2().await;
    let answer = tokio::spawn(client2.send_request(get2("/x")));
    let mut seen = world.stub.next().await;
    answer.abort();
    seen.abandoned().await;
    world.until("the seat to be free", is_free).await;
    assert_eq!(world.counters().await.clients_gone, 2);
    world.done().await;
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_its_answer_ends_the_work() {
    let mut world = World::new().await;
    let mut client = world.client().await;
    client.send(get("/x")).await;
    let (pen, response) = open();
    world.stub.next().await.answer(response);
    pen.write("half");
    client.head().await;
    drop(client);
    pen.abandoned().await;

    let mut client2 = world.client2().await;
    let answer = tokio::spawn(client2.send_request(get2("/x")));
    let (pen, response) = open();
    world.stub.next().await.answer(response);
    pen.write("half");
    let answer = patiently("the head", answer).await.unwrap().unwrap();
    drop(answer);
    pen.abandoned().await;
    world.done().await;
}

#[tokio::test]
async fn an_apiserver_that_breaks_off_before_its_answer_is_a_502() {
    let mut world = World::new().await;
    let mut client = world.client().await;
    client.send(get("/x")).await;
    drop(world.stub.next().await);
    let answer = tokio::select! {
        answer = client.answer() => answer,
        // Over a connection that has been used before, a read is sent once more.
        again = world.stub.next() => { drop(again); client.answer().await }
    };
    assert_eq!(answer.status, 502);
    assert!(answer.body.starts_with(r#"{"kind":"Status","apiVersion":"v1""#), "{}", answer.body);
    assert_eq!(answer.header("x-kubernetes-pf-flowschema-uid"), Some("schema-uid"));
    world.done().await;
}

#[tokio::test]
async fn an_apiserver_that_breaks_off_in_its_answer_breaks_the_answer() {
    let mut world = World::new().await;
    let mut client = world.client().await;
    client.send(get("/x")).await;
    let (pen, response) = open();
    world.stub.next().await.answer(response);
    pen.write("half");
    client.read_until("half\r\n").await;
    pen.break_off();
    assert_eq!(client.read_all().await, "", "no end: the client must see that something is missing");

    let mut client2 = world.client2().await;
    let answer = tokio::spawn(client2.send_request(get2("/x")));
    let (pen, response) = open();
    world.stub.next().await.answer(response);
    pen.write("half");
    let answer = patiently("the head", answer).await.unwrap().unwrap();
    pen.break_off();
    assert!(patiently("the body", answer.into_body().collect()).await.is_err());
    assert_eq!(world.counters().await.upstream_broken_answering, 2);
    world.done().await;
}

#[tokio::test]
async fn an_apiserver_that_is_not_there_is_a_503() {
    let world = World::new().await;
    world.stub.stop();
    let mut client = world.client().await;
    patiently("the 503", async {
        loop {
            client
                .send("GET /x HTTP/1.1\r\nHost: usher\r\nAccept: application/vnd.kubernetes.protobuf\r\n\r\n")
                .await;
            let head = client.head().await;
            let length: usize = head.header("content-length").unwrap().parse().unwrap();
            let mut body = vec![0; length];
            tokio::io::AsyncReadExt::read_exact(&mut client.0, &mut body).await.unwrap();
            if head.status == 503 {
                assert_eq!(head.header("retry-after"), Some("1"));
                assert!(body.starts_with(b"k8s\0"));
                return;
            }
        }
    })
    .await;
    world.done().await;
}

#[tokio::test]
async fn an_apiserver_that_never_answers_is_a_504() {
    let mut world = World::new().await;
    let mut client = world.client().await;
    client.send(get("/x?timeout=300ms")).await;
    let mut seen = world.stub.next().await;
    let answer = client.answer().await;
    assert_eq!(answer.status, 504);
    assert!(answer.body.contains("Timeout: request did not complete within the allotted timeout"));
    seen.abandoned().await;
    assert_eq!(world.counters().await.timed_out_executing, 1);
    world.done().await;
}

#[tokio::test]
async fn an_answer_that_overruns_is_cut_off_even_if_nobody_reads_it() {
    let mut world = World::new().await;
    let mut client = world.client().await;
    client.send(get("/x?timeout=300ms")).await;
    let (pen, response) = open();
    world.stub.next().await.answer(response);
    let chunk = bytes::Bytes::from(vec![b'x'; 1 << 20]);
    for _ in 0..64 {
        pen.write_bytes(chunk.clone());
    }
    pen.abandoned().await; // the client has read nothing
    world.until("the seat to be free", is_free).await;

    let mut client2 = world.client2().await;
    let answer = tokio::spawn(client2.send_request(get2("/x?timeout=300ms")));
    let (pen, response) = open();
    world.stub.next().await.answer(response);
    for _ in 0..64 {
        pen.write_bytes(chunk.clone());
    }
    let answer = patiently("the head", answer).await.unwrap().unwrap();
    pen.abandoned().await;
    assert!(patiently("the end", answer.into_body().collect()).await.is_err());
    assert_eq!(world.counters().await.timed_out_answering, 2);
    world.done().await;
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_replaced() {
    let mut world = World::new().await;
    let mut client = world.client().await;
    client.send(get("/x")).await;
    let mut response = text("closing");
    response.headers_mut().insert("connection", http::HeaderValue::from_static("close"));
    world.stub.next().await.answer(response);
    assert_eq!(client.answer().await.body, "closing");
    client.send(get("/x")).await;
    world.stub.next().await.answer(text("again"));
    assert_eq!(client.answer().await.body, "again");
    world.done().await;
}

#[tokio::test]
async fn malformed_requests_are_refused_before_anything_else() {
    let mut world = World::new().await;
    for (request, status) in [
        ("GET /x HTTP/1.1\r\n\r\n", "400"),
        ("GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"),
        ("GET http://a/x HTTP/1.1\r\nHost: b\r\n\r\n", "400"),
        ("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", "400"),
        ("GET /x HTTP/1.1\r\nHost: a\r\n folded: 1\r\n\r\n", "400"),
        ("GET /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "400"),
        ("GET /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", "400"),
        ("GET /api/v1/watch HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "500"),
        ("GET /x?timeout=never HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "400"),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let mut client = world.client().await;
        client.send(request).await;
        let answer = client.read_all().await;
        assert_eq!(answer.split(' ').nth(1), Some(status), "{request:?} got {answer:?}");
    }
    assert!(world.stub.is_idle());
    world.done().await;
}

#[tokio::test]
async fn slow_and_idle_clients_are_let_go() {
    let short = Duration::from_millis(100);
    let mut world = World::with(|settings| {
        settings.limits.header_timeout = short;
        settings.limits.idle_timeout = short;
    })
    .await;
    let (mut silent, mut slow, mut idle) = (world.client().await, world.client().await, world.client().await);
    slow.send("GET /x HTTP/1.1\r\nHo").await;
    idle.send(get("/x")).await;
    world.stub.next().await.answer(text("done"));
    assert_eq!(idle.answer().await.body, "done");
    for client in [&mut silent, &mut slow, &mut idle] {
        client.read_all().await;
    }
    let counters = world.counters().await;
    assert_eq!((counters.header_timeouts, counters.idle_timeouts), (2, 1));
    world.done().await;
}

#[tokio::test]
async fn too_many_connections_wait_for_each_other() {
    let mut world = World::with(|settings| settings.limits.connections = 1).await;
    let mut first = world.client().await;
    first.send(get("/first")).await;
    world.stub.next().await.answer(text("first"));
    first.answer().await;
    let mut second = world.client().await;
    second.send(get("/second")).await;
    world.until("accepting to pause", |snapshot| snapshot.counters.connections_refused_full == 1).await;
    assert!(world.stub.is_idle());
    first.0.shutdown().await.unwrap();
    world.stub.next().await.answer(text("second"));
    assert_eq!(second.answer().await.body, "second");
    world.done().await;
}

#[tokio::test]
async fn a_client_that_does_not_go_when_told_to_is_cut_off() {
    let world = World::with(|settings| settings.limits.header_timeout = Duration::from_millis(50)).await;
    let mut client = world.client().await;
    // HTTP/2's preface and empty SETTINGS; then it neither asks, nor answers pings, nor leaves.
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    let said = client.read_all().await;
    assert!(said.as_bytes().windows(4).any(|frame| frame == [8, 7, 0, 0]), "GOAWAY came first: {said:?}");
    assert_eq!(world.counters().await.idle_timeouts, 1);
    world.done().await;
}
