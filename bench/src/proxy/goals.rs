//! The goals: what the figures are held against, and whether they reach it.

use std::fmt::Write as _;

use super::closed;
use super::contestant::BASE;
use super::idle;
use super::open;
use super::report::{Metric, Report};
use super::table::shown;

/// One goal: in this cell usher's number, or its ratio to another contestant's, is at most this.
struct Goal {
    cell: &'static str,
    metric: Metric,
    /// Compared with whom; bare if with nobody.
    relative_to: Option<&'static str>,
    at_most: f64,
}

const GOALS: &[Goal] = &[
    Goal { cell: "plain-1k", metric: closed::CPU, relative_to: Some(BASE), at_most: 0.85 },
    Goal { cell: "tls-1k", metric: closed::CPU, relative_to: Some(BASE), at_most: 0.80 },
    Goal { cell: "http2-1k", metric: closed::CPU, relative_to: Some(BASE), at_most: 0.95 },
    Goal { cell: "plain-1k", metric: closed::CPU, relative_to: Some(EPOLL), at_most: 0.85 },
    Goal { cell: "apiserver-get-tls", metric: closed::CPU, relative_to: Some(BASE), at_most: 0.85 },
    Goal { cell: "apiserver-list-tls", metric: closed::CPU, relative_to: Some(BASE), at_most: 0.85 },
    Goal { cell: "apiserver-get-http2", metric: closed::CPU, relative_to: Some(BASE), at_most: 0.85 },
    Goal { cell: "apiserver-list-http2", metric: closed::CPU, relative_to: Some(BASE), at_most: 0.85 },
    Goal { cell: "latency", metric: open::ADDED_P50, relative_to: None, at_most: 60.0 },
    Goal { cell: "latency", metric: open::ADDED_P99, relative_to: None, at_most: 1000.0 },
    Goal { cell: "idle-watches-100", metric: idle::MEMORY, relative_to: None, at_most: 16.0 },
    Goal { cell: "idle-watches-100", metric: idle::CPU, relative_to: None, at_most: 0.5 },
    Goal { cell: "idle-connections-plain", metric: idle::MEMORY, relative_to: None, at_most: 24.0 },
    Goal { cell: "idle-connections-tls", metric: idle::MEMORY, relative_to: None, at_most: 24.0 },
];

/// The other path, against which the ring is held.
const EPOLL: &str = "usher-epoll";

/// A line for each goal whose cell was measured, of the usher named first.
pub(super) fn judge(report: &Report) -> String {
    let mut text = String::new();
    for goal in GOALS {
        let Some(usher) = first_usher(report, goal.cell) else { continue };
        let got = match goal.relative_to {
            None => usher.series(goal.metric.name).map(|series| series.median()),
            Some(other) if other == usher.contestant => None,
            Some(other) => {
                report.row(goal.cell, other).and_then(|other| usher.ratio(other, goal.metric.name))
            }
        };
        let Some(got) = got else { continue };
        let verdict = if got <= goal.at_most { "reached" } else { "missed" };
        let of = goal.relative_to.map_or_else(String::new, |other| format!(" of {other}"));
        let _ = writeln!(
            text,
            "  {verdict:<8} {:<23} {:<13} {:<22} {:>8}{of} (to reach: {})",
            goal.cell,
            usher.contestant,
            goal.metric.name,
            shown(got),
            shown(goal.at_most)
        );
    }
    if text.is_empty() { text } else { format!("goals\n{text}") }
}

fn first_usher<'a>(report: &'a Report, cell: &str) -> Option<&'a super::report::Row> {
    report.rows(cell)?.iter().find(|row| row.contestant.starts_with("usher"))
}
