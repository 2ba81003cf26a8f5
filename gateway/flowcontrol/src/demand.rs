//! How many seats a level wants: a time-weighted record of the demand, and what borrowing makes of it.
//!
//! Seat demand is the seats of what executes (lingering included) plus the seats of what waits.
//! [`Integrator`] follows it through one adjustment period; [`SeatDemand`] keeps what the periods so
//! far say: KEP-1040, "Dispatching", `HighSeatDemand` to `SmoothSeatDemand`.

use crate::limits::{as_f64, rounded};
use crate::units::{Nanos, Seats};

/// Weight of the past in the smoothed demand: a half-life of five minutes at an update every 10 s.
const SMOOTHING: f64 = 0.977;
/// The rest of the weight, as the nearest f64 to 0.023: `1.0 - SMOOTHING` is another number.
const SMOOTHING_REST: f64 = 0.023;

/// Follows a value through time.
#[derive(Clone, Debug)]
pub struct Integrator {
    /// When the sums were last brought up to date.
    last: Nanos,
    value: f64,
    min: f64,
    max: f64,
    /// Seconds since the last reset.
    duration: f64,
    /// Of the value over time, in value-seconds.
    integral: f64,
    /// Of the value's square over time.
    integral_of_squares: f64,
}

/// What an [`Integrator`] saw since its last reset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    /// Seconds.
    pub duration: f64,
    /// Time-weighted; absent when no time has passed.
    pub average: Option<f64>,
    /// Population standard deviation over time; absent when no time has passed, and where rounding
    /// made the variance negative.
    pub deviation: Option<f64>,
    /// Smallest value, however shortly held.
    pub min: f64,
    /// Largest value, however shortly held.
    pub max: f64,
}

/// A level's demand as of the last adjustment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SeatDemand {
    /// Largest demand of the last period.
    pub high_watermark: Seats,
    /// Average of the last period that had a duration.
    pub average: f64,
    /// Standard deviation of the same.
    pub deviation: f64,
    /// Average plus deviation: follows rises at once and falls slowly.
    pub smoothed: f64,
}

// === impl Integrator ===

impl Integrator {
    /// Starts at 0.
    pub fn new(now: Nanos) -> Self {
        Self {
            last: now,
            value: 0.0,
            min: 0.0,
            max: 0.0,
            duration: 0.0,
            integral: 0.0,
            integral_of_squares: 0.0,
        }
    }

    /// From now on the value is `value`.
    pub fn set(&mut self, now: Nanos, value: f64) {
        self.advance(now);
        self.value = value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// [`Integrator::set`] for seats.
    pub fn set_seats(&mut self, now: Nanos, seats: Seats) {
        self.set(now, as_f64(seats));
    }

    /// From now on the value is larger by `change`.
    pub fn add(&mut self, now: Nanos, change: f64) {
        self.set(now, self.value + change);
    }

    /// Statistics since the last reset.
    pub fn read(&mut self, now: Nanos) -> Statistics {
        self.advance(now);
        let over_time = |integral: f64| (self.duration > 0.0).then(|| integral / self.duration);
        let average = over_time(self.integral);
        let variance =
            over_time(self.integral_of_squares).zip(average).map(|(squares, mean)| squares - mean * mean);
        Statistics {
            duration: self.duration,
            average,
            deviation: variance.filter(|variance| *variance >= 0.0).map(libm::sqrt),
            min: self.min,
            max: self.max,
        }
    }

    /// Statistics since the last reset; the next period starts with the present value.
    pub fn reset(&mut self, now: Nanos) -> Statistics {
        let statistics = self.read(now);
        *self = Self { value: self.value, min: self.value, max: self.value, ..Self::new(self.last) };
        statistics
    }

    /// Accounts for the time that the value was held. parity: C27, a clock that steps back adds nothing.
    fn advance(&mut self, now: Nanos) {
        if now <= self.last {
            return;
        }
        let seconds = as_seconds(now - self.last);
        self.last = now;
        self.duration += seconds;
        self.integral += seconds * self.value;
        self.integral_of_squares += seconds * self.value * self.value;
    }
}

// === impl SeatDemand ===

impl SeatDemand {
    /// Takes over a period. One without duration says nothing but its maximum.
    pub fn update(&mut self, period: &Statistics) {
        self.high_watermark = rounded(period.max);
        let Some(average) = period.average.filter(|_| period.duration > 0.0) else { return };
        self.average = average;
        self.deviation = period.deviation.unwrap_or(0.0);
        let envelope = self.average + self.deviation;
        self.smoothed = envelope.max(SMOOTHING * self.smoothed + SMOOTHING_REST * envelope);
    }
}

/// A span in seconds: whole seconds and the rest apart, which loses least.
#[expect(clippy::cast_precision_loss, reason = "both parts are far below 2^53")]
fn as_seconds(span: Nanos) -> f64 {
    let second = Nanos::from_secs(1).0;
    (span.0 / second) as f64 + (span.0 % second) as f64 / 1e9
}

#[cfg(test)]
mod tests;
