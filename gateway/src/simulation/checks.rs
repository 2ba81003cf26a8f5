//! What must hold at every step, whatever happens. Seats are counted here once more, from outside.

use usher_flowcontrol::units::Nanos;
use usher_shards::{Glance, Look};

use super::flow::{Asks, Distribution};
use super::scenario::Scenario;

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
    pub(super) fn new(scenario: &Scenario) -> Self {
        let longest = scenario.stalls.iter().map(|stall| stall.lasts.0).max().unwrap_or_default();
        let delay = scenario.message_delay.0;
        Self {
            limit: scenario.level.seats,
            before: Vec::new(),
            grace: delay + longest + RESTART,
            patience: Nanos(delay.0 * 4 + 1_000),
            in_use: 0,
            executing: 0,
            idle: None,
            widest: widest(scenario),
            bound: bound(scenario),
            queue_length_limit: scenario.level.queue_length_limit,
        }
    }

    /// The longest wait that the scenario allows.
    pub(super) fn bound(&self) -> Option<Nanos> {
        self.bound
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

    pub(super) fn finish(&mut self) {
        self.executing -= 1;
    }

    pub(super) fn release(&mut self, seats: u64) {
        self.in_use -= seats;
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

/// Four times as long as it takes to serve full queues one after the other, and something for long executions.
///
/// While a seat is free a queue may exceed its limit, which happens where requests are wide. Then only as many
/// wait as there are clients, or there is no telling.
fn bound(scenario: &Scenario) -> Option<Nanos> {
    let limits = scenario.limits.iter().map(|limit| limit.seats);
    let least = limits.chain([scenario.level.seats]).min().filter(|least| *least > 0)?;
    let widest = widest(scenario);
    let open = scenario.flows.iter().any(|flow| matches!(flow.asks, Asks::Rate(_) | Asks::Burst(_, Some(_))));
    if widest > 1 && open {
        return None;
    }
    let clients: u64 =
        scenario.flows.iter().map(|flow| u64::from(flow.count) * u64::from(flow.clients())).sum();
    let length = u64::from(scenario.level.queue_length_limit) + 1;
    let length = if widest > 1 { length.max(clients) } else { length };
    let hands = scenario.flows.iter().map(|flow| u64::from(flow.count)).sum::<u64>()
        * u64::from(scenario.level.hand_size);
    let queued = length * hands.min(scenario.level.queues.into());
    let each = scenario.flows.iter().map(|flow| longest(&flow.work)).max().unwrap_or(0)
        + 2 * scenario.message_delay.0.0;
    let rounds = (4 * queued / (least / widest).max(1) + 60).cast_signed();
    let stalls: i64 = scenario.stalls.iter().map(|stall| stall.lasts.0.0).sum();
    let deaths = scenario.deaths.len() as i64 * 10 * RESTART.0;
    Some(Nanos(rounds.saturating_mul(each).saturating_add(stalls + deaths)))
}

/// The mean time of the longest executions there are, in ns.
fn longest(work: &super::flow::Work) -> i64 {
    let tail = if work.distribution == Distribution::Heavy { 10 } else { 1 };
    work.service.0.0 * tail + work.linger.0.0
}

fn millis(span: Nanos) -> i64 {
    span.0 / 1_000_000
}
