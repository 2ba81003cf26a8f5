//! Workers with a coordinator, through their controllers: levels that come and go, workers and coordinators that die,
//! and random lives, after each step of which all that is counted is what happened.

mod history;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use usher_flowcontrol::controller::{Class, Controller, LevelId, User};
use usher_flowcontrol::level::{Phase, Totals};
use usher_flowcontrol::meters::SchemaMeters;
use usher_flowcontrol::objects::bootstrap::{
    mandatory_levels, mandatory_schemas, suggested_levels, suggested_schemas,
};
use usher_flowcontrol::objects::{FlowSchema, LimitResponse, Limited, PriorityLevelConfiguration, Queuing};
use usher_flowcontrol::request_info::RequestInfo;
use usher_flowcontrol::snapshot::{self, Snapshot, merge};

use super::*;
use crate::coordinator::{Coordinator, Shared};
use crate::part::Part;

const WORKERS: usize = 3;
/// Of the server. The exempt level's share is lent.
const SEATS: Seats = Seats(24);

/// Objects that are in force: a shape for `one` and, perhaps, for `two`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    /// Of `one`; 0: it rejects what does not fit.
    queues: i32,
    shares: i32,
    two: bool,
}

const USUAL: Shape = Shape { queues: 4, shares: 30, two: true };

/// Schemas that send users of group `one` to level `one`, of `two` to `two`.
fn objects(shape: Shape) -> (Vec<FlowSchema>, Vec<PriorityLevelConfiguration>) {
    let named = |schemas: Vec<FlowSchema>, name: &str| {
        schemas.into_iter().find(|schema| schema.metadata.name == name).expect("suggested")
    };
    let (mut schemas, mut levels) = (mandatory_schemas(), mandatory_levels());
    let model = suggested_levels().into_iter().find(|level| level.metadata.name == "global-default");
    let names = ["one", "two"].into_iter().take(if shape.two { 2 } else { 1 });
    for name in names {
        let mut schema = named(suggested_schemas(), "global-default");
        schema.metadata.name = name.into();
        schema.spec.priority_level_configuration.name = name.into();
        for subject in schema.spec.rules.iter_mut().flat_map(|rule| &mut rule.subjects) {
            if let Some(group) = &mut subject.group {
                group.name = name.into();
            }
        }
        let mut level = model.clone().expect("suggested");
        level.metadata.name = name.into();
        let queuing = Queuing { queues: shape.queues, hand_size: 1, queue_length_limit: 5 };
        let limit_response = match shape.queues {
            0 => LimitResponse { kind: "Reject".into(), queuing: None },
            _ => LimitResponse { kind: "Queue".into(), queuing: Some(queuing) },
        };
        level.spec.limited = Some(Limited {
            nominal_concurrency_shares: Some(shape.shares),
            limit_response,
            lendable_percent: Some(50),
            borrowing_limit_percent: None,
        });
        schemas.push(schema);
        levels.push(level);
    }
    (schemas, levels)
}

/// A request that was accepted.
#[derive(Clone, Debug)]
struct Held {
    worker: usize,
    level: LevelId,
    ticket: Ticket,
    /// Of its level, and of its schema.
    name: String,
    home: Weak<Level>,
    seats: u64,
    phase: Phase,
}

struct World {
    /// `None`: it has died.
    coordinator: Option<Coordinator>,
    workers: Vec<Option<Controller<Part>>>,
    /// As every worker was told.
    shared: Shared,
    shape: Option<Shape>,
    exact: bool,
    now: Nanos,
    second: i64,
    tag: u64,
    requests: BTreeMap<u64, Held>,
}

impl World {
    fn new(exact: bool) -> Self {
        let coordinator = Coordinator::new(Nanos::ZERO, SEATS, WORKERS, exact);
        let shared = coordinator.shared().clone();
        let mut world = Self {
            coordinator: Some(coordinator),
            workers: (0..WORKERS).map(|_| Some(Controller::empty(Nanos::ZERO, SEATS))).collect(),
            shared,
            shape: None,
            exact,
            now: Nanos::ZERO,
            second: 1_700_000_000,
            tag: 0,
            requests: BTreeMap::new(),
        };
        world.configure(Some(USUAL));
        world
    }

