//! `usher simulate`: a priority level on many workers, in virtual time, with its rules checked at every step.
//!
//! Exit codes: 0 done, 1 a rule was broken (the message says how to replay it), 2 the scenario cannot be read.

mod study;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::hdr::{Unit, shown, table};
use crate::observe::hdr::formats;
use crate::simulation::{self, Report, Scenario, Violation, report};

/// What is simulated.
#[derive(Args, Clone, Debug)]
pub struct Simulate {
    /// A YAML file; or runaway, restart, tenants, lending, which usher brings; or drawn: whatever the seed makes up; or study: how
    /// far shares are from those on one exact level, in seven workloads, on 2 to 64 workers
    scenario: String,
    /// The same seed gives the same run
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Shape of the report
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    output: Format,
    /// Run on so many workers instead of the scenario's
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs; times in ns
    Json,
    /// All waits, as HdrHistogram's tools print a distribution; times in ns
    Hgrm,
}

/// Simulates, and tells on stdout.
pub(super) fn run(asked: &Simulate) -> ExitCode {
    let told = if asked.scenario == "study" { study::tell(asked) } else { asked.tell() };
    let told = match told {
        Ok(told) => told,
        Err(problem) => return super::usage(&problem),
    };
    match told {
        Ok(told) => match std::io::stdout().write_all(told.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => super::failed(&format!("the report cannot be written: {error}")),
        },
        Err(Violation { at, what }) => {
            super::failed(&format!("{what}, at {} ns\nreplay: {}", at.0, asked.replay()))
        }
    }
}

/// What to print, or which rule was broken.
type Told = Result<String, Violation>;

impl Simulate {
    fn tell(&self) -> Result<Told, String> {
        let scenario = self.scenario()?;
        Ok(simulation::run(&scenario, self.seed).map(|report| self.output.render(&report)))
    }

    fn scenario(&self) -> Result<Scenario, String> {
        let mut scenario = match self.scenario.as_str() {
            "drawn" => simulation::drawn(self.seed),
            name => Scenario::read(name)?,
        };
        if let Some(workers) = self.workers {
            scenario.workers = workers;
            scenario.check().map_err(|fault| format!("--workers {workers}: {fault}"))?;
        }
        Ok(scenario)
    }

    /// The command that does the same.
    fn replay(&self) -> String {
        let workers = self.workers.map_or(String::new(), |workers| format!(" --workers {workers}"));
        format!("usher simulate {} --seed {}{workers}", self.scenario, self.seed)
    }
}

impl Format {
    fn render(self, report: &Report) -> String {
        match self {
            Self::Text => text(report),
            Self::Json => format!("{:#}\n", report.json()),
            Self::Hgrm => formats::hgrm(&report.level.waits, 1.0),
        }
    }
}

/// A row a population; flows alike in one, with the largest deviation among them.
fn text(report: &Report) -> String {
    let head = [
        "FLOWS",
        "EXECUTED",
        "REJECTED",
        "GAVE UP",
        "SHARE",
        "EXACT",
        "DEVIATION",
        "BY CHANCE",
        "P50",
        "P99",
        "MAX",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for flows in report.populations() {
        let sum = |part: fn(&report::Flow) -> u64| flows.iter().map(part).sum::<u64>().to_string();
        let share = |part: fn(&report::Flow) -> f64| percent(flows.iter().map(part).sum(), 2);
        let worst = |part: fn(&report::Flow) -> f64| {
            let sizes = flows.iter().map(|flow| part(flow).abs());
            format!("{:.1} %", 100.0 * sizes.fold(0.0, f64::max))
        };
        let waits = report::together(flows);
        let wait = |nanos| shown(nanos, Unit::Nanoseconds);
        let many = if flows.len() > 1 { format!(" × {}", flows.len()) } else { String::new() };
        rows.push(vec![
            format!("{}{many}", flows[0].name),
            sum(|flow| flow.executed),
            sum(|flow| flow.rejected),
            sum(|flow| flow.gave_up),
            share(|flow| flow.share),
            share(|flow| flow.share_exact),
            worst(report::Flow::deviation),
            worst(report::Flow::noise),
            wait(waits.value_at_percentile(50.0)),
            wait(waits.value_at_percentile(99.0)),
            wait(waits.max()),
        ]);
    }
    let level = &report.level;
    let mut rest = vec![
        vec!["workers".into(), report.workers.to_string()],
        vec!["seed".into(), report.seed.to_string()],
        vec![
            "utilisation".into(),
            percent(level.utilisation, 2),
            format!("exact {}", percent(level.utilisation_exact, 2)),
        ],
        vec!["Jain's index".into(), index(level.jain), format!("exact {}", index(level.jain_exact))],
        vec!["decided by the sequencer".into(), percent(level.sequenced, 1)],
        vec!["its operations a request".into(), format!("{:.2}", level.operations)],
        vec!["visits to it a request".into(), format!("{:.2}", level.visits)],
        vec!["grants a request".into(), format!("{:.2}", level.granted)],
        vec!["messages a request".into(), format!("{:.2}", level.wakes)],
    ];
    if let Some(sampling) = report.sampling {
        let off = |what: &str, (mean, worst): (f64, f64)| {
            vec![
                format!("sampled {what} is off by"),
                percent(mean, 2),
                format!("at most {}", percent(worst, 2)),
            ]
        };
        rest.extend([off("demand", sampling.average), off("high watermark", sampling.high_watermark)]);
    }
    if let Some(spread) = report.spread {
        rest.push(vec!["on all workers against on one".into(), format!("{spread:.3}")]);
    }
    let levels = if report.levels.is_empty() { String::new() } else { format!("{}\n", table(&lent(report))) };
    format!("{}\n\n{}\n{levels}{}", report.about, table(&rows), table(&rest))
}

/// A row a level that lends.
fn lent(report: &Report) -> Vec<Vec<String>> {
    let head = ["LEVELS", "SEATS", "LEAST", "MOST", "MEAN", "EXACT", "USED"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(report.levels.iter().map(|level| {
        vec![
            level.name.clone(),
            level.nominal.to_string(),
            level.limits.0.to_string(),
            level.limits.1.to_string(),
            format!("{:.1}", level.limit),
            format!("{:.1}", level.limit_exact),
            percent(level.utilisation, 1),
        ]
    }));
    rows
}

fn index(jain: Option<f64>) -> String {
    jain.map_or("-".to_owned(), |index| format!("{index:.3}"))
}

fn percent(part: f64, decimals: usize) -> String {
    format!("{:.decimals$} %", 100.0 * part)
}
