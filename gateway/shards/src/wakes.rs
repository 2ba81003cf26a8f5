//! A set of workers.

/// The set, 64 workers a word.
#[derive(Clone, Debug)]
pub(crate) struct Workers(Box<[u64]>);

impl Workers {
    /// The empty set of at most so many.
    pub(crate) fn none(workers: usize) -> Self {
        Self(vec![0; workers.div_ceil(64)].into())
    }

    pub(crate) fn add(&mut self, worker: usize) {
        self.0[worker / 64] |= 1 << (worker % 64);
    }

    pub(crate) fn add_word(&mut self, index: usize, bits: u64) {
        self.0[index] |= bits;
    }

    /// Takes out the first.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<usize> {
        let (index, word) = self.0.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros() as usize;
        *word &= *word - 1;
        Some(index * 64 + bit)
    }
}
