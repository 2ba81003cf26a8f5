//! The end of a worker.

use std::time::Duration;

use http_body_util::BodyExt;
use usher::worker::Command;

use crate::stub::{open, text};
use crate::world::{World, get, get2, patiently};

const GRACE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn what_is_under_way_is_finished_and_nothing_new_comes_in() {
    let mut world = World::new().await;
    let (mut client, mut idle) = (world.client().await, world.client().await);
    client.send(get("/x")).await;
    let seen = world.stub.next().await;
    idle.send("").await;
    world.worker.send(Command::Drain { grace: GRACE }).unwrap();
    world.until("the drain to begin", |snapshot| snapshot.draining).await;
    patiently("nobody to listen", async {
        while tokio::net::TcpStream::connect(world.worker.addresses()[0]).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    idle.read_all().await;
    seen.answer(text("finished"));
    let answer = client.answer().await;
    assert_eq!((answer.body.as_str(), answer.header("connection")), ("finished", Some("close")));
    drop(client);
    tokio::task::spawn_blocking(|| world.worker.join().unwrap()).await.unwrap();
}

#[tokio::test]
async fn watches_end_cleanly_between_two_events() {
    let mut world = World::new().await;
    let mut watcher = world.client().await;
    watcher.send(get("/api/v1/pods?watch=1")).await;
    let (pen, mut response) = open();
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    world.stub.next().await.answer(response);
    pen.write("{\"a\":");
    watcher.read_until("{\"a\":\r\n").await;

    world.until("the seat to be free", crate::world::is_free).await;
    let mut watcher2 = world.client2().await;
    let answer = tokio::spawn(watcher2.send_request(get2("/api/v1/pods?watch=1")));
    let (pen2, response) = open();
    world.stub.next().await.answer(response);
    let answer = patiently("the head", answer).await.unwrap().unwrap();

    world.worker.send(Command::Drain { grace: GRACE }).unwrap();
    let body = patiently("the end of the stream", answer.into_body().collect()).await;
    assert!(body.is_ok(), "END_STREAM, not a reset");
    pen2.abandoned().await;
    pen.write("1}\n{\"never\":");
    let rest = watcher.read_all().await;
    assert!(rest.contains("1}\n") && rest.ends_with("0\r\n\r\n"), "{rest:?}");
    drop((watcher, watcher2));
    tokio::task::spawn_blocking(|| world.worker.join().unwrap()).await.unwrap();
}

#[tokio::test]
async fn what_takes_longer_than_the_grace_is_cut_off() {
    let mut world = World::new().await;
    let mut client = world.client().await;
    client.send(get("/x")).await;
    let mut seen = world.stub.next().await;
    world.worker.send(Command::Drain { grace: Duration::from_millis(50) }).unwrap();
    assert_eq!(client.read_all().await, "");
    seen.abandoned().await;
    tokio::task::spawn_blocking(|| world.worker.join().unwrap()).await.unwrap();
}

#[tokio::test]
async fn whose_answer_had_begun_may_use_the_connection_once_more() {
    let mut world = World::new().await;
    let mut client = world.client().await;
    client.send(get("/x")).await;
    let (pen, response) = open();
    world.stub.next().await.answer(response);
    pen.write("half");
    assert_eq!(client.head().await.header("connection"), None);
    world.worker.send(Command::Drain { grace: GRACE }).unwrap();
    world.until("the drain to begin", |snapshot| snapshot.draining).await;
    drop(pen);
    client.read_until("0\r\n\r\n").await;
    client.send(get("/y")).await;
    world.stub.next().await.answer(text("the last"));
    let answer = client.answer().await;
    assert_eq!((answer.body.as_str(), answer.header("connection")), ("the last", Some("close")));
    assert_eq!(client.read_all().await, "");
    tokio::task::spawn_blocking(|| world.worker.join().unwrap()).await.unwrap();
}