    // === what happens ===

    fn configure(&mut self, shape: Option<Shape>) {
        self.shape = shape;
        self.shared = self.tell_coordinator(true);
        (0..WORKERS).for_each(|worker| self.take_over(worker));
        self.settle();
    }

    fn objects(&self) -> (Vec<FlowSchema>, Vec<PriorityLevelConfiguration>) {
        self.shape.map_or_else(|| (Vec::new(), Vec::new()), objects)
    }

    fn tell_coordinator(&mut self, moves_seats: bool) -> Shared {
        let (schemas, levels) = self.objects();
        self.coordinator.as_mut().expect("it lives").configure(self.now, &schemas, &levels, moves_seats)
    }

    fn take_over(&mut self, worker: usize) {
        let (schemas, levels) = self.objects();
        let (shared, now) = (self.shared.clone(), self.now);
        if let Some(controller) = &mut self.workers[worker] {
            controller.take_over(now, &schemas, &levels, |level, known| shared.part(worker, level, known));
        }
    }

    fn class(&self, worker: usize, group: &str, user: &str) -> Class {
        let groups = [group.to_owned(), "system:authenticated".to_owned()];
        let request = RequestInfo::parse("GET", "/api/v1/pods").expect("a path");
        let controller = self.workers[worker].as_ref().expect("it lives");
        controller.classify(User { name: user, groups: &groups }, &request)
    }

    /// `None`: turned away.
    fn arrive(&mut self, worker: usize, group: &str, user: &str, work: Work) -> Option<u64> {
        let class = self.class(worker, group, user);
        let (now, tag, second) = (self.now, self.tag, self.second);
        self.tag += 1;
        let controller = self.workers[worker].as_mut().expect("it lives");
        let (ticket, phase) = match controller.arrive(now, &class, work, tag) {
            Verdict::Execute(ticket) => (ticket, Phase::Executing),
            Verdict::Wait(ticket) => (ticket, Phase::Waiting),
            Verdict::Reject(_) => {
                controller.retry_after(second, class.level);
                return None;
            }
        };
        let (name, seats) = (controller.level_name(class.level).to_owned(), work.max_seats().0);
        let home = self.shared.level(&name).map(Arc::downgrade).unwrap_or_default();
        self.requests.insert(tag, Held { worker, level: class.level, ticket, name, home, seats, phase });
        Some(tag)
    }

    fn finish(&mut self, tag: u64) {
        let Held { worker, level, ticket, .. } = self.requests[&tag];
        match self.workers[worker].as_mut().expect("it lives").finish(self.now, level, ticket) {
            Finish::Released => drop(self.requests.remove(&tag)),
            Finish::Lingers { .. } => self.becomes(tag, Phase::Lingering),
        }
    }

    fn linger_end(&mut self, tag: u64) {
        let Held { worker, level, ticket, .. } = self.requests[&tag];
        self.workers[worker].as_mut().expect("it lives").linger_end(self.now, level, ticket);
        self.requests.remove(&tag);
    }

    /// Of a worker that has not heard yet that it was decided about, nothing comes of it.
    fn cancel(&mut self, tag: u64) {
        let Held { worker, level, ticket, .. } = self.requests[&tag];
        let controller = self.workers[worker].as_mut().expect("it lives");
        if controller.cancel(self.now, level, ticket, Reason::Cancelled) {
            self.requests.remove(&tag);
        }
    }

    fn kill(&mut self, worker: usize) {
        self.workers[worker] = None;
        self.requests.retain(|_, request| request.worker != worker);
    }

    fn replace(&mut self, worker: usize) {
        assert!(self.coordinator.as_mut().expect("it lives").bury(self.now, worker), "nobody is in the way");
        self.workers[worker] = Some(Controller::empty(self.now, SEATS));
        self.take_over(worker);
    }

