//! What is told of a run.

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use usher_flowcontrol::units::Nanos;

use super::measured::{self, Measured, histogram, ratio};
use super::scenario::{Scenario, Shape};

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
    /// Of all levels together.
    pub level: Level,
    /// Each of several levels.
    pub levels: Vec<Lent>,
    /// Where levels lend: how wrong the demand is that was looked at now and then.
    pub sampling: Option<Sampling>,
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

/// One of several levels that lend each other seats.
#[derive(Clone, Debug)]
pub struct Lent {
    /// Its name.
    pub name: String,
    /// Its seats by configuration.
    pub nominal: u64,
    /// Its limit: lowest, highest.
    pub limits: (u64, u64),
    /// On average.
    pub limit: f64,
    /// The same with exact levels, whose coordinator is never lost.
    pub limit_exact: f64,
    /// Part of it that was used.
    pub utilisation: f64,
}

/// Demand as it was looked at, beside what it was, as parts of its average.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Periods, of all levels that wanted something.
    pub periods: u64,
    /// How far averages are: mean, worst.
    pub average: (f64, f64),
    /// How far high watermarks are: mean, worst.
    pub high_watermark: (f64, f64),
}

/// A flow that has something waiting for that part of the time wants more than it gets.
const WANTS_MORE: f64 = 0.97;

impl Report {
    pub(super) fn of(
        scenario: &Scenario,
        seed: u64,
        run: &Measured,
        [exact, noise]: [&Measured; 2],
        bound: Option<Nanos>,
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
        let lent = |(index, shape): (usize, &Shape)| Lent {
            name: shape.name.clone(),
            nominal: shape.seats,
            limits: run.levels[index].limits,
            limit: run.levels[index].limit(run.span),
            limit_exact: exact.levels[index].limit(exact.span),
            utilisation: run.levels[index].utilisation(),
        };
        let levels = scenario.levels.iter().enumerate().filter(|_| scenario.lends());
        Self {
            about: scenario.about.clone(),
            seed,
            workers: scenario.workers,
            flows,
            level: Level::of(run, exact, bound),
            levels: levels.map(lent).collect(),
            sampling: Sampling::of(run),
            spread: None,
        }
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
        let lent = |lent: &Lent| {
            json!({
                "name": lent.name, "nominal": lent.nominal, "limitMin": lent.limits.0, "limitMax": lent.limits.1,
                "limit": lent.limit, "limitExact": lent.limit_exact, "utilisation": lent.utilisation,
            })
        };
        let sampling = self.sampling.map(|it| {
            json!({
                "periods": it.periods, "averageOff": it.average.0, "averageOffMax": it.average.1,
                "highWatermarkOff": it.high_watermark.0, "highWatermarkOffMax": it.high_watermark.1,
            })
        });
        json!({
            "about": self.about, "seed": self.seed, "workers": self.workers, "spread": self.spread,
            "levels": self.levels.iter().map(lent).collect::<Vec<_>>(), "sampling": sampling,
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
    fn of(run: &Measured, exact: &Measured, bound: Option<Nanos>) -> Self {
        let each = |count: u64| ratio(count.into(), run.executed().into());
        let sequencer = &run.sequencer;
        Self {
            utilisation: run.utilisation(),
            utilisation_exact: exact.utilisation(),
            jain: jain(run),
            jain_exact: jain(exact),
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

impl Sampling {
    fn of(run: &Measured) -> Option<Self> {
        let measured::Sampling { periods, average_off, watermark_off, worst } = run.sampling;
        let mean = |sum: f64| sum / periods as f64;
        (periods > 0).then(|| Self {
            periods,
            average: (mean(average_off), worst.0),
            high_watermark: (mean(watermark_off), worst.1),
        })
    }
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
