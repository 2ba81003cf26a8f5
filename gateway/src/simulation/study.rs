//! The study: the seven workloads by which designs for many workers were compared, on 2 to 64 workers, with requests of
//! several lengths. How far is every flow's share from that on one exact level, and how far is it by chance?
//!
//! Each is run several times with the same flows and other times, and what was served is added up: chance grows smaller.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};
use usher_flowcontrol::units::Nanos;

use super::admission::Kind;
use super::checks::Violation;
use super::flow::Places;
use super::measured::Measured;
use super::report;
use super::scenario::Scenario;
use super::world::World;

/// What came out.
#[derive(Clone, Debug)]
pub struct Study {
    /// The seed that replays it.
    pub seed: u64,
    /// By workload, length of requests and workers.
    pub rows: Vec<Row>,
    /// What an elephant gains by having its connections on all 64 workers instead of one: its share as a multiple of the
    /// others', the one over the other.
    pub gain: f64,
}

/// One workload with requests of one length on so many workers.
#[derive(Clone, Debug)]
pub struct Row {
    /// The scenario's name.
    pub workload: &'static str,
    /// Mean time of an execution.
    pub service: Nanos,
    /// Workers.
    pub workers: usize,
    /// How far shares are from those on one exact level.
    pub deviation: Distance,
    /// How far they are from each other on exact levels, with other times: the largest of three pairs.
    pub noise: Distance,
    /// On the workers.
    pub outcome: Outcome,
    /// On one exact level.
    pub exact: Outcome,
    /// A request that ran: operations of the sequencer.
    pub operations: f64,
    /// A request that ran: how often it had to wait for a grant.
    pub granted: f64,
    /// A request that ran: messages between workers.
    pub wakes: f64,
}

/// Of all flows, as parts of their shares.
#[derive(Clone, Copy, Debug)]
pub struct Distance {
    /// Mean.
    pub mean: f64,
    /// Of the flow that is farthest.
    pub max: f64,
}

/// What the clients saw of it.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Jain's index of the flows that wanted more at nearly all times, if there are any.
    pub jain: Option<f64>,
    /// The first flow's share as a multiple of the others' mean.
    pub elephant: f64,
    /// Part of the limit that was used.
    pub utilisation: f64,
    /// Of those that ran, of all flows but the first.
    pub wait_p99: Nanos,
}

/// The scenarios, in the study's order.
pub const WORKLOADS: [&str; 7] =
    ["spread-out", "concentrated", "lopsided", "light", "overload", "scarce", "bursts"];
/// Workers.
pub const WORKERS: [usize; 6] = [2, 4, 8, 16, 32, 64];
/// As many times as fast as the scenarios say: executions of 5, 1 and 0.2 ms.
const FASTER: [f64; 3] = [1.0, 5.0, 25.0];
/// Runs that are added up.
const REPEATS: u64 = 6;
/// The elephant's gain is a ratio near 1 that must be told to a hundredth.
const GAIN_REPEATS: u64 = 12;
/// From this length on, a message between workers is short beside a request.
const LONG: Nanos = Nanos::from_millis(1);

/// Runs all of it, on all the cores there are; `workers`: on these instead of [`WORKERS`].
///
/// # Errors
/// A rule was broken.
pub fn run(seed: u64, workers: &[usize]) -> Result<Study, Violation> {
    let pairs = WORKLOADS.iter().flat_map(|name| FASTER.map(|factor| (*name, factor)));
    let pairs: Vec<_> = pairs.collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((name, factor)) = pairs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let rows = compare(name, *factor, seed, workers);
            done.lock().expect("nobody panics with it").push(rows);
        }
    };
    thread::scope(|scope| {
        (0..thread::available_parallelism().map_or(1, usize::from)).for_each(|_| drop(scope.spawn(work)));
    });
    let rows: Result<Vec<_>, _> = done.into_inner().expect("nobody panicked").into_iter().collect();
    let mut rows: Vec<Row> = rows?.into_iter().flatten().collect();
    let place = |row: &Row| WORKLOADS.iter().position(|name| *name == row.workload);
    rows.sort_by_key(|row| (place(row), std::cmp::Reverse(row.service), row.workers));
    Ok(Study { seed, rows, gain: gain(seed)? })
}