    fn succeed(&mut self) {
        self.coordinator = None;
        self.coordinator = Some(Coordinator::succeed(self.now, SEATS, self.exact, self.shared.clone()));
        self.shared = self.tell_coordinator(false);
    }

    fn borrow(&mut self) {
        let coordinator = self.coordinator.as_mut().expect("it lives");
        if coordinator.borrow(self.now) {
            self.shared = coordinator.shared().clone();
            self.workers.iter_mut().flatten().for_each(|worker| worker.tidy(self.now));
        }
    }

    fn becomes(&mut self, tag: u64, phase: Phase) {
        self.requests.get_mut(&tag).expect("it was accepted").phase = phase;
    }

    /// Everybody looks, until nobody has left anything for anybody.
    fn settle(&mut self) {
        loop {
            let mut woken = false;
            for worker in 0..WORKERS {
                let Some(controller) = &mut self.workers[worker] else { continue };
                controller.poll(self.now);
                let (waiting, executing) = controller.crowd();
                self.shared.tell_crowd(worker, waiting, executing);
                let events: Vec<_> = std::iter::from_fn(|| controller.next_event()).collect();
                woken |= std::iter::from_fn(|| controller.next_wake()).count() > 0;
                for (_, event) in events {
                    match event {
                        Event::Dispatched(Dispatched { tag, .. }) => self.becomes(tag, Phase::Executing),
                        Event::Rejected { tag, .. } => drop(self.requests.remove(&tag)),
                    }
                }
            }
            if let Some(coordinator) = &mut self.coordinator {
                coordinator.observe(self.now, self.second);
                woken |= std::iter::from_fn(|| coordinator.next_wake()).count() > 0;
            }
            if !woken {
                return;
            }
        }
    }

    fn pass(&mut self, span: Nanos) {
        self.now = self.now + span;
    }

    /// Whatever is under way ends.
    fn end_everything(&mut self) {
        while let Some((&tag, &Held { phase, .. })) = self.requests.first_key_value() {
            match phase {
                Phase::Waiting => self.cancel(tag),
                Phase::Executing => self.finish(tag),
                _ => self.linger_end(tag),
            }
            self.settle();
        }
    }

    // === what can be seen ===

    fn snapshot(&mut self) -> Snapshot {
        let workers: Vec<_> =
            self.workers.iter_mut().map(|worker| Some(worker.as_mut()?.snapshot(self.now))).collect();
        let whole = self.coordinator.as_mut().expect("it lives").snapshot(self.now);
        let merged = merge(whole, &workers);
        let owners = &merged.owners;
        for request in merged.snapshot.levels.iter().flat_map(requests) {
            let (worker, tag) = owners[usize::try_from(request.tag).expect("an index")];
            if let Some(held) = self.requests.get(&tag) {
                assert_eq!((held.worker, &*request.schema), (worker, &*held.name));
            }
        }
        merged.snapshot
    }

    fn level(&mut self, name: &str) -> Option<snapshot::Level> {
        self.snapshot().levels.into_iter().find(|level| *level.name == *name)
    }

    fn names(&mut self) -> Vec<String> {
        self.snapshot().levels.iter().map(|level| level.name.to_string()).collect()
    }

    fn limits(&mut self) -> Vec<(String, u64)> {
        self.snapshot().levels.iter().map(|level| (level.name.to_string(), level.limit.0)).collect()
    }

    fn held(&self, name: &str, phase: Phase) -> usize {
        self.requests.values().filter(|request| (&*request.name, request.phase) == (name, phase)).count()
    }

    fn arc(&self, name: &str) -> Option<Arc<Level>> {
        self.shared.level(name).cloned()
    }
}

fn requests(level: &snapshot::Level) -> impl Iterator<Item = &snapshot::Request> {
    let queues = level.queues.iter().flat_map(|queue| queue.waiting.iter().chain(&queue.executing));
    queues.chain(&level.queueless)
}

