//! Pseudo-random numbers from a seed (SplitMix64): the same seed, the same requests, on every machine.

/// A stream of numbers.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is small enough for the remainder's skew not to matter.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % (bound.max(1) as u64)).unwrap_or(0)
    }

    /// True in so many of a hundred cases.
    pub(super) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of `items`, which is not empty.
    pub(super) fn one<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// One of `words`, which are not empty.
    pub(super) fn word<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }

    /// Between one and `most` of `items`, each at most once.
    pub(super) fn some<'a, T: PartialEq>(&mut self, items: &'a [T], most: usize) -> Vec<&'a T> {
        let mut chosen = Vec::new();
        for _ in 0..=self.below(most) {
            let item = self.one(items);
            if !chosen.contains(&item) {
                chosen.push(item);
            }
        }
        chosen
    }
}