/// One workload with requests of one length.
fn compare(workload: &'static str, factor: f64, seed: u64, workers: &[usize]) -> Result<Vec<Row>, Violation> {
    let mut scenario = Scenario::read(workload).expect("the program's own");
    scenario.faster(factor);
    rows(workload, scenario, seed, workers)
}

fn rows(
    workload: &'static str,
    mut scenario: Scenario,
    seed: u64,
    workers: &[usize],
) -> Result<Vec<Row>, Violation> {
    let exact = |set| sum(&scenario, (seed, set), REPEATS, Kind::Exact);
    let (exact, second, third) = (exact(0)?, exact(1)?, exact(2)?);
    let pairs = [(&second, &exact), (&third, &exact), (&third, &second)];
    let noise = Distance::of_several(&pairs.map(|(one, other)| Distance::between(one, other)));
    workers
        .iter()
        .map(|workers| {
            scenario.workers = *workers;
            let run = sum(&scenario, (seed, 0), REPEATS, Kind::Workers)?;
            let each = |count: u64| count as f64 / run.executed().max(1) as f64;
            Ok(Row {
                workload,
                service: scenario.flows[0].work.service.0,
                workers: *workers,
                deviation: Distance::between(&run, &exact),
                noise,
                outcome: Outcome::of(&scenario, &run),
                exact: Outcome::of(&scenario, &exact),
                operations: run.sequencer.each(run.sequencer.operations),
                granted: each(run.granted),
                wakes: each(run.wakes),
            })
        })
        .collect()
}

/// Several runs, added up; sets of runs of different numbers have nothing in common but the flows' queues.
fn sum(scenario: &Scenario, (seed, set): (u64, u64), runs: u64, kind: Kind) -> Result<Measured, Violation> {
    let mut sum: Option<Measured> = None;
    for again in set * runs..(set + 1) * runs {
        let mut world = World::new(scenario, (seed, again), kind);
        world.run()?;
        match &mut sum {
            Some(sum) => sum.add(&world.measured),
            None => sum = Some(world.measured),
        }
    }
    Ok(sum.expect("one run at least"))
}

/// What the elephant of the first workload gains from 64 workers.
fn gain(seed: u64) -> Result<f64, Violation> {
    let advantage = |on: Places| {
        let mut scenario = Scenario::read(WORKLOADS[0]).expect("the program's own");
        scenario.flows[0].on = on;
        let run = sum(&scenario, (seed, 0), GAIN_REPEATS, Kind::Workers)?;
        Ok(report::advantage(&scenario, &run, &scenario.flows[0].name))
    };
    Ok(advantage(Places::All)? / advantage(Places::These(vec![0]))?)
}

// === impl Study ===

impl Study {
    /// For programs. Times in ns.
    #[must_use]
    pub fn json(&self) -> Value {
        let rows: Vec<_> = self.rows.iter().map(Row::json).collect();
        json!({"seed": self.seed, "rows": rows, "gain": self.gain, "gainWanted": GAIN_MAX})
    }

    /// Whether the elephant gains no more than it may.
    #[must_use]
    pub fn gain_holds(&self) -> bool {
        self.gain <= GAIN_MAX
    }
}

/// The most that an elephant may gain.
pub const GAIN_MAX: f64 = 1.01;

impl Row {
    /// How far shares may be: what chance does and a hundredth; with short requests four hundredths, as a message takes part
    /// of the time that a request takes.
    #[must_use]
    pub fn wanted(&self) -> Distance {
        let Distance { mean, max } = self.noise;
        if self.service >= LONG {
            return Distance { mean: mean + 0.01, max: max + 0.01 };
        }
        Distance { mean: 0.04, max: 0.04_f64.max(max + 0.01) }
    }