fn lingering(latency: i64) -> Work {
    Work { additional_latency: Nanos(latency), ..Work::seats(1) }
}

// === levels ===

#[test]
fn what_all_workers_hold_is_seen_as_one() {
    for exact in [false, true] {
        let mut world = World::new(exact);
        let limit = world.level("one").expect("configured").limit.0;
        let narrow = Work::seats(1);
        for at in 0..limit + 4 {
            world.pass(ms(1));
            let worker = usize::try_from(at).expect("few") % WORKERS;
            world.arrive(worker, "one", "alice", narrow).expect("accepted");
            world.settle();
        }
        world.pass(ms(1));
        world.arrive(0, "two", "bob", narrow).expect("accepted");
        world.settle();
        let one = world.level("one").expect("configured");
        assert_eq!(
            (one.waiting, one.executing, one.seats_in_use.0, one.seats_waiting.0),
            (4, usize::try_from(limit).expect("few"), limit, 4)
        );
        let listed: Vec<_> = requests(&one).collect();
        assert_eq!(listed.len() as u64, limit + 4);
        assert_eq!(listed.iter().filter(|request| request.started.is_none()).count(), 4);
        assert_eq!(one.counters.dispatched, limit);
        let snapshot = world.snapshot();
        let meters: Vec<_> = snapshot
            .schemas
            .iter()
            .map(|meters| (&*meters.schema, meters.dispatched, meters.waiting, meters.executing))
            .collect();
        assert_eq!(meters, [("one", limit, 4, limit), ("two", 1, 0, 1)]);
        assert_eq!(snapshot.schemas[0].queue_lengths.count(), limit + 4);
        assert_eq!(world.shared.crowd(), ([4, 0], [limit + 1, 0]));
        world.end_everything();
        assert!(world.snapshot().schemas.iter().all(SchemaMeters::is_idle));
        assert_eq!(world.shared.crowd(), ([0; 2], [0; 2]));
    }
}

#[test]
fn a_level_without_an_object_drains_at_every_worker_and_is_gone() {
    let mut world = World::new(false);
    let old = world.arc("two").expect("configured");
    let running: Vec<_> = (0..WORKERS)
        .map(|worker| world.arrive(worker, "two", "bob", lingering(5)).expect("a seat"))
        .collect();
    world.configure(Some(Shape { two: false, ..USUAL }));
    assert!(world.level("two").expect("busy still").quiescing);
    for tag in &running {
        world.finish(*tag);
    }
    world.settle();
    world.borrow();
    assert_eq!(world.names(), ["catch-all", "exempt", "one"], "what lingers does not hold it");
    assert!(old.is_closed() && old.has_workers());
    for tag in running {
        world.linger_end(tag);
    }
    world.settle();
    assert!(!old.has_workers());
    assert_eq!(Arc::strong_count(&old), 1, "nobody has it any more");

    world.configure(Some(USUAL));
    let new = world.arc("two").expect("again");
    assert!(!Arc::ptr_eq(&old, &new));
    assert!(world.arrive(1, "two", "bob", Work::seats(1)).is_some());
    world.settle();
    assert_eq!(world.level("two").expect("again").executing, 1);
    world.end_everything();
}

#[test]
fn a_level_that_comes_back_before_it_has_drained_is_the_same() {
    let mut world = World::new(false);
    let old = world.arc("two").expect("configured");
    let running = world.arrive(0, "two", "bob", Work::seats(1)).expect("a seat");
    world.configure(Some(Shape { two: false, ..USUAL }));
    world.configure(Some(USUAL));
    assert!(Arc::ptr_eq(&old, &world.arc("two").expect("again")));
    let level = world.level("two").expect("again");
    assert_eq!((level.quiescing, level.executing), (false, 1));
    world.finish(running);
    world.settle();
    assert_eq!(world.level("two").expect("again").seats_in_use, Seats(0));
}

