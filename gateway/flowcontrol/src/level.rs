//! One priority level from arrival to finish, on one thread: verdicts out, no callbacks in.
//!
//! A level is exempt (everything runs), without queues (what does not fit is rejected) or with queues
//! (what does not fit waits in a [`crate::queueset`]). Requests that were waiting and may run now are
//! handed out by [`Level::next_dispatched`]: drain it after every call that takes `&mut self`.

use crate::units::{FlowHash, Nanos, Seats, Work};

/// How a level treats what does not fit. Already checked: see `plan`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No limit.
    Exempt,
    /// No queues: what does not fit is rejected.
    Reject,
    /// So many queues, dealt in hands.
    Queue {
        /// Number of queues, more than 0.
        queues: u32,
        /// Queues dealt to a flow.
        hand_size: u8,
        /// Requests that may wait in one queue while no seat is free.
        queue_length_limit: u32,
    },
}

/// Names a request that a level has accepted, until its seats are given back. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// Index into the level's table of requests.
    pub slot: u32,
    /// Tells successive users of a slot apart.
    pub generation: u32,
}

/// What arrives.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The flow, if the level has more than one queue; else anything.
    pub flow: FlowHash,
    /// What it will cost.
    pub work: Work,
    /// The caller's name for the request; handed back with dispatches and snapshots.
    pub tag: u64,
}

/// The answer to an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Runs now.
    Execute(Ticket),
    /// Waits in the queue of that index.
    Wait(Ticket),
    /// Is turned away.
    Reject(Reason),
}

/// Why a request did not run. The names are the metric's label values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// `queue-full`
    QueueFull,
    /// `concurrency-limit`
    ConcurrencyLimit,
    /// `time-out`: it waited as long as it may.
    TimeOut,
    /// `cancelled`: its client left.
    Cancelled,
}

/// What became of the seats when a request finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Given back.
    Released,
    /// Held until then: call [`Level::linger_end`] at that instant.
    Lingers {
        /// When they are given back.
        until: Nanos,
    },
}

/// A request that had been waiting and now runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatched {
    /// Which one.
    pub ticket: Ticket,
    /// What the caller calls it.
    pub tag: u64,
}

/// One priority level.
#[derive(Debug)]
pub struct Level {}

#[expect(
    unused_variables,
    clippy::unimplemented,
    reason = "signatures first; the queue-set room fills them in"
)]
impl Level {
    /// A level with nothing in it. `limit` is its current concurrency limit.
    pub fn new(now: Nanos, mode: Mode, limit: Seats) -> Self {
        unimplemented!()
    }

    /// A request arrives.
    pub fn arrive(&mut self, now: Nanos, arrival: Arrival) -> Verdict {
        unimplemented!()
    }

    /// Gives up the waiting of a request: its time is over, or its client left. `false` if it was not
    /// waiting any more (then nothing happened).
    pub fn cancel(&mut self, now: Nanos, ticket: Ticket, why: Reason) -> bool {
        unimplemented!()
    }

    /// The work of an executing request is done.
    pub fn finish(&mut self, now: Nanos, ticket: Ticket) -> Finish {
        unimplemented!()
    }

    /// The lingering of a request is over.
    pub fn linger_end(&mut self, now: Nanos, ticket: Ticket) {
        unimplemented!()
    }

    /// New shape or new limit; what waits keeps its place.
    pub fn reconfigure(&mut self, now: Nanos, mode: Mode, limit: Seats) {
        unimplemented!()
    }

    /// The next request that left a queue to run since the last call, in order of dispatch.
    pub fn next_dispatched(&mut self) -> Option<Dispatched> {
        unimplemented!()
    }

    /// Nothing waits and nothing executes (lingering requests do not count).
    pub fn is_idle(&self) -> bool {
        unimplemented!()
    }

    /// Seats executing and lingering.
    pub fn seats_in_use(&self) -> Seats {
        unimplemented!()
    }

    /// Sum of the seats of the requests that wait.
    pub fn seats_waiting(&self) -> Seats {
        unimplemented!()
    }
}
