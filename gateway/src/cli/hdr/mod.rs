//! `usher hdr`: what the interval logs of `--hdr-log-dir` tell; of any HdrHistogram log, too.
//!
//! Exit codes: 0 done, 1 `diff` found something worse than it was told to bear, 2 something cannot be read, or there is
//! nothing to tell.

mod diff;
mod merge;
mod percentiles;
mod plot;
mod selection;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Args, Subcommand};

/// `diff` found something worse.
const WORSE: u8 = 1;
/// Nothing can be told.
const UNREADABLE: u8 = 2;

/// What is asked of the logs.
#[derive(Args, Clone, Debug)]
pub struct HdrArgs {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand, Clone, Debug)]
enum Task {
    /// Put logs together: one histogram a tag, or one a tag and stretch of time
    Merge(merge::Merge),
    /// Compare two logs, tag by tag
    Diff(diff::Diff),
    /// A table of percentiles, a row a tag
    Percentiles(percentiles::Percentiles),
    /// Values over percentiles, the axis stretched towards 100 %
    Plot(plot::Plot),
}

/// What to print and how it ends; or why there is nothing to print.
type Told = Result<(String, u8), String>;

/// Tells, and says how it ended.
pub fn run(args: &HdrArgs) -> ExitCode {
    let told = match &args.task {
        Task::Merge(merge) => merge.tell(),
        Task::Diff(diff) => diff.tell(),
        Task::Percentiles(percentiles) => percentiles.tell(),
        Task::Plot(plot) => plot.tell(),
    };
    match told {
        Ok((text, code)) => match io::stdout().lock().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::from(code),
            Err(_) => ExitCode::from(UNREADABLE), // whoever reads it has gone away: nobody is left to tell
        },
        Err(problem) => {
            eprintln!("usher hdr: {problem}");
            ExitCode::from(UNREADABLE)
        }
    }
}

/// Columns as wide as their widest cell; the first to the left, the others to the right.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if index == 0 { write!(text, "{cell:width$}") } else { write!(text, "  {cell:>width$}") };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// A value for people, three digits: nanoseconds as a time, other units as they are.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(super) fn shown(value: u64, unit: Unit) -> String {
    let Unit::Nanoseconds = unit else { return value.to_string() };
    let nanos = value as f64;
    let (scaled, name) = match value {
        0..1_000 => return format!("{value} ns"),
        1_000..1_000_000 => (nanos / 1e3, "µs"),
        1_000_000..1_000_000_000 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e9, "s"),
    };
    let decimals = if scaled < 10.0 { 2 } else { usize::from(scaled < 100.0) };
    format!("{scaled:.decimals$} {name}")
}

/// What values count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Nanoseconds,
    /// Seats; or of somebody else's log, which does not say.
    Plain,
}

impl Unit {
    /// Of the histograms with that tag.
    fn of(tag: &str) -> Self {
        let key = crate::observe::hdr::Key::of_tag(tag);
        if key.is_some_and(|key| key.metric.unit() == "ns") { Self::Nanoseconds } else { Self::Plain }
    }
}

#[cfg(test)]
mod tests;
