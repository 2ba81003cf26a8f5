//! usher's side on many threads: one level that they share, and on each what a worker does for a decision.
//!
//! Each thread has a core, its part of the clients, and a controller over its parts of the levels, as a worker of the
//! gateway has: seats are taken without the sequencer while nobody waits, and kept for the next request. Nobody sleeps
//! here, so that whoever would have to be woken looks by himself; what waking up costs is the ring's business.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hdrhistogram::Histogram;
use usher::ring;
use usher_flowcontrol::controller::LevelId;
use usher_flowcontrol::level::{Event, Finish, Ticket, Verdict};
use usher_flowcontrol::snapshot;
use usher_flowcontrol::units::Nanos;
use usher_shards::{Coordinator, Part, Shared};

use super::clients::{Clients, Core};
use super::plan::{LEVEL, Plan};
use super::usher::{nanos, per};
use super::{Round, allocations, distributions};
use crate::Failure;

/// Decisions of a thread before anything is measured.
const WARM: u64 = 20_000;
/// Turns between two looks at whether it is over.
const BATCH: u64 = 200;

/// What a thread has found.
struct Found {
    began: Nanos,
    ended: Nanos,
    decisions: u64,
    allocations: u64,
    singles: Histogram<u64>,
}

/// Half of the time decisions one after another, half of it each by itself.
pub(super) fn measure(plan: &Plan, millis: u32) -> Result<Round, Failure> {
    let half = Nanos::from_millis(i64::from(millis) / 2);
    let done = AtomicU64::new(0);
    let (level, found) = on_all(plan, |worker, begin| {
        worker.decide(&done, WARM * plan.threads as u64);
        begin.wait();
        let found = worker.found_in(half);
        begin.wait();
        Found { singles: worker.singles(half), ..found }
    })?;
    let began = found.iter().map(|one| one.began).min().unwrap_or_default();
    let ended = found.iter().map(|one| one.ended).max().unwrap_or_default();
    let sum = |what: fn(&Found) -> u64| found.iter().map(what).sum::<u64>();
    let mut singles = distributions::empty();
    found.iter().try_for_each(|one| singles.add(&one.singles))?;
    Ok(Round {
        mean: per(nanos(ended - began), sum(|one| one.decisions)),
        allocations: per(sum(|one| one.allocations), sum(|one| one.decisions)),
        waiting: per(level.waiting as u64, 1),
        singles,
    })
}

/// Only decides, for callgrind.
pub(super) fn spin(plan: &Plan, decisions: u64) -> Result<(), Failure> {
    let done = AtomicU64::new(0);
    on_all(plan, |worker, _| worker.decide(&done, decisions)).map(|_| ())
}

/// Has every worker of a plan do that on a thread, and on a core, of its own; an error if the level is not as the plan
/// has it then.
fn on_all<T: Send>(
    plan: &Plan,
    work: impl Fn(&mut Worker<'_>, &Barrier) -> T + Sync,
) -> Result<(snapshot::Level, Vec<T>), Failure> {
    let now = ring::precise();
    let mut coordinator = Coordinator::new(now, plan.server_limit, plan.threads, false);
    let shared = coordinator.configure(now, &plan.schemas, &plan.levels, true);
    let workers = (0..plan.threads).map(|number| Worker::new(plan, number, &shared, now));
    let mut workers = workers.collect::<Result<Vec<_>, _>>()?;
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let begin = Barrier::new(plan.threads);
    let on_its_core = |worker: &mut Worker<'_>| {
        // With more threads than cores the scheduler has to choose.
        if let Some(core) = cores.get(worker.number).filter(|_| plan.threads <= cores.len()) {
            core_affinity::set_for_current(*core);
        }
        worker.begin();
        work(worker, &begin)
    };
    let found = std::thread::scope(|scope| {
        let threads: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(|| on_its_core(worker))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a worker panicked")).collect()
    });
    let found: Result<Vec<T>, _> = found;
    let found = found?;
    let levels = coordinator.snapshot(ring::precise()).levels;
    let level = levels.into_iter().find(|level| *level.name == *LEVEL).ok_or("the level is gone")?;
    check(plan, &level, &workers)?;
    Ok((level, found))
}

