//! The units everything else is counted in. Thin newtypes: a seat is not a nanosecond.

mod seat_seconds;

pub use seat_seconds::SeatSeconds;

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// Seats: how much of a priority level's concurrency a request occupies, or a level has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seats(pub u64);

/// Nanoseconds, signed. A span; or an instant, as the span since an origin that the caller chose
/// once (for monotonic time: the start of the process).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub i64);

/// Identifies a flow within a priority level: what shuffle sharding deals a hand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowHash(pub u64);

/// What a request will cost: KEP-1040, "Width of the request".
///
/// It occupies [`Work::max_seats`] while it executes and for `additional_latency` afterwards
/// (lingering: the watch notifications that a write sets off).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Seats of the execution itself.
    pub initial_seats: Seats,
    /// Seats of the time after execution.
    pub final_seats: Seats,
    /// How long the final seats are held after execution.
    pub additional_latency: Nanos,
}

// === impl Seats ===

impl Add for Seats {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Seats {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl AddAssign for Seats {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl SubAssign for Seats {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl fmt::Display for Seats {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

// === impl Nanos ===

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// That many milliseconds.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis * 1_000_000)
    }

    /// That many seconds.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs * 1_000_000_000)
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

// === impl Work ===

impl Work {
    /// A request of that many seats and nothing afterwards.
    pub const fn seats(seats: u64) -> Self {
        Self { initial_seats: Seats(seats), final_seats: Seats(0), additional_latency: Nanos::ZERO }
    }

    /// The seats it occupies from dispatch to the end of lingering.
    pub fn max_seats(&self) -> Seats {
        self.initial_seats.max(self.final_seats)
    }
}
