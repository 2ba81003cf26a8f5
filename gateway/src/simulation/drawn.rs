//! Scenarios that a seed determines: small, quick and nasty. Everything that a scenario can have is in some of them.

use usher_flowcontrol::units::Nanos;

use super::flow::{Asks, Distribution, Flow, Places, Retry, Work};
use super::random::Random;
use super::scenario::{Knobs, Scenario, Shape};
use super::span::{Span, Step};
use super::troubles::{Absence, Change, ClockStep, Death, Stall};

/// Apart from the streams of the flows.
const STREAM: u64 = u64::MAX;

/// The scenario of that seed.
#[must_use]
pub fn drawn(seed: u64) -> Scenario {
    let random = &mut Random::new(seed, STREAM);
    let workers = usize_of(random.pick(&[1, 2, 2, 3, 4, 8, 16]));
    let several = random.chance(0.15);
    // Seats are moved every 10 s. Then everything is slower, so that no more happens.
    let slower = if several { random.pick(&[300.0, 600.0]) } else { 1.0 };
    let duration = Span(Nanos::from_millis(random.pick(&[20, 40, 80])));
    let most = if random.chance(0.5) { 1 } else { random.pick(&[2, 3, 10]) };
    let count = if several { random.between(2, 4) } else { 1 };
    let levels: Vec<_> = (0..count).map(|index| shape(index, random)).collect();
    let count = random.between(1, 4);
    let flows = (0..count).map(|index| flow(index, most, workers, levels.len() as u64, random)).collect();
    let mut scenario = Scenario {
        about: format!("drawn by seed {seed}"),
        duration,
        warm_up: Span::default(),
        workers,
        exact: random.chance(0.2),
        message_delay: Span(Nanos(random.pick(&[0, 5_000, 50_000, 500_000]))),
        publish_delay: Span(Nanos(random.pick(&[0, 500, 500, 100_000, 5_000_000]))),
        slots: usize_of(random.pick(&[4, 64, 256])),
        level: (!several).then(|| levels[0].clone()),
        seats: if several { random.pick(&[2, 8, 30]) } else { 0 },
        flows,
        stalls: some(random, |random| Stall {
            worker: worker(workers, random),
            at: moment(duration, random),
            lasts: Span(Nanos(random.between(1, 10_000_000).cast_signed())),
        }),
        deaths: some(random, |random| Death {
            worker: worker(workers, random),
            at: moment(duration, random),
        }),
        coordinator_lost: some(random, |random| Absence {
            at: moment(duration, random),
            lasts: Span(Nanos(random.pick(&[10_000, 3_000_000, 30_000_000]))),
        }),
        clocks: some(random, |random| ClockStep {
            worker: worker(workers, random),
            at: moment(duration, random),
            by: Step(Nanos(random.pick(&[
                1_000,
                3_000_000,
                1_000_000_000,
                -1_000,
                -3_000_000,
                -1_000_000_000,
            ]))),
        }),
        changes: changes(duration, levels.len() as u64, random),
        levels: if several { levels } else { Vec::new() },
        spread: None,
        knobs: Knobs {
            ring: usize_of(random.pick(&[1, 2, 256])),
            hold: random.pick(&[1, 2, 64]),
            lease: random.pick(&[0, 1, 4]),
            lease_from: random.pick(&[1, 8]),
            sample: Nanos::from_millis(random.pick(&[5, 50])),
        },
    };
    scenario.settle().expect("one level or several");
    scenario.faster(1.0 / slower);
    scenario
}

fn shape(index: u64, random: &mut Random) -> Shape {
    let queues = random.pick(&[0, 1, 2, 8, 64, 64]);
    Shape {
        name: format!("level-{index}"),
        seats: random.pick(&[1, 1, 2, 3, 5, 8, 20, 40]),
        shares: u32_of(random.between(1, 5)),
        lendable_percent: random.pick(&[0, 50, 100]),
        borrowing_limit_percent: random.pick(&[None, Some(0), Some(100)]),
        queues,
        hand_size: hand(queues, random),
        queue_length_limit: random.pick(&[0, 1, 5, 50]),
    }
}

