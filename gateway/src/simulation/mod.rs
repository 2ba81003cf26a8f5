//! Many workers and their priority levels in virtual time: seed and scenario in, report out.
//!
//! The workers' own code (`usher_shards`) is driven by events on one thread: arrivals, wake-ups and publications that take
//! their time, ends of executions, stalls, deaths, clocks that jump, new configuration, seats moved between levels, a
//! coordinator that is gone for a while. The same seed gives the same run. At every step it is checked that no limit is
//! exceeded, no seat is lost and nobody waits beside a free seat; and the same clients on exact levels that nothing delays
//! (`usher_flowcontrol::level`) tell what every flow's share should be.
//!
//! Not simulated: two workers at the sequencer at the same instant (`cargo xtask loom` and the stress tests of
//! `gateway/shards` do that), what a decision costs, exempt levels.
//!
//! | module | idea |
//! |---|---|
//! | `scenario`, `flow`, `troubles`, `span` | what is simulated, in YAML; `drawn`: one that a seed determines |
//! | `world` | clients, requests, workers, their coordinator, and time; `agenda`: what will happen |
//! | `admission` | who decides: the workers' shards, or an exact level |
//! | `checks` | what must hold at every step |
//! | `measured`, `report` | what is counted, and what is told of it |
//! | `study` | seven workloads at once: how far shares are from those on one exact level |
//! | `random` | numbers that a seed determines |

mod admission;
mod agenda;
mod checks;
mod drawn;
pub mod flow;
mod measured;
mod random;
pub mod report;
pub mod scenario;
mod span;
pub mod study;
pub mod troubles;
mod world;

pub use checks::Violation;
pub use drawn::drawn;
pub use report::Report;
pub use scenario::Scenario;

use admission::Kind;
use flow::Places;
use world::World;

/// Runs the scenario on its workers, and again on exact levels to compare: twice, as shares differ by chance, too.
pub fn run(scenario: &Scenario, seed: u64) -> Result<Report, Violation> {
    let mut world = World::new(scenario, (seed, 0), Kind::Workers);
    world.run()?;
    let alone = scenario.alone();
    // What moves seats between levels needs a worker; on one alone, in exact mode, it is the exact levels that decide.
    let kind = if scenario.lends() { Kind::Workers } else { Kind::Exact };
    let [exact, noise] = [0, 1].map(|again| {
        let mut exact = World::new(&alone, (seed, again), kind);
        exact.run().map(|()| exact.measured)
    });
    let mut report = Report::of(scenario, seed, &world.measured, [&exact?, &noise?], world.bound());
    if let Some(name) = &scenario.spread {
        report.spread = Some(spread(scenario, seed, name)?);
    }
    Ok(report)
}

/// Runs the scenario on its workers only; for its checks.
pub fn check(scenario: &Scenario, seed: u64) -> Result<(), Violation> {
    World::new(scenario, (seed, 0), Kind::Workers).run()
}

/// What a flow gains by having its connections on all workers instead of one.
fn spread(scenario: &Scenario, seed: u64, name: &str) -> Result<f64, Violation> {
    let advantage = |on: Places| {
        let mut scenario = scenario.clone();
        scenario.flows.iter_mut().filter(|flow| flow.name == name).for_each(|flow| flow.on = on.clone());
        let mut world = World::new(&scenario, (seed, 0), Kind::Workers);
        world.run()?;
        Ok(report::advantage(&scenario, &world.measured, name))
    };
    let (one, all) = (advantage(Places::These(vec![0]))?, advantage(Places::All)?);
    Ok(all / one)
}

#[cfg(test)]
mod tests;
