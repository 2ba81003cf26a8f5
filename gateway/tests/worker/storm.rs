//! Everything at once, in an order that the seed decides: whatever clients and apiserver do, no seat is lost.

use std::time::Duration;

use http_body_util::BodyExt;

use crate::stub::{Seen, open, text};
use crate::world::{World, get, get2, patiently, post2};

/// Clients of a storm. With one seat and a queue of ten, some run, many wait, some are turned away.
const CLIENTS: usize = 40;
/// Requests of each.
const ROUNDS: usize = 6;

/// SplitMix64: enough to choose among a few.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}

#[tokio::test]
async fn no_storm_loses_a_seat() {
    for seed in 0..3 {
        storm(seed).await;
    }
}

async fn storm(seed: u64) {
    println!("seed {seed}");
    let mut world = World::with(|settings| settings.request_timeout = Duration::from_millis(400)).await;
    let mut clients = Vec::new();
    for index in 0..CLIENTS {
        let mut dice = Dice(seed << 32 | index as u64);
        clients.push(if index % 2 == 0 {
            let client = world.client().await;
            tokio::spawn(http1_client(client, dice))
        } else {
            let client = world.client2().await;
            tokio::spawn(async move { http2_client(client, &mut dice).await })
        });
    }
    let mut dice = Dice(!seed);
    let mut held = Vec::new();
    let all = futures_util::future::join_all(clients);
    let mut all = std::pin::pin!(all);
    loop {
        tokio::select! {
            _ = &mut all => break,
            seen = world.stub.next() => apiserver(seen, &mut dice, &mut held).await,
        }
    }
    drop(held);
    let counters = world.counters().await;
    assert!(
        counters.executed > 0 && counters.rejected_queue_full + counters.rejected_time_out > 0,
        "{counters:?}"
    );
    world.done().await;
}

/// Answers, now or in pieces, breaks off, or never answers.
async fn apiserver(mut seen: Seen, dice: &mut Dice, held: &mut Vec<Seen>) {
    match dice.throw(8) {
        0 => drop(seen),
        1 => held.push(seen),
        2 => {
            let (pen, response) = open();
            seen.answer(response);
            let _ = pen.write_bytes("half".into()); // nobody may be there to read it any more
            pen.break_off();
        }
        3 => {
            let _ = tokio::time::timeout(Duration::from_millis(20), seen.request.body_mut().collect()).await;
            seen.answer(text("late"));
        }
        _ => seen.answer(text("done")),
    }
}

fn target(dice: &mut Dice) -> &'static str {
    ["/x", "/api/v1/pods", "/api/v1/pods?watch=1", "/x?timeout=10ms", "/api/v1/namespaces/a/pods/p/log"]
        [usize::try_from(dice.throw(5)).unwrap()]
}

async fn http1_client(mut client: crate::world::Client, mut dice: Dice) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    for _ in 0..ROUNDS {
        let request = match dice.throw(4) {
            0 => "POST /x HTTP/1.1\r\nHost: usher\r\nContent-Length: 9\r\n\r\nhalf".to_owned(),
            _ => get(target(&mut dice)),
        };
        if client.0.write_all(request.as_bytes()).await.is_err() {
            return;
        }
        let patience = Duration::from_millis(5 + dice.throw(300));
        let mut read = [0; 1024];
        match tokio::time::timeout(patience, client.0.read(&mut read)).await {
            Ok(Ok(1..)) => {} // and on, whatever it was
            _ => return,      // leaves
        }
    }
}

async fn http2_client(mut client: crate::world::Client2, dice: &mut Dice) {
    for _ in 0..ROUNDS {
        let request = match dice.throw(4) {
            0 => post2("/x", vec![0; 100_000]),
            _ => get2(target(dice)),
        };
        let patience = Duration::from_millis(5 + dice.throw(300));
        if patiently("the connection", client.ready()).await.is_err() {
            return;
        }
        let answer = async { client.send_request(request).await?.into_body().collect().await };
        let _ = tokio::time::timeout(patience, answer).await; // or resets the stream
    }
}
