//! Runs every file of the golden vectors and prints one line a file.
//!
//! The directory is `USHER_VECTORS` if set, else the project's own copy, `tests/vectors`. A file without
//! a runner is a failure, and so is a file that holds no case. Cases are left out only by the tags that
//! ARCHITECTURE.md lists, never by name. A runner is a function from the file to one outcome a case.

mod borrowing;
mod classify;
mod compare;
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

/// File name to runner, in the order in which they are reported.
const RUNNERS: &[(&str, Runner)] = &[
    ("bootstrap.json", objects::bootstrap_json),
    ("bootstrap.yaml", objects::bootstrap_yaml),
    ("borrowing.json", borrowing::run),
    ("classify.json", classify::run),
    ("collision_probability.json", shuffle::run_collisions),
    ("defaulting.json", objects::defaulting),
    ("demand.json", demand::run),
    ("dumps.json", dumps::run),
    ("estimate.json", estimate::run),
    ("flow_hash.json", flow_hash::run),
    ("flow_schema_order.json", classify::run_order),
    ("metrics.json", metrics::run),
    ("queueset.json", queueset::run),
    ("queueset_long.json", queueset::run),
    ("request_info.json", request_info::run),
    ("responses.json", responses::run),
    ("retry_after.json", retry_after::run),
    ("seat_seconds.json", seat_seconds::run),
    ("shuffle.json", shuffle::run),
    ("solver.json", solver::run),
    ("uniform_scenarios.json", uniform_scenarios::run),
    ("wait_limit.json", wait_limit::run),
    ("watch_count.json", watch_count::run),
    ("maintenance.json", objects::maintenance),
    ("status.json", objects::status),
    ("validation.json", objects::validation),
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
    let Some((_, runner)) = RUNNERS.iter().find(|(file, _)| *file == name) else {
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
    let outcomes = runner(&File { text, document });
    let (mut agreed, mut left_out, mut failures) = (0, BTreeMap::new(), Vec::new());
    for (case, outcome) in outcomes {
        match outcome {
            Outcome::Agreed => agreed += 1,
            Outcome::LeftOut(tag) => *left_out.entry(tag).or_insert(0) += 1,
            Outcome::Failed(why) => failures.push((case, why)),
        }
    }
    let tags: Vec<String> = left_out.iter().map(|(tag, count)| format!("{tag}: {count}")).collect();
    let total: usize = left_out.values().sum();
    let tags = if tags.is_empty() { String::new() } else { format!(" ({})", tags.join(", ")) };
    println!("{name}: {agreed} agreed, {total} left out{tags}");
    for (case, why) in failures.iter().take(FAILURES_SHOWN) {
        println!("  FAILED {case}: {why}");
    }
    if failures.len() > FAILURES_SHOWN {
        println!("  … and {} more", failures.len() - FAILURES_SHOWN);
    }
    if agreed + total + failures.len() == 0 {
        println!("  FAILED: the file holds no case");
        return (0, 1);
    }
    (agreed, failures.len())
}
