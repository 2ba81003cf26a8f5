//! What is told of a run.

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use usher_flowcontrol::units::Nanos;

use super::measured::{Measured, histogram, ratio};
use super::scenario::Scenario;

/// The report.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the scenario shows.
    pub about: String,
    /// The seed that replays it.
    pub seed: u64,
    /// Workers.
    pub workers: usize,
    /// By flow.
    pub flows: Vec<Flow>,
    /// Of all.
    pub level: Level,
    /// Advantage of the scenario's `spread` flow on all workers over the same on one.
    pub spread: Option<f64>,
}

/// A flow.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The name of its population, which may have many flows.
    pub name: String,
    /// Requests that ran.
    pub executed: u64,
    /// Requests that were turned away.
    pub rejected: u64,
    /// Requests whose clients gave up waiting.
    pub gave_up: u64,
    /// Part of all seat time.
    pub share: f64,
    /// The same on one exact level.
    pub share_exact: f64,
    /// The same on one exact level with other times drawn: what chance does.
    pub share_noise: f64,
    /// Part of the time while something of it waited.
    pub wanted: f64,
    /// Waits in ns.
    pub waits: Histogram<u64>,
}

/// The level.
#[derive(Clone, Debug)]
pub struct Level {
    /// Part of the limit that was used.
    pub utilisation: f64,
    /// The same on one exact level.
    pub utilisation_exact: f64,
    /// Jain's index of the seat time of the flows that wanted more at nearly all times; `None` if there are fewer than two.
    pub jain: Option<f64>,
    /// The same on one exact level.
    pub jain_exact: Option<f64>,
    /// Waits of all in ns.
    pub waits: Histogram<u64>,
    /// The longest wait that the scenario allows, if there is telling.
    pub bound: Option<Nanos>,
    /// Part of the requests that ran that the sequencer started, since the beginning, as the next two.
    pub sequenced: f64,
    /// A request that ran: operations of the sequencer.
    pub operations: f64,
    /// A request that ran: visits to the sequencer, each of which may do many operations.
    pub visits: f64,
    /// A request that ran: how often it had to wait for a grant.
    pub granted: f64,
    /// A request that ran: messages between workers.
    pub wakes: f64,
}

/// A flow that has something waiting for that part of the time wants more than it gets.
const WANTS_MORE: f64 = 0.97;

impl Report {
    pub(super) fn of(
        scenario: &Scenario,
        seed: u64,
        run: &Measured,
        [exact, noise]: [&Measured; 2],
        level: Level,
    ) -> Self {
        let flow = |(index, name): (usize, &str)| {
            let served = &run.flows[index];
            Flow {
                name: name.to_owned(),
                executed: served.executed,
                rejected: served.rejected,
                gave_up: served.gave_up,
                share: run.share(index),
                share_exact: exact.share(index),
                share_noise: noise.share(index),
                wanted: run.wanted(index),
                waits: served.waits.clone(),
            }
        };
        let flows = names(scenario).enumerate().map(flow).collect();
        let level = Level { utilisation_exact: exact.utilisation(), jain_exact: jain(exact), ..level };
        Self { about: scenario.about.clone(), seed, workers: scenario.workers, flows, level, spread: None }
    }

    /// For programs. Times in ns.
    #[must_use]
    pub fn json(&self) -> Value {
        let waits = |waits: &Histogram<u64>| {
            let at = |percentile| waits.value_at_percentile(percentile);
            json!({"count": waits.len(), "p50": at(50.0), "p90": at(90.0), "p99": at(99.0), "p999": at(99.9), "max": waits.max()})
        };
        let flow = |flow: &Flow| {
            json!({
                "name": flow.name, "executed": flow.executed, "rejected": flow.rejected, "gaveUp": flow.gave_up,
                "share": flow.share, "shareExact": flow.share_exact, "deviation": flow.deviation(), "noise": flow.noise(),
                "wanted": flow.wanted, "waits": waits(&flow.waits),
            })
        };
        let level = &self.level;
        json!({
            "about": self.about, "seed": self.seed, "workers": self.workers, "spread": self.spread,
            "flows": self.flows.iter().map(flow).collect::<Vec<_>>(),
            "level": {
                "utilisation": level.utilisation, "utilisationExact": level.utilisation_exact,
                "jain": level.jain, "jainExact": level.jain_exact, "waits": waits(&level.waits),
                "waitBound": level.bound.map(|bound| bound.0), "sequencedPerRequest": level.sequenced,
                "operationsPerRequest": level.operations, "visitsPerRequest": level.visits,
                "grantsPerRequest": level.granted, "wakesPerRequest": level.wakes,
            },
        })
    }

    /// The flows alike put together, in order: each population's flows.
    #[must_use]
    pub fn populations(&self) -> Vec<&[Flow]> {
        self.flows.chunk_by(|one, next| one.name == next.name).collect()
    }
}

impl Flow {
    /// How far its share is from that on one exact level, as a part of that.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        deviation(self.share, self.share_exact)
    }

    /// How far that is by chance.
    #[must_use]
    pub fn noise(&self) -> f64 {
        deviation(self.share_noise, self.share_exact)
    }
}

impl Level {
    pub(super) fn of(run: &Measured, bound: Option<Nanos>) -> Self {
        let each = |count: u64| ratio(count.into(), run.executed().into());
        let sequencer = &run.sequencer;
        Self {
            utilisation: run.utilisation(),
            utilisation_exact: 0.0,
            jain: jain(run),
            jain_exact: None,
            waits: run.waits.clone(),
            bound,
            sequenced: sequencer.each(sequencer.dispatched),
            operations: sequencer.each(sequencer.operations),
            visits: sequencer.each(sequencer.visits),
            granted: each(run.granted),
            wakes: each(run.wakes),
        }
    }
}

pub(super) fn deviation(share: f64, from: f64) -> f64 {
    if from > 0.0 { share / from - 1.0 } else { 0.0 }
}

/// Histograms put together.
#[must_use]
pub fn together(flows: &[Flow]) -> Histogram<u64> {
    flows.iter().fold(histogram(2), |mut sum, flow| {
        sum += &flow.waits;
        sum
    })
}

/// Jain's index of the flows that wanted more: 1 if they got the same, 1/n if one got all.
pub(super) fn jain(run: &Measured) -> Option<f64> {
    let wanting = (0..run.flows.len()).filter(|flow| run.wanted(*flow) > WANTS_MORE);
    let shares: Vec<f64> = wanting.map(|flow| run.share(flow)).collect();
    let (sum, squares) = (shares.iter().sum::<f64>(), shares.iter().map(|share| share * share).sum::<f64>());
    (shares.len() > 1 && squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// The share of that flow, as multiple of the mean share of the others.
pub(super) fn advantage(scenario: &Scenario, run: &Measured, name: &str) -> f64 {
    let shares = || names(scenario).enumerate();
    let its: f64 = shares().filter(|(_, it)| *it == name).map(|(index, _)| run.share(index)).sum();
    let others: Vec<f64> =
        shares().filter(|(_, it)| *it != name).map(|(index, _)| run.share(index)).collect();
    let mean = others.iter().sum::<f64>() / others.len().max(1) as f64;
    if mean > 0.0 { its / mean } else { 1.0 }
}

/// By flow: the name of its population.
fn names(scenario: &Scenario) -> impl Iterator<Item = &str> {
    scenario.flows.iter().flat_map(|flow| (0..flow.count).map(move |_| flow.name.as_str()))
}
