//! How often a hand lies wholly within the queues that elephants cover.

use alloc::vec;
use alloc::vec::Vec;

/// See [`super::collision_probability`]. `hand` ≤ `queues`.
pub(super) fn probability(queues: u32, hand: u32, elephants: u32) -> f64 {
    let covered = covered_after(queues, hand, elephants);
    // A hand fits into `size` covered queues with probability C(size, hand) / C(queues, hand).
    let within = |size: u32| {
        (0..hand).map(|i| f64::from(size.saturating_sub(i)) / f64::from(queues - i)).product::<f64>()
    };
    (0..).zip(&covered).map(|(size, share)| share * within(size)).sum()
}

/// The distribution of the number of queues that are in at least one of the elephants' hands.
fn covered_after(queues: u32, hand: u32, elephants: u32) -> Vec<f64> {
    let reach = u64::from(hand) * u64::from(elephants);
    let most = usize::try_from(reach.min(u64::from(queues))).unwrap_or(usize::MAX);
    let mut covered = vec![0.0; most + 1];
    covered[0] = 1.0;
    for _ in 0..elephants {
        let mut next = vec![0.0; most + 1];
        for (size, share) in (0..).zip(&covered).filter(|(_, share)| **share > 0.0) {
            for fresh in hand.saturating_sub(size)..=hand.min(queues - size) {
                next[(size + fresh) as usize] += share * hits(queues, size, hand, hand - fresh);
            }
        }
        covered = next;
    }
    covered
}

/// The probability that `hits` of the `hand` cards are among `marked` of `queues`: hypergeometric.
fn hits(queues: u32, marked: u32, hand: u32, hits: u32) -> f64 {
    let mut ways = 1.0;
    let (mut drawn, mut left) = (0, f64::from(queues));
    for i in 0..hits {
        // One of the cards is a hit: (hand - i) places for it, i + 1 hits in any order.
        ways *= f64::from(hand - i) / f64::from(i + 1) * f64::from(marked - i) / left;
        left -= 1.0;
        drawn += 1;
    }
    for i in 0..hand - drawn {
        ways *= f64::from(queues - marked - i) / left;
        left -= 1.0;
    }
    ways
}
