//! What a controller asks of a priority level: the whole of it, or one worker's part of one that many share.
//!
//! [`Level`] is the whole. Where several workers share a level (`usher-shards`), each of them has a part: it decides
//! about the requests of its worker, knows nothing of the others, and hears later what became of requests that it
//! left to be decided elsewhere.

use alloc::vec::Vec;

use super::{
    Arrival, Counters, Dispatched, Epochs, Finish, LastDispatch, Level, Mode, Phase, QueueState, Reason,
    RequestState, Ticket, Verdict,
};
use crate::units::{Nanos, SeatSeconds, Seats, Work};

/// A level, or a part of one. Unless something else is said, methods are those of [`Level`].
pub trait Part {
    /// A request arrives. One that waits is heard of again by [`Part::next_event`].
    fn arrive(&mut self, now: Nanos, arrival: Arrival) -> Verdict;
    /// A request arrived whose wait was over before it began.
    fn refuse(&mut self, why: Reason);
    /// Gives up the waiting of a request; `false` if it waits no more.
    fn cancel(&mut self, now: Nanos, ticket: Ticket, why: Reason) -> bool;
    /// The work of an executing request is done.
    fn finish(&mut self, now: Nanos, ticket: Ticket) -> Finish;
    /// The lingering of a request is over.
    fn linger_end(&mut self, now: Nanos, ticket: Ticket);
    /// New shape or new limit, of the whole level.
    fn reconfigure(&mut self, now: Nanos, mode: Mode, limit: Seats);

    /// Looks at what others have left for this part, once a turn. The whole has no others.
    fn poll(&mut self, _now: Nanos) {}
    /// What became of the next request that had to wait.
    fn next_event(&mut self) -> Option<Event>;
    /// The next worker that is to look at its part.
    fn next_wake(&mut self) -> Option<usize> {
        None
    }
    /// Counts a request turned away where all parts count together, and says how many seconds its client shall
    /// wait. The whole leaves that to its controller.
    fn turned_away(&mut self) -> Option<u32> {
        None
    }

    /// The level shares the seats no more, and nothing is to arrive any more; what is there drains.
    fn close(&mut self) {}

    /// Requests that all parts turned away since the last call; asked by whoever watches the level.
    fn newly_turned_away(&mut self) -> u64 {
        0
    }
    /// From now on [`Part::turned_away`] says so at every part.
    fn set_retry_after(&mut self, _seconds: u32) {}

    /// How the level treats what does not fit.
    fn mode(&self) -> Mode;
    /// Current concurrency limit of the level.
    fn limit(&self) -> Seats;
    /// A request of this part; `None` once its seats are given back.
    fn held(&self, ticket: Ticket) -> Option<Held>;
    /// Length of the queue that a request joined to wait; 0 as long as whoever decides has not seen it. By the time
    /// it is dispatched, that is known.
    fn queue_length(&self, ticket: Ticket) -> u32;
    /// How often a request had to wait although some seat was free, and which one did last.
    fn blocked(&self) -> (u64, Option<Ticket>);
    /// The level as a whole; `None` where that is for somebody else to watch.
    fn totals(&self) -> Option<Totals>;
    /// What has been counted that ends with this part. Of a level that others share nothing does.
    fn counted(&self) -> (Counters, Epochs) {
        Default::default()
    }
    /// The level may go from its controller: nothing waits and nothing executes (of a part: nobody needs it).
    fn is_idle(&self) -> bool;
    /// No ticket of this part is good any more.
    fn is_empty(&self) -> bool;
    /// All that can be seen from here.
    fn picture(&mut self, now: Nanos) -> Picture;
}

/// What became of a request that had to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It runs now.
    Dispatched(Dispatched),
    /// It never will: whoever decided was busy when it arrived, and found no place for it. Only of parts.
    Rejected {
        /// Which one.
        ticket: Ticket,
        /// What the caller calls it.
        tag: u64,
        /// Why.
        why: Reason,
    },
}

