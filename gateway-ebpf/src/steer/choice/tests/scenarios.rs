//! Whole loads: thousands of connections of many clients, with workers that say late what they have.
//!
//! Everything random comes from one seed, so the bounds that are asserted hold each time or never.

use std::collections::VecDeque;
use std::vec::Vec;
use std::{println, vec};

use super::{Kind, Model, SECOND, client};
use crate::steer::{ABSENT, DRAINING, NOBODY, Path, SERVING};

/// Numbers that look random (SplitMix64).
pub(super) struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        let before = self.0;
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        super::super::mix(before ^ 0x5eed)
    }

    /// Between 0 and 1.
    fn share(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// How busy clients are: the sums of their shares, up to 1.
pub(super) fn zipf(clients: usize, exponent: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=clients).map(|rank| (rank as f64).powf(-exponent)).collect();
    let all: f64 = weights.iter().sum();
    let mut sum = 0.0;
    weights
        .iter()
        .map(|weight| {
            sum += weight / all;
            sum
        })
        .collect()
}

/// What happened.
#[derive(Debug, Default)]
struct Outcome {
    /// Connections by worker.
    by_worker: Vec<u32>,
    /// Connections by path.
    by_path: [u32; Path::ALL.len()],
    /// Connections of clients that came before and are no crowd; how many of them went where the one before went.
    again: u32,
    same: u32,
}

impl Outcome {
    /// The busiest worker against the mean.
    fn skew(&self) -> f64 {
        let (most, all) = (self.by_worker.iter().max().unwrap(), self.by_worker.iter().sum::<u32>());
        f64::from(*most) * self.by_worker.len() as f64 / f64::from(all)
    }

    fn affinity(&self) -> f64 {
        f64::from(self.same) / f64::from(self.again)
    }

    fn count(&self, path: Path) -> u32 {
        self.by_path[path as usize]
    }
}

/// A load.
#[derive(Clone, Copy)]
struct Load<'a> {
    shares: &'a [f64],
    connections: usize,
    /// A second.
    rate: u64,
    /// How many connections later a connection ends.
    lasts: usize,
    /// How many connections later a worker says that it has one.
    late: usize,
    seed: u64,
}

const LOAD: Load<'_> = Load { shares: &[], connections: 30_000, rate: 1000, lasts: 50, late: 5, seed: 1 };

/// Plays the load on `model`; `event` may change the workers before each connection.
fn play(model: &mut Model, load: Load<'_>, mut event: impl FnMut(usize, &mut Model)) -> Outcome {
    let mut dice = Dice(load.seed);
    let mut outcome = Outcome { by_worker: vec![0; model.loads.len()], ..Outcome::default() };
    let (mut waiting, mut open) = (VecDeque::new(), VecDeque::new());
    let mut last = vec![NOBODY; load.shares.len()];
    for number in 0..load.connections {
        event(number, model);
        let die = dice.share();
        let who = load.shares.partition_point(|sum| *sum < die).min(load.shares.len() - 1);
        let now = number as u64 * SECOND / load.rate;
        let hash = u32::try_from(dice.roll() >> 32).unwrap();
        let choice = model.ask(client(who), Kind::New, hash, now);
        assert!(choice.slot != NOBODY && model.loads[choice.slot as usize].state == SERVING, "{choice:?}");
        outcome.by_worker[choice.slot as usize] += 1;
        outcome.by_path[choice.path as usize] += 1;
        if choice.path != Path::Spread {
            if last[who] != NOBODY && model.loads[last[who] as usize].state == SERVING {
                outcome.again += 1;
                outcome.same += u32::from(last[who] == choice.slot);
            }
            last[who] = choice.slot;
        }
        waiting.push_back(choice.slot as usize);
        if waiting.len() > load.late {
            let slot = waiting.pop_front().unwrap();
            model.loads[slot].connections += 1;
            open.push_back(slot);
        }
        if open.len() > load.lasts {
            model.loads[open.pop_front().unwrap()].connections -= 1;
        }
    }
    outcome
}

#[test]
fn clients_of_zipf_activity_stay_and_are_shared_out() {
    for exponent in [0.8, 1.0, 1.2] {
        let shares = zipf(1000, exponent);
        for (workers, skew_most) in [(2, 1.1), (4, 1.15), (8, 1.25), (32, 1.4)] {
            // Connections that end at once and such that stay.
            for (rate, lasts) in [(20, 50), (20, 2000), (1000, 50), (20_000, usize::MAX)] {
                let load = Load { shares: &shares, lasts, rate, ..LOAD };
                let outcome = play(&mut Model::new(workers), load, |_, _| {});
                let (skew, same) = (outcome.skew(), outcome.affinity());
                println!(
                    "{workers} workers, exponent {exponent}, {rate}/s, lasts {lasts}: skew {skew:.3}, same {same:.4}"
                );
                assert!(skew < skew_most && same > 0.99, "{outcome:?}");
                assert_eq!(outcome.count(Path::Kernel) + outcome.count(Path::Fallback), 0);
            }
        }
    }
}

#[test]
fn an_address_of_many_is_spread() {
    for workers in [2, 4, 8] {
        let others = (1..=300).map(|n| 0.7 + 0.001 * f64::from(n));
        let shares: Vec<f64> = std::iter::once(0.7).chain(others).collect();
        let outcome = play(&mut Model::new(workers), Load { shares: &shares, ..LOAD }, |_, _| {});
        assert!(outcome.skew() < 1.05 && outcome.affinity() > 0.99, "{outcome:?}");
        // All of its connections but those before it was known.
        assert!((0.65..0.72).contains(&(f64::from(outcome.count(Path::Spread)) / LOAD.connections as f64)));
    }
}

#[test]
fn clients_of_workers_that_drain_or_die_are_shared_out_and_the_others_stay() {
    let shares = zipf(1000, 1.0);
    for workers in [2_usize, 4, 8] {
        let outcome = play(&mut Model::new(workers), Load { shares: &shares, ..LOAD }, |number, model| {
            // One after the other is away for half of a time, never all; when it is back, it gets its share again.
            model.loads[number / 2000 % workers].state = match number % 2000 {
                500..1500 => {
                    if number / 2000 % 2 == 0 {
                        DRAINING
                    } else {
                        ABSENT
                    }
                }
                _ => SERVING,
            };
        });
        assert!(outcome.skew() < 1.2 && outcome.affinity() > 0.97, "{outcome:?}");
    }
}

#[test]
fn a_worker_that_is_slow_to_say_what_it_has_is_not_overrun() {
    // Nothing is known of the last 5 000 connections but by the arrivals that the program counts itself.
    let shares = zipf(1000, 1.0);
    let outcome = play(&mut Model::new(4), Load { shares: &shares, late: 5000, ..LOAD }, |_, _| {});
    assert!(outcome.skew() < 1.15 && outcome.affinity() > 0.99, "{outcome:?}");
}

#[test]
fn busy_workers_get_fewer_clients() {
    let shares = zipf(1000, 1.0);
    let mut model = Model::new(4);
    model.loads[2].busy = 1000;
    let outcome = play(&mut model, Load { shares: &shares, ..LOAD }, |_, _| {});
    let least = outcome.by_worker.iter().min().unwrap();
    assert_eq!(outcome.by_worker.iter().position(|count| count == least), Some(2), "{outcome:?}");
    assert!(f64::from(*least) < 0.6 * LOAD.connections as f64 / 4.0, "{outcome:?}");
}
