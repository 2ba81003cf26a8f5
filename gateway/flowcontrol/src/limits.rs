//! What configuration alone says about a level's seats: nominal, minimum and maximum limit, and the
//! widest request that it may be asked to carry.
//!
//! KEP-1040, "Dispatching". All arithmetic is f64, multiplication first, so that the
//! values are kube-apiserver's to the bit. The limits in force at a moment are [`crate::borrowing`]'s.

use crate::units::Seats;

/// Part of a level's nominal limit that one request may occupy.
const MAX_SEATS_FRACTION: f64 = 0.15;

/// What a level's object says about seats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// `nominalConcurrencyShares`.
    pub shares: u32,
    /// `lendablePercent`; absent is 0.
    pub lendable_percent: u32,
    /// `borrowingLimitPercent`; absent: as many as the server has.
    pub borrowing_limit_percent: Option<u32>,
    /// `handSize` of a level that queues; absent for the others, which set no width of their own.
    pub hand_size: Option<u32>,
}

/// A level's seats by configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Its share of the server's seats, rounded up.
    pub nominal: Seats,
    /// What it never lends.
    pub minimum: Seats,
    /// What it may have with all it can borrow; may exceed what the server has.
    pub maximum: Seats,
    /// The widest request that the estimator may produce; 0: none set.
    pub max_seats: Seats,
}

impl Limits {
    /// Limits of one level, of `shares_total` shares on a server of `server` seats.
    pub fn of(share: &Share, server: Seats, shares_total: f64) -> Self {
        let nominal_exact = as_f64(server) * f64::from(share.shares) / shares_total;
        // No level has a share: nobody has a seat (NaN rounds to 0).
        let nominal = rounded(libm::ceil(nominal_exact));
        let percent = |percent: u32| rounded(as_f64(nominal) * f64::from(percent) / 100.0);
        let borrowable = share.borrowing_limit_percent.map_or(server, percent);
        Self {
            nominal,
            minimum: Seats(nominal.0.saturating_sub(percent(share.lendable_percent).0)),
            maximum: Seats(nominal.0.saturating_add(borrowable.0)),
            max_seats: share.hand_size.map_or(Seats(0), |hand| max_seats(nominal, hand)),
        }
    }
}

/// The limits of all levels of a server, in order.
pub fn all(server: Seats, shares: &[Share]) -> impl Iterator<Item = Limits> {
    let total = shares.iter().map(|share| f64::from(share.shares)).sum::<f64>();
    shares.iter().map(move |share| Limits::of(share, server, total))
}

/// Fifteen percent of the nominal limit, and no more than lets a whole hand run at once; at least 1.
fn max_seats(nominal: Seats, hand_size: u32) -> Seats {
    let of_limit = rounded(libm::ceil(as_f64(nominal) * MAX_SEATS_FRACTION));
    let of_hand = Seats(nominal.0.checked_div(u64::from(hand_size)).unwrap_or(0));
    of_limit.min(of_hand).max(Seats(1))
}

/// Seats as a real number.
#[expect(clippy::cast_precision_loss, reason = "limits are far below 2^53, where f64 is exact")]
pub(crate) fn as_f64(seats: Seats) -> f64 {
    seats.0 as f64
}

/// To the nearest whole number of seats, halves away from zero. Negative values and NaN give 0.
#[expect(clippy::cast_possible_truncation, reason = "rounded first; the cast saturates at both ends")]
#[expect(clippy::cast_sign_loss, reason = "the cast saturates at 0")]
pub(crate) fn rounded(value: f64) -> Seats {
    Seats(libm::round(value) as u64)
}

#[cfg(test)]
mod tests;
