//! Who decides: the workers' shards, or one exact level that nothing delays, for comparison.

use std::sync::Arc;

use usher_flowcontrol::level::{self, Arrival, Finish, Mode, Reason, Ticket, Verdict};
use usher_flowcontrol::units::{Nanos, Seats};
use usher_shards::{Event, Glance, Level, Look, Options, Shard};

use super::scenario::{Scenario, Shape};

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The scenario's workers.
    Workers,
    /// An exact level.
    Exact,
}

/// One of them; the methods are those of [`Shard`], for the worker named.
pub(super) enum Admission {
    Workers { level: Arc<Level>, shards: Vec<Option<Shard>> },
    Exact(Box<level::Level>),
}

impl Admission {
    /// `there`: a level that somebody has made already.
    pub(super) fn new(kind: Kind, scenario: &Scenario, shape: &Shape, there: Option<Arc<Level>>) -> Self {
        if let Some(level) = there {
            let shards = (0..scenario.workers).map(|worker| level.shard(worker)).collect();
            return Self::Workers { level, shards };
        }
        let limit = Seats(shape.seats);
        let Kind::Workers = kind else {
            return Self::Exact(Box::new(level::Level::new(Nanos::ZERO, shape.mode(), limit)));
        };
        let options = Options {
            workers: scenario.workers + 1, // the coordinator has a desk, too
            slots: scenario.slots,
            bypass: !scenario.exact,
            ..scenario.knobs.options()
        };
        let level = Level::keeping_back(Nanos::ZERO, shape.mode(), limit, options);
        let shards = (0..=scenario.workers).map(|worker| level.shard(worker)).collect();
        Self::Workers { level, shards }
    }

    pub(super) fn arrive(&mut self, worker: usize, now: Nanos, arrival: Arrival) -> Verdict {
        match self {
            Self::Workers { shards, .. } => of(shards, worker).arrive(now, arrival),
            Self::Exact(level) => level.arrive(now, arrival),
        }
    }

    pub(super) fn finish(&mut self, worker: usize, now: Nanos, ticket: Ticket) -> Finish {
        match self {
            Self::Workers { shards, .. } => of(shards, worker).finish(now, ticket),
            Self::Exact(level) => level.finish(now, ticket),
        }
    }

    pub(super) fn linger_end(&mut self, worker: usize, now: Nanos, ticket: Ticket) {
        match self {
            Self::Workers { shards, .. } => of(shards, worker).linger_end(now, ticket),
            Self::Exact(level) => level.linger_end(now, ticket),
        }
    }

    pub(super) fn cancel(&mut self, worker: usize, now: Nanos, ticket: Ticket) -> bool {
        match self {
            Self::Workers { shards, .. } => of(shards, worker).cancel(now, ticket, Reason::Cancelled),
            Self::Exact(level) => level.cancel(now, ticket, Reason::Cancelled),
        }
    }

    pub(super) fn reconfigure(&mut self, worker: usize, now: Nanos, mode: Mode, limit: Seats) {
        match self {
            Self::Workers { shards, .. } => of(shards, worker).reconfigure(now, mode, limit),
            Self::Exact(level) => level.reconfigure(now, mode, limit),
        }
    }

    /// Its limit, as workers see it.
    pub(super) fn limit(&self) -> Seats {
        match self {
            Self::Workers { level, .. } => level.limit(),
            Self::Exact(level) => level.limit(),
        }
    }

    /// How much was ever published.
    pub(super) fn published(&self) -> u64 {
        if let Self::Workers { level, .. } = self { level.published() } else { 0 }
    }

    /// So much of that can be seen now.
    pub(super) fn show(&self, published: u64) {
        if let Self::Workers { level, .. } = self {
            level.show(published);
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
            Self::Exact(level) => level.next_dispatched().map(Event::Dispatched),
        }
    }

    pub(super) fn next_wake(&mut self, worker: usize) -> Option<usize> {
        match self {
            Self::Workers { shards, .. } => of(shards, worker).next_wake(),
            Self::Exact(_) => None,
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
            if shards[worker].is_none() {
                shards[worker] = level.shard(worker);
            }
            return shards[worker].is_some();
        }
        true
    }

    /// What can be read without disturbing anybody.
    pub(super) fn glance(&self) -> Option<Glance> {
        match self {
            Self::Workers { level, .. } => Some(level.glance()),
            Self::Exact(_) => None,
        }
    }

    /// What can be seen by somebody who visits.
    pub(super) fn look(&mut self, worker: usize, now: Nanos) -> Option<Look> {
        match self {
            Self::Workers { shards, .. } => Some(of(shards, worker).look(now)),
            Self::Exact(_) => None,
        }
    }

    /// The coordinator has let go of it.
    pub(super) fn is_retired(&self) -> bool {
        if let Self::Workers { level, .. } = self { level.is_closed() } else { false }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Workers { level, .. } => level.is_empty(),
            Self::Exact(level) => level.is_empty(),
        }
    }
}

fn of(shards: &mut [Option<Shard>], worker: usize) -> &mut Shard {
    shards[worker].as_mut().expect("only the living do anything")
}
