//! `usher hdr percentiles`: a row a tag.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::selection::{Selection, Sums, one};
use super::{Told, Unit, shown, table};
use crate::observe::hdr::{formats, hlog};

/// Of what, which, and how they are printed.
#[derive(Args, Clone, Debug)]
pub(super) struct Percentiles {
    #[command(flatten)]
    selection: Selection,
    /// Which percentiles
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = formats::PERCENTILES.to_vec(),
        value_parser = percentile)]
    pub(super) percentiles: Vec<f64>,
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
    /// One distribution, as HdrHistogram's tools print it; times in ns
    Hgrm,
}

impl Percentiles {
    pub(super) fn tell(&self) -> Told {
        let sums = self.selection.sums()?;
        let text = match self.output {
            Format::Text => text(&sums, &self.percentiles),
            Format::Json => format!("{:#}\n", json(&sums, &self.percentiles)),
            Format::Hgrm => formats::hgrm(&one(&sums)?, 1.0),
        };
        Ok((text, 0))
    }
}

/// A table for people.
pub(super) fn text(sums: &Sums, percentiles: &[f64]) -> String {
    let mut head = vec!["TAG".to_owned(), "COUNT".to_owned()];
    head.extend(percentiles.iter().map(|percentile| format!("P{percentile}")));
    head.extend(["MAX".to_owned(), "MEAN".to_owned()]);
    let mut rows = vec![head];
    for (tag, sum) in sums {
        let (unit, histogram) = (Unit::of(tag), &sum.histogram);
        let mut row =
            vec![if tag.is_empty() { "-".to_owned() } else { tag.clone() }, histogram.len().to_string()];
        row.extend(
            percentiles.iter().map(|percentile| shown(histogram.value_at_percentile(*percentile), unit)),
        );
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a mean of u64 values, for people"
        )]
        let mean = histogram.mean().round() as u64;
        row.extend([shown(histogram.max(), unit), shown(mean, unit)]);
        rows.push(row);
    }
    table(&rows)
}

/// An object for programs.
pub(super) fn json(sums: &Sums, percentiles: &[f64]) -> Value {
    let start = sums.values().map(|sum| sum.start).min().unwrap_or_default();
    let end = sums.values().map(|sum| sum.end).max().unwrap_or_default();
    let rows: Vec<Value> =
        sums.iter().map(|(tag, sum)| formats::json(tag, &sum.histogram, percentiles)).collect();
    json!({"start": hlog::rfc3339(start), "seconds": end.saturating_sub(start).as_secs_f64(), "histograms": rows})
}

/// A percentile from 0 to 100.
pub(super) fn percentile(text: &str) -> Result<f64, String> {
    let percentile = text.parse().ok().filter(|percentile| (0.0..=100.0).contains(percentile));
    percentile.ok_or_else(|| "wanted a number from 0 to 100".into())
}
