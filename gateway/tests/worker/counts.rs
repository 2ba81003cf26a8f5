//! What workers count together: watches that a write wakes, whichever worker has them; and what one that died had counted.

use std::collections::BTreeMap;

use usher::observe::View;
use usher::observe::metrics::{Value, refusals};
use usher::worker::{AdmissionSettings, Sabotage};
use usher_flowcontrol::meters;
use usher_flowcontrol::units::Seats;

use crate::crew::{Ship, served};
use crate::stub::{open, text};
use crate::world::{Client, get};

const WRITE: &str = "PUT /api/v1/namespaces/a/pods/x HTTP/1.1\r\nHost: usher\r\nContent-Length: 0\r\n\r\n";

/// Writes, and tells how many watches that is reckoned to have woken.
async fn woken_by_a_write(ship: &mut Ship, client: &mut Client) -> f64 {
    let before = woken(&ship.look().await);
    client.send(WRITE).await;
    ship.stub.next().await.answer(text("written"));
    assert_eq!(client.answer().await.status, 200);
    woken(&ship.look().await) - before
}

fn woken(view: &View) -> f64 {
    let core = view.snapshot.as_ref().expect("flow control");
    core.schemas.iter().map(|schema| schema.watch_counts.distribution().sum).sum()
}

#[tokio::test]
async fn a_write_wakes_watches_of_all_workers() {
    let mut ship = Ship::new(2).await;
    let (mut watchers, mut writers) = (ship.client_of_each().await, ship.client_of_each().await);
    assert_eq!(woken_by_a_write(&mut ship, &mut writers[1]).await, 0.0);
    let mut pens = Vec::new();
    for (watcher, target) in watchers.iter_mut().zip(["/api/v1/pods", "/api/v1/namespaces/a/pods"]) {
        watcher.send(get(&format!("{target}?watch=1"))).await;
        let (pen, answer) = open();
        ship.stub.next().await.answer(answer);
        assert_eq!(watcher.head().await.status, 200);
        pens.push(pen);
    }
    for writer in &mut writers {
        assert_eq!(woken_by_a_write(&mut ship, writer).await, 2.0);
    }
    // The worker dies that has the watch on all pods.
    ship.sabotage(0, Sabotage::Core);
    assert_eq!(watchers[0].read_all().await, "");
    ship.until("it to be gone", |view| view.counters.watches_open == 1).await;
    assert_eq!(woken_by_a_write(&mut ship, &mut writers[1]).await, 1.0);
    ship.until_whole().await;
    let mut writers = ship.client_of_each().await;
    drop((watchers, pens));
    ship.until("the other to be gone", |view| view.counters.watches_open == 0).await;
    for writer in &mut writers {
        assert_eq!(woken_by_a_write(&mut ship, writer).await, 0.0);
    }
    ship.done().await;
}

/// Counters, and the counts and buckets of histograms, by name and labels.
type Counted = BTreeMap<String, Vec<u64>>;

fn counted(view: &View) -> Option<Counted> {
    let families = meters::families(view.snapshot.as_ref()?);
    let mut counted = Counted::new();
    for family in families.iter().chain(&refusals::families(&view.turned_away)) {
        for child in &family.children {
            let series = format!("{}{:?}", family.description.name, child.labels);
            match &child.value {
                Value::Count(count) => counted.insert(series, vec![*count]),
                Value::Buckets(buckets, _) => counted.insert(series, buckets.clone()),
                Value::Number(_) => None, // a gauge
            };
        }
    }
    Some(counted)
}

/// Whoever died between them.
fn assert_nothing_fell(before: &Counted, after: &Counted) {
    for (series, then) in before {
        let now = after.get(series).unwrap_or_else(|| panic!("{series} is gone"));
        assert!(now.iter().zip(then).all(|(now, then)| now >= then), "{series}: {then:?}, then {now:?}");
    }
}

/// A read and a write on each connection.
async fn load(ship: &mut Ship, clients: &mut [Client]) {
    for client in clients {
        served(ship, client).await;
        client.send(WRITE).await;
        ship.stub.next().await.answer(text("written"));
        assert_eq!(client.answer().await.status, 200);
    }
}

#[tokio::test]
async fn no_counter_falls_when_a_worker_dies() {
    for workers in [1, 2] {
        for (how, victim) in [(Sabotage::Loop, 0), (Sabotage::Core, workers - 1), (Sabotage::Task, 0)] {
            println!("{workers} workers, {how:?}");
            let mut ship = Ship::new(workers).await;
            let mut clients = ship.client_of_each().await;
            load(&mut ship, &mut clients).await;
            let mut before = counted(&ship.look().await).expect("flow control");
            assert_eq!(
                before[r#"apiserver_flowcontrol_dispatched_requests_total["narrow", "everybody"]"#],
                [2 * workers as u64]
            );
            // Twice, so that what is past is added to what was past.
            for deaths in 1..=2 {
                ship.sabotage(victim, how.clone());
                loop {
                    let view = ship.look().await;
                    if let Some(now) = counted(&view) {
                        assert_nothing_fell(&before, &now);
                        before = now;
                    }
                    if view.workers[victim].deaths == deaths {
                        break;
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
                ship.until_whole().await;
                let mut clients = ship.client_of_each().await;
                load(&mut ship, &mut clients).await;
                let now = counted(&ship.look().await).expect("flow control");
                assert_nothing_fell(&before, &now);
                before = now;
            }
            assert_eq!(
                before[r#"apiserver_flowcontrol_dispatched_requests_total["narrow", "everybody"]"#],
                [6 * workers as u64]
            );
            ship.done().await;
        }
    }
}

#[tokio::test]
async fn what_a_dying_worker_had_under_way_is_over() {
    let mut ship = Ship::with(2, |settings| {
        settings.admission = AdmissionSettings::FlowControl { server_limit: Seats(400), together: None };
    })
    .await;
    let mut clients = ship.client_of_each().await;
    clients[0].send(get("/x")).await;
    let mut seen = ship.stub.next().await;
    ship.until("it to execute", |view| executing(view) == 1).await;
    ship.sabotage(0, Sabotage::Core);
    seen.abandoned().await;
    let view = ship.until("it to be over", |view| view.workers[0].deaths == 1).await;
    assert_eq!(executing(&view), 0);
    ship.until_whole().await;
    ship.done().await;
}

fn executing(view: &View) -> u64 {
    view.snapshot.iter().flat_map(|core| &core.schemas).map(|schema| schema.executing).sum()
}