fn hand(queues: u32, random: &mut Random) -> u8 {
    u8::try_from(random.between(1, u64::from(queues.clamp(1, 6)))).unwrap_or(1)
}

/// In order of time.
fn changes(duration: Span, levels: u64, random: &mut Random) -> Vec<Change> {
    let mut changes: Vec<_> = some(random, |random| {
        let level = random.between(0, levels - 1);
        let several = levels > 1;
        let queues = random.chance(0.5).then(|| random.pick(&[0, 1, 4, 64]));
        Change {
            at: moment(duration, random),
            level: format!("level-{level}"),
            seats: (!several && random.chance(0.7)).then(|| random.pick(&[1, 2, 5, 20])),
            shares: (several && random.chance(0.7)).then(|| u32_of(random.between(1, 9))),
            queues,
            // A hand is never larger than the queues there are.
            hand_size: queues.map(|queues| hand(queues, random)),
            queue_length_limit: random.chance(0.3).then(|| random.pick(&[0, 1, 50])),
            removed: level > 0 && random.chance(0.3),
        }
    });
    changes.sort_by_key(|change| change.at);
    changes
}

/// Mostly none, at times a few.
fn some<T>(random: &mut Random, each: impl Fn(&mut Random) -> T) -> Vec<T> {
    (0..random.pick(&[0, 0, 1, 3])).map(|_| each(random)).collect()
}

fn moment(duration: Span, random: &mut Random) -> Span {
    Span(Nanos(random.between(0, nanos(duration)).cast_signed()))
}

fn worker(workers: usize, random: &mut Random) -> usize {
    usize_of(random.between(0, workers as u64 - 1))
}

fn flow(index: u64, widest: u64, workers: usize, levels: u64, random: &mut Random) -> Flow {
    let some = |random: &mut Random, nanos: i64| Span(Nanos(if random.chance(0.3) { nanos } else { 0 }));
    let asks = match random.between(0, 6) {
        0 => Asks::Burst(u32_of(random.between(1, 60)), None),
        1 => Asks::Burst(u32_of(random.between(1, 30)), Some(Span(Nanos::from_millis(random.pick(&[2, 9]))))),
        2 | 3 => Asks::Rate(random.pick(&[50.0, 500.0, 5_000.0])),
        _ => Asks::Connections(u32_of(random.between(1, 40))),
    };
    let least = random.between(1, widest);
    let first = Span(Nanos::from_millis(random.pick(&[1, 10])));
    Flow {
        name: format!("flow-{index}"),
        level: format!("level-{}", random.between(0, levels - 1)),
        count: u32_of(random.pick(&[1, 1, 1, 5])),
        asks,
        on: match random.between(0, 5) {
            0 => Places::OneEach,
            1 => Places::MostlyFirst,
            2 | 3 => Places::These(vec![worker(workers, random)]),
            _ => Places::All,
        },
        work: Work {
            service: Span(Nanos(random.pick(&[100_000, 1_000_000, 5_000_000]))),
            distribution: random.pick(&[
                Distribution::Fixed,
                Distribution::Exponential,
                Distribution::Exponential,
                Distribution::Heavy,
            ]),
            seats: (least, random.between(least, widest)),
            linger: some(random, 500_000),
        },
        think: some(random, 1_000_000),
        retry: Retry { first, most: random.pick(&[first, Span(Nanos::from_millis(50))]) },
        patience: random.chance(0.3).then(|| Span(Nanos::from_millis(random.pick(&[1, 5, 20])))),
        start: some(random, 7_000_000),
    }
}

fn nanos(span: Span) -> u64 {
    span.0.0.cast_unsigned()
}

fn usize_of(small: u64) -> usize {
    usize::try_from(small).unwrap_or(0)
}

fn u32_of(small: u64) -> u32 {
    u32::try_from(small).unwrap_or(0)
}
