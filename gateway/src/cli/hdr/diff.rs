//! `usher hdr diff A B`: what has become slower, what faster.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::percentiles::percentile;
use super::selection::{Filter, Sums, sums};
use super::{Told, Unit, WORSE, shown, table};

/// What is compared, and what is borne.
#[derive(Args, Clone, Debug)]
pub(super) struct Diff {
    /// The log, or folder of logs, before
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// The one after
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    #[command(flatten)]
    filter: Filter,
    /// Which percentiles
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [50.0, 90.0, 99.0, 99.9],
        value_parser = percentile)]
    percentiles: Vec<f64>,
    /// Exit with 1 if one of these percentiles has grown by more than so many per cent
    #[arg(long, value_name = "PERCENT")]
    worse_by: Option<f64>,
    /// How to print the answer
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value = "text")]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people: a table
    Text,
    /// For programs; times in ns
    Json,
}

/// A tag on both sides.
struct Pair<'a> {
    tag: &'a str,
    /// `None`: it is only on the other side.
    before: Option<&'a Histogram<u64>>,
    after: Option<&'a Histogram<u64>>,
}

impl Diff {
    pub(super) fn tell(&self) -> Told {
        let before = sums(&self.filter.lines(std::slice::from_ref(&self.before))?)?;
        let after = sums(&self.filter.lines(std::slice::from_ref(&self.after))?)?;
        let pairs = pairs(&before, &after);
        let is_worse = |pair: &Pair<'_>| self.worse_by.is_some_and(|by| self.growth(pair) > by);
        let code = if pairs.iter().any(is_worse) { WORSE } else { 0 };
        let text = match self.output {
            Format::Text => self.text(&pairs),
            Format::Json => {
                let rows: Vec<Value> = pairs.iter().map(|pair| self.json(pair)).collect();
                format!("{:#}\n", json!(rows))
            }
        };
        Ok((text, code))
    }

    /// By how many per cent the percentile that has grown most has grown.
    fn growth(&self, pair: &Pair<'_>) -> f64 {
        let (Some(before), Some(after)) = (pair.before, pair.after) else { return 0.0 };
        let grown = |percentile: &f64| {
            growth(before.value_at_percentile(*percentile), after.value_at_percentile(*percentile))
        };
        self.percentiles.iter().map(grown).fold(f64::NEG_INFINITY, f64::max)
    }

    fn text(&self, pairs: &[Pair<'_>]) -> String {
        let mut head = vec!["TAG".to_owned(), "COUNT".to_owned()];
        head.extend(self.percentiles.iter().map(|percentile| format!("P{percentile}")));
        let mut rows = vec![head];
        for pair in pairs {
            let count = |side: Option<&Histogram<u64>>| side.map_or(0, Histogram::len);
            let mut row =
                vec![pair.tag.to_owned(), format!("{} → {}", count(pair.before), count(pair.after))];
            row.extend(self.percentiles.iter().map(|percentile| pair.shown(*percentile)));
            rows.push(row);
        }
        table(&rows)
    }

    fn json(&self, pair: &Pair<'_>) -> Value {
        let side = |side: Option<&Histogram<u64>>| {
            side.map(|side| crate::observe::hdr::formats::json(pair.tag, side, &self.percentiles))
        };
        let both = pair.before.is_some() && pair.after.is_some();
        json!({
            "tag": pair.tag,
            "before": side(pair.before),
            "after": side(pair.after),
            "worstGrowthPercent": both.then(|| self.growth(pair)),
        })
    }
}

impl Pair<'_> {
    fn shown(&self, percentile: f64) -> String {
        let unit = Unit::of(self.tag);
        let value = |side: Option<&Histogram<u64>>| side.map(|side| side.value_at_percentile(percentile));
        match (value(self.before), value(self.after)) {
            (Some(before), Some(after)) => {
                format!("{} → {} ({:+.0} %)", shown(before, unit), shown(after, unit), growth(before, after))
            }
            (Some(before), None) => format!("{} → -", shown(before, unit)),
            (None, Some(after)) => format!("- → {}", shown(after, unit)),
            (None, None) => String::new(),
        }
    }
}

/// In per cent. From nothing, anything is endless growth.
#[expect(clippy::cast_precision_loss, reason = "for people: 53 bits are more digits than are printed")]
fn growth(before: u64, after: u64) -> f64 {
    if before == after { 0.0 } else { (after as f64 / before as f64 - 1.0) * 100.0 }
}

fn pairs<'a>(before: &'a Sums, after: &'a Sums) -> Vec<Pair<'a>> {
    let mut tags: Vec<&str> = before.keys().chain(after.keys()).map(String::as_str).collect();
    tags.sort_unstable();
    tags.dedup();
    let of = |sums: &'a Sums, tag: &str| sums.get(tag).map(|sum| &sum.histogram);
    tags.into_iter().map(|tag| Pair { tag, before: of(before, tag), after: of(after, tag) }).collect()
}
