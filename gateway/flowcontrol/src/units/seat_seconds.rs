//! Seat-seconds: the fixed point in which virtual time and work are counted.
//!
//! One unit is 10⁻⁸ seat-seconds, or 10 seat-nanoseconds. The roundings are kube-apiserver's, since
//! every dispatch decision compares such numbers; sums and differences are modulo 2⁶⁴, as there.

use core::fmt;

use super::Nanos;

/// An amount of work, or a reading of the progress meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeatSeconds(u64);

/// Units in a seat-second.
const SCALE: u64 = 100_000_000;

/// Nanoseconds in which one seat does one unit of work.
const NANOS_PER_UNIT: f64 = 10.0;

impl SeatSeconds {
    /// Nothing; the reading of a new meter.
    pub const ZERO: Self = Self(0);

    /// The largest amount.
    pub const MAX: Self = Self(u64::MAX);

    /// That many units of 10⁻⁸ seat-seconds.
    #[must_use]
    pub const fn from_raw(units: u64) -> Self {
        Self(units)
    }

    /// In units of 10⁻⁸ seat-seconds.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// So many seats for so long, rounded half away from zero. A negative span wraps modulo 2⁶⁴, so
    /// that adding it subtracts.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the reference computes in f64")]
    pub fn of(seats: f64, span: Nanos) -> Self {
        Self(round_to_units(seats * span.0 as f64 / NANOS_PER_UNIT))
    }

    /// How long that many seats need for it, rounded towards zero.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "the reference computes in f64; casts saturate"
    )]
    pub fn per_seat(self, seats: f64) -> Nanos {
        Nanos((self.0 as f64 / seats * NANOS_PER_UNIT) as i64)
    }

    /// In seat-seconds.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the nearest f64 is what is asked for")]
    pub fn to_f64(self) -> f64 {
        self.0 as f64 / SCALE as f64
    }

    /// The sum, modulo 2⁶⁴.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// The difference, modulo 2⁶⁴.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.wrapping_sub(other.0))
    }

    /// The difference, or nothing if `other` is more.
    #[must_use]
    pub const fn minus_or_zero(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Rounds half away from zero. What no signed 64-bit number can hold becomes 2⁶³, as on amd64.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "in range of i64, checked first; signed to unsigned is meant to wrap"
)]
fn round_to_units(units: f64) -> u64 {
    /// 2⁶³, the first number that is too large.
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    if !(-BOUND..BOUND).contains(&units) {
        return 1 << 63;
    }
    let whole = units as i64;
    let rest = units - whole as f64; // exact: from 2⁵³ on there is no fraction
    let rounded = if rest >= 0.5 {
        whole + 1
    } else if rest <= -0.5 {
        whole - 1
    } else {
        whole
    };
    rounded as u64
}

impl fmt::Display for SeatSeconds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{:08}ss", self.0 / SCALE, self.0 % SCALE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn roundings_are_kube_apiservers() {
        assert_eq!(SeatSeconds::of(1.0, Nanos::from_millis(3)).raw(), 300_000);
        assert_eq!(SeatSeconds::of(1.0, Nanos(5)).raw(), 1);
        assert_eq!(SeatSeconds::of(1.0, Nanos(4)).raw(), 0);
        assert_eq!(SeatSeconds::of(1.0, Nanos(-1000)).raw(), 18_446_744_073_709_551_516);
        assert_eq!(SeatSeconds::from_raw(29_000_000).per_seat(7.0), Nanos(41_428_571));
        assert_eq!(SeatSeconds::from_raw(300_000).to_string(), "0.00300000ss");
    }

    #[test]
    fn what_is_too_large_neither_panics_nor_vanishes() {
        assert_eq!(SeatSeconds::of(1e9, Nanos(i64::MAX)).raw(), 1 << 63);
        assert_eq!(SeatSeconds::of(f64::NAN, Nanos(1)).raw(), 1 << 63);
        assert_eq!(SeatSeconds::MAX.per_seat(0.0), Nanos(i64::MAX));
    }

    proptest! {
        #[test]
        fn rounding_is_libms(units in prop_oneof![-1e6..1e6_f64, -9e18..9e18_f64]) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
            let expected = libm::round(units) as i64 as u64;
            prop_assert_eq!(round_to_units(units), expected);
        }
    }
}