/// An error unless all requests came to the level, none was turned away, and all that are not done wait or execute, as
/// the plan has it.
fn check(plan: &Plan, level: &snapshot::Level, workers: &[Worker<'_>]) -> Result<(), Failure> {
    let sum = |what: fn(&Worker<'_>) -> u64| workers.iter().map(what).sum::<u64>();
    let (turned_away, arrived) = (sum(|worker| worker.turned_away), sum(|worker| worker.arrived));
    if turned_away > 0 {
        return Err(format!("{turned_away} of {arrived} requests were turned away").into());
    }
    let (waiting, executing, free) = (level.waiting, level.executing, sum(|worker| worker.free.len() as u64));
    let accounted = level.counters.dispatched + waiting as u64 == arrived;
    let all_there = (waiting + executing) as u64 + free == plan.clients as u64;
    if !accounted || !all_there || (waiting > 0) != plan.waits() {
        let begun = level.counters.dispatched;
        return Err(format!(
            "of {arrived} requests {begun} began; {waiting} wait, {executing} execute, {free} clients are free"
        )
        .into());
    }
    Ok(())
}

/// A worker and its clients.
struct Worker<'a> {
    number: usize,
    core: Core<Part>,
    clients: Clients<'a>,
    executing: VecDeque<(LevelId, Ticket, usize)>,
    /// Clients without a request.
    free: VecDeque<usize>,
    arrived: u64,
    turned_away: u64,
    /// Of a decision whose request has arrived in an earlier turn.
    spent: u64,
}

impl<'a> Worker<'a> {
    fn new(plan: &'a Plan, number: usize, shared: &Shared, now: Nanos) -> Result<Self, Failure> {
        Ok(Self {
            number,
            core: Core::of_worker(plan, now, number, shared),
            clients: Clients::new(plan)?,
            executing: VecDeque::with_capacity(1024),
            free: (number..plan.clients).step_by(plan.threads).collect(),
            arrived: 0,
            turned_away: 0,
            spent: 0,
        })
    }

    /// All clients but one send their requests.
    fn begin(&mut self) {
        while self.free.len() > 1 {
            self.arrive(ring::precise());
        }
    }

    /// Until all workers together have made so many decisions. Not each its own: seats that are granted to one who has
    /// ended already would be missing to the others.
    fn decide(&mut self, done: &AtomicU64, wanted: u64) {
        let mut now = ring::precise();
        while done.load(Relaxed) < wanted {
            let mut decisions = 0;
            for _ in 0..BATCH {
                decisions += u64::from(self.turn(now));
                now = ring::precise();
            }
            done.fetch_add(decisions, Relaxed);
        }
    }

    /// For so long.
    fn found_in(&mut self, span: Nanos) -> Found {
        let (began, allocated) = (ring::precise(), allocations::count());
        let (mut now, mut decisions) = (began, 0);
        while now - began < span {
            for _ in 0..BATCH {
                decisions += u64::from(self.turn(now));
                now = ring::precise();
            }
        }
        let allocations = allocations::count() - allocated;
        Found { began, ended: now, decisions, allocations, singles: distributions::empty() }
    }

    /// The same, each decision timed.
    fn singles(&mut self, span: Nanos) -> Histogram<u64> {
        let mut singles = distributions::empty();
        let began = ring::precise();
        let mut now = began;
        while now - began < span {
            let (begin, arrived) = (now, self.arrived);
            let decided = black_box(self.turn(begin));
            now = ring::precise();
            if decided {
                singles.saturating_record(self.spent + nanos(now - begin));
                self.spent = 0;
            } else if self.arrived > arrived {
                self.spent = nanos(now - begin);
            }
        }
        singles
    }

    /// A free client's request arrives, and the one that has executed longest is done: if there is one, a decision.
    /// Between the two the clock is read, as they are of different turns of a worker.
    fn turn(&mut self, now: Nanos) -> bool {
        if !self.free.is_empty() {
            self.arrive(now);
        }
        let now = ring::precise();
        let decided = self.finish(now);
        if !decided {
            self.core.controller.poll(now);
        }
        self.look();
        decided
    }

    fn arrive(&mut self, now: Nanos) {
        let Some(client) = self.free.pop_front() else { return };
        let (user, line) = self.clients.next(client);
        match self.core.ask(now, user, self.clients.info(line), client as u64) {
            (level, Verdict::Execute(ticket)) => self.executing.push_back((level, ticket, client)),
            (_, Verdict::Wait(_)) => {}
            (_, Verdict::Reject(_)) => self.turned_away += 1,
        }
        self.arrived += 1;
    }

    fn finish(&mut self, now: Nanos) -> bool {
        let Some((level, ticket, client)) = self.executing.pop_front() else { return false };
        if self.core.controller.finish(now, level, ticket) != Finish::Released {
            self.turned_away += 1; // Nothing in a plan lingers.
        }
        self.free.push_back(client);
        true
    }

    /// What has become of those that waited.
    fn look(&mut self) {
        while let Some((level, event)) = self.core.controller.next_event() {
            match event {
                Event::Dispatched(next) => {
                    let client = usize::try_from(next.tag).unwrap_or(0);
                    self.executing.push_back((level, next.ticket, client));
                }
                Event::Rejected { .. } => self.turned_away += 1,
            }
        }
        while let Some(worker) = self.core.controller.next_wake() {
            black_box(worker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::{Cell, Load};
    use super::super::plan::Plan;

    #[test]
    fn every_client_of_every_thread_is_accounted_for() {
        for (load, waits) in [(Load::Unsaturated, false), (Load::Saturated, true)] {
            let plan = Plan::of(Cell::Threads(load, 2));
            let round = super::measure(&plan, 4).expect("no request is lost");
            assert_eq!(round.waiting > 0.0, waits);
        }
    }
}
