//! Random histories: what is counted is what happened, everything is given back in the end, and a
//! history that is played again gives the same bits.

use super::*;
use proptest::prelude::*;

/// One thing that may happen. Indexes are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive { user: u8, seats: u64, latency: i64 },
    Finish(usize),
    Cancel(usize, Reason),
    Pass(i64),
    Borrow,
    Configure(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let why = prop_oneof![Just(Reason::TimeOut), Just(Reason::Cancelled)];
    prop_oneof![
        8 => (0..6_u8, 1..4_u64, prop_oneof![Just(0), 0..5_000_000_i64])
            .prop_map(|(user, seats, latency)| Step::Arrive { user, seats, latency }),
        4 => any::<usize>().prop_map(Step::Finish),
        2 => (any::<usize>(), why).prop_map(|(which, why)| Step::Cancel(which, why)),
        3 => (0..3_000_000_i64).prop_map(Step::Pass),
        1 => Just(Step::Borrow),
        1 => (0..3_usize).prop_map(Step::Configure),
    ]
}

/// What the owner of the requests holds.
struct Play {
    world: World,
    waiting: Vec<(u64, LevelId, Ticket)>,
    executing: Vec<(u64, LevelId, Ticket)>,
    lingering: Vec<(Nanos, LevelId, Ticket)>,
    arrived: u64,
    rejected: u64,
}

impl Play {
    fn new() -> Self {
        Self {
            world: World::narrow(),
            waiting: vec![],
            executing: vec![],
            lingering: vec![],
            arrived: 0,
            rejected: 0,
        }
    }

    fn perform(&mut self, step: Step) {
        match step {
            Step::Arrive { user, seats, latency } => self.arrive(user, seats, latency),
            Step::Finish(which) if !self.executing.is_empty() => self.finish(which % self.executing.len()),
            Step::Cancel(which, why) if !self.waiting.is_empty() => {
                let (_, level, ticket) = self.waiting.remove(which % self.waiting.len());
                assert!(self.world.controller.cancel(self.world.now, level, ticket, why));
                self.rejected += 1;
            }
            Step::Pass(span) => self.world.pass(Nanos(span)),
            Step::Borrow => self.world.controller.borrow(self.world.now),
            Step::Configure(which) => self.configure(which),
            Step::Finish(_) | Step::Cancel(..) => {}
        }
        self.drain();
        let now = self.world.now;
        let (due, later) = self.lingering.iter().partition(|(until, ..)| *until <= now);
        self.lingering = later;
        for (_, level, ticket) in due as Vec<(Nanos, LevelId, Ticket)> {
            self.world.controller.linger_end(now, level, ticket);
            self.drain();
        }
    }

    fn arrive(&mut self, user: u8, seats: u64, latency: i64) {
        let names = ["alice", "bob", "carol", "system:kube-scheduler", "system:node:a", "root"];
        let mut groups = self.world.groups.clone();
        if user == 5 {
            groups.push("system:masters".into());
        }
        let user = User { name: names[usize::from(user)], groups: &groups };
        let method = if latency > 0 { "PUT" } else { "GET" };
        let info = RequestInfo::parse(method, "/api/v1/namespaces/a/pods/x").unwrap();
        let class = self.world.controller.classify(user, &info);
        let work =
            Work { initial_seats: Seats(1), final_seats: Seats(seats), additional_latency: Nanos(latency) };
        self.arrived += 1;
        match self.world.controller.arrive(self.world.now, &class, work, self.arrived) {
            Verdict::Execute(ticket) => self.executing.push((self.arrived, class.level, ticket)),
            Verdict::Wait(ticket) => self.waiting.push((self.arrived, class.level, ticket)),
            Verdict::Reject(_) => self.rejected += 1,
        }
    }

    fn finish(&mut self, which: usize) {
        let (_, level, ticket) = self.executing.remove(which);
        if let Finish::Lingers { until } = self.world.controller.finish(self.world.now, level, ticket) {
            self.lingering.push((until, level, ticket));
        }
    }

    fn configure(&mut self, which: usize) {
        let (schemas, levels) = match which {
            0 => (vec![], vec![]),
            1 => narrow(3),
            _ => built_in(),
        };
        self.world.controller.configure(self.world.now, &schemas, &levels);
    }

    fn drain(&mut self) {
        while let Some((level, Event::Dispatched(next))) = self.world.controller.next_event() {
            let place =
                self.waiting.iter().position(|waits| *waits == (next.tag, level, next.ticket)).unwrap();
            let known = self.waiting.remove(place);
            self.executing.push(known);
        }
    }

    /// The counts of levels and schemas are those of who holds the requests.
    fn check(&mut self) {
        let snapshot = self.world.snapshot();
        let sum = |count: &dyn Fn(&crate::meters::SchemaMeters) -> u64| {
            snapshot.schemas.iter().map(count).sum::<u64>()
        };
        assert_eq!(sum(&|meters| meters.waiting), self.waiting.len() as u64);
        assert_eq!(sum(&|meters| meters.executing), self.executing.len() as u64);
        assert_eq!(sum(&|meters| meters.rejected.iter().sum()), self.rejected);
        assert_eq!(
            sum(&|meters| meters.dispatched) + self.rejected + self.waiting.len() as u64,
            self.arrived
        );
        let levels = &snapshot.levels;
        assert_eq!(levels.iter().map(|level| level.waiting).sum::<usize>(), self.waiting.len());
        assert_eq!(levels.iter().map(|level| level.executing).sum::<usize>(), self.executing.len());
        for level in levels {
            let of_level = |count: &dyn Fn(&crate::meters::SchemaMeters) -> u64| {
                snapshot.schemas.iter().filter(|meters| meters.level == level.name).map(count).sum::<u64>()
            };
            assert_eq!(of_level(&|meters| meters.waiting_seats), level.seats_waiting.0, "{}", level.name);
            // Seats that linger at a level that is gone are still counted under its name.
            assert!(of_level(&|meters| meters.executing_seats) >= level.seats_in_use.0, "{}", level.name);
        }
        let ([reading, writing], [reads, writes]) = self.world.controller.crowd();
        assert_eq!(
            (reading + writing, reads + writes),
            (self.waiting.len() as u64, self.executing.len() as u64)
        );
    }

    /// Everything ends.
    fn end(&mut self) {
        while !(self.waiting.is_empty() && self.executing.is_empty() && self.lingering.is_empty()) {
            if self.executing.is_empty() {
                // A level without a seat starts nothing: who waits there gives up.
                self.perform(Step::Cancel(0, Reason::TimeOut));
            }
            self.perform(Step::Finish(0));
            self.perform(Step::Pass(5_000_000));
        }
        self.world.controller.borrow(self.world.now);
        let snapshot = self.world.snapshot();
        assert!(snapshot.schemas.iter().all(crate::meters::SchemaMeters::is_idle), "{:?}", snapshot.schemas);
        assert!(
            snapshot
                .levels
                .iter()
                .all(|level| level.idle && level.seats_in_use == Seats(0) && !level.quiescing)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn what_is_counted_is_what_happened(steps in prop::collection::vec(step(), 1..120)) {
        let (mut play, mut again) = (Play::new(), Play::new());
        for step in steps {
            play.perform(step);
            play.check();
            again.perform(step);
        }
        prop_assert_eq!(alloc::format!("{:?}", play.world.snapshot()), alloc::format!("{:?}", again.world.snapshot()));
        play.end();
    }
}
