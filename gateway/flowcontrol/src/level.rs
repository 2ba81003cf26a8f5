//! One priority level from arrival to finish, on one thread: verdicts out, no callbacks in.
//!
//! A level is exempt (everything runs), without queues (what does not fit is rejected) or with queues
//! (what does not fit waits in a [`crate::queueset`]). Requests that were waiting and may run now are
//! handed out by [`Level::next_dispatched`]: drain it after every call that takes `&mut self`.

mod outside;
mod part;
mod snapshot;

pub use crate::queueset::{Epochs, LastDispatch, Phase};
pub use part::{Event, Held, Part, Picture, Totals};
pub use snapshot::{QueueState, RequestState};

use alloc::collections::VecDeque;

use crate::queueset::QueueSet;
use crate::queueset::requests::{List, NONE, Request, Requests};
use crate::shuffle::Dealer;
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

/// Names a request that a level has accepted, until its seats are given back. A ticket that is not good
/// any more is recognised, and whatever is done with it does nothing.
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
#[must_use = "an accepted request holds its place until it is finished or cancelled"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Runs now.
    Execute(Ticket),
    /// Waits; [`Level::request`] tells in which queue.
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
#[must_use = "lingering seats are held until `linger_end`"]
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

/// What a level has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests that began to execute.
    pub dispatched: u64,
    /// Requests that never will: turned away at once, timed out or cancelled.
    pub rejected: u64,
    /// Of those, the ones that had waited as long as they may.
    pub timed_out: u64,
    /// Of those, the ones whose clients left.
    pub cancelled: u64,
    /// Times that the request whose turn it was had to wait although some seat was free.
    pub not_accommodated: u64,
}

impl Counters {
    /// Adds what was counted elsewhere of the same level.
    pub fn add(&mut self, other: Self) {
        let Self { dispatched, rejected, timed_out, cancelled, not_accommodated } = other;
        self.dispatched += dispatched;
        self.rejected += rejected;
        self.timed_out += timed_out;
        self.cancelled += cancelled;
        self.not_accommodated += not_accommodated;
    }
}

/// The widest request that is believed. Estimates end at 100 seats; four billion requests as wide as
/// this still add up in 64 bits, and the work of each is exact in an f64.
const SEATS_MAX: Seats = Seats(3_000_000_000);

/// Work no wider than [`SEATS_MAX`]: what a level reckons with.
pub(crate) fn believed(work: Work) -> Work {
    Work {
        initial_seats: work.initial_seats.min(SEATS_MAX),
        final_seats: work.final_seats.min(SEATS_MAX),
        ..work
    }
}

/// One priority level.
///
/// Every method that takes `now` moves the level's time there, forwards only, and leaves behind no
/// waiting request that could run.
#[derive(Debug)]
pub struct Level {
    mode: Mode,
    /// Current concurrency limit.
    limit: Seats,
    dealer: Dealer,
    requests: Requests,
    queues: QueueSet,
    /// Requests that execute without ever having had a queue.
    queueless: List,
    /// Invariant: requests that execute, with queues or without.
    executing: usize,
    /// Invariant: seats of those that execute or linger. Asserted in `occupy` and in `release`.
    seats_in_use: Seats,
    /// Seats that are taken without the level having been asked: see `level/outside.rs`.
    outside: Seats,
    /// Requests that left a queue to run, until [`Level::next_dispatched`] hands them out.
    dispatched: VecDeque<Dispatched>,
    blocked: Option<Dispatched>,
    counters: Counters,
}

// === impl Level: what happens ===

impl Level {
    /// A level with nothing in it. `limit` is its current concurrency limit.
    #[must_use]
    pub fn new(now: Nanos, mode: Mode, limit: Seats) -> Self {
        Self {
            mode,
            limit,
            dealer: dealer(mode),
            requests: Requests::new(),
            queues: QueueSet::new(now, queue_count(mode)),
            queueless: List::EMPTY,
            executing: 0,
            seats_in_use: Seats(0),
            outside: Seats(0),
            dispatched: VecDeque::new(),
            blocked: None,
            counters: Counters::default(),
        }
    }

