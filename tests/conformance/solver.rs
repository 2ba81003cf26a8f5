//! `solver.json`: the fair division.

use serde_json::Value;
use usher_flowcontrol::borrowing::solver::{Infeasible, Item, allocate};

use crate::numbers::{close, each_case, list, real, required, text};
use crate::{File, Outcome};

pub(crate) fn run(file: &File) -> Vec<(String, Outcome)> {
    each_case(file, case)
}

fn case(case: &Value) -> Result<(), String> {
    let item = |item: &Value| {
        Ok::<_, String>(Item {
            lower: required(item, "lower")?,
            upper: required(item, "upper")?,
            target: required(item, "target")?,
        })
    };
    let items = list(case, "items")?.iter().map(item).collect::<Result<Vec<_>, _>>()?;
    let answer = allocate(required(case, "requiredSum")?, &items);
    if case["ok"] != true {
        let expected = text(case, "error")?;
        return match answer {
            Err(error) if word(error) == expected => Ok(()),
            other => Err(format!("{other:?} instead of {expected}")),
        };
    }
    let solution = answer.map_err(|error| format!("{error:?}"))?;
    let expected: Vec<f64> = list(case, "allocations")?.iter().filter_map(real).collect();
    let equal = expected.len() == solution.allocations.len()
        && expected.iter().zip(&solution.allocations).all(|(one, other)| close(*one, *other))
        && close(solution.fair_proportion, required(case, "fairProportion")?);
    if equal {
        Ok(())
    } else {
        Err(format!("{solution:?} instead of {expected:?}, {}", case["fairProportion"]))
    }
}

fn word(error: Infeasible) -> &'static str {
    match error {
        Infeasible::NegativeSum => "negative_sum",
        Infeasible::NegativeLower => "negative_lower",
        Infeasible::TargetBelowLower => "target_below_lower",
        Infeasible::UpperBelowLower => "upper_below_lower",
        Infeasible::LowerSumTooHigh => "lower_sum_too_high",
        Infeasible::UpperSumTooLow => "upper_sum_too_low",
    }
}
