//! `usher hdr merge`: several logs, or many intervals, become few.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::Told;
use super::percentiles;
use super::selection::{Selection, Sums, one, sums};
use crate::config::options::values::duration;
use crate::observe::hdr::{formats, hlog};

/// What is put together, and how it is printed.
#[derive(Args, Clone, Debug)]
pub(super) struct Merge {
    #[command(flatten)]
    selection: Selection,
    /// Keep apart what began in different stretches of this length, counted from the start of 1970
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    every: Option<Duration>,
    /// How to print the result
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value = "hlog")]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// An interval log again
    Hlog,
    /// For people: a table of percentiles
    Text,
    /// For programs
    Json,
    /// One distribution of percentiles
    Hgrm,
}

impl Merge {
    pub(super) fn tell(&self) -> Told {
        let stretches = self.stretches()?;
        let text = match self.output {
            Format::Hlog => log(&stretches),
            Format::Hgrm => formats::hgrm(&one(&sums(&self.selection.lines()?)?)?, 1.0),
            Format::Text => {
                stretches.iter().map(|sums| percentiles::text(sums, formats::PERCENTILES)).collect()
            }
            Format::Json => {
                let stretches: Vec<_> =
                    stretches.iter().map(|sums| percentiles::json(sums, formats::PERCENTILES)).collect();
                format!("{:#}\n", json!(stretches))
            }
        };
        Ok((text, 0))
    }

    /// The sums of each stretch, in order.
    fn stretches(&self) -> Result<Vec<Sums>, String> {
        let lines = self.selection.lines()?;
        let every = self.every.filter(|every| !every.is_zero());
        let mut stretches = BTreeMap::<u128, Vec<&hlog::Line>>::new();
        for line in &lines {
            let stretch = every.map_or(0, |every| line.start.as_nanos() / every.as_nanos());
            stretches.entry(stretch).or_default().push(line);
        }
        stretches.into_values().map(sums).collect()
    }
}

fn log(stretches: &[Sums]) -> String {
    let start = stretches.iter().flat_map(|sums| sums.values()).map(|sum| sum.start).min();
    let mut text = hlog::header(start.unwrap_or_default());
    for (tag, sum) in stretches.iter().flatten() {
        let (length, encoded) = (sum.end.saturating_sub(sum.start), hlog::encode(&sum.histogram));
        hlog::put_line(&mut text, tag, sum.start, length, sum.histogram.max(), &encoded);
    }
    text
}
