//! The documented limits of the built-in levels, and odd shares.

use super::*;
use alloc::vec::Vec;

fn share(shares: u32, lendable_percent: u32, hand_size: Option<u32>) -> Share {
    Share { shares, lendable_percent, borrowing_limit_percent: None, hand_size }
}

/// The built-in levels: exempt, catch-all, system, node-high, leader-election, workload-high,
/// workload-low, global-default.
fn built_in() -> [Share; 8] {
    [
        share(0, 0, None),
        share(5, 0, None),
        share(30, 33, Some(6)),
        share(40, 25, Some(6)),
        share(10, 0, Some(4)),
        share(40, 50, Some(6)),
        share(100, 90, Some(6)),
        share(20, 50, Some(6)),
    ]
}

fn columns(server: u64) -> Vec<(u64, u64, u64)> {
    all(Seats(server), &built_in()).map(|of| (of.nominal.0, of.minimum.0, of.max_seats.0)).collect()
}

#[test]
fn built_in_levels_have_the_documented_limits() {
    assert_eq!(
        columns(600),
        [
            (0, 0, 0),
            (13, 13, 0),
            (74, 50, 12),
            (98, 73, 15),
            (25, 25, 4),
            (98, 49, 15),
            (245, 24, 37),
            (49, 24, 8)
        ]
    );
    assert_eq!(
        columns(30),
        [(0, 0, 0), (1, 1, 0), (4, 3, 1), (5, 4, 1), (2, 2, 1), (5, 2, 1), (13, 1, 2), (3, 1, 1)]
    );
}

#[test]
fn a_borrowing_limit_is_a_part_of_the_nominal_limit() {
    let limited = Share { borrowing_limit_percent: Some(50), ..share(1, 0, None) };
    let limits = Limits::of(&limited, Seats(101), 1.0);
    assert_eq!((limits.nominal, limits.maximum), (Seats(101), Seats(152)), "50.5 rounds away from zero");
}

#[test]
fn odd_shares_give_no_seats_and_no_panic() {
    assert_eq!(Limits::of(&share(0, 100, Some(0)), Seats(10), 0.0).nominal, Seats(0));
    let huge = Share {
        shares: u32::MAX,
        lendable_percent: u32::MAX,
        borrowing_limit_percent: Some(u32::MAX),
        hand_size: Some(u32::MAX),
    };
    let limits = Limits::of(&huge, Seats(u64::MAX), 1.0);
    assert!(limits.minimum <= limits.nominal && limits.nominal <= limits.maximum);
}
