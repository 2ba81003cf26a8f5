//! What a decision costs: arrive, dispatch, finish at one priority level.
//!
//! Unsaturated: a seat is free, the request runs at once. Saturated: limit 8, 400 requests wait, each
//! finish lets the next one start and a new one takes its place. The number of queues must not matter.

use std::collections::VecDeque;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use usher_flowcontrol::level::{Arrival, Finish, Level, Mode, Ticket, Verdict};
use usher_flowcontrol::units::{FlowHash, Nanos, Seats, Work};

/// Seats of the level.
const LIMIT: Seats = Seats(8);

/// Requests that wait when it is saturated.
const WAITING: usize = 400;

/// kube-apiserver's default of 64, its suggested 128, and what it could not afford.
const QUEUES: [u32; 5] = [64, 128, 1024, 8192, 10_000_000];

criterion_group!(benches, unsaturated, saturated, cancelled);
criterion_main!(benches);

fn unsaturated(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("unsaturated: arrive, finish");
    for queues in QUEUES {
        let mut crowd = Crowd::new(queues);
        group.bench_with_input(BenchmarkId::from_parameter(queues), &(), |bench, ()| {
            bench.iter(|| {
                crowd.arrive();
                crowd.finish();
            });
        });
    }
    group.finish();
}

fn saturated(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("saturated: finish, dispatch, arrive");
    for queues in QUEUES {
        let mut crowd = Crowd::new(queues);
        crowd.fill();
        group.bench_with_input(BenchmarkId::from_parameter(queues), &(), |bench, ()| {
            bench.iter(|| {
                crowd.finish();
                crowd.arrive();
            });
        });
        assert_eq!(crowd.level.waiting(), WAITING);
    }
    group.finish();
}

fn cancelled(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("saturated: arrive, cancel");
    for queues in QUEUES {
        let mut crowd = Crowd::new(queues);
        crowd.fill();
        group.bench_with_input(BenchmarkId::from_parameter(queues), &(), |bench, ()| {
            bench.iter(|| {
                if let Some(ticket) = crowd.arrive() {
                    crowd.level.cancel(crowd.now, ticket, usher_flowcontrol::level::Reason::Cancelled);
                }
            });
        });
    }
    group.finish();
}

/// A level and its clients.
struct Crowd {
    level: Level,
    now: Nanos,
    arrived: u64,
    executing: VecDeque<Ticket>,
}

impl Crowd {
    fn new(queues: u32) -> Self {
        let hand_size = if queues > 1024 { 4 } else { 6 };
        let hand_size = if queues > 32_768 { 2 } else { hand_size };
        let mode = Mode::Queue { queues, hand_size, queue_length_limit: 50 };
        Self {
            level: Level::new(Nanos(0), mode, LIMIT),
            now: Nanos(0),
            arrived: 0,
            executing: VecDeque::with_capacity(64),
        }
    }

    fn fill(&mut self) {
        while self.level.waiting() < WAITING {
            self.arrive();
        }
    }

    /// A request of one of many flows; its ticket if it waits.
    fn arrive(&mut self) -> Option<Ticket> {
        self.now = self.now + Nanos(40_000);
        self.arrived += 1;
        // A thousand flows, hashes spread over all bits.
        let flow = FlowHash((self.arrived % 1000 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let arrival = Arrival { flow, work: Work::seats(1), tag: self.arrived };
        match black_box(self.level.arrive(self.now, black_box(arrival))) {
            Verdict::Execute(ticket) => self.executing.push_back(ticket),
            Verdict::Wait(ticket) => return Some(ticket),
            Verdict::Reject(_) => {}
        }
        None
    }

    /// The oldest one is done; who was waiting starts.
    fn finish(&mut self) {
        self.now = self.now + Nanos(40_000);
        let Some(ticket) = self.executing.pop_front() else { return };
        let finished = black_box(self.level.finish(self.now, black_box(ticket)));
        debug_assert_eq!(finished, Finish::Released);
        while let Some(next) = self.level.next_dispatched() {
            self.executing.push_back(next.ticket);
        }
    }
}