#[test]
fn a_level_that_comes_back_while_the_former_lingers_is_another() {
    let mut world = World::new(false);
    let old = world.arc("two").expect("configured");
    let running = world.arrive(0, "two", "bob", lingering(5)).expect("a seat");
    world.finish(running);
    world.configure(Some(Shape { two: false, ..USUAL }));
    world.configure(Some(USUAL));
    assert!(!Arc::ptr_eq(&old, &world.arc("two").expect("again")));
    let next = world.arrive(0, "two", "bob", Work::seats(1)).expect("a seat");
    world.linger_end(running);
    world.settle();
    assert_eq!(Arc::strong_count(&old), 1);
    world.finish(next);
    world.settle();
    let snapshot = world.snapshot();
    assert_eq!(snapshot.schemas.len(), 1, "one series for one schema: {:?}", snapshot.schemas);
    assert_eq!((snapshot.schemas[0].dispatched, snapshot.schemas[0].is_idle()), (2, true));
}

#[test]
fn whoever_has_not_heard_yet_that_a_level_is_gone_uses_it_still() {
    let mut world = World::new(false);
    let old = world.arc("two").expect("configured");
    world.shape = Some(Shape { two: false, ..USUAL });
    world.shared = world.tell_coordinator(true);
    (0..2).for_each(|worker| world.take_over(worker));
    let late = world.arrive(2, "two", "bob", Work::seats(1)).expect("a seat");
    world.settle();
    assert!(old.is_closed() && old.has_workers());
    world.take_over(2);
    world.kill(2);
    world.settle();
    assert!(!world.requests.contains_key(&late));
    assert!(old.is_empty(), "buried there, too");
    assert_eq!(Arc::strong_count(&old), 1);
}

#[test]
fn shapes_and_limits_change_under_running_requests() {
    for exact in [false, true] {
        let mut world = World::new(exact);
        for at in 0..20 {
            world.arrive(at % WORKERS, "one", ["alice", "bob", "carol"][at % 3], Work::seats(1));
            world.settle();
        }
        for shape in [
            Shape { queues: 16, ..USUAL },
            Shape { queues: 1, shares: 5, ..USUAL },
            Shape { queues: 0, ..USUAL },
            Shape { queues: 2, shares: 300, ..USUAL },
        ] {
            world.pass(ms(1));
            world.configure(Some(shape));
            let level = world.level("one").expect("configured");
            assert_eq!(matches!(level.mode, Mode::Queue { .. }), shape.queues > 0);
            assert_eq!(level.waiting, world.held("one", Phase::Waiting));
            assert_eq!(level.executing, world.held("one", Phase::Executing));
            assert_eq!(level.seats_in_use.0, level.executing as u64);
        }
        world.end_everything();
        let level = world.level("one").expect("configured");
        assert_eq!((level.seats_in_use, level.idle), (Seats(0), true));
    }
}

// === deaths ===

#[test]
fn a_worker_that_died_is_buried_and_replaced() {
    let mut world = World::new(false);
    let limit = world.level("one").expect("configured").limit.0;
    for _ in 0..limit {
        world.arrive(0, "one", "alice", Work::seats(1)).expect("a seat");
    }
    world.arrive(0, "one", "alice", Work::seats(1)).expect("it waits");
    let mine = world.arrive(1, "one", "bob", Work::seats(1)).expect("it waits");
    world.settle();
    assert_eq!(world.held("one", Phase::Waiting), 2);
    world.kill(0);
    world.settle();
    assert_eq!(world.requests[&mine].phase, Phase::Executing);
    world.replace(0);
    let again = world.arrive(0, "one", "alice", Work::seats(1)).expect("a seat");
    world.settle();
    let level = world.level("one").expect("configured");
    assert_eq!((level.executing, level.seats_in_use.0, level.waiting), (2, 2, 0));
    assert_eq!(world.shared.crowd(), ([0; 2], [2, 0]));
    world.finish(again);
    world.end_everything();
    assert_eq!(world.level("one").expect("configured").seats_in_use, Seats(0));
}