    /// A request arrives.
    pub fn arrive(&mut self, now: Nanos, arrival: Arrival) -> Verdict {
        let now = self.sync(now);
        let request = Request::new(believed(arrival.work), arrival.tag, now, self.queues.r());
        match self.mode {
            Mode::Queue { queue_length_limit, .. } => self.queue(arrival.flow, request, queue_length_limit),
            Mode::Exempt | Mode::Reject => self.run_or_reject(request),
        }
    }

    /// A request arrived whose wait was over before it began: it is counted, and never runs.
    ///
    /// parity: C7. kube-apiserver does not look, and runs it if there is a seat.
    pub fn refuse(&mut self, why: Reason) {
        self.count_rejection(why);
    }

    /// Gives up the waiting of a request: its time is over, or its client left. `false` if it was not
    /// waiting any more (then nothing happened).
    ///
    /// parity: C5. What stood behind a head that left may start; kube-apiserver lets it wait for the
    /// next event. parity: C6. The request is gone from its queue, so it cannot run any more.
    pub fn cancel(&mut self, now: Nanos, ticket: Ticket, why: Reason) -> bool {
        if self.find(ticket, Phase::Waiting).is_none() {
            return false;
        }
        self.sync(now);
        self.queues.withdraw(&mut self.requests, ticket.slot);
        self.requests.remove(ticket.slot);
        self.count_rejection(why);
        self.dispatch(NONE);
        true
    }

    /// The work of an executing request is done. A ticket that does not execute: nothing happens.
    pub fn finish(&mut self, now: Nanos, ticket: Ticket) -> Finish {
        let Some(&Request { queue, work, .. }) = self.find(ticket, Phase::Executing) else {
            return Finish::Released;
        };
        let now = self.sync(now);
        self.executing -= 1;
        if queue == NONE {
            self.queueless.remove(&mut self.requests, ticket.slot);
            self.requests.get_mut(ticket.slot).phase = Phase::Lingering;
        } else {
            self.queues.finish(&mut self.requests, ticket.slot);
        }
        let lingers = work.additional_latency > Nanos::ZERO;
        if !lingers {
            self.release(ticket.slot);
        }
        self.dispatch(NONE);
        if lingers { Finish::Lingers { until: now + work.additional_latency } } else { Finish::Released }
    }

    /// The lingering of a request is over. A ticket that does not linger: nothing happens.
    pub fn linger_end(&mut self, now: Nanos, ticket: Ticket) {
        if self.find(ticket, Phase::Lingering).is_some() {
            self.sync(now);
            self.release(ticket.slot);
            self.dispatch(NONE);
        }
    }

    /// New shape or new limit; what waits keeps its place.
    pub fn reconfigure(&mut self, now: Nanos, mode: Mode, limit: Seats) {
        self.sync(now);
        self.mode = mode;
        self.limit = limit;
        self.dealer = dealer(mode);
        self.queues.reshape(queue_count(mode));
        self.dispatch(NONE);
    }

    /// The next request that left a queue to run since the last call, in order of dispatch. One that
    /// ran at once is not among them: its [`Verdict`] said so.
    pub fn next_dispatched(&mut self) -> Option<Dispatched> {
        loop {
            let next = self.dispatched.pop_front()?;
            if self.find(next.ticket, Phase::Executing).is_some() {
                return Some(next);
            }
        }
    }
}

// === impl Level: what decides ===

impl Level {
    /// A request for a level without queues.
    fn run_or_reject(&mut self, mut request: Request) -> Verdict {
        if !self.can_accommodate(request.work.max_seats()) {
            self.count_rejection(Reason::ConcurrencyLimit);
            return Verdict::Reject(Reason::ConcurrencyLimit);
        }
        request.phase = Phase::Executing;
        let id = self.requests.add(request);
        self.queueless.push(&mut self.requests, id);
        self.occupy(id);
        Verdict::Execute(self.ticket(id))
    }

    /// A request for a level with queues: it waits, if only for a moment.
    ///
    /// While a seat is free a queue may exceed its limit, even if its head is too wide for the seat.
    fn queue(&mut self, flow: FlowHash, request: Request, length_limit: u32) -> Verdict {
        let slot = self.queues.choose(&self.dealer, flow);
        if !self.has_free_seat() && self.queues.queue(slot).waiting.len() >= length_limit {
            self.count_rejection(Reason::QueueFull);
            return Verdict::Reject(Reason::QueueFull);
        }
        let at_once = self.queues.waiting() == 0
            && self.has_free_seat()
            && self.can_accommodate(request.work.max_seats());
        let id = self.requests.add(request);
        if at_once {
            self.queues.start_at_once(&mut self.requests, slot, id, self.limit);
            self.occupy(id);
            return Verdict::Execute(self.ticket(id));
        }
        self.queues.enqueue(&mut self.requests, slot, id);
        self.dispatch(id);
        match self.requests.get(id).phase {
            Phase::Executing => Verdict::Execute(self.ticket(id)),
            _ => Verdict::Wait(self.ticket(id)),
        }
    }

