//! Mail: one bit per worker, set while the worker has left something for the holder of the role.

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, Ordering};
use crate::wakes::Workers;

/// The bits, 64 workers a word.
#[derive(Debug)]
pub(crate) struct Mail(Box<[CachePadded<AtomicU64>]>);

impl Mail {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers.div_ceil(64)).map(|_| CachePadded::new(AtomicU64::new(0))).collect())
    }

    /// The worker has left something. Always a read-modify-write: whoever takes the bit then sees what was
    /// left before, and whoever took it earlier leaves it set.
    #[inline]
    pub(crate) fn post(&self, worker: usize) {
        self.0[worker / 64].fetch_or(1 << (worker % 64), Ordering::AcqRel);
    }

    /// Moves all bits into `due`.
    #[inline]
    pub(crate) fn take(&self, due: &mut Workers) {
        for (index, word) in self.0.iter().enumerate() {
            if word.load(Ordering::Relaxed) != 0 {
                due.add_word(index, word.swap(0, Ordering::AcqRel));
            }
        }
    }

    /// Whether anybody has left something.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0.iter().any(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Whether that worker has.
    #[inline]
    pub(crate) fn has(&self, worker: usize) -> bool {
        self.0[worker / 64].load(Ordering::Acquire) & (1 << (worker % 64)) != 0
    }

    /// The workers that have.
    pub(crate) fn workers(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let bits = word.load(Ordering::Acquire);
            (0..64).filter(move |bit| bits & (1 << bit) != 0).map(move |bit| index * 64 + bit)
        })
    }
}
