//! What figures are held against, and whether they reach it.

use std::fmt::Write as _;

use super::table::shown;
use super::{Metric, Report, Row, Series};

/// One goal: in this cell usher's number, or its ratio to another one, is at most this.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    pub(crate) cell: &'static str,
    pub(crate) metric: Metric,
    pub(crate) relative_to: Base,
    pub(crate) at_most: f64,
}

/// What a number is compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Base {
    /// Nothing.
    Nothing,
    /// Another contestant in the same cell.
    Contestant(&'static str),
    /// The same contestant in another cell.
    Cell(&'static str),
}

/// A line for each goal whose cells were measured, of the usher named first.
pub(crate) fn judge(report: &Report, goals: &[Goal]) -> String {
    let mut text = String::new();
    for goal in goals {
        let Some((usher, got)) = got(report, goal) else { continue };
        let verdict = if got <= goal.at_most { "reached" } else { "missed" };
        let of = match goal.relative_to {
            Base::Nothing => String::new(),
            Base::Contestant(other) | Base::Cell(other) => format!(" of {other}"),
        };
        let _ = writeln!(
            text,
            "  {verdict:<8} {:<23} {usher:<13} {:<22} {:>8}{of} (to reach: {})",
            goal.cell,
            goal.metric.name,
            shown(got),
            shown(goal.at_most)
        );
    }
    if text.is_empty() { text } else { format!("goals\n{text}") }
}

/// Of whom, and what; `None` if it was not measured.
fn got<'a>(report: &'a Report, goal: &Goal) -> Option<(&'a str, f64)> {
    let usher = first_usher(report.rows(goal.cell)?)?;
    let name = usher.contestant.as_str();
    let got = match goal.relative_to {
        Base::Nothing => usher.series(goal.metric.name).map(Series::median),
        Base::Contestant(other) if other == name => None,
        Base::Contestant(other) => usher.ratio(report.row(goal.cell, other)?, goal.metric.name),
        Base::Cell(other) => usher.ratio(report.row(other, name)?, goal.metric.name),
    };
    Some((name, got?))
}

fn first_usher(rows: &[Row]) -> Option<&Row> {
    rows.iter().find(|row| row.contestant.starts_with("usher"))
}