/// A request that a level holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Where it is on its way.
    pub phase: Phase,
    /// When it arrived.
    pub arrived: Nanos,
    /// When it began to execute; `None` while it waits.
    pub started: Option<Nanos>,
    /// Its seats; of the whole, the final ones as they were cut at dispatch.
    pub work: Work,
}

/// A level in four numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests that wait.
    pub waiting: usize,
    /// Requests that execute.
    pub executing: usize,
    /// Seats of those that execute or linger.
    pub seats_in_use: Seats,
    /// Seats of those that wait.
    pub seats_waiting: Seats,
}

/// A level as it looks at one moment.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// In four numbers; zero where that is not known.
    pub totals: Totals,
    /// What it has counted.
    pub counters: Counters,
    /// The progress meter.
    pub r: SeatSeconds,
    /// How often that was wound back.
    pub epochs: Epochs,
    /// Readings at the latest dispatch from a queue.
    pub last_dispatch: Option<LastDispatch>,
    /// Index of the queue last dispatched from; 0 at first.
    pub robin_index: u32,
    /// Queues that exist.
    pub queue_count: u32,
    /// Queues that ever had a request, by index: its numbers, what waits in it, what executes from it.
    pub queues: Vec<(QueueState, Vec<RequestState>, Vec<RequestState>)>,
    /// Requests without a queue; of a part, all that its worker holds.
    pub queueless: Vec<RequestState>,
}

impl Totals {
    /// Seats in use and wanted.
    #[must_use]
    pub fn demand(self) -> Seats {
        self.seats_in_use + self.seats_waiting
    }
}

impl Picture {
    /// Of a whole level.
    #[must_use]
    pub fn of(level: &Level) -> Self {
        let queue = |state: QueueState| {
            (state, level.waiting_in(state.index).collect(), level.executing_from(state.index).collect())
        };
        Self {
            totals: level.totals(),
            counters: level.counters(),
            r: level.r(),
            epochs: level.epochs(),
            last_dispatch: level.last_dispatch(),
            robin_index: level.robin_index(),
            queue_count: level.queue_count(),
            queues: level.queue_states().into_iter().map(queue).collect(),
            queueless: level.executing_queueless().collect(),
        }
    }
}

impl Part for Level {
    fn arrive(&mut self, now: Nanos, arrival: Arrival) -> Verdict {
        self.arrive(now, arrival)
    }

    fn refuse(&mut self, why: Reason) {
        self.refuse(why);
    }

    fn cancel(&mut self, now: Nanos, ticket: Ticket, why: Reason) -> bool {
        self.cancel(now, ticket, why)
    }

    fn finish(&mut self, now: Nanos, ticket: Ticket) -> Finish {
        self.finish(now, ticket)
    }

    fn linger_end(&mut self, now: Nanos, ticket: Ticket) {
        self.linger_end(now, ticket);
    }

    fn reconfigure(&mut self, now: Nanos, mode: Mode, limit: Seats) {
        self.reconfigure(now, mode, limit);
    }

    fn next_event(&mut self) -> Option<Event> {
        self.next_dispatched().map(Event::Dispatched)
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn limit(&self) -> Seats {
        self.limit
    }

    fn held(&self, ticket: Ticket) -> Option<Held> {
        let RequestState { phase, arrived, started, work, .. } = self.request(ticket)?;
        Some(Held { phase, arrived, started, work })
    }

    fn queue_length(&self, ticket: Ticket) -> u32 {
        self.queue_length_of(ticket).map_or(0, |(_, length)| length)
    }

    fn blocked(&self) -> (u64, Option<Ticket>) {
        (self.counters.not_accommodated, self.blocked.map(|blocked| blocked.ticket))
    }

    fn totals(&self) -> Option<Totals> {
        Some(self.totals())
    }

    fn counted(&self) -> (Counters, Epochs) {
        (self.counters(), self.epochs())
    }

    fn is_idle(&self) -> bool {
        self.is_idle()
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }

    fn picture(&mut self, _now: Nanos) -> Picture {
        Picture::of(self)
    }
}