#[test]
fn a_coordinator_that_died_is_followed_by_one_that_learns_first() {
    let mut world = World::new(false);
    // Demand at `one` alone: it borrows.
    for at in 0..40 {
        world.arrive(at % WORKERS, "one", "alice", Work::seats(1));
        world.settle();
    }
    world.pass(Nanos::from_secs(10));
    world.settle();
    world.borrow();
    world.settle();
    let borrowed = world.limits();
    let usual = { World::new(false).limits() };
    assert_ne!(borrowed, usual);

    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut coordinator = world.coordinator.take().expect("it lives");
        coordinator.observe(world.now, world.second);
        panic!("in the middle of it");
    }));
    assert!(panicked.is_err() && world.coordinator.is_none());
    let before: Vec<_> = borrowed.iter().filter_map(|(name, _)| world.arc(name)).collect();
    world.succeed();
    world.settle();
    assert_eq!(world.limits(), borrowed, "they stay");
    let after: Vec<_> = borrowed.iter().filter_map(|(name, _)| world.arc(name)).collect();
    assert!(before.iter().zip(&after).all(|(one, other)| Arc::ptr_eq(one, other) && !one.is_closed()));
    let due = world.coordinator.as_ref().expect("it lives").borrow_due();
    assert_eq!(due, world.now + Nanos::from_secs(10), "a whole period to learn");

    world.end_everything();
    world.pass(Nanos::from_secs(10));
    world.settle();
    world.borrow();
    world.pass(Nanos::from_secs(10));
    world.settle();
    world.borrow();
    assert_eq!(world.limits(), usual, "seats move again");
    // As often as it takes: there is always a desk.
    for _ in 0..5 {
        world.succeed();
        world.settle();
        assert_eq!(world.limits(), usual);
    }
}

#[test]
fn what_a_coordinator_was_draining_its_successor_drains() {
    let mut world = World::new(false);
    let old = world.arc("two").expect("configured");
    let running = world.arrive(0, "two", "bob", Work::seats(1)).expect("a seat");
    world.configure(Some(Shape { two: false, ..USUAL }));
    world.succeed();
    world.succeed();
    world.settle();
    assert!(!old.is_closed());
    world.kill(1);
    world.replace(1);
    world.finish(running);
    world.settle();
    world.borrow();
    world.settle();
    assert!(old.is_closed() && !old.has_workers());
    assert_eq!(Arc::strong_count(&old), 1);
    world.configure(Some(USUAL));
    assert!(world.arrive(0, "two", "bob", Work::seats(1)).is_some());
}

#[test]
fn what_a_coordinator_was_draining_may_come_back_under_its_successor() {
    let mut world = World::new(false);
    let old = world.arc("two").expect("configured");
    let running = world.arrive(0, "two", "bob", Work::seats(1)).expect("a seat");
    world.configure(Some(Shape { two: false, ..USUAL }));
    world.succeed();
    world.configure(Some(USUAL));
    assert!(Arc::ptr_eq(&old, &world.arc("two").expect("again")));
    assert_eq!(world.level("two").expect("again").executing, 1);
    world.finish(running);
}

#[test]
fn worker_and_coordinator_die_together() {
    let mut world = World::new(false);
    let limit = world.level("one").expect("configured").limit.0;
    for _ in 0..limit {
        world.arrive(0, "one", "alice", Work::seats(1)).expect("a seat");
    }
    let mine = world.arrive(1, "one", "bob", Work::seats(1)).expect("it waits");
    world.kill(0);
    world.coordinator = None;
    world.settle();
    assert_eq!(world.requests[&mine].phase, Phase::Waiting);
    world.succeed();
    world.settle();
    assert_eq!(world.requests[&mine].phase, Phase::Executing, "nobody told the successor who died");
    world.replace(0);
    world.end_everything();
    assert_eq!(world.level("one").expect("configured").seats_in_use, Seats(0));
}

// === what clients are told ===

