//! The progress meter R: virtual time, in which every seat's worth of service takes equally long.
//!
//! KEP-1040, "Fair Queuing for Server Requests": R grows at the rate at which each non-empty queue would
//! be served if the seats were divided evenly, and is read at the moment of every event.

use crate::units::{Nanos, SeatSeconds, Seats};

/// Subtracted from all readings when an epoch ends: half of what a reading can hold.
const EPOCH: SeatSeconds = SeatSeconds::from_raw(u64::MAX / 2);

/// A meter that has come this far ends its epoch: about 4.4 years at the rate of 1000.
const EPOCH_END: SeatSeconds = SeatSeconds::from_raw(EPOCH.raw() + EPOCH.raw() / 2);

/// R, and when it was last read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgressMeter {
    r: SeatSeconds,
    /// Invariant: never goes back.
    read_at: Nanos,
}

/// What a reading brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Just a reading.
    Same,
    /// The meter was wound back: so must be every reading taken from it, by [`wind_back`].
    NewEpoch,
}

impl ProgressMeter {
    pub(crate) fn new(now: Nanos) -> Self {
        Self { r: SeatSeconds::ZERO, read_at: now }
    }

    pub(crate) fn r(&self) -> SeatSeconds {
        self.r
    }

    /// The latest instant that the meter has seen.
    pub(crate) fn read_at(&self) -> Nanos {
        self.read_at
    }

    /// Brings the meter up to `now`: `seats` were shared by `active` queues since the last reading.
    ///
    /// parity: C27. A clock that steps back stands still here; kube-apiserver's R would wrap.
    pub(crate) fn read(&mut self, now: Nanos, seats: Seats, active: u32) -> Reading {
        let now = now.max(self.read_at);
        let span = now - self.read_at;
        self.read_at = now;
        if active == 0 {
            return Reading::Same;
        }
        #[expect(clippy::cast_precision_loss, reason = "the reference computes in f64")]
        let rate = seats.0 as f64 / f64::from(active);
        let before = self.r;
        self.r = before.plus(SeatSeconds::of(rate, span));
        if self.r < EPOCH_END || self.r < before {
            return Reading::Same;
        }
        self.r = self.r.minus(EPOCH);
        Reading::NewEpoch
    }
}

/// A reading of the last epoch as one of this epoch, and whether it was too old for that.
///
/// parity: what is older than a whole epoch (years of waiting or executing) becomes 0, the oldest
/// reading there is; in kube-apiserver it wraps and becomes the newest.
pub(crate) fn wind_back(reading: SeatSeconds) -> (SeatSeconds, bool) {
    (reading.minus_or_zero(EPOCH), reading < EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_runs_backwards() {
        let mut meter = ProgressMeter::new(Nanos(1000));
        meter.read(Nanos(3000), Seats(1), 1);
        meter.read(Nanos(2000), Seats(1), 1);
        assert_eq!((meter.r().raw(), meter.read_at()), (200, Nanos(3000)));
        meter.read(Nanos(3000), Seats(1), 1);
        assert_eq!(meter.r().raw(), 200, "what has been counted is not counted again");
    }

    #[test]
    fn nobody_active_nothing_moves() {
        let mut meter = ProgressMeter::new(Nanos(0));
        meter.read(Nanos::from_secs(9), Seats(5), 0);
        assert_eq!(meter.r(), SeatSeconds::ZERO);
    }

    #[test]
    fn an_epoch_ends_before_readings_run_out() {
        let mut meter = ProgressMeter::new(Nanos(0));
        let year = Nanos::from_secs(365 * 24 * 3600);
        let readings = (1..=5).map(|i| meter.read(Nanos(year.0 * i), Seats(1000), 1));
        assert_eq!(readings.filter(|reading| *reading == Reading::NewEpoch).count(), 1);
        assert_eq!(meter.r().raw(), 5 * 365 * 24 * 3600 * 100_000_000_000 - u64::MAX / 2);
        assert_eq!(wind_back(SeatSeconds::from_raw(u64::MAX / 2 + 7)), (SeatSeconds::from_raw(7), false));
        assert_eq!(wind_back(SeatSeconds::from_raw(7)), (SeatSeconds::ZERO, true));
    }
}
