//! The pool: a level's free seats and its waiting requests, in one word.
//!
//! One word, so that "take a seat if nobody waits" is one compare-and-swap, and so that a grant takes the
//! seats and the waiting request off together. While somebody waits only the holder of the role takes
//! seats; everybody may give.

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, Ordering};

/// The word: free seats above, waiting requests below.
#[derive(Debug)]
pub(crate) struct Pool(CachePadded<AtomicU64>);

/// The word, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// Below 0 if the limit was lowered under running requests, or one wider than the limit runs.
    pub(crate) free: i64,
    /// Requests whose tickets are on their way to the sequencer, or that wait there.
    pub(crate) waiting: u64,
}

/// Bits for waiting requests: workers times slots are fewer (`level::Options`).
pub(crate) const WAITING_BITS: u32 = 24;

/// One waiting request, in the word.
const ONE_WAITING: u64 = 1;

impl Pool {
    pub(crate) fn new(free: i64) -> Self {
        Self(CachePadded::new(AtomicU64::new(seats(free))))
    }

    #[inline]
    pub(crate) fn view(&self) -> View {
        View::of(self.0.load(Ordering::Acquire))
    }

    /// Takes `need` seats, and up to `spare` more if there are as many, unless somebody waits. Returns how
    /// many were taken.
    ///
    /// A request that needs nothing still wants some seat to be free, as in kube-apiserver.
    #[inline]
    pub(crate) fn take(&self, need: u64, spare: u64) -> Option<u64> {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let View { free, waiting } = View::of(word);
            let free = u64::try_from(free).unwrap_or(0);
            if waiting > 0 || free < need.max(1) {
                return None;
            }
            let taken = need + spare.min(free - need);
            let rest = word.wrapping_sub(taken << WAITING_BITS);
            match self.0.compare_exchange_weak(word, rest, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(taken),
                Err(now) => word = now,
            }
        }
    }

    /// Takes seats whether they are there or not: an exempt request.
    pub(crate) fn take_anyway(&self, need: u64) {
        self.0.fetch_sub(need << WAITING_BITS, Ordering::AcqRel);
    }

    /// Gives seats back. Whether somebody waits for them.
    #[inline]
    pub(crate) fn give(&self, back: u64) -> bool {
        View::of(self.0.fetch_add(back << WAITING_BITS, Ordering::AcqRel)).waiting > 0
    }

    /// Counts one more request as waiting. From now on nobody but the holder of the role takes seats.
    pub(crate) fn count_waiting(&self) {
        self.0.fetch_add(ONE_WAITING, Ordering::AcqRel);
    }

    /// The holder of the role: so many seats more (or fewer) are free, so many requests wait no more.
    pub(crate) fn settle(&self, freed: i64, settled: u64) {
        if (freed, settled) != (0, 0) {
            self.0.fetch_add(seats(freed).wrapping_sub(settled), Ordering::AcqRel);
        }
    }
}

impl View {
    /// Nobody waits, and no more seats are in use than the limit allows: what is leased may be used.
    #[inline]
    pub(crate) fn is_calm(self) -> bool {
        self.waiting == 0 && self.free >= 0
    }

    fn of(word: u64) -> Self {
        Self { free: word.cast_signed() >> WAITING_BITS, waiting: word & ((1 << WAITING_BITS) - 1) }
    }
}

/// Seats, in the word. What overflows falls off the top.
fn seats(count: i64) -> u64 {
    count.cast_unsigned() << WAITING_BITS
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn seats_and_waiting_do_not_touch_each_other() {
        let pool = Pool::new(3);
        assert_eq!(pool.take(2, 0), Some(2));
        assert_eq!(pool.take(2, 0), None, "one is left");
        pool.take_anyway(5);
        assert_eq!(pool.view(), View { free: -4, waiting: 0 });
        pool.count_waiting();
        assert!(pool.give(6));
        assert_eq!(pool.take(1, 0), None, "somebody waits");
        pool.settle(-1, 1);
        assert_eq!(pool.view(), View { free: 1, waiting: 0 });
        assert!(!pool.give(0));
    }

    #[test]
    fn spare_seats_are_taken_if_they_are_there() {
        let pool = Pool::new(6);
        assert_eq!(pool.take(1, 3), Some(4));
        assert_eq!(pool.take(1, 3), Some(2));
        assert_eq!(pool.take(0, 3), None, "nothing is free, not even for nothing");
    }

    #[test]
    fn the_widest_fit() {
        let pool = Pool::new(0);
        for _ in 0..1000 {
            pool.take_anyway(crate::level::SEATS_MAX);
        }
        assert_eq!(pool.view().free, -1000 * crate::level::SEATS_MAX.cast_signed());
    }
}
