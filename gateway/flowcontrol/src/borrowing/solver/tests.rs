//! Against a slow oracle: water rises until the required sum is reached, by bisection.

use super::*;
use proptest::prelude::*;

fn item(lower: f64, upper: f64, target: f64) -> Item {
    Item { lower, upper, target }
}

/// The plain definition, tried at one water level after the other.
fn fill_water_slowly(required: f64, items: &[Item]) -> Vec<f64> {
    let at = |level: f64| -> Vec<f64> {
        items.iter().map(|item| (level * item.target.max(TARGET_MIN)).clamp(item.lower, item.upper)).collect()
    };
    let (mut dry, mut wet) = (0.0, 1.0);
    while at(wet).iter().sum::<f64>() < required && wet < 1e12 {
        wet *= 2.0;
    }
    for _ in 0..200 {
        let middle = (dry + wet) / 2.0;
        if at(middle).iter().sum::<f64>() < required { dry = middle } else { wet = middle }
    }
    at(wet)
}

/// Solved iff feasible; then the sum is met, and the oracle agrees.
fn check(required: u32, items: &[Item]) {
    let required = f64::from(required);
    let lower: f64 = items.iter().map(|item| item.lower).sum();
    let upper: f64 = items.iter().map(|item| item.upper).sum();
    match allocate(required, items) {
        Err(Infeasible::LowerSumTooHigh) => assert!(lower > required, "{required} {items:?}"),
        Err(Infeasible::UpperSumTooLow) => assert!(upper < required, "{required} {items:?}"),
        Err(other) => panic!("{other:?}: {required} {items:?}"),
        Ok(solution) => {
            let sum: f64 = solution.allocations.iter().sum();
            assert!((sum - required).abs() < 1e-6, "sum {sum}: {required} {items:?}");
            for (ours, slow) in solution.allocations.iter().zip(fill_water_slowly(required, items)) {
                assert!((ours - slow).abs() < 1e-6, "{ours} {slow}: {required} {items:?} {solution:?}");
            }
            max_min(&solution, items);
        }
    }
}

/// Max-min: nobody with less of its target than another could be given some of the other's.
fn max_min(solution: &Solution, items: &[Item]) {
    let worse_off = |one: usize, other: usize| {
        let part = |index: usize| solution.allocations[index] / items[index].target.max(TARGET_MIN);
        part(one) + 1e-6 < part(other)
            && solution.allocations[one] + 1e-6 < items[one].upper
            && solution.allocations[other] - 1e-6 > items[other].lower
    };
    let indexes = || 0..items.len();
    assert!(!indexes().any(|one| indexes().any(|other| worse_off(one, other))), "{items:?} {solution:?}");
}

#[test]
fn every_small_problem() {
    let mut choices = Vec::new();
    for lower in 0..3_u8 {
        for upper in lower..4 {
            for target in lower..4 {
                choices.push(item(f64::from(lower), f64::from(upper), f64::from(target)));
            }
        }
    }
    for one in &choices {
        for other in &choices {
            for third in &choices {
                for required in 0..10 {
                    check(required, &[*one, *other, *third]);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn larger_problems(
        parts in proptest::collection::vec((0.0..50.0_f64, 0.0..300.0_f64, 0.0..200.0_f64), 1..20),
        required in 0..2000_u32,
    ) {
        let items: Vec<Item> =
            parts.iter().map(|(lower, more, wish)| item(*lower, lower + more, lower + wish)).collect();
        check(required, &items);
    }
}

#[test]
fn nonsense_is_refused_item_by_item() {
    let refused = |required: f64, items: &[Item]| allocate(required, items).unwrap_err();
    assert_eq!(refused(-1.0, &[item(-1.0, 0.0, 0.0)]), Infeasible::NegativeSum);
    assert_eq!(refused(1.0, &[item(2.0, 1.0, 3.0), item(-1.0, 0.0, 0.0)]), Infeasible::UpperBelowLower);
    assert_eq!(refused(1.0, &[item(-1.0, -2.0, -3.0)]), Infeasible::NegativeLower);
    assert_eq!(refused(1.0, &[item(2.0, 1.0, 1.0)]), Infeasible::TargetBelowLower);
    assert_eq!(refused(1.0, &[item(f64::NAN, 1.0, 1.0)]), Infeasible::NegativeLower);
    assert_eq!(refused(1.0, &[item(0.0, 1.0, f64::NAN)]), Infeasible::TargetBelowLower);
    assert_eq!(refused(1.0, &[item(0.0, f64::NAN, 1.0)]), Infeasible::UpperBelowLower);
}
