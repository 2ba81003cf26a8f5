//! Documented divisions, departures, and the conservation of seats.

use super::*;
use crate::limits::{Share, all};
use proptest::prelude::*;

/// The built-in levels on a server of 600 seats: exempt, catch-all, system, node-high,
/// leader-election, workload-high, workload-low, global-default.
fn built_in() -> Vec<Claim> {
    let share = |shares, lendable_percent| Share { shares, lendable_percent, ..Share::default() };
    let shares = [(0, 0), (5, 0), (30, 33), (40, 25), (10, 0), (40, 50), (100, 90), (20, 50)]
        .map(|(shares, lendable)| share(shares, lendable));
    let claim =
        |(index, limits)| Claim { exempt: index == 0, limits, high_watermark: Seats(0), smoothed: 0.0 };
    all(Seats(600), &shares).enumerate().map(claim).collect()
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn want(claim: &mut Claim, seats: u64) {
    claim.high_watermark = Seats(seats);
    claim.smoothed = seats as f64;
}

fn currents(claims: &[Claim]) -> Vec<u64> {
    adjust(claims).allocations.iter().map(|allocation| allocation.current.0).collect()
}

#[test]
fn an_idle_server_lends_by_minimum() {
    assert_eq!(currents(&built_in()), [0, 30, 117, 170, 58, 114, 56, 56]);
}

#[test]
fn one_busy_level_borrows_what_is_lendable() {
    let mut claims = built_in();
    want(&mut claims[6], 1000);
    assert_eq!(currents(&claims), [0, 13, 50, 73, 25, 49, 368, 24]);
}

#[test]
fn with_all_saturated_everyone_has_its_nominal_limit() {
    let mut claims = built_in();
    claims[1..].iter_mut().for_each(|claim| want(claim, 5000));
    assert_eq!(currents(&claims), [0, 13, 74, 98, 25, 98, 245, 49]);
}

// parity: C11. kube-apiserver hands out 602 in both of the next two cases as soon as its solver runs.

#[test]
fn seats_of_exempt_requests_are_not_handed_out_again() {
    let mut claims = built_in();
    want(&mut claims[0], 50);
    let sum: u64 = currents(&claims).iter().sum();
    assert!((600..=604).contains(&sum), "{sum}");

    claims[1..].iter_mut().for_each(|claim| want(claim, 5000));
    assert_eq!(currents(&claims), [50, 13, 71, 94, 25, 91, 213, 45], "no wiggle room: 552 among the others");
    want(&mut claims[6], 190);
    let sum: u64 = currents(&claims).iter().sum();
    assert!((600..=604).contains(&sum), "one wants less, the solver runs: {sum}");
}

#[test]
fn the_exempt_levels_own_seats_are_not_handed_out_again() {
    let share =
        |shares, borrowing_limit_percent| Share { shares, borrowing_limit_percent, ..Share::default() };
    let shares = [share(100, None), share(5, None), share(100, Some(0))];
    let claim =
        |(index, limits)| Claim { exempt: index == 0, limits, high_watermark: Seats(0), smoothed: 0.0 };
    let claims: Vec<Claim> = all(Seats(600), &shares).enumerate().map(claim).collect();
    assert_eq!(currents(&claims), [293, 15, 293]);
}

#[test]
fn what_is_not_lendable_stays_even_if_exempt_requests_use_everything() {
    let mut claims = built_in();
    want(&mut claims[0], 5000);
    claims[1..].iter_mut().for_each(|claim| want(claim, 5000));
    assert_eq!(currents(&claims), [5000, 13, 50, 73, 25, 49, 24, 24]);
}

/// The more exempt requests use, the less the others have together, down to what they do not lend: no
/// branch hands out seats that another would not.
#[test]
fn what_exempt_requests_take_is_given_up_seat_by_seat() {
    let mut claims = built_in();
    claims[1..].iter_mut().for_each(|claim| want(claim, 200));
    let mut others = |exempt: u64| {
        want(&mut claims[0], exempt);
        currents(&claims)[1..].iter().sum::<u64>()
    };
    for exempt in 0..700 {
        let expected = 602_u64.saturating_sub(exempt).max(258);
        let sum = others(exempt);
        assert!(sum.abs_diff(expected) <= 4, "{exempt} exempt: {sum} instead of {expected}");
    }
}

// parity: C13, C14.

#[test]
fn the_exempt_level_has_a_target_of_its_own() {
    let mut claims = built_in();
    want(&mut claims[0], 7);
    assert_eq!(adjust(&claims).allocations[0], Allocation { current: Seats(7), target: 7.0 });
}

#[test]
fn where_the_upper_bounds_are_too_low_everyone_has_its_upper_bound() {
    let limits = |nominal, maximum| Limits {
        nominal: Seats(nominal),
        minimum: Seats(0),
        maximum: Seats(maximum),
        max_seats: Seats(0),
    };
    let claim = |exempt, limits| Claim { exempt, limits, high_watermark: Seats(0), smoothed: 0.0 };
    let claims = [claim(true, limits(100, 100)), claim(false, limits(10, 12)), claim(false, limits(20, 20))];
    assert_eq!(currents(&claims), [0, 12, 20]);
}

proptest! {
    /// Limits add up to what exempt requests leave, as far as bounds and rounding allow, and stay
    /// within the bounds.
    #[test]
    fn seats_are_conserved(
        levels in proptest::collection::vec((0..50_u32, 0..=100_u32, proptest::option::of(0..300_u32), 0..500_u64, 0.0..500.0_f64), 1..12),
        server in 1..3000_u64,
        exempt in 0..100_u64,
    ) {
        let mut shares: Vec<Share> = levels.iter().map(|(shares, lendable_percent, borrowing_limit_percent, _, _)| Share {
            shares: *shares,
            lendable_percent: *lendable_percent,
            borrowing_limit_percent: *borrowing_limit_percent,
            hand_size: None,
        }).collect();
        shares.push(Share { shares: 5, ..Share::default() }); // as the mandatory catch-all
        shares.push(Share::default());                        // as the mandatory exempt
        let mut claims: Vec<Claim> = all(Seats(server), &shares)
            .map(|limits| Claim { exempt: false, limits, high_watermark: Seats(0), smoothed: 0.0 })
            .collect();
        for (claim, (_, _, _, high, smoothed)) in claims.iter_mut().zip(&levels) {
            claim.high_watermark = Seats(*high);
            claim.smoothed = *smoothed;
        }
        let last = claims.len() - 1;
        claims[last].exempt = true;
        claims[last].high_watermark = Seats(exempt);

        let adjusted = adjust(&claims);
        let (mut minimum, mut current) = (0, 0);
        for (claim, allocation) in claims[..last].iter().zip(&adjusted.allocations) {
            prop_assert!(claim.limits.minimum <= allocation.current && allocation.current <= claim.limits.maximum);
            minimum += claim.limits.minimum.0;
            current += allocation.current.0;
        }
        let whole: u64 = claims.iter().map(|claim| claim.limits.nominal.0).sum();
        let expected = whole.saturating_sub(exempt).max(minimum);
        let slack = claims.len() as u64;
        prop_assert!(current.abs_diff(expected) <= slack, "{current} instead of {expected}");
    }
}
