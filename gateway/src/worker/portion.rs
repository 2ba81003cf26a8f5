//! What a worker has of a priority level: all of it where it is alone, else a part.

use usher_flowcontrol::level::{
    Arrival, Counters, Epochs, Event, Finish, Held, Level, Mode, Part, Picture, Reason, Ticket, Totals,
    Verdict,
};
use usher_flowcontrol::units::{Nanos, Seats};

/// The whole or a part.
#[derive(Debug)]
pub(super) enum Portion {
    /// One worker decides alone, as kube-apiserver does, bit for bit.
    Whole(Box<Level>),
    /// Several decide together.
    Shared(Box<usher_shards::Part>),
}

impl Portion {
    /// As a part of a level of many workers.
    pub(super) fn part(&self) -> Option<&usher_shards::Part> {
        match self {
            Self::Whole(_) => None,
            Self::Shared(part) => Some(part),
        }
    }

    fn either(&self) -> &dyn Part {
        match self {
            Self::Whole(level) => &**level,
            Self::Shared(part) => &**part,
        }
    }

    fn either_mut(&mut self) -> &mut dyn Part {
        match self {
            Self::Whole(level) => &mut **level,
            Self::Shared(part) => &mut **part,
        }
    }
}

impl Part for Portion {
    fn arrive(&mut self, now: Nanos, arrival: Arrival) -> Verdict {
        self.either_mut().arrive(now, arrival)
    }

    fn refuse(&mut self, why: Reason) {
        self.either_mut().refuse(why);
    }

    fn cancel(&mut self, now: Nanos, ticket: Ticket, why: Reason) -> bool {
        self.either_mut().cancel(now, ticket, why)
    }

    fn finish(&mut self, now: Nanos, ticket: Ticket) -> Finish {
        self.either_mut().finish(now, ticket)
    }

    fn linger_end(&mut self, now: Nanos, ticket: Ticket) {
        self.either_mut().linger_end(now, ticket);
    }

    fn reconfigure(&mut self, now: Nanos, mode: Mode, limit: Seats) {
        self.either_mut().reconfigure(now, mode, limit);
    }

    fn poll(&mut self, now: Nanos) {
        self.either_mut().poll(now);
    }

    fn next_event(&mut self) -> Option<Event> {
        self.either_mut().next_event()
    }

    fn next_wake(&mut self) -> Option<usize> {
        self.either_mut().next_wake()
    }

    fn turned_away(&mut self) -> Option<u32> {
        self.either_mut().turned_away()
    }

    fn mode(&self) -> Mode {
        self.either().mode()
    }

    fn limit(&self) -> Seats {
        self.either().limit()
    }

    fn held(&self, ticket: Ticket) -> Option<Held> {
        self.either().held(ticket)
    }

    fn queue_length(&self, ticket: Ticket) -> u32 {
        self.either().queue_length(ticket)
    }

    fn blocked(&self) -> (u64, Option<Ticket>) {
        self.either().blocked()
    }

    fn totals(&self) -> Option<Totals> {
        self.either().totals()
    }

    fn counted(&self) -> (Counters, Epochs) {
        self.either().counted()
    }

    fn is_idle(&self) -> bool {
        self.either().is_idle()
    }

    fn is_empty(&self) -> bool {
        self.either().is_empty()
    }

    fn picture(&mut self, now: Nanos) -> Picture {
        self.either_mut().picture(now)
    }
}
