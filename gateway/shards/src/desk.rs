//! A worker's desk: all that it shows to the others, each part on cache lines of its own.

use crossbeam_utils::CachePadded;
use usher_flowcontrol::level::Mode;
use usher_flowcontrol::units::Seats;

use crate::operation::Shape;
use crate::ring::Ring;
use crate::slots::{Slot, State};
use crate::sync::{AtomicBool, AtomicU64, Data, Ordering, Step, left_out};

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
    pub(crate) notices: Notices,
    pub(crate) slots: Box<[Slot]>,
    /// A bit per slot whose request was bypassed. Only a hint where to look; written by the worker.
    bypassed: Box<[AtomicU64]>,
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
}

/// Slots whose requests were granted seats or turned away while their worker was not looking.
#[derive(Debug)]
pub(crate) struct Notices {
    /// From the holder of the role. A slot is in it once at most, so it is never full.
    ring: Ring,
    /// Raised while the worker has been told and has not looked yet.
    flag: CachePadded<AtomicBool>,
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
            notices: Notices { ring: Ring::new(slots), flag: CachePadded::new(AtomicBool::new(false)) },
            slots: (0..slots).map(|_| Slot::new()).collect(),
            bypassed: (0..slots.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            wanted: Shape::new(mode, limit),
            tally: CachePadded::new(Tally::default()),
            claim: AtomicU64::new(Claim::Nobody as u64),
        }
    }

    pub(crate) fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    /// The worker begins (or ends) a bypassed request in that slot.
    #[inline]
    pub(crate) fn mark(&self, slot: u32, bypassed: bool) {
        let word = &self.bypassed[slot as usize / 64];
        let (bit, marks) = (1 << (slot % 64), word.load(Ordering::Relaxed));
        word.store(if bypassed { marks | bit } else { marks & !bit }, Ordering::Relaxed);
    }

    /// Slots in which bypassed requests may be running.
    pub(crate) fn marked(&self) -> impl Iterator<Item = u32> {
        (0_u32..).zip(&self.bypassed).flat_map(|(index, word)| {
            let bits = word.load(Ordering::Relaxed);
            (0..64).filter(move |bit| bits & (1 << bit) != 0).map(move |bit| index * 64 + bit)
        })
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
        for slot in &self.slots {
            if matches!(slot.state(), State::Bypassed | State::Lingering) {
                seats += slot.arrival(0).work.max_seats().0;
            }
            slot.set(State::Free);
        }
        for word in &self.bypassed {
            word.store(0, Ordering::Relaxed);
        }
        while self.notices.next().is_some() {}
        self.notices.flag.store(false, Ordering::Relaxed);
        self.tally.held.store(0, Ordering::Relaxed);
        self.tally.lingering.store(0, Ordering::Relaxed);
        seats
    }
}

// === impl Notices ===

impl Notices {
    /// By the holder of the role. [`Notices::raise_flag`] follows, unless he is the worker himself, who
    /// looks when he is done.
    pub(crate) fn tell(&self, slot: u32) {
        let told = self.ring.push(u64::from(slot), 0);
        debug_assert!(told, "a slot is told about once in its life");
    }

    /// Whether the worker must be woken: not if it was and has not looked yet.
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

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "written by `tell`")]
    pub(crate) fn next(&self) -> Option<u32> {
        self.ring.pop().map(|(slot, _)| slot as u32)
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
