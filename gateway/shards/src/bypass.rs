//! Starting and finishing while nobody waits: seats of the pool, without the sequencer.
//!
//! Seats come from the worker's own lease or from the pool, which gives none while somebody waits. Whoever
//! puts seats into his lease and whoever begins to wait may miss each other; so the one looks for waiting
//! requests once more after he has parked them, and the other is counted as waiting before leases are swept.

use usher_flowcontrol::units::Nanos;

use crate::shard::Shard;
use crate::sync::{Ordering, Step, fence, left_out};

impl Shard {
    /// Takes seats, unless somebody waits or there are too few.
    #[inline]
    pub(crate) fn take_seats(&mut self, now: Nanos, seats: u64) -> bool {
        let most = self.desk.lease_max.load(Ordering::Relaxed);
        if most > 0 && self.take_from_lease(seats) {
            return true;
        }
        let Some(taken) = self.level.common.pool.take(seats, most) else { return false };
        if taken > seats {
            self.park(now, taken - seats);
        }
        true
    }

    /// Gives seats back: into the lease while nobody waits, unless the pool owes some; else to the pool.
    #[inline]
    pub(crate) fn give_seats(&mut self, now: Nanos, seats: u64) {
        let (common, desk) = (&self.level.common, &self.desk);
        let most = desk.lease_max.load(Ordering::Relaxed);
        if most > 0 && desk.lease.load(Ordering::Relaxed) + seats <= most && common.pool.view().is_calm() {
            self.park(now, seats);
        } else {
            self.give_to_pool(now, seats);
        }
    }

    /// Takes seats from the lease: at most once after somebody began to wait, or after the limit was lowered.
    fn take_from_lease(&self, seats: u64) -> bool {
        let (common, lease) = (&self.level.common, &self.desk.lease);
        let mut kept = lease.load(Ordering::Relaxed);
        while kept >= seats.max(1) && common.pool.view().is_calm() {
            match lease.compare_exchange_weak(kept, kept - seats, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => kept = now,
            }
        }
        false
    }

    /// Puts seats into the lease, and out again if somebody began to wait meanwhile.
    fn park(&mut self, now: Nanos, seats: u64) {
        let (common, lease) = (&self.level.common, &self.desk.lease);
        lease.fetch_add(seats, Ordering::AcqRel);
        if !left_out(Step::FenceAfterParking) {
            fence(Ordering::SeqCst);
        }
        if common.pool.view().waiting == 0 || left_out(Step::LookAfterParking) {
            return;
        }
        let back = lease.swap(0, Ordering::AcqRel);
        self.give_to_pool(now, back);
    }

    #[inline]
    fn give_to_pool(&mut self, now: Nanos, seats: u64) {
        let somebody_waits = self.level.common.pool.give(seats);
        if somebody_waits && !left_out(Step::VisitAfterGiving) {
            self.visit(now, None);
        }
    }
}
