//! The coordinator's decisions: which levels there are, how many seats each has, and what became of the dead.
//!
//! Workers decide about requests, each with a [`Controller`] over its [`Part`]s. The coordinator watches the levels as
//! a whole with a controller of its own, to which nothing arrives: it samples their demand, moves seats between them
//! (KEP-1040, "Dispatching"), buries workers that died, and hands out levels when the configuration changes. Nobody
//! waits for it: without it limits and leases stay as they are.
//!
//! No clock and no thread are in here: whoever drives it says what time it is and wakes those who are to be woken.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use usher_flowcontrol::controller::Controller;
use usher_flowcontrol::level::{self, Part as _};
use usher_flowcontrol::objects::{FlowSchema, PriorityLevelConfiguration};
use usher_flowcontrol::plan;
use usher_flowcontrol::snapshot::{Past, Snapshot};
use usher_flowcontrol::units::{Nanos, Seats};

use crate::level::{Level, Options};
use crate::look::Starts;
use crate::part::{ATTEMPTS_MAX, Part};
use crate::sync::{AtomicU64, Ordering};
use crate::table::SLOTS_MAX;

/// The coordinator.
#[derive(Debug)]
pub struct Coordinator {
    controller: Controller<Part>,
    /// Of every level.
    options: Options,
    shared: Shared,
    /// Levels of a coordinator that died, by name, until they are configured again or have drained: they keep their
    /// limits, and take no part in borrowing.
    inherited: BTreeMap<Arc<str>, Part>,
}

/// The levels that workers share, and what they tell each other beside them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shared {
    levels: Arc<BTreeMap<Arc<str>, Arc<Level>>>,
    crowds: Arc<[CachePadded<Crowd>]>,
}

/// Requests of one worker, each reading and writing; written by the worker.
#[derive(Debug, Default)]
struct Crowd {
    waiting: [AtomicU64; 2],
    executing: [AtomicU64; 2],
}

/// Desks for the coordinator at every level: one that died leaves its own behind until it is buried, and the next sits
/// down at another.
const DESKS: usize = 2;

impl Coordinator {
    /// Nothing yet: [`Coordinator::configure`] must follow. `server_limit`: seats of the server, more than 0.
    /// `exact`: every request is decided in the one order, none on leased seats.
    #[must_use]
    pub fn new(now: Nanos, server_limit: Seats, workers: usize, exact: bool) -> Self {
        let crowds = (0..workers).map(|_| CachePadded::new(Crowd::default())).collect();
        Self {
            controller: Controller::empty(now, server_limit),
            options: Options {
                workers,
                watchers: DESKS,
                slots: SLOTS_MAX,
                bypass: !exact,
                ..Options::default()
            },
            shared: Shared { levels: Arc::default(), crowds },
            inherited: BTreeMap::new(),
        }
    }

    /// For simulations: levels that are made from now on have slots, rings, leases and holds of these sizes.
    #[must_use]
    pub fn with_sizes(self, sizes: Options) -> Self {
        let Options { slots, ring, lease, lease_from, hold, .. } = sizes;
        Self { options: Options { slots, ring, lease, lease_from, hold, ..self.options }, ..self }
    }

    /// Another one in the place of one that died, or is about to. It knows the levels as they are, and nothing of
    /// their past: limits stay until a period is over. `shared`: what the former handed out last.
    #[must_use]
    pub fn succeed(now: Nanos, server_limit: Seats, exact: bool, shared: Shared) -> Self {
        let workers = shared.workers();
        let desk = |level: &Arc<Level>| (workers..workers + DESKS).find_map(|desk| level.shard(desk));
        let open = shared.levels.iter().filter(|(_, level)| !level.is_closed());
        let part = |(name, level)| Some((Arc::clone(name), Part::of_coordinator(desk(level)?)));
        let inherited = open.filter_map(part).collect();
        Self { inherited, shared, ..Self::new(now, server_limit, workers, exact) }
    }

    /// From now on exactly these objects exist. Returns what each worker takes over next.
    ///
    /// `moves_seats`: at once. Not by a successor for the first time, unless there are new levels.
    pub fn configure(
        &mut self,
        now: Nanos,
        schemas: &[FlowSchema],
        levels: &[PriorityLevelConfiguration],
        moves_seats: bool,
    ) -> Shared {
        let (options, inherited) = (self.options, &mut self.inherited);
        let mut moves_seats = moves_seats;
        self.controller.take_over(now, schemas, levels, |level, known| {
            if known.is_some() {
                return None;
            }
            let is_open = |name: &str| inherited.get(name).is_some_and(|part| !part.level().is_closed());
            let name = level.name.as_str();
            let former = if is_open(name) { inherited.remove(name) } else { None };
            former.or_else(|| {
                moves_seats = true;
                let level = Level::new(now, level.mode, Seats(0), options);
                level.shard(options.workers).map(Part::of_coordinator)
            })
        });
        if moves_seats {
            self.controller.borrow(now);
        }
        self.look(now);
        self.share();
        self.shared.clone()
    }

