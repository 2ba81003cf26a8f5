//! What one looks like from outside at one moment: plain values, taken between two turns of a worker.
//!
//! Dumps ([`crate::dump`]), metrics ([`crate::meters`]) and the explanation of a single decision are
//! rendered from these, on other threads. A snapshot is as large as what is active: a queue in which
//! nothing ever happened is not listed, nor is a request that is gone. What a request is about (user,
//! verb, path) is its owner's to know: [`Request::tag`] finds it.

mod merge;
mod past;

pub use merge::{Merged, merge};
pub use past::Past;
pub(crate) use past::PastLevel;

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::demand::SeatDemand;
use crate::flow::Method;
use crate::level::{Counters, Epochs, LastDispatch, Mode, QueueState};
use crate::limits::Limits;
use crate::meters::{CrowdMeters, LevelMeters, SchemaMeters};
use crate::units::{Nanos, SeatSeconds, Seats, Work};

/// Everything, at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The moment.
    pub at: Nanos,
    /// Which configuration was in force.
    pub generation: u64,
    /// The fair proportion of the last adjustment.
    pub fair_proportion: f64,
    /// Levels, sorted by name.
    pub levels: Vec<Level>,
    /// Counts of the schemas that were ever met, sorted by level, then schema.
    pub schemas: Vec<SchemaMeters>,
    /// Reading and writing requests over all levels.
    pub crowd: CrowdMeters,
}

/// A priority level.
#[derive(Clone, Debug)]
pub struct Level {
    /// Its name.
    pub name: Arc<str>,
    /// UID of its object; empty for one that is imagined.
    pub uid: Arc<str>,
    /// How it treats what does not fit.
    pub mode: Mode,
    /// Its object is gone; it stays until it is empty.
    pub quiescing: bool,
    /// Nothing waits and nothing executes.
    pub idle: bool,
    /// Limits by configuration.
    pub limits: Limits,
    /// Current concurrency limit.
    pub limit: Seats,
    /// What it was reckoned to want at the last adjustment.
    pub target: f64,
    /// Its demand as of the last adjustment.
    pub demand: SeatDemand,
    /// How many seconds a client that it turns away shall wait.
    pub retry_after: u32,
    /// Requests that wait.
    pub waiting: usize,
    /// Requests that execute.
    pub executing: usize,
    /// Seats of those that execute or linger.
    pub seats_in_use: Seats,
    /// Seats of those that wait.
    pub seats_waiting: Seats,
    /// What it has counted.
    pub counters: Counters,
    /// The progress meter.
    pub r: SeatSeconds,
    /// How often the progress meter was wound back.
    pub epochs: Epochs,
    /// Readings at the latest dispatch from a queue.
    pub last_dispatch: Option<LastDispatch>,
    /// Queues that exist.
    pub queue_count: u32,
    /// Queues that ever had a request, by index; the others are blank.
    pub queues: Vec<Queue>,
    /// Requests that execute without a queue, in order of arrival.
    pub queueless: Vec<Request>,
    /// How its seats and its room for requests were used over time.
    pub meters: LevelMeters,
}

/// A queue.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Its numbers.
    pub state: QueueState,
    /// Requests that wait, oldest first.
    pub waiting: Vec<Request>,
    /// Requests that execute, by arrival.
    pub executing: Vec<Request>,
}

/// A request that waits or executes.
#[derive(Clone, Debug)]
pub struct Request {
    /// What its owner calls it.
    pub tag: u64,
    /// Its place in the table of its level, or of its worker's part of that.
    pub slot: u32,
    /// Name of its schema.
    pub schema: Arc<str>,
    /// What tells its flow apart; `None` if nothing does.
    pub distinguisher: Option<Method>,
    /// When it arrived.
    pub arrived: Nanos,
    /// When it began to execute.
    pub started: Option<Nanos>,
    /// Its estimated cost, as it was cut at dispatch.
    pub work: Work,
}

impl Level {
    /// The queue of that index, `None` if it is blank.
    #[must_use]
    pub fn queue(&self, index: u32) -> Option<&Queue> {
        let place = self.queues.binary_search_by_key(&index, |queue| queue.state.index).ok()?;
        self.queues.get(place)
    }
}
