//! Runs every file of the golden vectors and prints one line a file.
//!
//! What workers decide is decided twice: by one worker, and by four that share everything, in exact mode (`crew`).
//! Both must agree with the vectors. The other files are about what each worker does for itself.
//!
//! The directory is `USHER_VECTORS` if set, else the project's own copy, `tests/vectors`. A file without
//! a runner is a failure, and so is a file that holds no case. Cases are left out only by the tags that
//! ARCHITECTURE.md lists, never by name. A runner is a function from the file to one outcome a case.

mod borrowing;
mod classify;
mod compare;
mod crew;
mod demand;
mod dumps;
mod estimate;
mod flow_hash;
mod metrics;
mod numbers;
mod objects;
mod queueset;
mod request_info;
mod responses;
mod retry_after;
mod seat_seconds;
mod shuffle;
mod solver;
mod uniform_scenarios;
mod wait_limit;
mod watch_count;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::Value;

/// A file's runner: every case's name and what became of it.
type Runner = fn(&File) -> Vec<(String, Outcome)>;

/// One file of vectors.
pub struct File {
    /// Its text, for formats that are not JSON.
    pub text: String,
    /// Its document; `Null` if it is not JSON.
    pub document: Value,
}

/// What became of one case.
#[derive(Debug)]
pub enum Outcome {
    /// Every expected value was met.
    Agreed,
    /// A deliberate departure covers it: the tag says which.
    LeftOut(&'static str),
    /// What differed.
    Failed(String),
}

/// File name to runner, and to the one with four workers.
const RUNNERS: &[(&str, Runner, Option<Runner>)] = &[
    ("bootstrap.json", objects::bootstrap_json, None),
    ("bootstrap.yaml", objects::bootstrap_yaml, None),
    ("borrowing.json", borrowing::run, None),
    ("classify.json", classify::run, None),
    ("collision_probability.json", shuffle::run_collisions, None),
    ("defaulting.json", objects::defaulting, None),
    ("demand.json", demand::run, None),
    ("dumps.json", dumps::run, Some(dumps::run_with_four)),
    ("estimate.json", estimate::run, None),
    ("flow_hash.json", flow_hash::run, None),
    ("flow_schema_order.json", classify::run_order, None),
    ("metrics.json", metrics::run, None),
    ("queueset.json", queueset::run, Some(queueset::run_with_four)),
    ("queueset_long.json", queueset::run, Some(queueset::run_with_four)),
    ("request_info.json", request_info::run, None),
    ("responses.json", responses::run, Some(responses::run_with_four)),
    ("retry_after.json", retry_after::run, None),
    ("seat_seconds.json", seat_seconds::run, None),
    ("shuffle.json", shuffle::run, None),
    ("solver.json", solver::run, None),
    ("uniform_scenarios.json", uniform_scenarios::run, Some(uniform_scenarios::run_with_four)),
    ("wait_limit.json", wait_limit::run, None),
    ("watch_count.json", watch_count::run, None),
    ("maintenance.json", objects::maintenance, None),
    ("status.json", objects::status, None),
    ("validation.json", objects::validation, None),
];

/// Failures printed in full per file; the rest is counted.
const FAILURES_SHOWN: usize = 5;

fn main() -> ExitCode {
    let directory = std::env::var_os("USHER_VECTORS")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/vectors")), PathBuf::from);
    let mut names: Vec<String> = match std::fs::read_dir(&directory) {
        Ok(entries) => entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.ends_with(".json") || name.ends_with(".yaml"))
            .collect(),
        Err(error) => {
            eprintln!("cannot read the vectors in {}: {error}", directory.display());
            return ExitCode::FAILURE;
        }
    };
    names.sort();
    let (mut passed, mut failed) = (0_usize, 0_usize);
    for name in &names {
        let (agreed, wrong) = run_file(&directory.join(name), name);
        passed += agreed;
        failed += wrong;
    }
    if names.is_empty() {
        eprintln!("no vectors in {}", directory.display());
        failed += 1;
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one file and prints its line; how many cases agreed and failed.
fn run_file(path: &std::path::Path, name: &str) -> (usize, usize) {
    let Some((_, runner, with_four)) = RUNNERS.iter().find(|(file, ..)| *file == name) else {
        println!("{name}: FAILED, nothing here can run it");
        return (0, 1);
    };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            println!("{name}: FAILED, {error}");
            return (0, 1);
        }
    };
    let document = if name.ends_with(".json") {
        match serde_json::from_str(&text) {
            Ok(document) => document,
            Err(error) => {
                println!("{name}: FAILED, not JSON: {error}");
                return (0, 1);
            }
        }
    } else {
        Value::Null
    };
    let file = File { text, document };
    let alone = Tally::of(runner(&file));
    let Some(with_four) = with_four else {
        println!("{name}: {alone}");
        return alone.report();
    };
    let four = Tally::of(with_four(&file));
    println!("{name}: with one worker {alone}; with four {four}");
    let ((agreed, failed), (agreed_four, failed_four)) = (alone.report(), four.report());
    (agreed + agreed_four, failed + failed_four)
}

/// The cases of a file, counted.
struct Tally {
    agreed: usize,
    left_out: BTreeMap<&'static str, usize>,
    failures: Vec<(String, String)>,
}

impl Tally {
    fn of(outcomes: Vec<(String, Outcome)>) -> Self {
        let mut tally = Self { agreed: 0, left_out: BTreeMap::new(), failures: Vec::new() };
        for (case, outcome) in outcomes {
            match outcome {
                Outcome::Agreed => tally.agreed += 1,
                Outcome::LeftOut(tag) => *tally.left_out.entry(tag).or_insert(0) += 1,
                Outcome::Failed(why) => tally.failures.push((case, why)),
            }
        }
        tally
    }

    /// Prints what failed; how many cases agreed and failed.
    fn report(&self) -> (usize, usize) {
        for (case, why) in self.failures.iter().take(FAILURES_SHOWN) {
            println!("  FAILED {case}: {why}");
        }
        if self.failures.len() > FAILURES_SHOWN {
            println!("  … and {} more", self.failures.len() - FAILURES_SHOWN);
        }
        if self.agreed + self.left_out.len() + self.failures.len() == 0 {
            println!("  FAILED: the file holds no case");
            return (0, 1);
        }
        (self.agreed, self.failures.len())
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tags: Vec<String> = self.left_out.iter().map(|(tag, count)| format!("{tag}: {count}")).collect();
        let tags = if tags.is_empty() { String::new() } else { format!(" ({})", tags.join(", ")) };
        write!(out, "{} agreed, {} left out{tags}", self.agreed, self.left_out.values().sum::<usize>())
    }
}
