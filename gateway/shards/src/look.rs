//! What can be seen of a level on many workers, as values.
//!
//! The numbers of the workers are read one after the other while they change: sums are as of about now. What
//! the sequencer has is exact, as of its last visit.

use std::sync::Arc;

use usher_flowcontrol::level::{Counters, QueueState};
use usher_flowcontrol::units::{Nanos, SeatSeconds, Seats};

use crate::desk::{Desk, Tally};
use crate::level::Level;
use crate::pool::View;
use crate::sequencer::Sequencer;
use crate::shard::Shard;
use crate::sync::{Data, Ordering};

/// A look at a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Free seats of the pool; negative if more are in use than the limit allows now.
    pub free: i64,
    /// Requests that wait, or whose tickets are on their way.
    pub waiting: u64,
    /// By worker: free seats that it keeps for its next requests.
    pub leased: Vec<u64>,
    /// By worker: requests that wait, execute or linger.
    pub held: Vec<u64>,
    /// Requests ever started without the sequencer.
    pub bypassed: u64,
    /// Requests ever turned away without the sequencer.
    pub turned_away: u64,
    /// What the sequencer has; `None` if somebody was visiting it.
    pub sequenced: Option<Sequenced>,
}

/// What anybody can read at any time, without a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// See [`Look::free`].
    pub free: i64,
    /// See [`Look::waiting`].
    pub waiting: u64,
    /// Free seats that workers keep for their next requests.
    pub leased: u64,
}

/// Requests that workers have ever started, by how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Starts {
    /// Without the common order, while nobody waited.
    pub alone: u64,
    /// In the common order, by their own worker.
    pub by_own: u64,
    /// In the common order, by another worker, who had to tell theirs.
    pub by_others: u64,
}

/// The sequencer's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequenced {
    /// Requests that wait.
    pub waiting: usize,
    /// Requests that execute, of those that it knows.
    pub executing: usize,
    /// Seats of those, and of those that linger.
    pub seats_in_use: Seats,
    /// Seats of those that wait.
    pub seats_waiting: Seats,
    /// The progress meter.
    pub r: SeatSeconds,
    /// What it has counted: all that was turned away, timed out or cancelled by it, and what it dispatched.
    pub counters: Counters,
    /// How often workers came to it.
    pub visits: u64,
    /// Operations that it has done for workers.
    pub operations: u64,
    /// The queues of which something is known, by index.
    pub queues: Vec<QueueState>,
}

impl Level {
    /// Reads what workers show. Nobody is disturbed, and nothing is done for anybody.
    #[must_use]
    pub fn glance(&self) -> Glance {
        let View { free, waiting } = self.common.pool.view();
        let lease = |desk: &Arc<Desk>| desk.lease.load(Ordering::Relaxed);
        Glance { free, waiting, leased: self.common.desks.iter().map(lease).sum() }
    }
}

impl Level {
    /// What its workers have started.
    #[must_use]
    pub fn starts(&self) -> Starts {
        let sum = |count: fn(&Tally) -> &Data| {
            self.common.desks.iter().map(|desk| count(&desk.tally).load(Ordering::Relaxed)).sum()
        };
        Starts {
            alone: sum(|tally| &tally.bypassed),
            by_own: sum(|tally| &tally.granted),
            by_others: sum(|tally| &tally.granted_to_others),
        }
    }
}

impl Starts {
    /// With those of another level.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            alone: self.alone + other.alone,
            by_own: self.by_own + other.by_own,
            by_others: self.by_others + other.by_others,
        }
    }
}

impl Shard {
    /// Shows what the sequencer has; `None` if somebody is visiting it.
    pub(crate) fn with_sequencer<T>(&mut self, now: Nanos, look: impl FnOnce(&Sequencer) -> T) -> Option<T> {
        let seen = self.level.role().map(|sequencer| look(&sequencer));
        // Others may have left something meanwhile and relied on whoever holds the role.
        self.visit(now, None);
        seen
    }

    /// Looks at the level.
    pub fn look(&mut self, now: Nanos) -> Look {
        let sequenced = self.with_sequencer(now, Sequenced::of);
        let common = &self.level.common;
        let pool = common.pool.view();
        let each = |read: fn(&Desk) -> u64| common.desks.iter().map(|desk| read(desk)).collect::<Vec<_>>();
        let count = |counter: &Data| counter.load(Ordering::Relaxed);
        Look {
            free: pool.free,
            waiting: pool.waiting,
            leased: each(|desk| desk.lease.load(Ordering::Relaxed)),
            held: each(|desk| desk.tally.held.load(Ordering::Relaxed)),
            bypassed: common.desks.iter().map(|desk| count(&desk.tally.bypassed)).sum(),
            turned_away: common.desks.iter().map(|desk| count(&desk.tally.turned_away)).sum(),
            sequenced,
        }
    }
}

impl Sequenced {
    fn of(sequencer: &Sequencer) -> Self {
        let level = &sequencer.level;
        Self {
            waiting: level.waiting(),
            executing: level.executing(),
            seats_in_use: level.seats_in_use(),
            seats_waiting: level.seats_waiting(),
            r: level.r(),
            counters: level.counters(),
            visits: sequencer.visits,
            operations: sequencer.operations,
            queues: level.queue_states(),
        }
    }
}
