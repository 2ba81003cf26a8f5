//! Histograms without a registry: plain counts beside the bounds they belong to.

use crate::units::Nanos;

/// Observations, or weights, in buckets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Histogram<const N: usize> {
    bounds: &'static [f64; N],
    /// Observations in each bucket and in none below it.
    counts: [u64; N],
    /// Observations above the last bound.
    above: u64,
    sum: f64,
}

/// What a histogram holds, whatever its size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distribution<'a> {
    /// Upper bounds, ascending.
    pub bounds: &'a [f64],
    /// Observations in each bucket and in none below it (not cumulative).
    pub counts: &'a [u64],
    /// Observations above the last bound.
    pub above: u64,
    /// Sum of all observations.
    pub sum: f64,
}

/// A ratio's values, each weighed by the nanoseconds that it was held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimingHistogram<const N: usize> {
    histogram: Histogram<N>,
    numerator: u64,
    denominator: f64,
    /// Up to when time is accounted for.
    since: Nanos,
}

// === impl Histogram ===

impl<const N: usize> Histogram<N> {
    /// Without observations. Bounds ascend.
    pub const fn new(bounds: &'static [f64; N]) -> Self {
        Self { bounds, counts: [0; N], above: 0, sum: 0.0 }
    }

    /// Counts one observation.
    pub fn observe(&mut self, value: f64) {
        self.observe_weighted(value, 1);
    }

    #[expect(clippy::cast_precision_loss, reason = "a sum of weights in f64 is what the format shows")]
    fn observe_weighted(&mut self, value: f64, weight: u64) {
        let bucket = self.bounds.iter().position(|bound| value <= *bound);
        let count = bucket.map_or(&mut self.above, |bucket| &mut self.counts[bucket]);
        *count = count.saturating_add(weight);
        self.sum += value * weight as f64;
    }

    /// Adds what another one with the same bounds holds.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self.above = self.above.saturating_add(other.above);
        self.sum += other.sum;
    }

    /// Observations so far.
    pub fn count(&self) -> u64 {
        self.distribution().count()
    }

    /// What it holds.
    pub fn distribution(&self) -> Distribution<'_> {
        Distribution { bounds: self.bounds, counts: &self.counts, above: self.above, sum: self.sum }
    }
}

// === impl Distribution ===

impl Distribution<'_> {
    /// Observations in all buckets.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(self.above, |sum, count| sum.saturating_add(*count))
    }
}

// === impl TimingHistogram ===

impl<const N: usize> TimingHistogram<N> {
    /// 0 from now on.
    pub const fn new(now: Nanos, bounds: &'static [f64; N]) -> Self {
        Self { histogram: Histogram::new(bounds), numerator: 0, denominator: 1.0, since: now }
    }

    /// From now on the ratio has that numerator.
    pub fn set(&mut self, now: Nanos, numerator: u64) {
        if numerator != self.numerator {
            self.account(now);
            self.numerator = numerator;
        }
    }

    /// From now on the ratio has that denominator.
    pub fn set_denominator(&mut self, now: Nanos, denominator: f64) {
        self.account(now);
        self.denominator = denominator;
    }

    /// Nobody sets it any more: it is 0, and holds the time until now.
    pub fn end(&mut self, now: Nanos) {
        self.set(now, 0);
        self.account(now);
    }

    /// Adds what another one with the same bounds, which has ended, holds.
    pub fn add(&mut self, ended: &Self) {
        self.histogram.add(&ended.histogram);
    }

    /// Its numerator now.
    pub fn numerator(&self) -> u64 {
        self.numerator
    }

    /// What it holds, the time until now included.
    pub fn read(&self, now: Nanos) -> Histogram<N> {
        let mut read = *self;
        read.account(now);
        read.histogram
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers of requests and seats are small")]
    fn account(&mut self, now: Nanos) {
        let span = now - self.since;
        if let Ok(weight @ 1..) = u64::try_from(span.0) {
            self.histogram.observe_weighted(self.numerator as f64 / self.denominator, weight);
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: [f64; 2] = [0.0, 0.5];

    #[test]
    fn a_value_counts_in_the_first_bucket_that_holds_it() {
        let mut histogram = Histogram::new(&BOUNDS);
        [0.0, 0.5, 0.25, 0.6].into_iter().for_each(|value| histogram.observe(value));
        let Distribution { counts, above, sum, .. } = histogram.distribution();
        assert_eq!((counts, above, sum), (&[1, 2][..], 1, 1.35));
    }

    #[test]
    fn a_ratio_is_weighed_by_the_time_it_was_held() {
        let mut timing = TimingHistogram::new(Nanos(0), &BOUNDS);
        timing.set_denominator(Nanos(0), 4.0);
        timing.set(Nanos(10), 2);
        timing.set(Nanos(30), 2);
        timing.set(Nanos(40), 4);
        timing.set(Nanos(35), 1); // a clock that steps back adds nothing
        let histogram = timing.read(Nanos(45));
        let Distribution { counts, above, sum, .. } = histogram.distribution();
        assert_eq!((counts, above), (&[10, 35][..], 0));
        assert_eq!(sum, 30.0 * 0.5 + 5.0 * 0.25);
    }
}
