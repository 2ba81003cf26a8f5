//! A level that is not asked about every request: what whoever asks only sometimes must tell it.
//!
//! While nobody waits, many workers start requests on the level's seats without it (`usher-shards`). It is
//! told how many seats are gone that way, takes over requests that run already, and takes back a dispatch
//! that its client did not live to see. A level that is asked about everything needs none of this.

use super::{Arrival, Level, NONE, Phase, Reason, Request, Seats, Ticket, believed};
use crate::units::Nanos;

impl Level {
    /// So many seats are in use by requests that the level does not know. Nothing is started:
    /// [`Level::advance`] does that, or the next event.
    pub fn set_outside(&mut self, seats: Seats) {
        self.outside = seats;
    }

    /// The seats of [`Level::set_outside`].
    #[must_use]
    pub fn outside(&self) -> Seats {
        self.outside
    }

    /// Starts what may run: there may be fewer seats outside now.
    pub fn advance(&mut self, now: Nanos) {
        self.sync(now);
        self.dispatch(NONE);
    }

    /// Takes over a request that has been running outside, while nothing waits: from now on its queue is charged for
    /// it as if it started now, and its seats are counted here (the caller counts them outside no more). It
    /// is not counted as dispatched: whoever started it did that.
    pub fn adopt(&mut self, now: Nanos, arrival: Arrival) -> Ticket {
        debug_assert_eq!(self.queues.waiting(), 0, "nobody is overtaken");
        let now = self.sync(now);
        let mut request = Request::new(believed(arrival.work), arrival.tag, now, self.queues.r());
        let id = if self.has_queues() {
            let queue = self.queues.choose(&self.dealer, arrival.flow);
            let id = self.requests.add(request);
            self.queues.start_at_once(&mut self.requests, queue, id, self.limit);
            id
        } else {
            request.phase = Phase::Executing;
            let id = self.requests.add(request);
            self.queueless.push(&mut self.requests, id);
            id
        };
        self.executing += 1;
        self.seats_in_use += self.requests.get(id).work.max_seats();
        self.ticket(id)
    }

    /// The dispatch of a waiting request came too late: it never ran, and its queue is not charged. What
    /// stood behind it may start. A ticket that does not execute: nothing happens.
    pub fn retract(&mut self, now: Nanos, ticket: Ticket, why: Reason) {
        let Some(&Request { queue, .. }) = self.find(ticket, Phase::Executing) else { return };
        self.sync(now);
        self.executing -= 1;
        if queue == NONE {
            self.queueless.remove(&mut self.requests, ticket.slot);
            self.requests.get_mut(ticket.slot).phase = Phase::Lingering;
        } else {
            self.queues.retract(&mut self.requests, ticket.slot);
        }
        self.release(ticket.slot);
        self.counters.dispatched -= 1;
        self.count_rejection(why);
        self.dispatch(NONE);
    }

    /// The queue of a request, and how many wait in it. `None` if it has none.
    #[must_use]
    pub fn queue_length_of(&self, ticket: Ticket) -> Option<(u32, u32)> {
        let request =
            self.requests.find(ticket.slot, ticket.generation).filter(|request| request.queue != NONE)?;
        let queue = self.queues.queue(request.queue);
        Some((queue.index, queue.waiting.len()))
    }
}
