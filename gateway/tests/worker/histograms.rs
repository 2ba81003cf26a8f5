//! What a worker measures of its requests.

use std::collections::BTreeMap;

use tokio::sync::mpsc::Receiver;
use usher::observe::hdr::{self, Filled, Set};
use usher::worker::Command;

use crate::stub::{open, text};
use crate::world::{World, get, is_free, patiently};

/// Asks the worker to hand over; what it has, as count and largest value by tag.
async fn hand_over(world: &World, filled: &mut Receiver<Filled>) -> BTreeMap<String, (u64, u64)> {
    world.worker.send(Command::Histograms(Box::<Set>::default())).unwrap();
    let mut all = BTreeMap::new();
    let _emptied = patiently("the histograms", filled.recv()).await.unwrap().pour(|key, histogram| {
        all.insert(key.to_string(), (histogram.len(), histogram.max()));
    });
    all
}

async fn world() -> (World, Receiver<Filled>) {
    let (mut feeds, filled) = hdr::feeds(1);
    (World::with(|settings| settings.hdr = feeds.pop()).await, filled)
}

#[tokio::test]
async fn requests_are_measured_where_they_belong() {
    let (mut world, mut filled) = world().await;
    let mut client = world.client().await;
    for _ in 0..20 {
        client.send(get("/api/v1/pods")).await;
        world.stub.next().await.answer(text("pods"));
        assert_eq!(client.answer().await.status, 200);
    }
    let all = hand_over(&world, &mut filled).await;
    for metric in ["wait", "execution", "seats"] {
        assert_eq!(all[&format!("{metric}/narrow/executed")].0, 20, "{metric} in {all:?}");
    }
    assert_eq!(all["wait/narrow/executed"].1, 0, "nobody had to wait");
    assert_eq!(all["seats/narrow/executed"].1, 1);
    assert!(all["execution/narrow/executed"].1 > 0);
    let timed = all["dispatch/narrow/executed"];
    assert!(timed.0 > 0 && timed.1 > 0, "{all:?}");
    let added = all["added/narrow/executed"];
    assert_eq!(added.0, timed.0);
    assert!(added.1 > timed.1, "deciding is a part of what usher adds: {all:?}");
    assert!(hand_over(&world, &mut filled).await.is_empty(), "nothing twice");
    world.done().await;
}

#[tokio::test]
async fn an_empty_answer_is_complete() {
    let (mut world, mut filled) = world().await;
    let mut client = world.client().await;
    client.send(get("/empty")).await;
    world.stub.next().await.answer(text(""));
    assert_eq!(client.answer().await.status, 200);
    let all = hand_over(&world, &mut filled).await;
    assert_eq!(all["execution/narrow/executed"].0, 1, "{all:?}");
    world.done().await;
}

#[tokio::test]
async fn waiting_is_waiting_whatever_it_ends_in() {
    let (mut world, mut filled) = world().await;
    let (mut first, mut second, mut third, gone) =
        (world.client().await, world.client().await, world.client().await, world.client().await);
    first.send(get("/first")).await;
    let seen = world.stub.next().await;
    second.send(get("/second")).await;
    world.until_waiting(1).await;
    third.send(get("/third?timeout=200ms")).await; // may wait for a quarter of that
    assert_eq!(third.answer().await.status, 429);
    let mut gone = gone;
    gone.send(get("/gone")).await;
    world.until_waiting(2).await;
    drop(gone);
    world.until_waiting(1).await;
    seen.answer(text("first"));
    first.answer().await;
    world.stub.next().await.answer(text("second"));
    second.answer().await;

    let all = hand_over(&world, &mut filled).await;
    assert_eq!(all["wait/narrow/executed"].0, 2);
    let waited = all["wait/narrow/time-out"];
    assert_eq!(waited.0, 1);
    assert!(waited.1 >= 50_000_000, "{waited:?}");
    assert!(all["wait/narrow/executed"].1 >= waited.1, "the second waited longer: {all:?}");
    assert_eq!(all["wait/narrow/cancelled"].0, 1);
    assert!(!all.contains_key("execution/narrow/cancelled"));
    world.done().await;
}

#[tokio::test]
async fn what_breaks_off_has_failed() {
    let (mut world, mut filled) = world().await;
    let mut client = world.client().await;
    client.send(get("/broken")).await;
    let (pen, response) = open();
    world.stub.next().await.answer(response);
    pen.write("half");
    client.head().await;
    drop(client);
    world.until("the seat is back", is_free).await;
    let all = hand_over(&world, &mut filled).await;
    assert_eq!(all["execution/narrow/failed"].0, 1, "{all:?}");
    assert!(!all.contains_key("execution/narrow/executed"));
    world.done().await;
}
