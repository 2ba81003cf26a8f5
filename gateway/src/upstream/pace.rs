//! How fast a client's body comes. A request holds its seats while its body trickles in: that is the client's doing,
//! and must have an end long before the request's deadline.
//!
//! Only the time counts in which the apiserver waits for the client: what the apiserver does not take, or has not asked
//! for yet (`100 Continue`), is not the client's fault.

use std::cell::Cell;
use std::time::Duration;

use usher_flowcontrol::units::Nanos;

use crate::ring;

/// One body's.
#[derive(Debug, Default)]
pub struct Pace {
    /// Since when nothing has come that was wanted.
    waiting: Cell<Option<Nanos>>,
    /// All such time before that.
    waited: Cell<Nanos>,
    bytes: Cell<u64>,
    over: Cell<bool>,
}

/// Bytes that earn a body another second. The slowest modem sends ten times as many; Apache and Kestrel ask for as much.
const BYTES_A_SECOND: u64 = 500;

impl Pace {
    /// Ready when the body has kept the apiserver waiting for longer than `patience`, and a second for every 500 bytes
    /// of it.
    pub async fn too_slow(&self, patience: Duration) {
        let patience = Nanos(i64::try_from(patience.as_nanos()).unwrap_or(i64::MAX));
        while !self.over.get() {
            let left = self.left(patience, ring::now());
            if left <= Nanos::ZERO {
                return;
            }
            ring::sleep_until(ring::now() + left).await; // it can take no less
        }
        std::future::pending().await
    }

    /// How much longer it may keep the apiserver waiting.
    fn left(&self, patience: Nanos, now: Nanos) -> Nanos {
        let earned = self.bytes.get().saturating_mul(1_000_000_000) / BYTES_A_SECOND;
        let earned = i64::try_from(earned).unwrap_or(i64::MAX);
        let waiting = self.waiting.get().map_or(Nanos::ZERO, |since| now - since);
        Nanos(patience.0.saturating_add(earned).saturating_sub((self.waited.get() + waiting).0))
    }

    /// Bytes are wanted and not there.
    pub(super) fn waits(&self) {
        if self.waiting.get().is_none() {
            self.waiting.set(Some(ring::now()));
        }
    }

    /// Some have come.
    pub(super) fn has_come(&self, bytes: usize) {
        if let Some(since) = self.waiting.take() {
            self.waited.set(self.waited.get() + (ring::now() - since));
        }
        self.bytes.set(self.bytes.get() + bytes as u64);
    }

    /// All have come, or none will.
    pub(super) fn is_over(&self) {
        self.has_come(0);
        self.over.set(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Nanos = Nanos::from_millis(10_000);

    fn at(milliseconds: i64) -> Nanos {
        Nanos::from_millis(1_000_000 + milliseconds)
    }

    #[test]
    fn only_waiting_counts() {
        let pace = Pace::default();
        assert_eq!(pace.left(PATIENCE, at(60_000)), PATIENCE, "nobody asks");
        pace.waiting.set(Some(at(0)));
        assert_eq!(pace.left(PATIENCE, at(4_000)), Nanos::from_millis(6_000));
        assert_eq!(pace.left(PATIENCE, at(10_000)), Nanos::ZERO);
    }

    #[test]
    fn bytes_earn_time() {
        let pace = Pace::default();
        pace.waiting.set(Some(at(0)));
        pace.bytes.set(BYTES_A_SECOND * 5);
        assert_eq!(pace.left(PATIENCE, at(10_000)), Nanos::from_millis(5_000));
        // A byte now and then does not help.
        pace.bytes.set(10);
        assert!(pace.left(PATIENCE, at(10_100)) < Nanos::ZERO);
    }

    #[test]
    fn nothing_overflows() {
        let pace = Pace::default();
        pace.bytes.set(u64::MAX);
        pace.waiting.set(Some(at(0)));
        assert!(pace.left(Nanos(i64::MAX), at(1)) > Nanos::ZERO);
    }
}
