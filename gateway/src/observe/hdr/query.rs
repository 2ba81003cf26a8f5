//! `/debug/hdr`: what is asked, and the answer as JSON, `.hgrm` or `.hlog`.

use std::time::Duration;

use serde_json::{Value, json};

use super::collector::Merged;
use super::formats;
use super::history::History;
use super::hlog;
use super::keys::{Key, Metric, Outcome};

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    format: Format,
    metric: Option<Metric>,
    level: Option<String>,
    outcome: Option<Outcome>,
    /// So many of the latest intervals; `None`: everything since the start.
    pub(super) intervals: Option<usize>,
}

/// How it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Json,
    Hgrm,
    Hlog,
}

/// An answer's content type and text; or what is wrong with the question.
pub type Answer = Result<(&'static str, String), String>;

/// Histograms of a stretch of time.
#[derive(Debug)]
pub(super) struct Selected {
    pub(super) start: Duration,
    pub(super) length: Duration,
    pub(super) merged: Merged,
}

impl Query {
    /// Of the pairs of a URL's query.
    ///
    /// # Errors
    /// What is not understood, in a sentence.
    pub fn of(pairs: &[(String, String)]) -> Result<Self, String> {
        let mut query =
            Self { format: Format::Json, metric: None, level: None, outcome: None, intervals: None };
        for (name, value) in pairs {
            match name.as_str() {
                "format" => query.format = format(value)?,
                "metric" => query.metric = Some(value.parse()?),
                "level" => query.level = Some(value.clone()),
                "outcome" => query.outcome = Some(value.parse()?),
                "since" if value == "start" => query.intervals = None,
                "since" => return Err("since can only be start; intervals=N asks for the latest N".into()),
                "intervals" => {
                    let count = value.parse().ok().filter(|count| *count > 0);
                    query.intervals = Some(count.ok_or("intervals must be a number above 0")?);
                }
                _ => {
                    return Err(format!(
                        "{name:?} is none of format, metric, level, outcome, since, intervals"
                    ));
                }
            }
        }
        Ok(query)
    }

    pub(super) fn wants(&self, key: &Key) -> bool {
        self.metric.is_none_or(|metric| metric == key.metric)
            && self.level.as_ref().is_none_or(|level| **level == *key.level)
            && self.outcome.is_none_or(|outcome| outcome == key.outcome)
    }

    /// The part of it that is asked for.
    pub(super) fn of_all(&self, all: &Merged) -> Merged {
        let wanted = all.iter().filter(|(key, _)| self.wants(key));
        wanted.map(|(key, histogram)| (key.clone(), histogram.clone())).collect()
    }

    pub(super) fn answer(&self, selected: &Selected, history: &History) -> Answer {
        match self.format {
            Format::Json => Ok(("application/json", format!("{:#}\n", selected.json()))),
            Format::Hgrm => Ok((TEXT, self.hgrm(selected)?)),
            Format::Hlog => Ok((
                TEXT,
                match self.intervals {
                    Some(count) => history.log(count, self),
                    None => selected.hlog(),
                },
            )),
        }
    }

    /// One distribution; so all must count the same.
    fn hgrm(&self, selected: &Selected) -> Result<String, String> {
        let metric = self.metric.ok_or_else(|| {
            let names: Vec<&str> = Metric::ALL.iter().map(|metric| metric.name()).collect();
            format!("a distribution is of one metric: add metric= one of {}", names.join(", "))
        })?;
        let mut sum = super::recorder::empty::<u64>(metric);
        for histogram in selected.merged.values() {
            sum.add(histogram).map_err(|error| error.to_string())?;
        }
        Ok(formats::hgrm(&sum, 1.0))
    }
}

const TEXT: &str = "text/plain; charset=utf-8";

fn format(text: &str) -> Result<Format, String> {
    match text {
        "json" => Ok(Format::Json),
        "hgrm" => Ok(Format::Hgrm),
        "hlog" => Ok(Format::Hlog),
        _ => Err(format!("format {text:?} is none of json, hgrm, hlog")),
    }
}

impl Selected {
    fn json(&self) -> Value {
        let rows = self.merged.iter();
        let rows: Vec<Value> = rows
            .map(|(key, histogram)| formats::json(&key.to_string(), histogram, formats::PERCENTILES))
            .collect();
        json!({
            "start": hlog::rfc3339(self.start),
            "seconds": self.length.as_secs_f64(),
            "histograms": rows,
        })
    }

    fn hlog(&self) -> String {
        let mut text = hlog::header(self.start);
        for (key, histogram) in &self.merged {
            let encoded = hlog::encode(histogram);
            hlog::put_line(&mut text, &key.to_string(), self.start, self.length, histogram.max(), &encoded);
        }
        text
    }
}

#[cfg(test)]
pub(super) mod tests;
