//! Clients that do not take their answers.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use usher::worker::Settings;

use crate::stub::{Pen, open, text};
use crate::world::{Client2, World, get, get2, is_free, patiently};

/// Far more than buffers on the way hold.
const LARGE: usize = 64 << 20;

fn impatient(settings: &mut Settings) {
    settings.limits.slow_reader_grace = Duration::from_millis(200);
}

/// The next request is answered with more than anybody reads.
async fn answer_large(world: &mut World) -> Pen {
    let (pen, response) = open();
    world.stub.next().await.answer(response);
    let part = Bytes::from(vec![b'x'; 1 << 20]);
    for _ in 0..LARGE >> 20 {
        pen.write_bytes(part.clone());
    }
    pen
}

async fn is_served(world: &mut World) {
    let mut client = world.client().await;
    client.send(get("/small")).await;
    world.stub.next().await.answer(text("small"));
    assert_eq!(client.answer().await.body, "small");
}

#[tokio::test]
async fn slow_readers_do_not_hold_seats_over_http1() {
    let mut world = World::with(impatient).await;
    let mut slow = Vec::new();
    for _ in 0..3 {
        let mut client = world.client().await;
        client.send(get("/large")).await;
        slow.push((client, answer_large(&mut world).await)); // the next gets there: the seat is free again
    }
    is_served(&mut world).await;
    let snapshot = world.until("all to be stalled", |snapshot| snapshot.counters.stalled_answers == 3).await;
    assert!(is_free(&snapshot), "{:?}", snapshot.core);
    assert_eq!(snapshot.counters.stalled_released, 3);
    assert!(snapshot.counters.stalled_bytes > 0);
    for (mut client, pen) in slow {
        drop(pen);
        let mut read = vec![0; LARGE];
        patiently("the answer after all", client.0.read_exact(&mut read)).await.unwrap();
    }
    world.until("nothing to be stalled", |snapshot| snapshot.counters.stalled_answers == 0).await;
    world.done().await;
}

#[tokio::test]
async fn slow_readers_do_not_hold_seats_over_http2() {
    let mut world = World::with(impatient).await;
    let mut client = world.client2().await;
    let mut slow = Vec::new();
    for _ in 0..3 {
        let asked = tokio::spawn(client.send_request(get2("/large")));
        let pen = answer_large(&mut world).await;
        slow.push((patiently("the head", asked).await.unwrap().unwrap(), pen));
    }
    is_served(&mut world).await;
    let snapshot = world.until("all to be stalled", |snapshot| snapshot.counters.stalled_answers == 3).await;
    assert!(is_free(&snapshot), "{:?}", snapshot.core);
    for (answer, pen) in slow {
        drop(pen);
        let whole = patiently("the answer after all", answer.into_body().collect()).await.unwrap();
        assert_eq!(whole.to_bytes().len(), LARGE);
    }
    world.done().await;
}

#[tokio::test]
async fn a_client_that_opens_no_window_holds_no_seat() {
    let mut world = World::with(impatient).await;
    let stream = TcpStream::connect(world.worker.addresses()[0]).await.unwrap();
    let (mut client, connection): (Client2, _) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let asked = tokio::spawn(client.send_request(get2("/x")));
    world.stub.next().await.answer(text("tiny"));
    let answer = patiently("the head", asked).await.unwrap().unwrap();
    world.until("the seat to be free", is_free).await;
    is_served(&mut world).await;
    drop(answer);
    world.done().await;
}

#[tokio::test]
async fn a_slow_apiserver_holds_its_seats() {
    let mut world = World::with(impatient).await;
    let mut client = world.client().await;
    client.send(get("/slow")).await;
    let (pen, response) = open();
    world.stub.next().await.answer(response);
    pen.write("half");
    client.head().await;
    client.read_until("half\r\n").await;
    let mut other = world.client().await;
    other.send(get("/other")).await;
    world.until_waiting(1).await;
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(200)).await; // the bound of a look at what must not happen
        assert!(world.stub.is_idle(), "the seat was given away");
    }
    pen.write("rest");
    drop(pen);
    world.stub.next().await.answer(text("other"));
    assert_eq!(other.answer().await.body, "other");
    assert_eq!(world.counters().await.stalled_released, 0);
    world.done().await;
}

#[tokio::test]
async fn beyond_the_budget_the_slowest_is_cut() {
    let mut world = World::with(|settings| {
        impatient(settings);
        settings.limits.stalled_streams = 1;
    })
    .await;
    let mut first = world.client().await;
    first.send(get("/large")).await;
    let cut = answer_large(&mut world).await;
    let mut second = world.client2().await;
    let asked = tokio::spawn(second.send_request(get2("/large")));
    let left = answer_large(&mut world).await;
    let answer = patiently("the head", asked).await.unwrap().unwrap();
    cut.abandoned().await;
    assert!(patiently("the end", first.0.read_to_end(&mut Vec::new())).await.is_err(), "reset");
    let snapshot = world.until("one to be left", |snapshot| snapshot.counters.stalled_answers == 1).await;
    assert_eq!(snapshot.counters.stalled_cut_answers, 1);
    assert_eq!((snapshot.counters.clients_gone, snapshot.counters.timed_out_answering), (0, 0));
    drop((left, answer));
    world.done().await;
}

#[tokio::test]
async fn a_watch_that_nobody_reads_is_cut_for_its_bytes() {
    let mut world = World::with(|settings| {
        impatient(settings);
        settings.limits.stalled_bytes = 1000;
    })
    .await;
    let mut client = world.client2().await; // it answers pings
    let asked = tokio::spawn(client.send_request(get2("/api/v1/pods?watch=1")));
    let pen = answer_large(&mut world).await;
    let answer = patiently("the head", asked).await.unwrap().unwrap();
    pen.abandoned().await;
    assert!(patiently("the end", answer.into_body().collect()).await.is_err());
    assert_eq!(world.counters().await.stalled_cut_bytes, 1);
    world.done().await;
}
