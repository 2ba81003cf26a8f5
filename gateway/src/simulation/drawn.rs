//! Scenarios that a seed determines: small, quick and nasty. Everything that a scenario can have is in some of them.

use usher_flowcontrol::units::Nanos;

use super::flow::{Asks, Distribution, Flow, Places, Retry, Work};
use super::random::Random;
use super::scenario::{Death, Knobs, Limit, Scenario, Shape, Span, Stall};

/// Apart from the streams of the flows.
const STREAM: u64 = u64::MAX;

/// The scenario of that seed.
#[must_use]
pub fn drawn(seed: u64) -> Scenario {
    let random = &mut Random::new(seed, STREAM);
    let workers = usize_of(random.pick(&[1, 2, 2, 3, 4, 8, 16]));
    let duration = Span(Nanos::from_millis(random.pick(&[20, 40, 80])));
    let seats = random.pick(&[1, 1, 2, 3, 5, 8, 20, 40]);
    let queues = random.pick(&[0, 1, 2, 8, 64, 64]);
    let most = if random.chance(0.5) { 1 } else { random.pick(&[2, 3, 10]) };
    let flows = (0..random.between(1, 4)).map(|index| flow(index, most, workers, random)).collect();
    let moment = |random: &mut Random| Span(Nanos(random.between(0, nanos(duration)).cast_signed()));
    Scenario {
        about: format!("drawn by seed {seed}"),
        duration,
        warm_up: Span::default(),
        workers,
        exact: random.chance(0.2),
        message_delay: Span(Nanos(random.pick(&[0, 5_000, 50_000, 500_000]))),
        slots: random.pick(&[4, 64, 256]),
        level: Shape {
            seats,
            queues,
            hand_size: u8::try_from(random.between(1, u64::from(queues.clamp(1, 6)))).unwrap_or(1),
            queue_length_limit: random.pick(&[0, 1, 5, 50]),
        },
        flows,
        stalls: (0..random.pick(&[0, 0, 1, 3]))
            .map(|_| Stall {
                worker: usize_of(random.between(0, workers as u64 - 1)),
                at: moment(random),
                lasts: Span(Nanos(random.between(1, 10_000_000).cast_signed())),
            })
            .collect(),
        deaths: (0..random.pick(&[0, 0, 1, 3]))
            .map(|_| Death { worker: usize_of(random.between(0, workers as u64 - 1)), at: moment(random) })
            .collect(),
        limits: limits(duration, random),
        spread: None,
        knobs: Knobs {
            ring: random.pick(&[1, 2, 256]),
            hold: random.pick(&[1, 2, 64]),
            lease: random.pick(&[0, 1, 4]),
            lease_from: random.pick(&[1, 8]),
        },
    }
}

/// In order of time.
fn limits(duration: Span, random: &mut Random) -> Vec<Limit> {
    let mut limits: Vec<_> = (0..random.pick(&[0, 0, 1, 3]))
        .map(|_| Limit {
            at: Span(Nanos(random.between(0, nanos(duration)).cast_signed())),
            seats: random.pick(&[1, 2, 5, 20]),
        })
        .collect();
    limits.sort_by_key(|limit| limit.at);
    limits
}

fn flow(index: u64, widest: u64, workers: usize, random: &mut Random) -> Flow {
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
        count: u32_of(random.pick(&[1, 1, 1, 5])),
        asks,
        on: match random.between(0, 5) {
            0 => Places::OneEach,
            1 => Places::MostlyFirst,
            2 | 3 => Places::These(vec![usize_of(random.between(0, workers as u64 - 1))]),
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
