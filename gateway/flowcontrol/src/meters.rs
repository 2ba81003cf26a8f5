//! What operators watch: counts and gauges of levels and schemas as plain values, and what they are
//! called.
//!
//! The decisions keep these ([`crate::controller`]); nobody registers anything, and nothing is looked up
//! by label on the way of a request. [`families`] gives the values their names when someone asks.

mod descriptions;
mod families;
mod histogram;
mod series;

pub use descriptions::*;
pub use families::{Child, Family, Value, families};
pub use histogram::{Distribution, Histogram, TimingHistogram};

use alloc::sync::Arc;

use crate::level::{Mode, Reason, Totals};
use crate::limits::as_f64;
use crate::units::{Nanos, Seats};

/// Counts of the requests of one schema at one level.
#[derive(Clone, Debug)]
pub struct SchemaMeters {
    /// Name of the level.
    pub level: Arc<str>,
    /// Name of the schema.
    pub schema: Arc<str>,
    /// Requests that did not run, by [`Reason::index`].
    pub rejected: [u64; Reason::ALL.len()],
    /// Requests that began to execute.
    pub dispatched: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Their seats.
    pub waiting_seats: u64,
    /// Requests that execute.
    pub executing: u64,
    /// Seats of those that execute or linger.
    pub executing_seats: u64,
    /// Seconds waited by those that executed, and by those that did not.
    pub wait: [Histogram<13>; 2],
    /// Seconds executed by regular requests, and by watches until they were initialised.
    pub execution: [Histogram<13>; 2],
    /// Lengths of the queues that requests joined.
    pub queue_lengths: Histogram<8>,
    /// Watches that writing requests have to notify.
    pub watch_counts: Histogram<6>,
    /// Estimated widths.
    pub widths: Histogram<8>,
    /// Times that the request whose turn it was needed more seats than were free.
    pub not_accommodated: u64,
}

/// How a level's room was used over time.
#[derive(Clone, Debug)]
pub struct LevelMeters {
    /// Seats in use, in parts of the limit.
    pub seats: TimingHistogram<13>,
    /// Requests that wait, in parts of what the queues hold.
    pub waiting: TimingHistogram<10>,
    /// Requests that execute, in parts of the limit.
    pub executing: TimingHistogram<10>,
    /// Seats in use and wanted, in parts of the limit.
    pub demand: TimingHistogram<12>,
}

/// Reading and writing requests over all levels.
#[derive(Clone, Debug)]
pub struct CrowdMeters {
    /// Requests that wait: reading, writing.
    pub waiting: [TimingHistogram<15>; 2],
    /// Requests that execute: reading, writing.
    pub executing: [TimingHistogram<15>; 2],
}

// === impl Reason ===

impl Reason {
    /// All of them, by index.
    pub const ALL: [Self; 4] = [Self::QueueFull, Self::ConcurrencyLimit, Self::TimeOut, Self::Cancelled];

    /// Its place in [`Reason::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::QueueFull => 0,
            Self::ConcurrencyLimit => 1,
            Self::TimeOut => 2,
            Self::Cancelled => 3,
        }
    }

    /// As a label's value.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::TimeOut => "time-out",
            Self::Cancelled => "cancelled",
        }
    }
}

// === impl SchemaMeters ===

impl SchemaMeters {
    /// All zero.
    #[must_use]
    pub fn new(level: Arc<str>, schema: Arc<str>) -> Self {
        Self {
            level,
            schema,
            rejected: [0; Reason::ALL.len()],
            dispatched: 0,
            waiting: 0,
            waiting_seats: 0,
            executing: 0,
            executing_seats: 0,
            wait: [const { Histogram::new(&DURATIONS) }; 2],
            execution: [const { Histogram::new(&DURATIONS) }; 2],
            queue_lengths: Histogram::new(&QUEUE_LENGTHS),
            watch_counts: Histogram::new(&WATCH_COUNTS),
            widths: Histogram::new(&WIDTHS),
            not_accommodated: 0,
        }
    }

