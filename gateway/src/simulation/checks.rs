//! What must hold at every step, whatever happens. Seats are counted here once more, from outside.

use usher_flowcontrol::level::Mode;
use usher_flowcontrol::snapshot::Level;
use usher_flowcontrol::units::{Nanos, Seats};
use usher_shards::{Glance, Look};

use super::flow::{Asks, Distribution, Flow};
use super::scenario::{Scenario, Shape};
use super::troubles::Change;

/// Something that must not happen did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub at: Nanos,
    /// What.
    pub what: String,
}

/// From a worker's death to its burial.
pub(super) const RESTART: Nanos = Nanos::from_millis(1);

/// What has been seen so far.
#[derive(Debug)]
pub(super) struct Checks {
    limit: u64,
    /// Limits of before that grants on their way may still have been made under.
    before: Vec<(Nanos, u64)>,
    /// How long a grant can be on its way.
    grace: Nanos,
    /// How long seats may be free beside somebody whom they fit.
    patience: Nanos,
    /// Seats of requests that execute or linger.
    in_use: u64,
    /// Seats of requests that wait.
    waiting: u64,
    executing: u64,
    /// Since when there have been free seats beside somebody whom they fit.
    idle: Option<Nanos>,
    /// The widest request there can be.
    widest: u64,
    /// The longest wait; `None` if there is no telling.
    bound: Option<Nanos>,
    queue_length_limit: u32,
}

impl Checks {
    pub(super) fn new(scenario: &Scenario, shape: &Shape) -> Self {
        let longest = scenario.stalls.iter().map(|stall| stall.lasts.0).max().unwrap_or_default();
        let delay = scenario.message_delay.0;
        Self {
            limit: shape.seats,
            before: Vec::new(),
            grace: delay + longest + RESTART,
            patience: Nanos(delay.0 * 4 + 1_000),
            in_use: 0,
            waiting: 0,
            executing: 0,
            idle: None,
            widest: widest(scenario),
            bound: bound(scenario, shape),
            queue_length_limit: shape.queue_length_limit,
        }
    }

    /// The longest wait that the scenario allows.
    pub(super) fn bound(&self) -> Option<Nanos> {
        self.bound
    }

