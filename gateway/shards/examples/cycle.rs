//! What a request costs at a shared level: `cargo run --release -p usher-shards --example cycle -- WHAT
//! THREADS REQUESTS`.
//!
//! WHAT is `bypass` (nobody waits; limit 600), `lease` (the same, seats kept by the workers), `exact` (nobody
//! waits, but everything goes through the sequencer) or `contended` (limit 8, 200 requests of every worker
//! wait; bypass on). Each thread has a core of its own, the last ones first: left to the scheduler, two of them that
//! come to share a core wait for each other's seats for whole slices of time. For instructions, run it under callgrind with N and with 5 N requests and divide the
//! difference by 4 N.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use usher_flowcontrol::level::{Arrival, Finish, Mode, Ticket, Verdict};
use usher_flowcontrol::units::{FlowHash, Nanos, Seats, Work};
use usher_shards::{Event, Level, Options, Shard};

/// Requests of every worker that wait when it is contended.
const WAITING: u64 = 200;

/// Turns between two looks at how far the others are.
const BATCH: u64 = 64;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_else(|| "bypass".into());
    let number = |word: Option<String>, or: u64| word.and_then(|word| word.parse().ok()).unwrap_or(or);
    let threads = number(arguments.next(), 1);
    let requests = number(arguments.next(), 1_000_000);
    let workers = usize::try_from(threads).expect("few");

    let limit = if what == "contended" { 8 } else { 600 };
    let lease = if what == "lease" { 4 } else { 0 };
    let options = Options { workers, bypass: what != "exact", lease, ..Options::default() };
    let mode = Mode::Queue { queues: 128, hand_size: 6, queue_length_limit: 10_000 };
    let level = Level::new(Nanos::ZERO, mode, Seats(limit), options);
    let waiting = if what == "contended" { WAITING } else { 0 };

    let begin = Arc::new(Barrier::new(workers));
    let done = Arc::new(AtomicU64::new(0));
    let started: Vec<_> = (0..workers)
        .map(|worker| {
            let shard = level.shard(worker).expect("nobody has it");
            let (begin, done) = (Arc::clone(&begin), Arc::clone(&done));
            std::thread::spawn(move || {
                pin(worker);
                let mut crowd = Crowd { shard, executing: Vec::new(), arrived: 0 };
                (0..waiting).for_each(|_| crowd.arrive());
                begin.wait();
                timed(|| crowd.run(&done, requests * threads))
            })
        })
        .collect();
    let longest = started.into_iter().map(|thread| thread.join().expect("it does not panic")).max();
    let nanos = longest.unwrap_or(Duration::ZERO).as_nanos();
    println!("{what}, {threads} threads: {} ns a request and thread", nanos / u128::from(requests.max(1)));
}

fn pin(worker: usize) {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if let Some(core) = cores.iter().rev().nth(worker) {
        core_affinity::set_for_current(*core);
    }
}

#[expect(clippy::disallowed_methods, reason = "a measurement; the level is told the time")]
fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// A worker whose every finished request is followed by a new one.
struct Crowd {
    shard: Shard,
    executing: Vec<Ticket>,
    arrived: u64,
}

impl Crowd {
    /// Until all workers together have finished so many.
    fn run(&mut self, done: &AtomicU64, requests: u64) {
        let mut own = 0;
        while done.load(Relaxed) < requests {
            for _ in 0..BATCH {
                if self.shard.held() == 0 {
                    self.arrive();
                }
                if let Some(ticket) = self.executing.pop() {
                    assert_eq!(self.shard.finish(self.now(), ticket), Finish::Released);
                    own += 1;
                    self.arrive();
                }
                self.shard.poll(self.now());
                self.look();
            }
            done.fetch_add(std::mem::take(&mut own), Relaxed);
        }
    }

    fn arrive(&mut self) {
        self.arrived += 1;
        let flow = FlowHash((self.arrived % 20 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 4);
        let arrival = Arrival { flow, work: Work::seats(1), tag: 0 };
        match self.shard.arrive(self.now(), arrival) {
            Verdict::Execute(ticket) => self.executing.push(ticket),
            Verdict::Wait(_) => {}
            Verdict::Reject(why) => panic!("{why:?}"),
        }
        self.look();
    }

    /// A millisecond a request, or thereabouts.
    fn now(&self) -> Nanos {
        Nanos::from_millis(i64::try_from(self.arrived).unwrap_or(i64::MAX))
    }

    fn look(&mut self) {
        while let Some(Event::Dispatched(started)) = self.shard.next_event() {
            self.executing.push(started.ticket);
        }
        while self.shard.next_wake().is_some() {}
    }
}
