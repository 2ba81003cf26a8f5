//! Who gets the one seat, who waits, who is turned away.

use std::time::Duration;

use crate::stub::{open, text};
use crate::world::{World, get, get2, is_free, patiently};

#[tokio::test]
async fn the_second_request_waits_until_the_first_is_answered() {
    let mut world = World::new().await;
    let (mut first, mut second) = (world.client().await, world.client().await);
    first.send(get("/first")).await;
    let seen = world.stub.next().await;
    second.send(get("/second")).await;
    world.until_waiting(1).await;
    assert!(world.stub.is_idle(), "one seat");
    let (pen, response) = open();
    seen.answer(response);
    pen.write("half");
    first.head().await;
    world.until_waiting(1).await; // the seat is held until the body is complete
    drop(pen);
    let next = world.stub.next().await;
    assert_eq!(next.request.uri(), "/second");
    next.answer(text("second"));
    assert_eq!(second.answer().await.body, "second");
    world.done().await;
}

#[tokio::test]
async fn whoever_waits_too_long_is_turned_away() {
    let mut world = World::with(|settings| settings.request_timeout = Duration::from_secs(4)).await;
    let (mut first, mut second) = (world.client().await, world.client().await);
    first.send(get("/first")).await;
    let seen = world.stub.next().await;
    second.send(get("/second?timeout=200ms")).await; // may wait for a quarter of that
    let answer = second.answer().await;
    assert_eq!((answer.status, answer.body.as_str()), (429, "Too many requests, please try again later.\n"));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.header("x-kubernetes-pf-prioritylevel-uid"), Some("level-uid"));
    assert_eq!(answer.header("x-kubernetes-pf-flowschema-uid"), Some("schema-uid"));
    seen.answer(text("first"));
    assert_eq!(first.answer().await.body, "first");
    let snapshot = world.snapshot().await;
    assert_eq!(snapshot.counters.rejected_time_out, 1);
    assert_eq!(snapshot.turned_away.each().count(), 1);
    world.done().await;
}

#[tokio::test]
async fn whoever_has_no_time_left_does_not_run() {
    let mut world = World::new().await;
    let mut client = world.client().await;
    client.send(get("/x?timeout=1ns")).await;
    assert_eq!(client.answer().await.status, 504);
    assert!(world.stub.is_idle());
    world.done().await;
}

#[tokio::test]
async fn a_full_queue_turns_away_at_once() {
    let mut world = World::new().await;
    let mut first = world.client().await;
    first.send(get("/first")).await;
    let seen = world.stub.next().await;
    let mut waiting = Vec::new();
    for _ in 0..10 {
        let mut client = world.client().await;
        client.send(get("/waits")).await;
        waiting.push(client);
    }
    world.until_waiting(10).await;
    let mut eleventh = world.client().await;
    eleventh.send(get("/eleventh")).await;
    assert_eq!(eleventh.answer().await.status, 429);
    assert_eq!(world.counters().await.rejected_queue_full, 1);
    seen.answer(text(""));
    for client in &mut waiting {
        world.stub.next().await.answer(text("in turn"));
        assert_eq!(client.answer().await.body, "in turn");
    }
    world.done().await;
}

