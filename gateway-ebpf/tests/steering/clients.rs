//! Clients of different activity, and what became of their connections.

use std::collections::VecDeque;

use usher_ebpf::steer::Path;

use crate::group::{Group, connect};
use crate::network::client;

/// How busy clients are: the sums of their shares, up to 1.
pub(crate) fn zipf(clients: usize) -> Vec<f64> {
    sums((1..=clients).map(|rank| 1.0 / rank as f64))
}

/// One address that makes `share` of all connections, beside a thousand equal ones.
pub(crate) fn one_of_many(share: f64) -> Vec<f64> {
    sums(std::iter::once(share * 1000.0 / (1.0 - share)).chain((0..1000).map(|_| 1.0)))
}

fn sums(weights: impl Iterator<Item = f64> + Clone) -> Vec<f64> {
    let all: f64 = weights.clone().sum();
    let add = |sum: &mut f64, weight: f64| {
        *sum += weight / all;
        Some(*sum)
    };
    weights.scan(0.0, add).collect()
}

/// Where connections went.
pub(crate) struct Outcome {
    by_worker: Vec<u32>,
    again: u32,
    same: u32,
}

impl Outcome {
    /// The busiest worker against the mean.
    pub(crate) fn skew(&self) -> f64 {
        let (most, all) = (self.by_worker.iter().max().unwrap(), self.by_worker.iter().sum::<u32>());
        f64::from(*most) * self.by_worker.len() as f64 / f64::from(all)
    }

    /// How many went where their client's connection before went; without those of crowds, which have no home.
    pub(crate) fn same(&self) -> f64 {
        f64::from(self.same) / f64::from(self.again)
    }
}

/// `connections` one after the other, of clients by their `shares`. Each is accepted at once and ends after 100 more.
pub(crate) fn play(group: &mut Group, shares: &[f64], connections: usize) -> Outcome {
    let mut outcome = Outcome { by_worker: vec![0; group.listeners.len()], again: 0, same: 0 };
    let mut dice = 1;
    let mut last = vec![None; shares.len()];
    let mut open = VecDeque::new();
    for _ in 0..connections {
        let die = share(&mut dice);
        let who = shares.partition_point(|sum| *sum < die).min(shares.len() - 1);
        let from = client(&group.address, who);
        let spread = spread(group);
        let near = connect(from, group.address).unwrap();
        let (slot, far, seen) = group.accept().unwrap();
        assert_eq!(seen, from);
        outcome.by_worker[slot] += 1;
        if spread == self::spread(group) {
            if let Some(before) = last[who] {
                outcome.again += 1;
                outcome.same += u32::from(before == slot);
            }
            last[who] = Some(slot);
        }
        open.push_back((slot, near, far));
        if open.len() > 100 {
            let (slot, ..) = open.pop_front().unwrap();
            group.closed(slot);
        }
    }
    for (slot, ..) in open {
        group.closed(slot);
    }
    outcome
}

/// How many connections were spread so far.
fn spread(group: &Group) -> u64 {
    group.steering.as_ref().map_or(0, |steering| steering.tally(Path::Spread))
}

/// A number between 0 and 1 that looks random (Knuth's linear congruence).
fn share(dice: &mut u64) -> f64 {
    *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*dice >> 11) as f64 / (1_u64 << 53) as f64
}
