//! Who decides: the workers' shards, or one exact level that nothing delays, for comparison.

use std::sync::Arc;

use usher_flowcontrol::level::{self, Arrival, Finish, Reason, Ticket, Verdict};
use usher_flowcontrol::units::{Nanos, Seats};
use usher_shards::{Event, Glance, Level, Look, Options, Shard};

use super::scenario::Scenario;

/// One of them; the methods are those of [`Shard`], for the worker named.
pub(super) enum Admission {
    Workers { level: Arc<Level>, shards: Vec<Option<Shard>> },
    Single(Box<level::Level>),
}

impl Admission {
    pub(super) fn workers(scenario: &Scenario) -> Self {
        let knobs = scenario.knobs;
        let options = Options {
            workers: scenario.workers,
            slots: scenario.slots,
            ring: knobs.ring,
            bypass: !scenario.exact,
            lease: knobs.lease,
            lease_from: knobs.lease_from,
            hold: knobs.hold,
        };
        let level = Level::new(Nanos::ZERO, scenario.mode(), Seats(scenario.level.seats), options);
        let shards = (0..scenario.workers).map(|worker| level.shard(worker)).collect();
        Self::Workers { level, shards }
    }

    pub(super) fn single(scenario: &Scenario) -> Self {
        let level = level::Level::new(Nanos::ZERO, scenario.mode(), Seats(scenario.level.seats));
        Self::Single(Box::new(level))
    }

    pub(super) fn arrive(&mut self, worker: usize, now: Nanos, arrival: Arrival) -> Verdict {
        match self {
            Self::Workers { shards, .. } => of(shards, worker).arrive(now, arrival),
            Self::Single(level) => level.arrive(now, arrival),
        }
    }

    pub(super) fn finish(&mut self, worker: usize, now: Nanos, ticket: Ticket) -> Finish {
        match self {
            Self::Workers { shards, .. } => of(shards, worker).finish(now, ticket),
            Self::Single(level) => level.finish(now, ticket),
        }
    }

    pub(super) fn linger_end(&mut self, worker: usize, now: Nanos, ticket: Ticket) {
        match self {
            Self::Workers { shards, .. } => of(shards, worker).linger_end(now, ticket),
            Self::Single(level) => level.linger_end(now, ticket),
        }
    }

    pub(super) fn cancel(&mut self, worker: usize, now: Nanos, ticket: Ticket) -> bool {
        match self {
            Self::Workers { shards, .. } => of(shards, worker).cancel(now, ticket, Reason::Cancelled),
            Self::Single(level) => level.cancel(now, ticket, Reason::Cancelled),
        }
    }

    pub(super) fn set_limit(&mut self, worker: usize, now: Nanos, limit: u64) {
        match self {
            Self::Workers { shards, level } => {
                of(shards, worker).reconfigure(now, level.mode(), Seats(limit));
            }
            Self::Single(level) => level.reconfigure(now, level.mode(), Seats(limit)),
        }
    }

    pub(super) fn poll(&mut self, worker: usize, now: Nanos) {
        if let Self::Workers { shards, .. } = self {
            of(shards, worker).poll(now);
        }
    }

    pub(super) fn next_event(&mut self, worker: usize) -> Option<Event> {
        match self {
            Self::Workers { shards, .. } => of(shards, worker).next_event(),
            Self::Single(level) => level.next_dispatched().map(Event::Dispatched),
        }
    }

    pub(super) fn next_wake(&mut self, worker: usize) -> Option<usize> {
        match self {
            Self::Workers { shards, .. } => of(shards, worker).next_wake(),
            Self::Single(_) => None,
        }
    }

    /// That worker is gone, with all that it had.
    pub(super) fn kill(&mut self, worker: usize) {
        if let Self::Workers { shards, .. } = self {
            shards[worker] = None;
        }
    }

    pub(super) fn bury(&mut self, by: usize, now: Nanos, dead: usize) {
        if let Self::Workers { shards, .. } = self {
            of(shards, by).bury(now, dead);
        }
    }

    /// Somebody else takes the place; `false` while it is not buried.
    pub(super) fn replace(&mut self, worker: usize) -> bool {
        if let Self::Workers { level, shards } = self {
            shards[worker] = level.shard(worker);
            return shards[worker].is_some();
        }
        true
    }

    /// What can be read without disturbing anybody.
    pub(super) fn glance(&self) -> Option<Glance> {
        match self {
            Self::Workers { level, .. } => Some(level.glance()),
            Self::Single(_) => None,
        }
    }

    /// What can be seen by somebody who visits.
    pub(super) fn look(&mut self, worker: usize, now: Nanos) -> Option<Look> {
        match self {
            Self::Workers { shards, .. } => Some(of(shards, worker).look(now)),
            Self::Single(_) => None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Workers { level, .. } => level.is_empty(),
            Self::Single(level) => level.is_empty(),
        }
    }
}

fn of(shards: &mut [Option<Shard>], worker: usize) -> &mut Shard {
    shards[worker].as_mut().expect("only the living do anything")
}
