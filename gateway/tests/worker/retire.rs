//! One worker goes and the others stay: who may be spared, and what becomes of it. Under load, with clients who notice: `steered`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use usher::crew::Kept;
use usher::observe::{State, View};
use usher::worker::{Command, Sabotage};

use crate::crew::{Ship, pass, served};
use crate::stub::text;
use crate::world::{Client, get, patiently};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

impl Ship {
    fn retire(&self, worker: usize) -> Result<(), Kept> {
        self.crew.retiring().retire(worker, LONG)
    }

    async fn until_out(&self, worker: usize) -> View {
        self.until("it to be out", |view| view.workers[worker].state == State::Out).await
    }
}

/// Two workers, a client of each, and a request that one of them has under way.
async fn busy(worker: usize) -> (Ship, Vec<Client>, crate::stub::Seen) {
    let mut ship = Ship::new(2).await;
    let mut clients = ship.client_of_each().await;
    clients[worker].send(get("/x")).await;
    let seen = ship.stub.next().await;
    (ship, clients, seen)
}

#[tokio::test]
async fn one_goes_when_it_is_through_and_the_last_one_stays() {
    let (mut ship, mut clients, seen) = busy(0).await;
    assert_eq!(ship.retire(2), Err(Kept::Unknown { worker: 2, workers: 2 }));
    assert_eq!(ship.retire(0), Ok(()));
    assert_eq!(ship.retire(0), Err(Kept::Drains(0)));
    assert_eq!(ship.retire(1), Err(Kept::Last(1)));
    let view = ship.until("it to drain", |view| view.workers[0].state == State::Draining).await;
    assert!(!view.draining && view.workers[1].state == State::Serving, "{:?}", view.workers);

    seen.answer(text("served"));
    let answer = clients[0].answer().await;
    assert_eq!((answer.body.as_str(), answer.header("connection")), ("served", Some("close")));
    let view = ship.until_out(0).await;
    assert!(!view.draining && view.workers[0].deaths == 0, "{:?}", view.workers);
    assert_eq!(ship.retire(0), Err(Kept::Out(0)));
    assert_eq!(ship.retire(1), Err(Kept::Last(1)));
    for _ in 0..16 {
        let mut client = ship.client().await; // half of them would wait in vain if its socket were open
        served(&mut ship, &mut client).await;
    }
    let retiring = ship.crew.retiring();
    ship.done().await;
    assert_eq!(retiring.retire(1, LONG), Err(Kept::Ending));
}

#[tokio::test]
async fn one_that_dies_while_it_drains_is_out_and_nobody_waits_for_it() {
    let (mut ship, mut clients, mut seen) = busy(0).await;
    ship.retire(0).unwrap();
    ship.sabotage(0, Sabotage::Loop);
    assert_eq!(clients[0].read_all().await, "", "its connection is closed");
    seen.abandoned().await;
    let view = ship.until_out(0).await;
    assert_eq!((view.workers[0].deaths, view.draining), (1, false));
    served(&mut ship, &mut clients[1]).await;
    ship.done().await;
}

#[tokio::test]
async fn one_that_is_being_restarted_is_not() {
    let mut ship = Ship::new(2).await;
    ship.client_of_each().await;
    ship.hindered.store(true, Ordering::Relaxed);
    ship.sabotage(1, Sabotage::Loop);
    ship.until("it to die", |view| view.workers[1].deaths == 1).await;
    assert_eq!(ship.retire(0), Err(Kept::Last(0)), "the other may not come back");
    assert_eq!(ship.retire(1), Ok(()));
    assert_eq!(ship.until_out(1).await.workers[1].deaths, 1);
    assert_eq!(ship.retire(1), Err(Kept::Out(1)));
    ship.hindered.store(false, Ordering::Relaxed);
    for _ in 0..16 {
        let mut client = ship.client().await; // as above
        served(&mut ship, &mut client).await;
    }
    ship.done().await;
}

/// It stands still, and its mailbox is full.
#[tokio::test]
async fn one_that_takes_no_messages_is_kept_and_others_drain_without_it() {
    let (mut ship, mut clients, seen) = busy(1).await;
    let barrier = Arc::new(Barrier::new(2));
    ship.sabotage(0, Sabotage::Hold(Arc::clone(&barrier)));
    pass(&barrier).await;
    while ship.posts.send(0, Command::Tidy) {}
    assert_eq!(ship.retire(0), Err(Kept::Deaf(0)));

    ship.crew.drain(LONG);
    patiently("the other to drain", async {
        loop {
            let (asker, answer) = tokio::sync::oneshot::channel();
            assert!(ship.posts.send(1, Command::Snapshot(asker)));
            if answer.await.unwrap().draining {
                break;
            }
        }
    })
    .await;
    seen.answer(text("served"));
    let answer = clients[1].answer().await;
    assert_eq!((answer.body.as_str(), answer.header("connection")), ("served", Some("close")));
    let ended = patiently("the end", ship.crew.ended()).await;
    assert_eq!(ended, Err("worker-0 takes no messages".to_owned()));
    pass(&barrier).await;
}

#[tokio::test]
async fn the_end_of_all_does_not_wait_for_the_grace_of_one() {
    let (mut ship, _clients, _never_answered) = busy(0).await;
    ship.retire(0).unwrap();
    ship.until("it to drain", |view| view.workers[0].state == State::Draining).await;
    ship.crew.drain(Duration::ZERO);
    patiently("the end", ship.crew.ended()).await.unwrap();
}