    /// The levels as workers are to have them.
    #[must_use]
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Looks at all levels: demand, who was turned away, who died. Every few milliseconds.
    pub fn observe(&mut self, now: Nanos, unix_second: i64) {
        let (waiting, executing) = self.shared.crowd();
        self.controller.observe(now, unix_second, waiting, executing);
        self.look_at_inherited(now);
    }

    /// When seats are to be moved next.
    #[must_use]
    pub fn borrow_due(&self) -> Nanos {
        self.controller.borrow_due()
    }

    /// Moves seats between levels. `true`: a level has gone, and workers are to tidy up.
    pub fn borrow(&mut self, now: Nanos) -> bool {
        self.controller.borrow(now);
        self.inherited.values_mut().filter(|part| part.is_idle()).for_each(|part| part.close());
        let before = self.shared.levels.len();
        self.share();
        self.shared.levels.len() < before
    }

    /// That worker has died: what it held is given back. `true`: its desks are free for another one; else try again.
    pub fn bury(&mut self, now: Nanos, worker: usize) -> bool {
        self.shared.tell_crowd(worker, [0; 2], [0; 2]);
        (0..ATTEMPTS_MAX).any(|_| {
            self.look(now);
            let mut is_buried = true;
            self.each_part(|part| is_buried &= !part.level().is_abandoned(worker));
            if !is_buried {
                std::thread::yield_now(); // somebody visits a level, and buries him then
            }
            is_buried
        })
    }

    /// The next worker to be woken.
    pub fn next_wake(&mut self) -> Option<usize> {
        let Self { controller, inherited, options, .. } = self;
        let mut next =
            || controller.next_wake().or_else(|| inherited.values_mut().find_map(level::Part::next_wake));
        std::iter::from_fn(&mut next).find(|desk| *desk < options.workers)
    }

    /// The levels as a whole; whose the requests are is for [`usher_flowcontrol::snapshot::merge`] to find.
    #[must_use]
    pub fn snapshot(&mut self, now: Nanos) -> Snapshot {
        self.controller.snapshot(now)
    }

    /// What this coordinator has counted that its successor does not know.
    #[must_use]
    pub fn past(&self, now: Nanos) -> Past {
        self.controller.past(now)
    }

    /// Does what is left to it, and buries the dead.
    fn look(&mut self, now: Nanos) {
        self.controller.poll(now);
        self.look_at_inherited(now);
    }

    fn look_at_inherited(&mut self, now: Nanos) {
        self.inherited.values_mut().for_each(|part| part.poll(now));
        self.inherited.retain(|_, part| !(part.level().is_closed() && part.is_empty()));
    }

    fn each_part(&mut self, mut action: impl FnMut(&mut Part)) {
        self.controller.each_part(&mut action);
        self.inherited.values_mut().for_each(action);
    }

    fn share(&mut self) {
        let level = |part: &Part| Arc::clone(part.level());
        let watched = self.controller.parts().map(|(name, part)| (Arc::from(name), level(part)));
        let open = self.inherited.iter().filter(|(_, part)| !part.level().is_closed());
        let inherited = open.map(|(name, part)| (Arc::clone(name), level(part)));
        self.shared.levels = Arc::new(inherited.chain(watched).collect());
    }
}

impl Shared {
    /// What a worker's [`Controller::take_over`] asks for: a part of that level, unless the one it has is still good.
    #[must_use]
    pub fn part(&self, worker: usize, level: &plan::Level, known: Option<&Part>) -> Option<Part> {
        let there = self.levels.get(level.name.as_str())?;
        if known.is_some_and(|known| Arc::ptr_eq(known.level(), there)) {
            return None;
        }
        there.shard(worker).map(Part::of_worker)
    }

    /// The level of that name.
    #[must_use]
    pub fn level(&self, name: &str) -> Option<&Arc<Level>> {
        self.levels.get(name)
    }

    /// A worker's requests that wait and execute, each reading and writing.
    pub fn tell_crowd(&self, worker: usize, waiting: [u64; 2], executing: [u64; 2]) {
        if let Some(crowd) = self.crowds.get(worker) {
            crowd.tell(waiting, executing);
        }
    }

    /// Those of all workers.
    #[must_use]
    pub fn crowd(&self) -> ([u64; 2], [u64; 2]) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.crowds.iter().fold(([0; 2], [0; 2]), |(mut waiting, mut executing), crowd| {
            for kind in 0..2 {
                waiting[kind] += read(&crowd.waiting[kind]);
                executing[kind] += read(&crowd.executing[kind]);
            }
            (waiting, executing)
        })
    }

    /// What workers have started at the levels that there are.
    #[must_use]
    pub fn starts(&self) -> Starts {
        self.levels.values().fold(Starts::default(), |sum, level| sum.and(level.starts()))
    }

    /// Workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.crowds.len()
    }
}