    /// Seats that are wanted: those in use, and those of who waits.
    pub(super) fn demand(&self) -> Seats {
        Seats(self.in_use + self.waiting)
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Queues may be as long as that from now on, or as they were before.
    pub(super) fn set_queue_length_limit(&mut self, limit: u32) {
        self.queue_length_limit = self.queue_length_limit.max(limit);
    }

    pub(super) fn set_limit(&mut self, now: Nanos, limit: u64) {
        self.before.push((now + self.grace, self.limit));
        self.limit = limit;
    }

    /// A request starts. Its seats are within the limit; or it is wider than that, and executes alone
    /// (KEP-1040, "Width of the request"; what lingers does not count then).
    pub(super) fn start(&mut self, now: Nanos, seats: u64, waited: Nanos) -> Result<(), Violation> {
        self.before.retain(|(until, _)| *until >= now);
        let limits = || self.before.iter().map(|(_, limit)| *limit).chain([self.limit]);
        let fits = self.in_use + seats <= limits().max().unwrap_or(0);
        let alone = self.executing == 0 && limits().any(|limit| seats > limit);
        if !fits && !alone {
            let (in_use, limit) = (self.in_use, self.limit);
            return at(now, format!("{seats} seats beside {in_use} in use exceed the limit {limit}"));
        }
        self.in_use += seats;
        self.executing += 1;
        match self.bound {
            Some(bound) if waited > bound => {
                at(now, format!("somebody waited {} ms, longer than {} ms", millis(waited), millis(bound)))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn wait(&mut self, seats: u64) {
        self.waiting += seats;
    }

    pub(super) fn wait_no_more(&mut self, seats: u64) {
        self.waiting -= seats;
    }

    pub(super) fn finish(&mut self) {
        self.executing -= 1;
    }

    pub(super) fn release(&mut self, seats: u64) {
        self.in_use -= seats;
    }

    /// After every event while nothing is on its way from one worker to another and nobody is dead: what is not free is in
    /// use, and what is in use is not free.
    pub(super) fn conserved(&self, now: Nanos, glance: Glance) -> Result<(), Violation> {
        let taken = self.limit.cast_signed() - glance.free - glance.leased.cast_signed();
        if taken != self.in_use.cast_signed() {
            return at(now, format!("{taken} seats are taken, and {} are in use", self.in_use));
        }
        Ok(())
    }

    /// After every event. While a worker is stalled or dead, what was left to it has to wait.
    pub(super) fn step(&mut self, now: Nanos, glance: Glance, excused: bool) -> Result<(), Violation> {
        let free = glance.free + glance.leased.cast_signed();
        let least = self.widest.min(self.limit.max(1)).cast_signed();
        if glance.waiting == 0 || free < least || excused {
            self.idle = None;
            return Ok(());
        }
        let since = *self.idle.get_or_insert(now);
        if now - since > self.patience {
            let waiting = glance.waiting;
            return at(now, format!("{waiting} wait beside {free} free seats since {} ns", since.0));
        }
        Ok(())
    }

    /// Now and then. Where no request is wider than a seat, a queue takes no more than its limit: while a seat is free
    /// nobody waits.
    pub(super) fn look(&self, now: Nanos, look: &Look) -> Result<(), Violation> {
        let queues = look.sequenced.iter().flat_map(|sequenced| &sequenced.queues);
        let longest = queues.map(|queue| queue.waiting).max().unwrap_or(0);
        if self.widest == 1 && longest > self.queue_length_limit {
            return at(now, format!("{longest} wait in a queue for {}", self.queue_length_limit));
        }
        Ok(())
    }

    /// When everything is over: every seat is back.
    pub(super) fn end(&self, now: Nanos, look: &Look, empty: bool) -> Result<(), Violation> {
        let free = look.free + look.leased.iter().sum::<u64>().cast_signed();
        if free != self.limit.cast_signed() || look.waiting != 0 || !empty || self.in_use != 0 {
            return at(now, format!("when all was over not everything was given back: {look:?}"));
        }
        Ok(())
    }
}

pub(super) fn at<T>(now: Nanos, what: String) -> Result<T, Violation> {
    Err(Violation { at: now, what })
}

fn widest(scenario: &Scenario) -> u64 {
    scenario.flows.iter().map(|flow| flow.work.seats.1).max().unwrap_or(1)
}

/// What levels have together, and each by itself, after seats were moved.
pub(super) fn divided(now: Nanos, levels: &[Level]) -> Result<(), Violation> {
    let limited: Vec<_> = levels.iter().filter(|level| level.mode != Mode::Exempt).collect();
    let sum = |part: fn(&Level) -> u64| limited.iter().map(|level| part(level)).sum::<u64>();
    let (all, whole) = (sum(|level| level.limit.0), sum(|level| level.limits.nominal.0));
    // Each is rounded to the next whole seat.
    if all > whole + limited.len() as u64 / 2 {
        return at(now, format!("levels have {all} seats together, of {whole}"));
    }
    for Level { name, limit, limits, .. } in limited {
        if *limit < limits.minimum || *limit > limits.maximum {
            return at(now, format!("level {name} has {limit} seats, but {limits:?}"));
        }
    }
    Ok(())
}

/// Four times as long as it takes to serve full queues one after the other, and something for long executions.
///
/// While a seat is free a queue may exceed its limit, which happens where requests are wide. Then only as many
/// wait as there are clients, or there is no telling. Nor is there where levels lend all they have.
fn bound(scenario: &Scenario, shape: &Shape) -> Option<Nanos> {
    let least = if scenario.lends() {
        scenario.least(shape)
    } else {
        scenario.changes.iter().filter_map(|change| change.seats).chain([shape.seats]).min()
    };
    let least = least.filter(|least| *least > 0)?;
    let widest = widest(scenario);
    let open = |flow: &Flow| matches!(flow.asks, Asks::Rate(_) | Asks::Burst(_, Some(_)));
    if widest > 1 && scenario.flows.iter().any(open) {
        return None;
    }
    let clients: u64 =
        scenario.flows.iter().map(|flow| u64::from(flow.count) * u64::from(flow.clients())).sum();
    let most = |part: fn(&Change) -> Option<u64>, at_first: u64| {
        scenario.changes.iter().filter_map(part).fold(at_first, u64::max)
    };
    let length = most(|change| change.queue_length_limit.map(u64::from), shape.queue_length_limit.into()) + 1;
    let length = if widest > 1 { length.max(clients) } else { length };
    let queues = most(|change| change.queues.map(u64::from), shape.queues.into());
    let hand = most(|change| change.hand_size.map(u64::from), shape.hand_size.into());
    let hands = scenario.flows.iter().map(|flow| u64::from(flow.count)).sum::<u64>() * hand;
    let queued = length * hands.min(queues) * if scenario.changes.is_empty() { 1 } else { 2 };
    let each = scenario.flows.iter().map(|flow| longest(&flow.work)).max().unwrap_or(0)
        + 2 * scenario.message_delay.0.0;
    let rounds = (4 * queued / (least / widest).max(1) + 60).cast_signed();
    let stalls: i64 = scenario.stalls.iter().map(|stall| stall.lasts.0.0).sum();
    let absences: i64 = scenario.coordinator_lost.iter().map(|absence| absence.lasts.0.0).sum();
    let steps: i64 = scenario.clocks.iter().map(|step| step.by.0.0.abs()).sum();
    let deaths = scenario.deaths.len() as i64 * 10 * RESTART.0;
    Some(Nanos(rounds.saturating_mul(each).saturating_add(stalls + absences + steps + deaths)))
}

/// The mean time of the longest executions there are, in ns.
fn longest(work: &super::flow::Work) -> i64 {
    let tail = if work.distribution == Distribution::Heavy { 10 } else { 1 };
    work.service.0.0 * tail + work.linger.0.0
}

fn millis(span: Nanos) -> i64 {
    span.0 / 1_000_000
}