    /// A request begins to wait.
    pub fn enqueued(&mut self, seats: Seats) {
        self.waiting += 1;
        self.waiting_seats += seats.0;
    }

    /// It joined a queue, which then was that long.
    pub fn joined(&mut self, queue_length: u32) {
        self.queue_lengths.observe(f64::from(queue_length));
    }

    /// A request left its queue, to run or not.
    pub fn dequeued(&mut self, seats: Seats) {
        self.waiting = self.waiting.saturating_sub(1);
        self.waiting_seats = self.waiting_seats.saturating_sub(seats.0);
    }

    /// A request began to execute. `waited`: absent at exempt levels, where nothing waits.
    pub fn started(&mut self, seats: Seats, waited: Option<Nanos>) {
        self.dispatched += 1;
        self.executing += 1;
        self.executing_seats += seats.0;
        if let Some(waited) = waited {
            self.wait[0].observe(seconds(waited));
        }
    }

    /// A request will not run.
    ///
    /// parity: C8. kube-apiserver says of one that timed out that it was executed.
    pub fn rejected(&mut self, why: Reason, waited: Nanos) {
        self.rejected[why.index()] += 1;
        self.wait[1].observe(seconds(waited));
    }

    /// The work of a request is done; its seats may linger.
    pub fn finished(&mut self, executed: Nanos, watch: bool) {
        self.executing = self.executing.saturating_sub(1);
        self.execution[usize::from(watch)].observe(seconds(executed));
    }

    /// The seats of a request are given back.
    pub fn released(&mut self, seats: Seats) {
        self.executing_seats = self.executing_seats.saturating_sub(seats.0);
    }

    /// Adds what another worker counted of the same schema at the same level.
    pub fn add(&mut self, other: &Self) {
        let Self { level: _, schema: _, rejected, dispatched, waiting, waiting_seats, .. } = self;
        rejected.iter_mut().zip(other.rejected).for_each(|(sum, more)| *sum += more);
        *dispatched += other.dispatched;
        *waiting += other.waiting;
        *waiting_seats += other.waiting_seats;
        self.executing += other.executing;
        self.executing_seats += other.executing_seats;
        self.wait.iter_mut().zip(&other.wait).for_each(|(sum, more)| sum.add(more));
        self.execution.iter_mut().zip(&other.execution).for_each(|(sum, more)| sum.add(more));
        self.queue_lengths.add(&other.queue_lengths);
        self.watch_counts.add(&other.watch_counts);
        self.widths.add(&other.widths);
        self.not_accommodated += other.not_accommodated;
    }

    /// Nobody counts on here: what was under way is over.
    pub fn end(&mut self) {
        (self.waiting, self.waiting_seats, self.executing, self.executing_seats) = (0, 0, 0, 0);
    }

    /// Nothing of this schema is under way at the level.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting == 0 && self.executing == 0 && self.executing_seats == 0
    }

    /// Whether there is anything to show.
    #[must_use]
    pub fn was_met(&self) -> bool {
        self.dispatched > 0 || self.waiting > 0 || self.rejected.iter().any(|count| *count > 0)
    }
}

// === impl LevelMeters ===

impl LevelMeters {
    /// All zero.
    #[must_use]
    pub fn new(now: Nanos) -> Self {
        Self {
            seats: TimingHistogram::new(now, &SEAT_UTILIZATIONS),
            waiting: TimingHistogram::new(now, &REQUEST_UTILIZATIONS),
            executing: TimingHistogram::new(now, &REQUEST_UTILIZATIONS),
            demand: TimingHistogram::new(now, &DEMANDS),
        }
    }