#[test]
fn retry_after_counts_what_all_workers_turn_away() {
    use usher_flowcontrol::retry_after::RetryAfter;
    let mut world = World::new(false);
    world.configure(Some(Shape { queues: 0, ..USUAL }));
    let limit = world.level("one").expect("configured").limit.0;
    for _ in 0..limit {
        world.arrive(0, "one", "alice", Work::seats(1)).expect("a seat");
    }
    let mut expected = RetryAfter::default();
    for second in 0..12 {
        for at in 0..60 {
            assert_eq!(world.arrive(at % WORKERS, "one", "bob", Work::seats(1)), None);
            expected.record(world.second);
            if at % 7 == 0 {
                world.settle();
            }
        }
        world.settle();
        for worker in 0..WORKERS {
            let class = world.class(worker, "one", "bob");
            let told =
                world.workers[worker].as_mut().expect("it lives").retry_after(world.second, class.level);
            expected.record(world.second);
            assert_eq!(told, expected.seconds(), "second {second}");
        }
        world.settle();
        world.second += 1;
    }
    assert!(expected.seconds() > 1);
    assert_eq!(world.level("one").expect("configured").retry_after, expected.seconds());
    world.succeed();
    world.settle();
    assert_eq!(world.level("one").expect("configured").retry_after, 1, "a successor learns anew");
    world.second += 1;
    assert_eq!(world.arrive(0, "one", "bob", Work::seats(1)), None);
    world.settle();
    assert_eq!(
        world.level("one").expect("configured").retry_after,
        1,
        "what came before it is not its to count"
    );
}

// === while somebody else visits ===

#[test]
fn the_queue_that_a_request_joined_is_counted_when_it_is_known() {
    let mut world = World::new(false);
    let one = world.arc("one").expect("configured");
    let seats = one.limit().0;
    for _ in 0..seats {
        world.arrive(0, "one", "alice", Work::seats(1)).expect("a seat");
    }
    let somebody = one.role().expect("nobody visits");
    let [stays, leaves] = [(); 2].map(|()| world.arrive(1, "one", "bob", Work::seats(1)).expect("it waits"));
    let counted = |world: &mut World| {
        let snapshot = world.snapshot();
        (snapshot.schemas[0].queue_lengths.count(), snapshot.schemas[0].queue_lengths.distribution().sum)
    };
    let controller = world.workers[1].as_mut().expect("it lives");
    assert_eq!(
        controller.snapshot(Nanos::ZERO).schemas[0].queue_lengths.count(),
        0,
        "nobody has seen them yet"
    );
    drop(somebody);
    world.settle();
    world.workers[0].as_mut().expect("it lives").poll(world.now);
    world.cancel(leaves);
    world.finish(*world.requests.keys().next().expect("many run"));
    world.settle();
    assert_eq!(world.requests[&stays].phase, Phase::Executing);
    let at_once = 1.0 * f64::from(u32::try_from(seats).expect("few"));
    assert_eq!(
        counted(&mut world),
        (seats + 2, at_once + 1.0 + 2.0),
        "the first and the second in their queue"
    );
}

#[test]
fn whoever_visits_buries_for_the_coordinator() {
    let mut world = World::new(false);
    let one = world.arc("one").expect("configured");
    let running = world.arrive(0, "one", "alice", Work::seats(1)).expect("a seat");
    world.settle();
    assert_eq!(world.shared.crowd(), ([0; 2], [1, 0]));
    world.kill(0);
    let somebody = one.role().expect("nobody visits");
    let coordinator = world.coordinator.as_mut().expect("it lives");
    assert!(!coordinator.bury(world.now, 0), "not yet");
    assert!(one.shard(0).is_none());
    assert_eq!(world.shared.crowd(), ([0; 2], [0; 2]), "the dead wait for nothing");
    drop(somebody);
    world.settle();
    world.replace(0);
    assert!(!world.requests.contains_key(&running));
    assert_eq!(world.level("one").expect("configured").seats_in_use, Seats(0));
}

fn totals(level: &snapshot::Level) -> Totals {
    let snapshot::Level { waiting, executing, seats_in_use, seats_waiting, .. } = *level;
    Totals { waiting, executing, seats_in_use, seats_waiting }
}
