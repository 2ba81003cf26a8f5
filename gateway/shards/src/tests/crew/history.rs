//! Random lives: requests, configurations, deaths of workers and of the coordinator, in any order, with events that are
//! heard of late. Once everybody has looked, what is seen of all workers as one is what happened.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Arrive {
        worker: usize,
        group: usize,
        user: usize,
        seats: u64,
        latency: i64,
    },
    Finish(usize),
    LingerEnd(usize),
    Cancel(usize),
    Configure(Option<Shape>),
    Kill(usize),
    Replace(usize),
    KillCoordinator,
    Succeed,
    Borrow,
    Pass(i64),
    /// Everybody looks. Without it they hear later.
    Settle,
}

fn any_step() -> impl Strategy<Value = Step> {
    let (worker, pick) = (|| 0..WORKERS, || 0_usize..1000);
    let arrive = (worker(), 0..3_usize, 0..4_usize, 1..4_u64, prop_oneof![3 => Just(0), 1 => 1..1000_i64]);
    let shape = (0..6_i32, 1..60_i32, any::<bool>());
    let shape = shape.prop_map(|(queues, shares, two)| Shape { queues, shares, two });
    prop_oneof![
        24 => arrive.prop_map(|(worker, group, user, seats, latency)| {
            Step::Arrive { worker, group, user, seats, latency }
        }),
        8 => pick().prop_map(Step::Finish),
        4 => pick().prop_map(Step::LingerEnd),
        3 => pick().prop_map(Step::Cancel),
        2 => prop::option::weighted(0.9, shape).prop_map(Step::Configure),
        1 => worker().prop_map(Step::Kill),
        2 => worker().prop_map(Step::Replace),
        1 => Just(Step::KillCoordinator),
        2 => Just(Step::Succeed),
        1 => Just(Step::Borrow),
        4 => (0..3_000_000_000_i64).prop_map(Step::Pass),
        16 => Just(Step::Settle),
    ]
}

impl World {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Arrive { worker, group, user, seats, latency } if self.workers[worker].is_some() => {
                let work =
                    Work { additional_latency: Nanos(latency), final_seats: Seats(1), ..Work::seats(seats) };
                let (groups, users) = (["one", "two", "system:masters"], ["alice", "bob", "carol", "dave"]);
                self.arrive(worker, groups[group], users[user], work);
            }
            Step::Finish(at) => self.with(at, Phase::Executing, Self::finish),
            Step::LingerEnd(at) => self.with(at, Phase::Lingering, Self::linger_end),
            Step::Cancel(at) => self.with(at, Phase::Waiting, Self::cancel),
            Step::Configure(shape) if self.coordinator.is_some() => self.configure(shape),
            Step::Kill(worker) => self.kill(worker),
            Step::Replace(worker) if self.workers[worker].is_none() && self.coordinator.is_some() => {
                self.replace(worker);
            }
            Step::KillCoordinator => self.coordinator = None,
            Step::Succeed => self.succeed(),
            Step::Borrow if self.coordinator.is_some() => self.borrow(),
            Step::Pass(span) => self.pass(Nanos(span)),
            Step::Settle => {
                self.settle();
                if self.coordinator.is_some() {
                    self.check();
                }
            }
            Step::Arrive { .. } | Step::Configure(_) | Step::Replace(_) | Step::Borrow => {}
        }
    }

    fn with(&mut self, at: usize, phase: Phase, act: fn(&mut Self, u64)) {
        let fitting = self.requests.iter().filter(|(_, request)| request.phase == phase);
        let fitting: Vec<u64> = fitting.map(|(tag, _)| *tag).collect();
        if let Some(tag) = fitting.get(at % fitting.len().max(1)) {
            act(self, *tag);
        }
    }

    /// What is seen is what happened.
    fn check(&mut self) {
        let snapshot = self.snapshot();
        for level in &snapshot.levels {
            let home = self.shared.level(&level.name).map(Arc::downgrade).unwrap_or_default();
            let mine = || self.requests.values().filter(|request| Weak::ptr_eq(&request.home, &home));
            let count = |phase| mine().filter(|request| request.phase == phase).count();
            let seats =
                |phase| mine().filter(|request| request.phase == phase).map(|it| it.seats).sum::<u64>();
            let (executing, waiting) = (Phase::Executing, Phase::Waiting);
            let expected = Totals {
                waiting: count(waiting),
                executing: count(executing),
                seats_in_use: Seats(seats(executing) + seats(Phase::Lingering)),
                seats_waiting: Seats(seats(waiting)),
            };
            assert_eq!(totals(level), expected, "{}", level.name);
            assert_eq!(requests(level).count(), expected.waiting + expected.executing, "{}", level.name);
            let widest = mine().filter(|request| request.phase == waiting).map(|it| it.seats).max();
            let free = level.limit.0.saturating_sub(expected.seats_in_use.0);
            assert!(widest.is_none_or(|widest| widest > free), "somebody waits beside {free} free seats");
        }
        let sum = |count: fn(&SchemaMeters) -> u64| snapshot.schemas.iter().map(count).sum::<u64>();
        let held = |phase| self.requests.values().filter(|it| it.phase == phase).count() as u64;
        let (waiting, executing) = (held(Phase::Waiting), held(Phase::Executing));
        assert_eq!((sum(|it| it.waiting), sum(|it| it.executing)), (waiting, executing));
        let seats = self.requests.values().map(|it| it.seats).sum::<u64>();
        assert_eq!(sum(|it| it.waiting_seats) + sum(|it| it.executing_seats), seats);
        if self.workers.iter().all(Option::is_some) {
            assert_eq!(
                self.shared.crowd(),
                ([waiting, 0], [executing, 0]),
                "the dead count until they are buried"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn what_is_seen_of_all_workers_is_what_happened(
        exact in prop_oneof![2 => Just(false), 1 => Just(true)],
        steps in prop::collection::vec(any_step(), 1..150),
    ) {
        let mut world = World::new(exact);
        let mut seen: Vec<Weak<Level>> = Vec::new();
        for step in steps {
            world.step(&step);
            seen.extend(["one", "two"].iter().filter_map(|name| world.shared.level(name).map(Arc::downgrade)));
        }
        if world.coordinator.is_none() {
            world.succeed();
        }
        (0..WORKERS).filter(|worker| world.workers[*worker].is_none()).collect::<Vec<_>>().into_iter().for_each(|dead| world.replace(dead));
        world.settle();
        world.end_everything();
        world.check();
        let snapshot = world.snapshot();
        prop_assert!(snapshot.schemas.iter().all(SchemaMeters::is_idle));
        world.configure(None);
        world.borrow();
        world.settle();
        prop_assert_eq!(world.names(), ["catch-all", "exempt"]);
        prop_assert!(seen.iter().all(|level| level.upgrade().is_none()), "somebody keeps a level that is gone");
    }
}
