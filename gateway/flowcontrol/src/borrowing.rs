//! Borrowing: splits the server's seats among priority levels by what they want.
//!
//! Pure: slices in, allocations out. Levels arrive sorted by name, so equal demand gives equal bits
//! (parity: C28). KEP-1040, "Dispatching"; departures are marked `parity:`.

pub mod solver;

use crate::limits::{Limits, as_f64, rounded};
use crate::units::Seats;
use alloc::vec::Vec;

/// How often seats are moved: the KEP's adjustment period.
pub const PERIOD: crate::units::Nanos = crate::units::Nanos::from_secs(10);

/// What one level brings to the adjustment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// Its requests never wait: it takes what it uses before the others share.
    pub exempt: bool,
    /// Its limits by configuration.
    pub limits: Limits,
    /// Its largest demand in the last period.
    pub high_watermark: Seats,
    /// Its smoothed demand.
    pub smoothed: f64,
}

/// What one level gets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Allocation {
    /// Its limit from now on, `CurrentCL`.
    pub current: Seats,
    /// What it was reckoned to want.
    pub target: f64,
}

/// The outcome of an adjustment.
#[derive(Clone, Debug, PartialEq)]
pub struct Adjustment {
    /// Part of its target that every level without a binding limit gets; 0 if there was nothing to share.
    pub fair_proportion: f64,
    /// One a claim, in order.
    pub allocations: Vec<Allocation>,
}

/// Divides the seats.
pub fn adjust(claims: &[Claim]) -> Adjustment {
    let limited = || claims.iter().filter(|claim| !claim.exempt);
    let sum_minimum = sum(limited().map(|claim| claim.limits.minimum));
    let sum_lower = sum(limited().map(Claim::minimum_current));
    let remaining = remaining(claims);

    let mut fair_proportion = 0.0;
    let mut split = Vec::new();
    // Where exempt requests leave less than the lower bounds, the KEP's text scales all lower bounds, down
    // to 0. As in kube-apiserver, only what levels lend is scaled: what they do not lend is never taken, as
    // the KEP says itself of MinCL; or exempt requests could stop the server.
    if remaining <= as_f64(sum_minimum) {
        split.extend(limited().map(|claim| claim.limits.minimum));
    } else if remaining <= as_f64(sum_lower) {
        let part = (remaining - as_f64(sum_minimum)) / (as_f64(sum_lower) - as_f64(sum_minimum));
        split.extend(limited().map(|claim| {
            let above = as_f64(claim.minimum_current()) - as_f64(claim.limits.minimum);
            claim.limits.minimum + rounded(above * part)
        }));
    } else {
        let items: Vec<solver::Item> = limited().map(Claim::item).collect();
        let solution =
            solver::allocate(remaining, &items).unwrap_or_else(|infeasible| nearest(infeasible, &items));
        fair_proportion = solution.fair_proportion;
        split.extend(solution.allocations.into_iter().map(rounded));
    }

    let mut split = split.into_iter();
    let allocation = |claim: &Claim| Allocation {
        current: if claim.exempt { claim.minimum_current() } else { split.next().unwrap_or_default() },
        target: claim.target(), // parity: C13, the exempt level's target is its own
    };
    Adjustment { fair_proportion, allocations: claims.iter().map(allocation).collect() }
}

/// The KEP's RemainingServerCL: what exempt requests leave. The whole is the sum of the nominal limits,
/// which is the server's seats plus what rounding up added. May be negative.
///
/// parity: C11, it is what every branch hands out; kube-apiserver's solver hands out the whole.
fn remaining(claims: &[Claim]) -> f64 {
    let whole = sum(claims.iter().map(|claim| claim.limits.nominal));
    let exempt = sum(claims.iter().filter(|claim| claim.exempt).map(Claim::minimum_current));
    as_f64(whole) - as_f64(exempt)
}

/// parity: C14, where no division satisfies all bounds, the nearest one; kube-apiserver leaves all
/// limits as they were, those of a level that is new included.
fn nearest(infeasible: solver::Infeasible, items: &[solver::Item]) -> solver::Solution {
    let bound = match infeasible {
        solver::Infeasible::UpperSumTooLow => |item: &solver::Item| item.upper,
        _ => |item: &solver::Item| item.lower,
    };
    solver::Solution { fair_proportion: 0.0, allocations: items.iter().map(bound).collect() }
}

fn sum(seats: impl Iterator<Item = Seats>) -> Seats {
    seats.fold(Seats(0), |total, seats| Seats(total.0.saturating_add(seats.0)))
}

// === impl Claim ===

impl Claim {
    /// The KEP's MinCurrentCL.
    fn minimum_current(&self) -> Seats {
        let wanted =
            if self.exempt { self.high_watermark } else { self.high_watermark.min(self.limits.nominal) };
        wanted.max(self.limits.minimum)
    }

    /// The KEP's Target.
    fn target(&self) -> f64 {
        as_f64(self.minimum_current()).max(self.smoothed)
    }

    fn item(&self) -> solver::Item {
        solver::Item {
            lower: as_f64(self.minimum_current()),
            upper: as_f64(self.limits.maximum),
            target: self.target(),
        }
    }
}

#[cfg(test)]
mod tests;
