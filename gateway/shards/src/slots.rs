//! A slot: what a worker shows of one request, a cache line each.
//!
//! The worker writes the particulars before it makes the state known; while the state belongs to somebody
//! else, it does not touch them. Three moves are raced for, each by compare-and-swap on the state, so that
//! one of the two wins: granted or cancelled, turned away or cancelled, adopted or finished.

use usher_flowcontrol::level::{Arrival, Reason};
use usher_flowcontrol::units::{FlowHash, Nanos, Seats, Work};

use crate::sync::{AtomicU64, Data, Ordering, Step, left_out};

/// One request of a worker.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Slot {
    state: AtomicU64,
    // Published by `state`, or by the ring that carries the ticket. That one of them is loom's is enough.
    initial_seats: AtomicU64,
    flow: Data,
    final_seats: Data,
    additional_latency: Data,
    /// How long the seats are held after execution; written by the holder of the role before the state.
    linger: Data,
    /// How long the queue was that it joined, itself included; 0 before the sequencer has seen it.
    queue_length: Data,
}

/// Whose turn it is to do something about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nobody's: the slot is the worker's to use.
    Free,
    /// The sequencer's, to grant or to turn away; or the worker's, to cancel.
    Waiting,
    /// The worker's: it has its seats.
    Granted,
    /// The worker's: it never will have.
    TurnedAway(Reason),
    /// The sequencer's, to free: the worker gave it up.
    Cancelled(Reason),
    /// Runs on seats of the pool that the sequencer does not know. The worker's, to finish; the sequencer's,
    /// to adopt.
    Bypassed,
    /// The worker's: it runs on seats that the sequencer knows.
    Adopted,
    /// The worker's: done, but seats of the pool are still held.
    Lingering,
}