    /// Whether they are no farther.
    #[must_use]
    pub fn holds(&self) -> bool {
        let wanted = self.wanted();
        self.deviation.mean <= wanted.mean && self.deviation.max <= wanted.max
    }

    fn json(&self) -> Value {
        let distance = |it: Distance| json!({"mean": it.mean, "max": it.max});
        let outcome = |it: Outcome| {
            json!({
                "jain": it.jain, "elephant": it.elephant, "utilisation": it.utilisation, "waitP99": it.wait_p99.0,
            })
        };
        json!({
            "workload": self.workload, "service": self.service.0, "workers": self.workers,
            "deviation": distance(self.deviation), "noise": distance(self.noise), "wanted": distance(self.wanted()),
            "holds": self.holds(), "outcome": outcome(self.outcome), "exact": outcome(self.exact),
            "operationsPerRequest": self.operations, "grantsPerRequest": self.granted, "wakesPerRequest": self.wakes,
        })
    }
}

impl Distance {
    fn between(run: &Measured, exact: &Measured) -> Self {
        let far = |flow| report::deviation(run.share(flow), exact.share(flow)).abs();
        let all: Vec<f64> = (0..run.flows.len()).map(far).collect();
        Self {
            mean: all.iter().sum::<f64>() / all.len().max(1) as f64,
            max: all.into_iter().fold(0.0, f64::max),
        }
    }

    /// The largest of each.
    fn of_several(these: &[Self]) -> Self {
        let most = |part: fn(&Self) -> f64| these.iter().map(part).fold(0.0, f64::max);
        Self { mean: most(|it| it.mean), max: most(|it| it.max) }
    }
}

impl Outcome {
    fn of(scenario: &Scenario, run: &Measured) -> Self {
        let first = scenario.flows[0].count as usize % run.flows.len();
        let others = run.flows[first..].iter().map(|flow| &flow.waits);
        let waits = others.fold(super::measured::histogram(2), |mut sum, waits| {
            sum += waits;
            sum
        });
        Self {
            jain: report::jain(run),
            elephant: report::advantage(scenario, run, &scenario.flows[0].name),
            utilisation: run.utilisation(),
            wait_p99: Nanos(waits.value_at_percentile(99.0).cast_signed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study(text: &str) -> Vec<Row> {
        let mut scenario = Scenario::parse("mine", text).expect("a scenario");
        scenario.faster(5.0);
        rows("mine", scenario, 1, &[1, 4]).expect("keeps the rules")
    }

    #[test]
    fn shares_are_within_chance_and_workers_without_room_are_found_out() {
        let text = "{duration: 1s, workers: 1, level: {seats: 4, queues: 16, hand-size: 4}, flows: \
                    [{name: elephant, connections: 40, service: 5ms}, \
                    {name: mice, count: 4, connections: 4, service: 5ms, on: one-each}]}";
        for row in study(text) {
            assert!(row.holds() && row.service == Nanos::from_millis(1), "{row:?}");
            assert!(row.outcome.elephant > 1.1 && row.outcome.utilisation > 0.95, "{row:?}");
        }
        // A worker with fewer slots than wait in its queues turns away whoever comes, not the elephant.
        let narrow = text.replace("workers: 1", "workers: 1, slots: 10");
        assert!(!study(&narrow)[0].holds());
    }

    #[test]
    fn short_requests_may_be_farther_and_no_more_than_that() {
        let outcome = Outcome { jain: None, elephant: 1.0, utilisation: 1.0, wait_p99: Nanos(0) };
        let row = |service, max| Row {
            workload: "mine",
            service,
            workers: 2,
            deviation: Distance { mean: 0.0, max },
            noise: Distance { mean: 0.0, max: 0.01 },
            outcome,
            exact: outcome,
            operations: 0.0,
            granted: 0.0,
            wakes: 0.0,
        };
        assert!(row(LONG, 0.019).holds() && !row(LONG, 0.021).holds());
        assert!(row(Nanos(200_000), 0.039).holds() && !row(Nanos(200_000), 0.041).holds());
    }
}