    /// Starts waiting requests, each in its turn, until there is no seat for the one whose turn it is:
    /// nobody overtakes it. `arriving` is started without being announced: its verdict will say so.
    fn dispatch(&mut self, arriving: u32) {
        self.blocked = None;
        while self.queues.waiting() > 0 && self.has_free_seat() {
            let Some(id) = self.queues.earliest() else { return };
            let head = Dispatched { ticket: self.ticket(id), tag: self.requests.get(id).tag };
            if !self.can_accommodate(self.requests.get(id).work.max_seats()) {
                self.counters.not_accommodated += 1;
                self.blocked = Some(head);
                return;
            }
            self.queues.start(&mut self.requests, id, self.limit);
            self.occupy(id);
            if id != arriving {
                self.dispatched.push_back(head);
            }
        }
    }

    fn has_queues(&self) -> bool {
        matches!(self.mode, Mode::Queue { .. })
    }

    fn has_free_seat(&self) -> bool {
        self.seats_in_use + self.outside < self.limit
    }

    /// Whether there is room. A request wider than the limit runs when nothing else executes; what
    /// lingers is not looked at then.
    fn can_accommodate(&self, seats: Seats) -> bool {
        match self.mode {
            Mode::Exempt => true,
            _ if seats > self.limit => self.executing == 0 && self.outside == Seats(0),
            _ => self.seats_in_use + self.outside + seats <= self.limit,
        }
    }
}

// === impl Level: what follows ===

impl Level {
    fn sync(&mut self, now: Nanos) -> Nanos {
        self.queues.sync(&mut self.requests, now, self.limit)
    }

    /// Counts the seats of a request that begins to execute.
    fn occupy(&mut self, id: u32) {
        self.executing += 1;
        self.seats_in_use += self.requests.get(id).work.max_seats();
        self.counters.dispatched += 1;
        debug_assert!(self.seats_in_use >= self.queues.seats_in_use(), "queues hold a part of the seats");
    }

    /// Gives back the seats of a request that is done.
    fn release(&mut self, id: u32) {
        let Request { queue, work, .. } = *self.requests.get(id);
        debug_assert!(self.seats_in_use >= work.max_seats(), "seats given back were in use");
        self.seats_in_use -= work.max_seats();
        if queue != NONE {
            self.queues.release(&self.requests, id);
        }
        self.requests.remove(id);
        debug_assert!(self.seats_in_use >= self.queues.seats_in_use(), "queues hold a part of the seats");
    }

    /// parity: C9. kube-apiserver counts nobody as timed out, and those whose clients left as time-outs.
    fn count_rejection(&mut self, why: Reason) {
        self.counters.rejected += 1;
        match why {
            Reason::TimeOut => self.counters.timed_out += 1,
            Reason::Cancelled => self.counters.cancelled += 1,
            Reason::QueueFull | Reason::ConcurrencyLimit => {}
        }
    }

    fn find(&self, ticket: Ticket, phase: Phase) -> Option<&Request> {
        self.requests.find(ticket.slot, ticket.generation).filter(|request| request.phase == phase)
    }

    fn ticket(&self, id: u32) -> Ticket {
        Ticket { slot: id, generation: self.requests.get(id).generation }
    }
}

/// Queues that take requests in that mode.
fn queue_count(mode: Mode) -> u32 {
    match mode {
        Mode::Queue { queues, .. } => queues.max(1),
        Mode::Exempt | Mode::Reject => 0,
    }
}

/// Deals the hands of that mode; without queues nobody asks for any.
fn dealer(mode: Mode) -> Dealer {
    match mode {
        Mode::Queue { queues, hand_size, .. } => Dealer::clamped(queues, hand_size),
        Mode::Exempt | Mode::Reject => Dealer::clamped(1, 1),
    }
}

#[cfg(test)]
mod tests;
