//! Random lives with the bypass on, while the role is now and then somebody else's, rings are short and workers look
//! only when they are woken. After every step: no seat is missing, none is used twice; once everybody has looked,
//! nobody waits who could run.

use super::*;
use proptest::prelude::*;
use std::sync::Arc;

const WORKERS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive {
        worker: usize,
        flow: u64,
        work: Work,
    },
    Cancel(usize),
    Finish(usize),
    LingerEnd(usize),
    Reconfigure {
        worker: usize,
        mode: Mode,
        limit: u64,
    },
    /// Somebody takes the role for some steps.
    Hold(usize),
    /// A worker that was woken looks.
    Look(usize),
    /// A worker dies, is buried and replaced.
    Die(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    let worker = || 0..WORKERS;
    let pick = || 0_usize..1000;
    let latency = prop_oneof![3 => Just(0), 1 => 1_i64..1000];
    let work = (1_u64..4, 0_u64..4, latency).prop_map(|(initial, last, latency)| Work {
        initial_seats: Seats(initial),
        final_seats: Seats(last),
        additional_latency: Nanos(latency),
    });
    let mode = prop_oneof![
        1 => Just(Mode::Exempt),
        1 => Just(Mode::Reject),
        6 => (1_u32..6, 1_u8..3, 0_u32..4).prop_map(|(count, hand, length)| queues(count, hand, length)),
    ];
    prop_oneof![
        10 => (worker(), 0_u64..5, work).prop_map(|(worker, flow, work)| Step::Arrive { worker, flow, work }),
        2 => pick().prop_map(Step::Cancel),
        6 => pick().prop_map(Step::Finish),
        3 => pick().prop_map(Step::LingerEnd),
        1 => (worker(), mode, 0_u64..9).prop_map(|(worker, mode, limit)| Step::Reconfigure { worker, mode, limit }),
        3 => (1_usize..8).prop_map(Step::Hold),
        4 => worker().prop_map(Step::Look),
        1 => worker().prop_map(Step::Die),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Executing,
    Lingering,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    worker: usize,
    ticket: Ticket,
    seats: Seats,
    phase: Phase,
}

struct World {
    level: Arc<Level>,
    shards: Vec<Option<Shard>>,
    requests: Vec<Request>,
    woken: [bool; WORKERS],
    now: i64,
    /// `None` once it was changed.
    limit: Option<u64>,
}

impl World {
    fn new(limit: u64, options: Options) -> Self {
        let level = Level::new(Nanos::ZERO, queues(4, 2, 3), Seats(limit), options);
        let shards = (0..WORKERS).map(|worker| level.shard(worker)).collect();
        Self { level, shards, requests: Vec::new(), woken: [false; WORKERS], now: 0, limit: Some(limit) }
    }

    fn step(&mut self, step: Step) {
        self.now += 1;
        let now = Nanos(self.now);
        match step {
            Step::Arrive { worker, flow, work } => {
                let Some(shard) = &mut self.shards[worker] else { return };
                let seats = work.max_seats();
                match arrive(shard, now, flow, work) {
                    Verdict::Execute(ticket) => {
                        self.requests.push(Request { worker, ticket, seats, phase: Phase::Executing });
                    }
                    Verdict::Wait(ticket) => {
                        self.requests.push(Request { worker, ticket, seats, phase: Phase::Waiting });
                    }
                    Verdict::Reject(_) => {}
                }
                self.listen(worker);
            }
            Step::Cancel(at) => self.with(at, Phase::Waiting, |shard, request| {
                let gone = shard.cancel(now, request.ticket, Reason::Cancelled);
                Some(Phase::Waiting).filter(|_| !gone)
            }),
            Step::Finish(at) => self.with(at, Phase::Executing, |shard, request| {
                let lingers = shard.finish(now, request.ticket) != Finish::Released;
                Some(Phase::Lingering).filter(|_| lingers)
            }),
            Step::LingerEnd(at) => self.with(at, Phase::Lingering, |shard, request| {
                shard.linger_end(now, request.ticket);
                None
            }),
            Step::Reconfigure { worker, mode, limit } => {
                let Some(shard) = &mut self.shards[worker] else { return };
                self.limit = None;
                shard.reconfigure(now, mode, Seats(limit));
                self.listen(worker);
            }
            Step::Look(worker) => self.look(worker),
            Step::Die(worker) => {
                if (0..WORKERS).all(|other| other == worker || self.shards[other].is_none()) {
                    return; // somebody is left to bury: see `Shard::bury`
                }
                self.shards[worker] = None;
                self.requests.retain(|request| request.worker != worker);
                self.bury();
            }
            Step::Hold(_) => {}
        }
    }

    /// Whoever lives buries; if he has the role, there are successors.
    fn bury(&mut self) {
        for dead in (0..WORKERS).filter(|&worker| self.shards[worker].is_none()).collect::<Vec<_>>() {
            if let Some(alive) = (0..WORKERS).find(|&worker| self.shards[worker].is_some()) {
                self.shards[alive].as_mut().expect("it lives").bury(Nanos(self.now), dead);
                self.listen(alive);
            }
            self.shards[dead] = self.level.shard(dead);
        }
    }

    /// Picks a request in that phase; `act` returns the phase it is in then.
    fn with(&mut self, at: usize, phase: Phase, act: impl Fn(&mut Shard, Request) -> Option<Phase>) {
        let fitting: Vec<_> =
            (0..self.requests.len()).filter(|&at| self.requests[at].phase == phase).collect();
        let Some(&place) = fitting.get(at % fitting.len().max(1)) else { return };
        let request = self.requests.swap_remove(place);
        let shard = self.shards[request.worker].as_mut().expect("the requests of the dead are forgotten");
        if let Some(phase) = act(shard, request) {
            self.requests.push(Request { phase, ..request });
        }
        self.listen(request.worker);
    }

    fn look(&mut self, worker: usize) {
        if std::mem::take(&mut self.woken[worker]) && self.shards[worker].is_some() {
            self.shards[worker].as_mut().expect("it lives").poll(Nanos(self.now));
            self.listen(worker);
        }
    }

    fn listen(&mut self, worker: usize) {
        let shard = self.shards[worker].as_mut().expect("it lives");
        for event in events(shard) {
            let (Event::Dispatched(Dispatched { ticket, .. }) | Event::Rejected { ticket, .. }) = event;
            let this = |it: &Request| (it.worker, it.ticket, it.phase) == (worker, ticket, Phase::Waiting);
            let place = self.requests.iter().position(this).expect("it waits");
            let request = self.requests.swap_remove(place);
            if let Event::Dispatched(_) = event {
                self.requests.push(Request { phase: Phase::Executing, ..request });
            }
        }
        wakes(shard).into_iter().for_each(|other| self.woken[other] = true);
        self.check_limit();
    }

    /// While the limit stays what it was, it is never exceeded but by one that is wider.
    fn check_limit(&self) {
        let Some(limit) = self.limit else { return };
        let held = |request: &&Request| request.phase != Phase::Waiting;
        let used: u64 = self.requests.iter().filter(held).map(|request| request.seats.0).sum();
        let wide = self.requests.iter().filter(held).any(|request| request.seats.0 > limit);
        assert!(used <= limit || wide, "{used} seats of {limit}");
    }

    /// Everybody who was woken looks: then all that is counted agrees, and nobody waits who could run.
    fn settle(&mut self) {
        loop {
            self.bury();
            while self.woken.contains(&true) {
                (0..WORKERS).for_each(|worker| self.look(worker));
            }
            if self.shards.iter().all(Option::is_some) {
                break;
            }
        }
        let waiting = self.requests.iter().filter(|request| request.phase == Phase::Waiting).count();
        let common = &self.level.common;
        assert_eq!(common.pool.view().waiting, waiting as u64);
        let mut sequencer = self.level.role().expect("nobody visits");
        assert_eq!(sequencer.level.waiting(), waiting);
        sequencer.look_outside(common);
        sequencer.level.advance(Nanos(self.now));
        assert_eq!(sequencer.level.next_dispatched(), None, "it could have run before");
    }

    /// Everything ends: then no seat is missing.
    fn end(mut self) {
        while !self.requests.is_empty() {
            self.settle();
            for step in [Step::Finish(0), Step::LingerEnd(0)] {
                self.step(step);
            }
            // What can never run at a limit of 0.
            if self.requests.iter().all(|request| request.phase == Phase::Waiting) {
                self.step(Step::Cancel(0));
            }
        }
        self.settle();
        let look = self.shards[0].as_mut().expect("it lives").look(Nanos(self.now));
        let free = look.free + look.leased.iter().sum::<u64>().cast_signed();
        assert_eq!(free, self.level.limit().0.cast_signed(), "{look:?}");
        assert!(self.level.is_empty());
        assert_eq!(look.held, [0; WORKERS]);
        let inside = look.sequenced.expect("nobody visits");
        assert_eq!((inside.executing, inside.waiting, inside.seats_in_use), (0, 0, Seats(0)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_seat_is_lost_and_nobody_is_forgotten(
        limit in 0_u64..9,
        lease in 0_u64..3,
        ring in prop_oneof![Just(1_usize), Just(2), Just(64)],
        hold in prop_oneof![Just(1_u32), Just(2), Just(64)],
        bypass in prop_oneof![4 => Just(true), 1 => Just(false)],
        steps in prop::collection::vec(any_step(), 1..200),
    ) {
        let options =
            Options { workers: WORKERS, watchers: 0, slots: 6, ring, bypass, lease, lease_from: 1, hold };
        let mut world = World::new(limit, options);
        let level = Arc::clone(&world.level);
        let mut held = None;
        for step in steps {
            match (step, &mut held) {
                (Step::Hold(steps), None) => held = level.role().map(|holder| (holder, steps)),
                (_, Some((_, left @ 1..))) => *left -= 1,
                _ => {}
            }
            if held.as_ref().is_some_and(|(_, left)| *left == 0) {
                // The holder looks at the mail when he has given up the role.
                held = None;
                if let Some(worker) = (0..WORKERS).find(|&worker| world.shards[worker].is_some()) {
                    world.woken[worker] = true;
                    world.shards[worker].as_mut().expect("it lives").visit(Nanos(world.now), None);
                    world.listen(worker);
                }
            }
            world.step(step);
            if held.is_none() {
                world.settle();
            }
        }
        drop(held);
        world.woken = [true; WORKERS];
        world.end();
    }
}
