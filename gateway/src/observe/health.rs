//! `/healthz`, `/livez`, `/readyz`: what is checked, and why it fails.
//!
//! The answers look like kube-apiserver's: `ok`, or with `?verbose` and on failure a line for every check. Here
//! the lines give reasons: whoever reaches the admin port may know them.

use std::fmt::Write as _;

use usher_flowcontrol::units::Nanos;

use super::{NoAnswer, State, View};
use crate::steering::{self, Steering};

/// Which question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether the process should be restarted.
    Livez,
    /// The same, by its older name.
    Healthz,
    /// Whether clients should be sent here.
    Readyz,
}

/// One check: its name, and the reason if it fails.
pub type Check = (&'static str, Result<(), String>);

impl Question {
    /// By its path.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "livez" => Self::Livez,
            "healthz" => Self::Healthz,
            "readyz" => Self::Readyz,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Livez => "livez",
            Self::Healthz => "healthz",
            Self::Readyz => "readyz",
        }
    }

    /// The checks behind it, given what the workers answered.
    #[must_use]
    pub fn checks(self, view: &Result<View, NoAnswer>) -> Vec<Check> {
        let worker = view.as_ref().map_err(ToString::to_string).and_then(at_work);
        let mut checks: Vec<Check> = vec![("ping", Ok(())), ("worker", worker)];
        if self == Self::Readyz {
            checks.push(("configuration", of_view(view, configuration)));
            checks.push(("upstream", of_view(view, upstream)));
            checks.push(("shutdown", of_view(view, shutdown)));
        }
        checks
    }

    /// Whether all is well, and what to say. `only`: one check of that name; `None` if there is none.
    #[must_use]
    pub fn answer(self, checks: &[Check], only: Option<&str>, verbose: bool) -> Option<(bool, String)> {
        let asked: Vec<&Check> =
            checks.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)).collect();
        if asked.is_empty() {
            return None;
        }
        let well = asked.iter().all(|(_, outcome)| outcome.is_ok());
        if well && !verbose {
            return Some((true, "ok".into()));
        }
        let mut text = String::new();
        for (name, outcome) in asked {
            let _ = match outcome {
                Ok(()) => writeln!(text, "[+]{name} ok"),
                Err(reason) => writeln!(text, "[-]{name} failed: {reason}"),
            };
        }
        let _ = writeln!(text, "{} check {}", self.name(), if well { "passed" } else { "failed" });
        Some((well, text))
    }
}

/// A worker that has died is no reason to end the process: another one takes its place, and meanwhile the others serve. One
/// whose place stays empty is: connections that the kernel gives it wait for nothing.
fn at_work(view: &View) -> Result<(), String> {
    for worker in &view.workers {
        if let State::Restarting(time) = worker.state
            && time >= EMPTY_MAX
        {
            return Err(format!(
                "{} has died, {} times by now, and does not come back",
                worker.name, worker.deaths
            ));
        }
    }
    Ok(())
}

/// How long a worker's place may be empty: as long as a worker may take to answer.
const EMPTY_MAX: Nanos = Nanos::from_millis(5_000);

/// The workers, a line each, for those who ask verbosely; with what those who send connections are told of them.
#[must_use]
pub fn workers(view: &View, steering: &Steering) -> String {
    let mut text = String::new();
    for (index, worker) in view.workers.iter().enumerate() {
        let state = match worker.state {
            State::Serving => "serves",
            State::Draining => "drains",
            State::Out => "is out",
            State::Restarting(_) => "is being restarted",
        };
        let core = worker.core.map_or_else(|| "any core".to_owned(), |core| format!("core {core}"));
        let told = steering.load(index).map_or_else(String::new, |load| {
            let state = steering::State::of(&load).name();
            format!(
                "; steering sees it {state} with {} connections, {} requests",
                load.connections, load.busy
            )
        });
        let _ = writeln!(
            text,
            "[i]{} {state} on {core}: {} connections, {} requests so far, died {} times{told}",
            worker.name, worker.connections_open, worker.requests, worker.deaths
        );
    }
    text
}

/// A check that needs a worker's answer; without one it cannot be known.
fn of_view(view: &Result<View, NoAnswer>, check: fn(&View) -> Result<(), String>) -> Result<(), String> {
    match view {
        Ok(view) => check(view),
        Err(_) => Err("unknown: a worker does not answer".into()),
    }
}

/// The configuration that a controller starts with.
const MANDATORY_ALONE: u64 = 1;

fn configuration(view: &View) -> Result<(), String> {
    match &view.snapshot {
        Some(snapshot) if snapshot.generation <= MANDATORY_ALONE => {
            Err("no flow-control objects are in force yet".into())
        }
        _ => Ok(()),
    }
}

fn upstream(view: &View) -> Result<(), String> {
    if view.upstreams.iter().any(|upstream| upstream.healthy) {
        return Ok(());
    }
    let names: Vec<&str> = view.upstreams.iter().map(|upstream| upstream.server.as_str()).collect();
    Err(format!("no apiserver is healthy: {}", names.join(", ")))
}

fn shutdown(view: &View) -> Result<(), String> {
    if view.draining {
        Err("draining: requests in flight finish, new ones go elsewhere".into())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