impl Slot {
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU64::new(State::Free.code()),
            flow: Data::new(0),
            initial_seats: AtomicU64::new(0),
            final_seats: Data::new(0),
            additional_latency: Data::new(0),
            linger: Data::new(0),
            queue_length: Data::new(0),
        }
    }

    // === by the worker ===

    /// Describes a request. The slot is free.
    #[inline]
    pub(crate) fn describe(&self, flow: FlowHash, work: Work) {
        self.flow.store(flow.0, Ordering::Relaxed);
        self.initial_seats.store(work.initial_seats.0, Ordering::Relaxed);
        self.final_seats.store(work.final_seats.0, Ordering::Relaxed);
        self.additional_latency.store(work.additional_latency.0.cast_unsigned(), Ordering::Relaxed);
        self.queue_length.store(0, Ordering::Relaxed);
    }

    /// Makes a state known that nobody races for.
    #[inline]
    pub(crate) fn set(&self, state: State) {
        self.state.store(state.code(), Ordering::Release);
    }

    /// Makes known that the request runs without the sequencer, as that use of the slot.
    #[inline]
    pub(crate) fn bypass(&self, generation: u32) {
        self.state.store(bypassed(generation), Ordering::Release);
    }

    pub(crate) fn cancel(&self, why: Reason) -> bool {
        self.swap(State::Waiting.code(), State::Cancelled(why))
    }

    /// A bypassed request is done; `false` if it was adopted.
    #[inline]
    pub(crate) fn finish(&self, generation: u32, next: State) -> bool {
        self.swap(bypassed(generation), next)
    }

    /// How long the seats of a request that was not adopted are held after execution.
    #[inline]
    pub(crate) fn described_linger(&self) -> Nanos {
        Nanos(self.additional_latency.load(Ordering::Relaxed).cast_signed())
    }

    /// How long the seats of a granted request are.
    pub(crate) fn linger(&self) -> Nanos {
        Nanos(self.linger.load(Ordering::Relaxed).cast_signed())
    }

    /// How long the queue was that a request joined; 0 if the sequencer has not seen it yet.
    pub(crate) fn queue_length(&self) -> u32 {
        u32::try_from(self.queue_length.load(Ordering::Relaxed)).unwrap_or(u32::MAX)
    }

    // === by the holder of the role ===

    /// A request joined a queue that is so long now.
    pub(crate) fn joins(&self, queue_length: u32) {
        self.queue_length.store(u64::from(queue_length), Ordering::Relaxed);
    }

    /// What the worker described.
    pub(crate) fn arrival(&self, tag: u64) -> Arrival {
        let work = Work {
            initial_seats: Seats(self.initial_seats.load(Ordering::Relaxed)),
            final_seats: Seats(self.final_seats.load(Ordering::Relaxed)),
            additional_latency: Nanos(self.additional_latency.load(Ordering::Relaxed).cast_signed()),
        };
        Arrival { flow: FlowHash(self.flow.load(Ordering::Relaxed)), work, tag }
    }

    /// Gives a waiting request its seats, which it will hold for so long after execution. `false` if it was
    /// cancelled.
    pub(crate) fn grant(&self, linger: Nanos) -> bool {
        self.linger.store(linger.0.cast_unsigned(), Ordering::Relaxed);
        if left_out(Step::GrantBySwap) {
            self.set(State::Granted);
            return true;
        }
        self.swap(State::Waiting.code(), State::Granted)
    }

    pub(crate) fn turn_away(&self, why: Reason) -> bool {
        self.swap(State::Waiting.code(), State::TurnedAway(why))
    }

    /// Takes over a running request; `None` if there is none any more. What it described is read first and
    /// belongs to it if the swap is won: a later use of the slot has another generation.
    pub(crate) fn adopt(&self, tag: u64) -> Option<Arrival> {
        let seen = self.state.load(Ordering::Acquire);
        if State::of(seen) != State::Bypassed {
            return None;
        }
        let arrival = self.arrival(tag);
        if left_out(Step::AdoptBySwap) {
            self.set(State::Adopted);
            return Some(arrival);
        }
        let won = self.swap(seen, State::Adopted);
        if left_out(Step::ReadBeforeAdopting) {
            return won.then(|| self.arrival(tag));
        }
        won.then_some(arrival)
    }

    // === by both ===

    #[inline]
    pub(crate) fn state(&self) -> State {
        State::of(self.state.load(Ordering::Acquire))
    }

    fn swap(&self, from: u64, to: State) -> bool {
        self.state.compare_exchange(from, to.code(), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

// === impl State ===

impl State {
    const fn code(self) -> u64 {
        match self {
            Self::Free => 0,
            Self::Waiting => 1,
            Self::Granted => 2,
            Self::TurnedAway(why) => 3 | reason_code(why) << 4,
            Self::Cancelled(why) => 4 | reason_code(why) << 4,
            Self::Bypassed => 5,
            Self::Adopted => 6,
            Self::Lingering => 7,
        }
    }

    fn of(code: u64) -> Self {
        let why = reason_of(code >> 4);
        match code & 0xf {
            0 => Self::Free,
            1 => Self::Waiting,
            2 => Self::Granted,
            3 => Self::TurnedAway(why),
            4 => Self::Cancelled(why),
            5 => Self::Bypassed,
            6 => Self::Adopted,
            _ => Self::Lingering,
        }
    }
}

/// A bypassed request, with the use of its slot.
const fn bypassed(generation: u32) -> u64 {
    State::Bypassed.code() | (generation as u64) << 8
}

/// A reason as two bits.
pub(crate) const fn reason_code(why: Reason) -> u64 {
    match why {
        Reason::QueueFull => 0,
        Reason::ConcurrencyLimit => 1,
        Reason::TimeOut => 2,
        Reason::Cancelled => 3,
    }
}

/// The reason of two bits.
pub(crate) const fn reason_of(code: u64) -> Reason {
    match code & 3 {
        0 => Reason::QueueFull,
        1 => Reason::ConcurrencyLimit,
        2 => Reason::TimeOut,
        _ => Reason::Cancelled,
    }
}
