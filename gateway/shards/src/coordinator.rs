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
use usher_flowcontrol::level::{self, Mode, Part as _};
use usher_flowcontrol::objects::{FlowSchema, PriorityLevelConfiguration};
use usher_flowcontrol::plan;
use usher_flowcontrol::snapshot::Snapshot;
use usher_flowcontrol::units::{Nanos, Seats};

use crate::level::{Level, Options};
use crate::part::Part;
use crate::sync::{AtomicU64, Ordering};

/// The coordinator.
#[derive(Debug)]
pub struct Coordinator {
    controller: Controller<Part>,
    options: Options,
    /// Its desk at every level: see [`DESKS`].
    desk: usize,
    server_limit: Seats,
    shared: Shared,
    /// After a death: levels that had lost their objects, and that workers still use. Their limits stay, beside what the
    /// others share.
    orphans: Vec<Part>,
    /// Requests that a worker may have at any level at once, in simulations.
    slots: Option<usize>,
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

/// Desks of the coordinator at every level, beside those of the workers. One that died leaves one behind; the next
/// sits down at the other and buries it.
const DESKS: usize = 2;

/// Requests that a worker may have at an exempt level at once. Those of a cluster's own components: hundreds.
const EXEMPT_SLOTS: usize = 16_384;

/// Requests that a worker may have at another level at once: what its queues hold and its seats let run, within these
/// bounds. A slot takes some 300 bytes.
const SLOTS_MIN: usize = 256;
/// See [`SLOTS_MIN`]. `--max-waiting-requests` is about as many.
const SLOTS_MAX: usize = 20_000;

impl Coordinator {
    /// Nothing yet: [`Coordinator::configure`] must follow. `server_limit`: seats of the server, more than 0.
    /// `exact`: every request is decided in the one order, none on leased seats.
    #[must_use]
    pub fn new(now: Nanos, server_limit: Seats, workers: usize, exact: bool) -> Self {
        let crowds = (0..workers).map(|_| CachePadded::new(Crowd::default())).collect();
        Self {
            controller: Controller::empty(now, server_limit),
            options: Options { workers: workers + DESKS, bypass: !exact, ..Options::default() },
            desk: workers,
            server_limit,
            shared: Shared { levels: Arc::default(), crowds },
            orphans: Vec::new(),
            slots: None,
        }
    }

    /// For simulations: levels that are made from now on have slots, rings, leases and holds of these sizes.
    #[must_use]
    pub fn with_sizes(self, slots: usize, sizes: Options) -> Self {
        let Options { ring, lease, lease_from, hold, .. } = sizes;
        Self {
            options: Options { ring, lease, lease_from, hold, ..self.options },
            slots: Some(slots),
            ..self
        }
    }

    /// Another one in the place of one that died. It knows the levels as they are, and nothing of their past: until a
    /// period is over, limits stay.
    #[must_use]
    pub fn succeed(now: Nanos, server_limit: Seats, exact: bool, shared: Shared, former: usize) -> Self {
        let workers = shared.crowds.len();
        let desk = workers + (former + 1 - workers) % DESKS;
        Self { desk, shared, ..Self::new(now, server_limit, workers, exact) }
    }

    /// Its desk, for [`Coordinator::succeed`].
    #[must_use]
    pub fn desk(&self) -> usize {
        self.desk
    }

    /// From now on exactly these objects exist. Returns what each worker takes over next.
    ///
    /// The first time after a death (`moves_seats` is false) no seats are moved.
    pub fn configure(
        &mut self,
        now: Nanos,
        schemas: &[FlowSchema],
        levels: &[PriorityLevelConfiguration],
        moves_seats: bool,
    ) -> Shared {
        let (desk, options, server, shared) = (self.desk, self.options, self.server_limit, &self.shared);
        let of_all = self.slots;
        self.controller.take_over(now, schemas, levels, |level, known| {
            if known.is_some() {
                return None;
            }
            // Only after a death there is a level that is not known.
            let former = shared.levels.get(level.name.as_str());
            let part = former.and_then(|former| former.shard(desk)).or_else(|| {
                let slots = of_all.unwrap_or_else(|| slots(level.mode, server));
                Level::new(now, level.mode, Seats(0), Options { slots, ..options }).shard(desk)
            });
            part.map(Part::of_coordinator)
        });
        if moves_seats {
            self.controller.borrow(now);
        } else {
            self.adopt_orphans();
        }
        self.share();
        self.shared.clone()
    }