impl Crowd {
    fn tell(&self, waiting: [u64; 2], executing: [u64; 2]) {
        let write = |count: &AtomicU64, now: u64| count.store(now, Ordering::Relaxed);
        self.waiting.iter().zip(waiting).for_each(|(count, now)| write(count, now));
        self.executing.iter().zip(executing).for_each(|(count, now)| write(count, now));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use usher_flowcontrol::level::{Arrival, Event, Reason, Verdict};
    use usher_flowcontrol::objects::{LimitResponse, Limited, Queuing};
    use usher_flowcontrol::units::{FlowHash, Work};

    const NOW: Nanos = Nanos::ZERO;

    /// A level of one seat: the only one of the server.
    fn narrow() -> PriorityLevelConfiguration {
        let mut object = PriorityLevelConfiguration::default();
        object.metadata.name = "narrow".to_owned();
        object.spec.kind = "Limited".to_owned();
        object.spec.limited = Some(Limited {
            nominal_concurrency_shares: Some(1),
            limit_response: LimitResponse {
                kind: "Queue".to_owned(),
                queuing: Some(Queuing { queues: 4, hand_size: 1, queue_length_limit: 10 }),
            },
            ..Limited::default()
        });
        object
    }

    #[test]
    fn a_level_takes_what_its_queues_hold_however_late_they_grew() {
        let mut coordinator = Coordinator::new(NOW, Seats(1), 1, false);
        let level =
            coordinator.configure(NOW, &[], &[narrow()], true).level("narrow").cloned().expect("there");
        let mut worker = level.shard(0).expect("nobody has it");
        let mut grown = narrow();
        let queuing = grown.spec.limited.as_mut().and_then(|limited| limited.limit_response.queuing.as_mut());
        queuing.expect("it has queues").queue_length_limit = 1000;
        let shared = coordinator.configure(NOW, &[], &[grown], true);
        assert!(shared.level("narrow").is_some_and(|same| Arc::ptr_eq(same, &level)));
        let mut arrive = || worker.arrive(NOW, Arrival { flow: FlowHash(0), work: Work::seats(1), tag: 0 });
        assert!(matches!(arrive(), Verdict::Execute(_)));
        assert!((0..1000).all(|_| matches!(arrive(), Verdict::Wait(_))));
        assert_eq!(arrive(), Verdict::Reject(Reason::QueueFull));
    }

    #[test]
    fn a_dead_worker_is_not_buried_while_somebody_is_in_the_way() {
        let mut coordinator = Coordinator::new(NOW, Seats(1), 2, false);
        let level =
            coordinator.configure(NOW, &[], &[narrow()], true).level("narrow").cloned().expect("there");
        drop(level.shard(0).expect("nobody has it"));
        let visitor = level.role().expect("nobody visits");
        assert!(!coordinator.bury(NOW, 0) && level.shard(0).is_none());
        drop(visitor);
        assert!(coordinator.bury(NOW, 0) && level.shard(0).is_some());
    }

    #[test]
    fn who_waits_at_a_level_without_object_is_not_forgotten_when_coordinator_and_worker_die() {
        let mut first = Coordinator::new(NOW, Seats(1), 2, false);
        let level =
            first.configure(NOW, &[], &[narrow()], true).level("narrow").cloned().expect("it is there");
        assert_eq!(level.limit(), Seats(1));
        let (mut holder, mut waiter) =
            (level.shard(0).expect("nobody has it"), level.shard(1).expect("nor that"));
        let arrival = |tag| Arrival { flow: FlowHash(0), work: Work::seats(1), tag };
        assert!(matches!(holder.arrive(NOW, arrival(1)), Verdict::Execute(_)));
        assert!(matches!(waiter.arrive(NOW, arrival(2)), Verdict::Wait(_)));
        first.configure(NOW, &[], &[], true);

        let shared = first.shared().clone();
        drop(first);
        let mut second = Coordinator::succeed(NOW, Seats(1), false, shared);
        second.configure(NOW, &[], &[], false);
        assert!(!level.is_closed());
        drop(holder);
        assert!(second.bury(NOW, 0));
        assert_eq!(second.next_wake(), Some(1));
        waiter.poll(NOW);
        let Some(Event::Dispatched(next)) = waiter.next_event() else { panic!("the seat is free") };
        let _released = waiter.finish(NOW, next.ticket);
        assert!(second.borrow(NOW), "nobody needs it any more");
        assert!(level.is_closed() && second.shared().level("narrow").is_none());
    }
}
