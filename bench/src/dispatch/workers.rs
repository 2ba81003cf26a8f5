//! usher's side on many threads: one level that they share, and on each what a worker does for a decision.
//!
//! Each thread has a core, a controller that classifies and estimates, its part of the clients, and a shard of the
//! level: seats are taken without the sequencer while nobody waits, and kept for the next request. Nobody sleeps here,
//! so that whoever would have to be woken looks by himself; what waking up costs is the ring's business.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};

use hdrhistogram::Histogram;
use usher::ring;
use usher_flowcontrol::controller::LevelId;
use usher_flowcontrol::level::{Arrival, Finish, Ticket, Verdict};
use usher_flowcontrol::units::Nanos;
use usher_shards::{Event, Level, Options, Shard};

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
struct Part {
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
    let (level, parts) = on_all(plan, |worker, begin| {
        worker.decide(&done, WARM * plan.threads as u64);
        begin.wait();
        let part = worker.part(half);
        begin.wait();
        Part { singles: worker.singles(half), ..part }
    })?;
    let began = parts.iter().map(|part| part.began).min().unwrap_or_default();
    let ended = parts.iter().map(|part| part.ended).max().unwrap_or_default();
    let sum = |what: fn(&Part) -> u64| parts.iter().map(what).sum::<u64>();
    let mut singles = distributions::empty();
    parts.iter().try_for_each(|part| singles.add(&part.singles))?;
    Ok(Round {
        mean: per(nanos(ended - began), sum(|part| part.decisions)),
        allocations: per(sum(|part| part.allocations), sum(|part| part.decisions)),
        waiting: per(level.glance().waiting, 1),
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
) -> Result<(Arc<Level>, Vec<T>), Failure> {
    let now = ring::precise();
    let level = level(plan, now)?;
    let workers = (0..plan.threads).map(|number| Worker::new(plan, number, &level, now));
    let mut workers = workers.collect::<Result<Vec<_>, _>>()?;
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let begin = Barrier::new(plan.threads);
    let on_its_core = |worker: &mut Worker<'_>| {
        // With more threads than cores the scheduler has to choose.
        if let Some(core) = cores.get(worker.shard.worker()).filter(|_| plan.threads <= cores.len()) {
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
    check(plan, &level, &workers)?;
    Ok((level, found))
}

/// The plan's level, as the configuration has it.
fn level(plan: &Plan, now: Nanos) -> Result<Arc<Level>, Failure> {
    let snapshot = Core::new(plan, now).controller.snapshot(now);
    let level = snapshot.levels.iter().find(|level| *level.name == *LEVEL).ok_or("there is no such level")?;
    let options = Options { workers: plan.threads, ..Options::default() };
    Ok(Level::new(now, level.mode, level.limit, options))
}

/// An error unless all requests came to the level, none was turned away, and all that are not done wait or execute, as
/// the plan has it.
fn check(plan: &Plan, level: &Level, workers: &[Worker<'_>]) -> Result<(), Failure> {
    let sum = |what: fn(&Worker<'_>) -> u64| workers.iter().map(what).sum::<u64>();
    let (lost, arrived) = (sum(|worker| worker.lost), sum(|worker| worker.arrived));
    if lost > 0 {
        return Err(format!("{lost} of {arrived} requests were turned away").into());
    }
    let (waiting, held) = (level.glance().waiting, sum(|worker| worker.shard.held()));
    let free = sum(|worker| worker.free.len() as u64);
    if held + free != plan.clients as u64 || (waiting > 0) != plan.waits() || arrived < held {
        return Err(format!("{held} requests are under way, {waiting} wait, {free} clients are free").into());
    }
    Ok(())
}

/// A worker and its clients.
struct Worker<'a> {
    core: Core,
    clients: Clients<'a>,
    shard: Shard,
    /// To which all requests come.
    level: LevelId,
    executing: VecDeque<(Ticket, usize)>,
    /// Clients without a request.
    free: VecDeque<usize>,
    arrived: u64,
    /// Turned away, or not of the level.
    lost: u64,
    /// Of a decision whose request has arrived in an earlier turn.
    spent: u64,
}

impl<'a> Worker<'a> {
    fn new(plan: &'a Plan, number: usize, level: &Arc<Level>, now: Nanos) -> Result<Self, Failure> {
        let core = Core::new(plan, now);
        let mut clients = Clients::new(plan)?;
        let (user, line) = clients.next(number);
        let of_level = core.controller.classify(user, clients.info(line)).level;
        if core.controller.level_name(of_level) != LEVEL {
            return Err(format!("requests come to {}", core.controller.level_name(of_level)).into());
        }
        Ok(Self {
            core,
            clients,
            shard: level.shard(number).ok_or("two workers at one desk")?,
            level: of_level,
            executing: VecDeque::with_capacity(1024),
            free: (number..plan.clients).step_by(plan.threads).collect(),
            arrived: 0,
            lost: 0,
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
    fn part(&mut self, span: Nanos) -> Part {
        let (began, allocated) = (ring::precise(), allocations::count());
        let (mut now, mut decisions) = (began, 0);
        while now - began < span {
            for _ in 0..BATCH {
                decisions += u64::from(self.turn(now));
                now = ring::precise();
            }
        }
        let allocations = allocations::count() - allocated;
        Part { began, ended: now, decisions, allocations, singles: distributions::empty() }
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
            self.shard.poll(now);
            self.look();
        }
        decided
    }

    fn arrive(&mut self, now: Nanos) {
        let Some(client) = self.free.pop_front() else { return };
        let (user, line) = self.clients.next(client);
        let (class, work) = self.core.judge(now, user, self.clients.info(line));
        self.lost += u64::from(class.level != self.level);
        self.arrived += 1;
        match self.shard.arrive(now, Arrival { flow: class.flow, work, tag: client as u64 }) {
            Verdict::Execute(ticket) => self.executing.push_back((ticket, client)),
            Verdict::Wait(_) => {}
            Verdict::Reject(_) => self.lost += 1,
        }
        self.look();
    }

    fn finish(&mut self, now: Nanos) -> bool {
        let Some((ticket, client)) = self.executing.pop_front() else { return false };
        if self.shard.finish(now, ticket) != Finish::Released {
            self.lost += 1; // Nothing in a plan lingers.
        }
        self.free.push_back(client);
        self.look();
        true
    }

    /// What has become of those that waited.
    fn look(&mut self) {
        while let Some(event) = self.shard.next_event() {
            match event {
                Event::Dispatched(next) => {
                    let client = usize::try_from(next.tag).unwrap_or(0);
                    self.executing.push_back((next.ticket, client));
                }
                Event::Rejected { .. } => self.lost += 1,
            }
        }
        while let Some(worker) = self.shard.next_wake() {
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