    /// Somebody has to bury who dies there, or those who wait would do so for ever.
    fn adopt_orphans(&mut self) {
        let known: Vec<&str> = self.controller.parts().map(|(name, _)| name).collect();
        let unknown = self.shared.levels.iter().filter(|(name, _)| !known.contains(&&***name));
        let parts = unknown.filter_map(|(_, level)| level.shard(self.desk));
        self.orphans = parts.map(Part::of_coordinator).collect();
    }

    /// The levels as workers are to have them.
    #[must_use]
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Looks at all levels: demand, and who was turned away. Every few milliseconds.
    pub fn observe(&mut self, now: Nanos, unix_second: i64) {
        let (waiting, executing) = self.shared.crowd();
        self.controller.observe(now, unix_second, waiting, executing);
        self.orphans.iter_mut().for_each(|part| part.poll(now));
    }

    /// When seats are to be moved next.
    #[must_use]
    pub fn borrow_due(&self) -> Nanos {
        self.controller.borrow_due()
    }

    /// Moves seats between levels. `true`: a level has gone, and workers are to tidy up.
    pub fn borrow(&mut self, now: Nanos) -> bool {
        self.controller.borrow(now);
        self.orphans.retain(|part| !part.is_empty());
        let before = self.shared.levels.len();
        self.share();
        self.shared.levels.len() < before
    }

    /// That worker, or that former coordinator, has died: what it held is given back, and its desks are free.
    pub fn bury(&mut self, now: Nanos, desk: usize) {
        if let Some(crowd) = self.shared.crowds.get(desk) {
            crowd.tell([0; 2], [0; 2]);
        }
        self.controller.each_part(|part| part.bury(now, desk));
        self.orphans.iter_mut().for_each(|part| part.bury(now, desk));
        self.controller.poll(now);
    }

    /// The next worker to be woken.
    pub fn next_wake(&mut self) -> Option<usize> {
        let workers = self.shared.crowds.len();
        let mut wakes = std::iter::from_fn(|| {
            let orphans = self.orphans.iter_mut();
            self.controller.next_wake().or_else(|| orphans.filter_map(level::Part::next_wake).next())
        });
        wakes.find(|worker| *worker < workers)
    }

    /// The levels as a whole; whose the requests are is for [`usher_flowcontrol::snapshot::merge`] to find.
    #[must_use]
    pub fn snapshot(&mut self, now: Nanos) -> Snapshot {
        self.controller.snapshot(now)
    }

    fn share(&mut self) {
        let is_orphan = |level: &Arc<Level>| self.orphans.iter().any(|part| Arc::ptr_eq(part.level(), level));
        let orphans = self.shared.levels.iter().filter(|(_, level)| is_orphan(level));
        let mut levels: BTreeMap<_, _> = orphans.map(|(name, level)| (name.clone(), level.clone())).collect();
        // Of two levels of one name the one with an object is it.
        let parts = self.controller.parts();
        levels.extend(parts.map(|(name, part)| (Arc::from(name), Arc::clone(part.level()))));
        self.shared.levels = Arc::new(levels);
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

/// Requests that a worker may have at a level of that shape.
fn slots(mode: Mode, server_limit: Seats) -> usize {
    let seats = usize::try_from(server_limit.0).unwrap_or(usize::MAX);
    match mode {
        Mode::Exempt => EXEMPT_SLOTS,
        Mode::Reject => seats.clamp(SLOTS_MIN, SLOTS_MAX),
        Mode::Queue { queues, queue_length_limit, .. } => {
            let waiting = (queues as usize).saturating_mul(queue_length_limit as usize);
            waiting.saturating_add(seats).clamp(SLOTS_MIN, SLOTS_MAX)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use usher_flowcontrol::level::{Arrival, Event, Verdict};
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

        let (shared, former) = (first.shared().clone(), first.desk());
        drop(first);
        let mut second = Coordinator::succeed(NOW, Seats(1), false, shared, former);
        second.configure(NOW, &[], &[], false);
        second.bury(NOW, former);
        assert!(!level.is_retired());
        drop(holder);
        second.bury(NOW, 0);
        assert_eq!(second.next_wake(), Some(1));
        waiter.poll(NOW);
        let Some(Event::Dispatched(next)) = waiter.next_event() else { panic!("the seat is free") };
        let _released = waiter.finish(NOW, next.ticket);
        assert!(second.borrow(NOW), "nobody needs it any more");
        assert!(level.is_retired() && second.shared().level("narrow").is_none());
    }
}
