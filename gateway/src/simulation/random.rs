//! Numbers that a seed determines: SplitMix64 (Steele, Lea, Flood 2014).

/// A stream of numbers.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// Streams of different numbers have nothing to do with each other.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut first = Self(seed);
        Self(first.next() ^ Self(stream).next())
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// At least 0, less than 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are kept")]
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From `least` to `most`, both included.
    pub(super) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most.saturating_sub(least) + 1)
    }

    /// One of these.
    pub(super) fn pick<T: Copy>(&mut self, these: &[T]) -> T {
        these[usize::try_from(self.next() % these.len() as u64).unwrap_or(0)]
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A time of that mean, exponentially distributed; at least 1 ns.
    #[expect(clippy::cast_possible_truncation, reason = "saturates")]
    pub(super) fn exponential(&mut self, mean_nanos: f64) -> i64 {
        ((-(1.0 - self.unit()).ln() * mean_nanos) as i64).max(1)
    }
}