    /// The level's shape or limit has changed. `server`: seats of the server, the yardstick of a level
    /// that has none.
    pub fn reconfigured(&mut self, now: Nanos, mode: Mode, limit: Seats, server: Seats) {
        let room = match mode {
            Mode::Queue { queues, queue_length_limit, .. } => {
                f64::from(queue_length_limit.max(1)) * f64::from(queues)
            }
            Mode::Exempt | Mode::Reject => 1.0,
        };
        let seats = match limit {
            Seats(0) => libm::round(as_f64(server) / 10.0).max(1.0),
            limit => as_f64(limit),
        };
        self.waiting.set_denominator(now, room);
        self.seats.set_denominator(now, seats);
        self.executing.set_denominator(now, seats);
        self.demand.set_denominator(now, seats);
    }

    /// As they stand at their end: no time is added later.
    #[must_use]
    pub fn ended(mut self, now: Nanos) -> Self {
        let Self { seats, waiting, executing, demand } = &mut self;
        seats.end(now);
        waiting.end(now);
        executing.end(now);
        demand.end(now);
        self
    }

    /// Adds what others, which have ended, held of the same level.
    pub fn add(&mut self, ended: &Self) {
        self.seats.add(&ended.seats);
        self.waiting.add(&ended.waiting);
        self.executing.add(&ended.executing);
        self.demand.add(&ended.demand);
    }

    /// Something happened at the level.
    pub fn observe(&mut self, now: Nanos, totals: Totals) {
        self.seats.set(now, totals.seats_in_use.0);
        self.waiting.set(now, totals.waiting as u64);
        self.executing.set(now, totals.executing as u64);
        self.demand.set(now, totals.demand().0);
    }
}

// === impl CrowdMeters ===

impl CrowdMeters {
    /// All zero.
    #[must_use]
    pub fn new(now: Nanos) -> Self {
        let zero = TimingHistogram::new(now, &READ_WRITE_UTILIZATIONS);
        Self { waiting: [zero; 2], executing: [zero; 2] }
    }

    /// The room of all levels together: requests that may wait, and that may execute.
    pub fn reconfigured(&mut self, now: Nanos, waiting: f64, executing: f64) {
        self.waiting.iter_mut().for_each(|meter| meter.set_denominator(now, waiting.max(1.0)));
        self.executing.iter_mut().for_each(|meter| meter.set_denominator(now, executing.max(1.0)));
    }

    /// As all workers have it together: requests that wait, and that execute, each reading and writing.
    pub fn set(&mut self, now: Nanos, waiting: [u64; 2], executing: [u64; 2]) {
        self.waiting.iter_mut().zip(waiting).for_each(|(meter, count)| meter.set(now, count));
        self.executing.iter_mut().zip(executing).for_each(|(meter, count)| meter.set(now, count));
    }

    /// As they stand at their end: no time is added later.
    #[must_use]
    pub fn ended(mut self, now: Nanos) -> Self {
        self.waiting.iter_mut().chain(&mut self.executing).for_each(|meter| meter.end(now));
        self
    }

    /// Adds what others, which have ended, held.
    pub fn add(&mut self, ended: &Self) {
        self.waiting.iter_mut().zip(&ended.waiting).for_each(|(sum, more)| sum.add(more));
        self.executing.iter_mut().zip(&ended.executing).for_each(|(sum, more)| sum.add(more));
    }

    /// One more, or one less, waits.
    pub fn waiting(&mut self, now: Nanos, mutating: bool, more: bool) {
        count(&mut self.waiting[usize::from(mutating)], now, more);
    }

    /// One more, or one less, executes.
    pub fn executing(&mut self, now: Nanos, mutating: bool, more: bool) {
        count(&mut self.executing[usize::from(mutating)], now, more);
    }
}

fn count(meter: &mut TimingHistogram<15>, now: Nanos, more: bool) {
    let present = meter.numerator();
    meter.set(now, if more { present + 1 } else { present.saturating_sub(1) });
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of a year fit")]
fn seconds(span: Nanos) -> f64 {
    span.0.max(0) as f64 / 1e9
}

#[cfg(test)]
mod tests;