#[tokio::test]
async fn a_client_that_leaves_while_waiting_gives_up_its_place_at_once() {
    let mut world = World::new().await;
    let mut first = world.client().await;
    first.send(get("/first")).await;
    let seen = world.stub.next().await;

    let mut without_body = world.client().await;
    without_body.send(get("/plain")).await;
    let mut with_body = world.client().await; // more than anybody reads while it waits
    with_body.send("POST /x HTTP/1.1\r\nHost: usher\r\nContent-Length: 100000\r\n\r\nsome").await;
    let mut expecting = world.client().await;
    expecting
        .send("POST /x HTTP/1.1\r\nHost: usher\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
        .await;
    let mut pipelining = world.client().await;
    pipelining.send(format!("{}{}", get("/one"), get("/two"))).await;
    let mut client2 = world.client2().await;
    let over_http2 = tokio::spawn(client2.send_request(get2("/plain")));
    world.until_waiting(5).await;
    let mut left = 5;
    for client in [without_body, with_body, expecting, pipelining] {
        drop(client);
        left -= 1;
        world.until_waiting(left).await;
    }
    over_http2.abort(); // resets the stream
    world.until_waiting(0).await;
    assert_eq!(world.counters().await.cancelled_waiting, 5);
    assert!(world.stub.is_idle());
    seen.answer(text("first"));
    assert_eq!(first.answer().await.body, "first");
    world.done().await;
}

#[tokio::test]
async fn a_watch_gives_its_seat_back_when_it_falls_silent() {
    let mut world = World::new().await;
    let mut watcher = world.client().await;
    watcher.send(get("/api/v1/pods?watch=1&resourceVersion=5")).await;
    let (pen, mut response) = open();
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    world.stub.next().await.answer(response);
    watcher.head().await;
    let snapshot = world.until("the seat to be free", is_free).await;
    assert_eq!((snapshot.counters.watches_initialised_by_silence, snapshot.counters.watches_open), (1, 1));
    pen.write("{}\n");
    watcher.read_until("{}\n\r\n").await;
    drop(watcher);
    pen.abandoned().await;
    world.done().await;
}

#[tokio::test]
async fn a_watch_that_asked_for_it_gives_its_seat_back_at_the_bookmark() {
    let quiet = Duration::from_millis(1);
    let mut world = World::with(|settings| settings.watch_quiet = quiet).await;
    let mut watcher = world.client().await;
    watcher.send(get("/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")).await;
    let (pen, response) = open();
    world.stub.next().await.answer(response);
    watcher.head().await;
    pen.write("{\"type\":\"ADDED\"}\n{\"k8s.io/initial-ev");
    watcher.read_until("initial-ev\r\n").await;
    let mut other = world.client().await;
    other.send(get("/other")).await;
    world.until_waiting(1).await; // silence says nothing here
    pen.write("ents-end\":\"true\"}\n");
    world.stub.next().await.answer(text("other"));
    assert_eq!(other.answer().await.body, "other");
    assert_eq!(world.counters().await.watches_initialised_by_bookmark, 1);
    drop(pen);
    watcher.read_until("0\r\n\r\n").await;
    world.done().await;
}

#[tokio::test]
async fn a_watch_that_never_says_so_is_bounded() {
    let bound = Duration::from_millis(50);
    let mut world = World::with(|settings| settings.watch_initialised_max = bound).await;
    let mut watcher = world.client().await;
    watcher.send(get("/api/v1/pods?watch=1&sendInitialEvents=true")).await;
    let seen = world.stub.next().await; // never answered
    let snapshot = world.until("the seat to be free", is_free).await;
    assert_eq!(snapshot.counters.watches_initialised_by_bound, 1);
    drop((seen, watcher));
    world.done().await;
}

#[tokio::test]
async fn long_requests_that_do_not_watch_bypass() {
    let mut world = World::new().await;
    let (mut log, mut other) = (world.client().await, world.client().await);
    log.send(get("/api/v1/namespaces/a/pods/p/log?follow=true")).await;
    let (pen, response) = open();
    world.stub.next().await.answer(response);
    assert!(log.head().await.header("x-kubernetes-pf-flowschema-uid").is_none());
    other.send(get("/other")).await;
    world.stub.next().await.answer(text("other"));
    assert_eq!(other.answer().await.body, "other");
    drop(log);
    pen.abandoned().await;
    world.done().await;
}

#[tokio::test]
async fn without_flow_control_two_limits_hold() {
    use usher::worker::AdmissionSettings;
    let limits = AdmissionSettings::InFlight { reading_max: 1, writing_max: 1 };
    let mut world = World::with(|settings| settings.admission = limits).await;
    let (mut first, mut second) = (world.client().await, world.client().await);
    first.send(get("/api/v1/pods")).await;
    let seen = world.stub.next().await;
    second.send(get("/api/v1/pods")).await;
    let answer = second.answer().await;
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")));
    assert!(answer.header("audit-id").is_some_and(|id| id.len() == 36), "{}", answer.head);
    assert!(answer.header("x-kubernetes-pf-flowschema-uid").is_none());
    second.send("POST /api/v1/pods HTTP/1.1\r\nHost: usher\r\nContent-Length: 0\r\n\r\n").await;
    world.stub.next().await.answer(text("written"));
    assert_eq!(second.answer().await.body, "written");
    seen.answer(text("read"));
    assert_eq!(first.answer().await.body, "read");
    assert_eq!(world.counters().await.rejected_in_flight, 1);
    world.done().await;
}

#[tokio::test]
async fn a_changed_configuration_holds_for_the_next_request() {
    let mut world = World::new().await;
    let mut client = world.client().await;
    let mut objects = crate::world::one_seat();
    objects.schemas[0].metadata.uid = "another".to_owned();
    world.worker.send(usher::worker::Command::Configure(objects.into())).unwrap();
    world.snapshot().await; // commands are obeyed in order
    client.send(get("/x")).await;
    world.stub.next().await.answer(text(""));
    let answer = patiently("the answer", client.answer()).await;
    assert_eq!(answer.header("x-kubernetes-pf-flowschema-uid"), Some("another"));
    world.done().await;
}
