//! The requests that a level has accepted, in a table that is never moved and seldom grows, and the
//! lists they stand in.
//!
//! A request keeps its slot from arrival until its seats are given back. Lists are threaded through the
//! table, so queueing, dispatch and leaving from the middle of a queue cost no memory and no search.

use crate::units::{Nanos, SeatSeconds, Work};
use alloc::vec::Vec;

/// No request, no queue.
pub(crate) const NONE: u32 = u32::MAX;

/// Where a request is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// In a queue.
    Waiting,
    /// Its work is being done.
    Executing,
    /// Its work is done, its seats are still held.
    Lingering,
    /// Nowhere: the slot is free.
    Gone,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Grows whenever the slot is given away, so that old tickets are told apart.
    pub(crate) generation: u32,
    pub(crate) phase: Phase,
    /// Slot of its queue, or [`NONE`].
    pub(crate) queue: u32,
    /// Neighbours in the list that it stands in; a free slot: `next` is the next free one.
    previous: u32,
    next: u32,
    pub(crate) tag: u64,
    pub(crate) work: Work,
    /// Work of the execution, at the service time that everybody is guessed to need.
    pub(crate) initial_work: SeatSeconds,
    /// The same, plus the seats held afterwards.
    pub(crate) total_work: SeatSeconds,
    /// The progress meter when it arrived.
    pub(crate) arrival_r: SeatSeconds,
    pub(crate) arrived: Nanos,
    /// Meaningful once it executes.
    pub(crate) started: Nanos,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Requests {
    slots: Vec<Request>,
    /// First free slot.
    free: u32,
    /// Slots that are not free.
    len: usize,
}

/// Some requests of the table, in order. A request stands in at most one list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    first: u32,
    last: u32,
    len: u32,
}

/// How long every request is taken to execute until it is known better: 3 ms, as in kube-apiserver.
pub(crate) const SERVICE_TIME_GUESS: Nanos = Nanos::from_millis(3);

/// The work of one seat for the guessed time. Up to three billion seats the reference's f64 gives no
/// other product, and this one is free.
const GUESSED_WORK_PER_SEAT: u64 = 300_000;

// === impl Request ===

impl Request {
    /// What arrives, with its work counted.
    pub(crate) fn new(work: Work, tag: u64, now: Nanos, r: SeatSeconds) -> Self {
        let initial_work = SeatSeconds::from_raw(work.initial_seats.0 * GUESSED_WORK_PER_SEAT);
        let final_work = if work.additional_latency == Nanos::ZERO {
            SeatSeconds::ZERO
        } else {
            #[expect(clippy::cast_precision_loss, reason = "the reference computes in f64; widths are small")]
            let seats = work.final_seats.0 as f64;
            SeatSeconds::of(seats, work.additional_latency)
        };
        Self {
            generation: 0,
            phase: Phase::Waiting,
            queue: NONE,
            previous: NONE,
            next: NONE,
            tag,
            work,
            initial_work,
            total_work: initial_work.plus(final_work),
            arrival_r: r,
            arrived: now,
            started: now,
        }
    }
}

// === impl Requests ===

impl Requests {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), free: NONE, len: 0 }
    }

    /// Requests in the table.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Gives the request a slot.
    pub(crate) fn add(&mut self, request: Request) -> u32 {
        self.len += 1;
        if self.free == NONE {
            self.slots.push(request);
            return u32::try_from(self.slots.len() - 1).expect("memory ends before four billion requests");
        }
        let id = self.free;
        let slot = &mut self.slots[id as usize];
        self.free = slot.next;
        *slot = Request { generation: slot.generation, ..request };
        id
    }

    /// Frees a slot. Its request stands in no list any more.
    pub(crate) fn remove(&mut self, id: u32) {
        let free = self.free;
        let slot = self.get_mut(id);
        debug_assert!(slot.phase != Phase::Gone, "a request leaves once");
        slot.phase = Phase::Gone;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next = free;
        self.free = id;
        self.len -= 1;
    }

    pub(crate) fn get(&self, id: u32) -> &Request {
        &self.slots[id as usize]
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> &mut Request {
        &mut self.slots[id as usize]
    }

    /// The one behind it in the list that it stands in.
    pub(crate) fn after(&self, id: u32) -> Option<u32> {
        Some(self.get(id).next).filter(|&next| next != NONE)
    }

    /// The request in a slot, if it is of that generation.
    pub(crate) fn find(&self, id: u32, generation: u32) -> Option<&Request> {
        self.slots.get(id as usize).filter(|slot| slot.generation == generation && slot.phase != Phase::Gone)
    }
}

// === impl List ===

impl List {
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE, len: 0 };

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The oldest member.
    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Appends a request that stands in no list.
    pub(crate) fn push(&mut self, requests: &mut Requests, id: u32) {
        let last = self.last;
        let request = requests.get_mut(id);
        (request.previous, request.next) = (last, NONE);
        match last {
            NONE => self.first = id,
            _ => requests.get_mut(last).next = id,
        }
        self.last = id;
        self.len += 1;
    }

    /// Takes out a member, wherever it stands.
    pub(crate) fn remove(&mut self, requests: &mut Requests, id: u32) {
        let Request { previous, next, .. } = *requests.get(id);
        match previous {
            NONE => self.first = next,
            _ => requests.get_mut(previous).next = next,
        }
        match next {
            NONE => self.last = previous,
            _ => requests.get_mut(next).previous = previous,
        }
        self.len -= 1;
    }

    /// The members, oldest first.
    pub(crate) fn iter<'a>(&self, requests: &'a Requests) -> impl Iterator<Item = u32> + use<'a> {
        core::iter::successors(self.first(), |&id| requests.after(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Seats;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn work_is_what_floating_point_says(seats in prop_oneof![0_u64..200, 0_u64..=3_000_000_000]) {
            let request = Request::new(Work { initial_seats: Seats(seats), ..Work::default() }, 0, Nanos(0), SeatSeconds::ZERO);
            #[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
            let expected = SeatSeconds::of(seats as f64, SERVICE_TIME_GUESS);
            prop_assert_eq!(request.initial_work, expected);
        }
    }
}
