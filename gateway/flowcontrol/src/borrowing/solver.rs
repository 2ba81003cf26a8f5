//! The fair division: one proportion of every target, as far as bounds allow.
//!
//! Finds `p` such that `clamp(p × target, lower, upper)` of all items adds up to the required sum:
//! max-min fairness, KEP-1040, "Dispatching". O(n log n).

use alloc::vec::Vec;

/// How far sums may miss each other and still count as equal: rounding, not intent.
const SUM_SLACK: f64 = 1e-7;
/// Smallest target: an item that wants nothing still has a place in the proportion.
const TARGET_MIN: f64 = 0.001;
/// Above any proportion that can matter; where kube-apiserver starts its minima.
const PROPORTION_MAX: f64 = f32::MAX as f64;

/// One party to the division.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item {
    /// It gets at least that; not negative.
    pub lower: f64,
    /// It gets at most that; at least `lower`.
    pub upper: f64,
    /// What it would be happy with; at least `lower`.
    pub target: f64,
}

/// A division.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The proportion.
    pub fair_proportion: f64,
    /// What each item gets, in their order.
    pub allocations: Vec<f64>,
}

/// Why there is no division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Infeasible {
    /// The required sum is negative.
    NegativeSum,
    /// A lower bound is negative (or no number).
    NegativeLower,
    /// A target is below its lower bound.
    TargetBelowLower,
    /// An upper bound is below its lower bound.
    UpperBelowLower,
    /// The lower bounds alone exceed the required sum.
    LowerSumTooHigh,
    /// The upper bounds together do not reach it.
    UpperSumTooLow,
}

/// Divides `required` among the items.
pub fn allocate(required: f64, items: &[Item]) -> Result<Solution, Infeasible> {
    let Totals { lower, upper, target, relative_lower, relative_upper } = totals(required, items)?;
    let solution = |fair_proportion, allocate: &dyn Fn(&Item) -> f64| {
        Ok(Solution { fair_proportion, allocations: items.iter().map(allocate).collect() })
    };
    if lower - required > SUM_SLACK {
        return Err(Infeasible::LowerSumTooHigh);
    }
    if required - upper > SUM_SLACK {
        return Err(Infeasible::UpperSumTooLow);
    }
    if required == 0.0 {
        return solution(0.0, &|_| 0.0);
    }
    if lower - required > -SUM_SLACK {
        return solution(relative_lower.min, &|item| item.lower);
    }
    if required - upper > -SUM_SLACK {
        return solution(relative_upper.max, &|item| item.upper);
    }
    let proportion = required / target;
    if relative_lower.max <= proportion && proportion <= relative_upper.min {
        return solution(proportion, &|item| proportion * item.positive_target());
    }
    let proportion = sweep(required, items, lower, relative_lower.min);
    solution(proportion, &|item| (proportion * item.positive_target()).min(item.upper).max(item.lower))
}

/// Sums over all items, and the range of their bounds relative to their targets.
struct Totals {
    lower: f64,
    upper: f64,
    target: f64,
    relative_lower: Range,
    relative_upper: Range,
}

#[derive(Clone, Copy)]
struct Range {
    min: f64,
    max: f64,
}

/// Adds everything up, and refuses what makes no sense.
fn totals(required: f64, items: &[Item]) -> Result<Totals, Infeasible> {
    let nothing = Range { min: PROPORTION_MAX, max: 0.0 };
    let mut totals =
        Totals { lower: 0.0, upper: 0.0, target: 0.0, relative_lower: nothing, relative_upper: nothing };
    if required < 0.0 {
        return Err(Infeasible::NegativeSum);
    }
    for item in items {
        item.check()?;
        totals.lower += item.lower;
        totals.upper += item.upper;
        totals.target += item.positive_target();
        totals.relative_lower.include(item.relative_lower());
        totals.relative_upper.include(item.relative_upper());
    }
    Ok(totals)
}

/// Raises the proportion from the smallest that matters, bound by bound, until the sum is reached.
///
/// Between two bounds the sum grows by the targets of those items whose bounds do not bind there.
fn sweep(required: f64, items: &[Item], lower_sum: f64, start: f64) -> f64 {
    let mut bounds: Vec<(f64, f64)> = Vec::with_capacity(2 * items.len());
    for item in items {
        bounds.push((item.relative_lower(), item.positive_target()));
        bounds.push((item.relative_upper(), -item.positive_target()));
    }
    bounds.sort_by(|one, other| one.0.total_cmp(&other.0));

    // How many grow is counted: next to a huge target the sum of small ones is lost in rounding.
    let (mut proportion, mut sum, mut growing, mut items_growing) = (start, lower_sum, 0.0, 0);
    for (bound, change) in bounds {
        if bound > proportion {
            if items_growing > 0 {
                let step = (required - sum) / growing;
                if proportion + step <= bound {
                    return proportion + step;
                }
                sum += (bound - proportion) * growing;
            }
            proportion = bound;
            if sum >= required {
                break;
            }
        }
        growing += change;
        items_growing += if change > 0.0 { 1 } else { -1 };
    }
    proportion
}

// === impl Item ===

impl Item {
    /// What must hold, in positive form: NaN is refused.
    fn check(&self) -> Result<(), Infeasible> {
        let rules = [
            (self.lower >= 0.0, Infeasible::NegativeLower),
            (self.target >= self.lower, Infeasible::TargetBelowLower),
            (self.upper >= self.lower, Infeasible::UpperBelowLower),
        ];
        rules.into_iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, broken)| Err(broken))
    }

    fn positive_target(&self) -> f64 {
        self.target.max(TARGET_MIN)
    }

    fn relative_lower(&self) -> f64 {
        self.lower / self.positive_target()
    }

    fn relative_upper(&self) -> f64 {
        self.upper / self.positive_target()
    }
}

// === impl Range ===

impl Range {
    fn include(&mut self, value: f64) {
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }
}

#[cfg(test)]
mod tests;
