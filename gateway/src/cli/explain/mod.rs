//! `usher explain`: where a request would go, and why.
//!
//! Asks the code that decides in `usher serve`, with the same objects: nothing is decided here. Whose identity
//! it is must be said, as authentication has nothing to look at.

pub mod explanation;
mod text;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use usher_flowcontrol::estimate::Stats;

use crate::config::objects::Source;
use crate::config::options::{self, FlowControl};
pub use explanation::{Explanation, Fault, Known, Question, User};

/// What `usher explain` is told.
#[derive(Args, Clone, Debug)]
pub struct Explain {
    /// Method of the request: GET, POST, …
    method: String,
    /// Its URL, or only path and query: '/api/v1/namespaces/default/pods?limit=5'
    url: String,
    /// User who makes it; without one it is anonymous
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// A group of the user; repeatable. Those that authentication adds are added here too
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// Objects of the resource that the apiserver has, for the seats of a list; without it they are unknown
    #[arg(long, value_name = "N")]
    objects: Option<u32>,
    /// Average size of one, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    object_size: u32,
    /// Watches interested in the object, for the seats of a write
    #[arg(long, value_name = "N", default_value_t = 0)]
    watches: u32,
    /// Shape of the answer
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    flow_control: FlowControl,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Explains, on stdout.
pub(super) fn run(explain: &Explain) -> ExitCode {
    let faults = options::check_flow_control(&explain.flow_control);
    if !faults.is_empty() {
        return super::usage(&faults.join("\n"));
    }
    let source = Source {
        folder: explain.flow_control.flow_control_dir.clone(),
        suggested: explain.flow_control.flow_control_suggested,
    };
    let objects = match source.read() {
        Ok(objects) => objects,
        Err(refusal) => return super::failed(&format!("--flow-control-dir is no good:\n{refusal}")),
    };
    let user = User::complete(explain.user.as_deref(), &explain.group);
    let known = Known {
        statistics: match explain.objects {
            Some(count) => Stats::Fresh { count: count.into(), average_size: explain.object_size.into() },
            None => Stats::Absent,
        },
        watches: explain.watches.into(),
    };
    let question = Question { user, method: &explain.method, url: &explain.url, known };
    let answer = Explanation::of(&objects, &explain.flow_control, question);
    let answer = match answer {
        Ok(explanation) => explain.output.render(&explanation),
        Err(fault) => return super::usage(&fault.to_string()),
    };
    match std::io::stdout().write_all(answer.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::failed(&format!("the answer cannot be written: {error}")),
    }
}

impl Format {
    fn render(self, explanation: &Explanation) -> String {
        match self {
            Self::Text => text::render(explanation),
            Self::Json => {
                let mut json = serde_json::to_string_pretty(explanation).unwrap_or_default();
                json.push('\n');
                json
            }
        }
    }
}

#[cfg(test)]
mod tests;
