//! What the benches side by side have found: of every cell, contestant and number all rounds, in a file
//! `result.json`; a [`table`] for people; and what [`goals`] it reaches.

pub(crate) mod goals;
pub(crate) mod table;

use std::path::Path;

use serde_json::{Map, Value, json};
use usher_tests::cluster::programs::root;

use crate::Failure;

/// A number that is measured, with its unit in its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) better: Better,
}

/// Which way is better; it decides whether a ratio is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Less,
    More,
    /// Only to understand the others by.
    Neither,
}

/// One contestant in one cell.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) contestant: String,
    /// In the order in which they were first measured.
    pub(crate) series: Vec<Series>,
}

/// One number in all rounds. Round `n` of one contestant was next to round `n` of the others.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) metric: String,
    pub(crate) better: Better,
    pub(crate) rounds: Vec<f64>,
}

/// Everything measured in one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// What was measured on what: for people.
    about: Value,
    pub(crate) cells: Vec<(String, Vec<Row>)>,
}

impl Metric {
    pub(crate) const fn less(name: &'static str) -> Self {
        Self { name, better: Better::Less }
    }

    pub(crate) const fn more(name: &'static str) -> Self {
        Self { name, better: Better::More }
    }

    pub(crate) const fn plain(name: &'static str) -> Self {
        Self { name, better: Better::Neither }
    }
}

impl Row {
    pub(crate) fn new(contestant: &str) -> Self {
        Self { contestant: contestant.to_owned(), series: Vec::new() }
    }

    /// Notes what a round gave.
    pub(crate) fn push(&mut self, metric: Metric, value: f64) {
        match self.series.iter_mut().find(|one| one.metric == metric.name) {
            Some(series) => series.rounds.push(value),
            None => self.series.push(Series {
                metric: metric.name.to_owned(),
                better: metric.better,
                rounds: vec![value],
            }),
        }
    }

    pub(crate) fn series(&self, metric: &str) -> Option<&Series> {
        self.series.iter().find(|one| one.metric == metric)
    }

    /// Median over the rounds of the ratio to `base` in the same round: whatever slowed the machine down in a round
    /// slowed both.
    pub(crate) fn ratio(&self, base: &Self, metric: &str) -> Option<f64> {
        let (ours, theirs) = (&self.series(metric)?.rounds, &base.series(metric)?.rounds);
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        median(&ratios).filter(|ratio| ratio.is_finite())
    }
}

impl Series {
    pub(crate) fn median(&self) -> f64 {
        median(&self.rounds).unwrap_or(f64::NAN)
    }
}

/// Writes a text file; the error names it.
pub(crate) fn put(path: &Path, text: impl AsRef<[u8]>) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// The middle one, or the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => sorted.get(middle).copied(),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

impl Report {
    /// A report with nothing in it but what was measured on what: `about`, and what every bench tells.
    pub(crate) fn new(about: Value) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let mut all: Map<String, Value> = [
            ("commit", commit().into()),
            ("kernel", read("/proc/sys/kernel/osrelease").into()),
            ("processors", std::thread::available_parallelism().map_or(0, usize::from).into()),
            ("load_before", read("/proc/loadavg").into()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect();
        all.extend(about.as_object().cloned().unwrap_or_default());
        Self { about: all.into(), cells: Vec::new() }
    }

    pub(crate) fn add(&mut self, cell: &str, rows: Vec<Row>) {
        self.cells.push((cell.to_owned(), rows));
    }

    pub(crate) fn rows(&self, cell: &str) -> Option<&[Row]> {
        self.cells.iter().find(|(name, _)| name == cell).map(|(_, rows)| rows.as_slice())
    }

    pub(crate) fn row(&self, cell: &str, contestant: &str) -> Option<&Row> {
        self.rows(cell)?.iter().find(|row| row.contestant == contestant)
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        put(path, format!("{:#}\n", self.document()))
    }

    /// `{about, cells: {CELL: {CONTESTANT: {NUMBER: {median, better, rounds}}}}}`
    fn document(&self) -> Value {
        let series = |one: &Series| {
            let better = match one.better {
                Better::Less => "less",
                Better::More => "more",
                Better::Neither => "neither",
            };
            (one.metric.clone(), json!({"median": one.median(), "better": better, "rounds": one.rounds}))
        };
        let row = |row: &Row| -> (String, Value) {
            (row.contestant.clone(), row.series.iter().map(series).collect::<serde_json::Map<_, _>>().into())
        };
        let cells: serde_json::Map<String, Value> = self
            .cells
            .iter()
            .map(|(name, rows)| {
                (name.clone(), rows.iter().map(row).collect::<serde_json::Map<_, _>>().into())
            })
            .collect();
        json!({"about": self.about, "cells": cells})
    }

    /// A result that was written earlier.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let document: Value =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&document).ok_or_else(|| format!("{}: not a result of this bench", path.display()).into())
    }

    fn parse(document: &Value) -> Option<Self> {
        let series = |(metric, one): (&String, &Value)| {
            let better = match one["better"].as_str()? {
                "less" => Better::Less,
                "more" => Better::More,
                _ => Better::Neither,
            };
            let rounds = one["rounds"].as_array()?.iter().filter_map(Value::as_f64).collect();
            Some(Series { metric: metric.clone(), better, rounds })
        };
        let row = |(contestant, row): (&String, &Value)| {
            let series = row.as_object()?.iter().map(series).collect::<Option<_>>()?;
            Some(Row { contestant: contestant.clone(), series })
        };
        let cell = |(name, rows): (&String, &Value)| {
            Some((name.clone(), rows.as_object()?.iter().map(row).collect::<Option<_>>()?))
        };
        let cells = document["cells"].as_object()?.iter().map(cell).collect::<Option<_>>()?;
        Some(Self { about: document["about"].clone(), cells })
    }
}

/// The commit that is measured, with a mark if the tree differs from it; empty outside of a repository.
fn commit() -> String {
    let words = ["describe", "--always", "--dirty", "--abbrev=12"];
    let output = std::process::Command::new("git").args(words).current_dir(root()).output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Better, Metric, Report, Row, median};

    const CPU: Metric = Metric::less("us");

    fn row(name: &str, rounds: &[f64]) -> Row {
        let mut row = Row::new(name);
        rounds.iter().for_each(|value| row.push(CPU, *value));
        row
    }

    #[test]
    fn a_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        // In the second round the machine was twice as slow: for both.
        let (ours, theirs) = (row("usher", &[8.0, 16.0, 9.0]), row("haproxy", &[10.0, 20.0, 10.0]));
        assert_eq!(ours.ratio(&theirs, "us"), Some(0.8));
        assert_eq!(ours.ratio(&theirs, "another"), None);
    }

    #[test]
    fn a_result_is_read_as_it_was_written() {
        let report =
            Report { cells: vec![("cell".into(), vec![row("usher", &[1.0, 2.5])])], ..Report::default() };
        let read = Report::parse(&report.document()).expect("a result");
        let series = read.row("cell", "usher").and_then(|row| row.series("us")).expect("the series");
        assert_eq!((series.better, series.rounds.as_slice()), (Better::Less, [1.0, 2.5].as_slice()));
        assert!(Report::parse(&serde_json::json!({"something": "else"})).is_none());
    }
}
