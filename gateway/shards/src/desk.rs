//! A worker's desk: all that it shows to the others, each part on cache lines of its own.

use crossbeam_utils::CachePadded;
use usher_flowcontrol::level::Mode;
use usher_flowcontrol::units::Seats;

use crate::operation::Shape;
use crate::ring::Ring;
use crate::slots::{Slot, State};
use crate::sync::{AtomicBool, AtomicU64, Data, Ordering, Step, left_out};
use crate::table::Table;

/// The desk.
#[derive(Debug)]
pub(crate) struct Desk {
    /// Seats taken from the pool that the worker does not use just now. The worker adds and takes; others may
    /// take all.
    pub(crate) lease: CachePadded<AtomicU64>,
    /// Seats that the lease may hold; written by the holder of the role.
    pub(crate) lease_max: CachePadded<Data>,
    /// How often a request of the worker's had to wait although some seat was free, and the slot of the last one;
    /// written by the holder of the role.
    pub(crate) blocked: (Data, Data),
    /// To the holder of the role.
    pub(crate) operations: Ring,
    pub(crate) table: Table,
    /// Raised while the worker has been told of slots and has not looked yet.
    flag: CachePadded<AtomicBool>,
    /// What [`crate::operation::Operation::Reconfigure`] asks for.
    pub(crate) wanted: Shape,
    pub(crate) tally: CachePadded<Tally>,
    claim: AtomicU64,
}

/// What a worker counts; written by it alone.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Requests that it ever counted as waiting.
    pub(crate) tickets: Data,
    /// Requests that it answers for: they wait, execute or linger.
    pub(crate) held: Data,
    /// Of those, the ones that linger.
    pub(crate) lingering: Data,
    /// Requests whose wait was over before it began.
    pub(crate) too_late: Data,
    /// Requests that it started without asking the sequencer.
    pub(crate) bypassed: Data,
    /// Requests that it turned away without asking the sequencer.
    pub(crate) turned_away: Data,
    /// Requests of its own that it started as the holder of the role.
    pub(crate) granted: Data,
    /// Requests of others that it started so, and had to tell them of.
    pub(crate) granted_to_others: Data,
}

/// Who works at a desk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Nobody,
    Somebody,
    /// Somebody who is gone and left things behind.
    Gone,
}

impl Desk {
    pub(crate) fn new(mode: Mode, limit: Seats, slots: usize, ring: usize) -> Self {
        Self {
            lease: CachePadded::new(AtomicU64::new(0)),
            lease_max: CachePadded::new(Data::new(0)),
            blocked: (Data::new(0), Data::new(0)),
            operations: Ring::new(ring),
            table: Table::new(slots),
            flag: CachePadded::new(AtomicBool::new(false)),
            wanted: Shape::new(mode, limit),
            tally: CachePadded::new(Tally::default()),
            claim: AtomicU64::new(Claim::Nobody as u64),
        }
    }

    #[inline]
    pub(crate) fn slot(&self, slot: u32) -> &Slot {
        self.table.slot(slot)
    }

    /// By the holder of the role, who has told of a slot: whether the worker must be woken. Not if it was and has not
    /// looked yet; not if it is the holder himself, who looks when he is done and does not ask.
    pub(crate) fn raise_flag(&self) -> bool {
        !self.flag.swap(true, Ordering::AcqRel)
    }

    /// The worker is about to look.
    #[inline]
    pub(crate) fn lower_flag(&self) {
        if self.flag.load(Ordering::Relaxed) {
            self.flag.swap(false, Ordering::AcqRel);
        }
    }

    /// Sits down, unless somebody does or did.
    pub(crate) fn claim(&self) -> bool {
        let (from, to) = (Claim::Nobody as u64, Claim::Somebody as u64);
        self.claim.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn set_claim(&self, claim: Claim) {
        self.claim.store(claim as u64, Ordering::Release);
    }

    pub(crate) fn is_claimed(&self) -> bool {
        self.claim.load(Ordering::Acquire) == Claim::Somebody as u64
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.claim.load(Ordering::Acquire) == Claim::Gone as u64
    }

    /// Frees everything for the next worker; returns the seats of the pool that the last one held.
    pub(crate) fn clear(&self) -> u64 {
        let mut seats = self.lease.swap(0, Ordering::AcqRel);
        for slot in self.table.slots() {
            if matches!(slot.state(), State::Bypassed | State::Lingering) {
                seats += slot.arrival(0).work.max_seats().0;
            }
            slot.set(State::Free);
        }
        self.table.clear_marks();
        self.table.forget_news();
        self.flag.store(false, Ordering::Relaxed);
        self.tally.held.store(0, Ordering::Relaxed);
        self.tally.lingering.store(0, Ordering::Relaxed);
        seats
    }
}

// === impl Tally ===

impl Tally {
    /// By the worker: one more.
    #[inline]
    pub(crate) fn add(counter: &Data) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// By the worker: one fewer.
    #[inline]
    pub(crate) fn take(counter: &Data) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
    }
}

/// Whether the worker lowers its flag before it reads its notices: as it must, but a model may try the other
/// way.
pub(crate) fn flag_goes_first() -> bool {
    !left_out(Step::FlagBeforeNotices)
}
