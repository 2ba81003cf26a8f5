//! Real threads: a worker that is not woken when it should be waits for ever, and the test with it.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::thread::Thread;

/// Requests of each worker; millions with `cargo test --release`.
const REQUESTS: u64 = if cfg!(debug_assertions) { 200_000 } else { 5_000_000 };

/// A worker: one request after the other, asleep while it waits.
struct Worker {
    shard: Shard,
    threads: Arc<[std::sync::OnceLock<Thread>]>,
    /// Seats in use, as their users see it.
    used: Arc<AtomicI64>,
    limit: i64,
}

impl Worker {
    fn run(&mut self, width: fn(u64) -> u64, cancels: fn(u64) -> bool) -> u64 {
        let mut executed = 0;
        for turn in 0..REQUESTS {
            let seats = width(turn);
            let flow = self.shard.worker() as u64;
            match arrive(&mut self.shard, Nanos(0), flow, Work::seats(seats)) {
                Verdict::Execute(ticket) => executed += self.execute(ticket, seats),
                Verdict::Wait(ticket) => {
                    self.wake_others();
                    if cancels(turn) && self.shard.cancel(Nanos(0), ticket, Reason::Cancelled) {
                        self.wake_others();
                        continue;
                    }
                    let started = self.wait();
                    assert_eq!(started, ticket);
                    executed += self.execute(started, seats);
                }
                Verdict::Reject(why) => panic!("{why:?}"),
            }
        }
        executed
    }

    fn execute(&mut self, ticket: Ticket, seats: u64) -> u64 {
        self.wake_others();
        let used = self.used.fetch_add(seats.cast_signed(), SeqCst) + seats.cast_signed();
        assert!(used <= self.limit, "{used} seats of {}", self.limit);
        self.used.fetch_sub(seats.cast_signed(), SeqCst);
        assert_eq!(self.shard.finish(Nanos(0), ticket), Finish::Released);
        self.wake_others();
        1
    }

    /// Sleeps until an event comes; nobody but the one who owes it wakes this thread.
    fn wait(&mut self) -> Ticket {
        loop {
            match self.shard.next_event() {
                Some(Event::Dispatched(started)) => return started.ticket,
                Some(event) => panic!("{event:?}"),
                None => {
                    self.wake_others();
                    std::thread::park();
                    self.shard.poll(Nanos(0));
                }
            }
        }
    }

    /// Does for the others what is passed on to this worker, until all are through.
    fn stay(&mut self, left: &AtomicI64) {
        left.fetch_sub(1, SeqCst);
        while left.load(SeqCst) > 0 {
            self.wake_others();
            std::thread::park_timeout(std::time::Duration::from_millis(1));
            self.shard.poll(Nanos(0));
        }
    }

    fn wake_others(&mut self) {
        while let Some(worker) = self.shard.next_wake() {
            if let Some(thread) = self.threads[worker].get() {
                thread.unpark();
            }
        }
    }
}

/// Workers race through their requests; nobody may be left behind, and no seat lost.
fn race(
    workers: usize,
    limit: u64,
    options: Options,
    width: fn(u64) -> u64,
    cancels: fn(u64) -> bool,
) -> u64 {
    let options = Options { workers, slots: 4, ring: 4, ..options };
    let shards = level(queues(8, 2, 1000), limit, options);
    let level = Arc::clone(shards[0].level());
    let threads: Arc<[std::sync::OnceLock<Thread>]> =
        (0..workers).map(|_| std::sync::OnceLock::new()).collect();
    let used = Arc::new(AtomicI64::new(0));
    let executed = AtomicU64::new(0);
    let left = AtomicI64::new(i64::try_from(workers).expect("few"));
    let begin = std::sync::Barrier::new(workers);
    let mut shards: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..)
            .zip(shards)
            .map(|(index, shard)| {
                let (threads, used) = (Arc::clone(&threads), Arc::clone(&used));
                let (executed, left, begin) = (&executed, &left, &begin);
                scope.spawn(move || {
                    let index: usize = index;
                    threads[index].set(std::thread::current()).expect("once");
                    begin.wait();
                    let mut worker = Worker { shard, threads, used, limit: limit.cast_signed() };
                    executed.fetch_add(worker.run(width, cancels), SeqCst);
                    worker.stay(left);
                    worker.shard
                })
            })
            .collect();
        started.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    shards.iter_mut().for_each(|shard| shard.poll(Nanos(0)));
    let look = shards[0].look(Nanos(0));
    let free = look.free + look.leased.iter().sum::<u64>().cast_signed();
    assert_eq!((free, look.waiting), (limit.cast_signed(), 0));
    assert!(level.is_empty());
    executed.into_inner()
}

#[test]
fn two_workers_and_one_seat() {
    for bypass in [true, false] {
        let options = Options { bypass, ..Options::default() };
        assert_eq!(race(2, 1, options, |_| 1, |_| false), 2 * REQUESTS);
    }
}

#[test]
fn leases_between_two_workers() {
    let options = Options { lease: 2, lease_from: 1, ..Options::default() };
    assert_eq!(race(2, 2, options, |turn| 1 + turn % 2, |_| false), 2 * REQUESTS);
}

#[test]
fn three_workers_some_wide_some_impatient() {
    let executed = race(3, 3, Options::default(), |turn| 1 + turn % 3, |turn| turn % 5 == 0);
    assert!(executed >= 3 * REQUESTS * 4 / 5, "{executed}");
}
