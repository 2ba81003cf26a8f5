//! Histograms for people and programs: JSON, and the percentile distribution of HdrHistogram (`.hgrm`).

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::keys::Key;

/// Percentiles that are told unless others are asked for.
pub const PERCENTILES: &[f64] = &[50.0, 90.0, 99.0, 99.9, 99.99];

/// Lines of a distribution for each halving of the distance to 100 %: the Java tools' default.
const TICKS_PER_HALF: u32 = 5;

/// What its tag tells of a histogram, and its numbers. Values are in the unit named, those of a histogram without a
/// tag of ours in whatever was recorded.
#[must_use]
pub fn json(tag: &str, histogram: &Histogram<u64>, percentiles: &[f64]) -> Value {
    let mut row = Map::new();
    row.insert("tag".into(), tag.into());
    if let Some(key) = Key::of_tag(tag) {
        row.insert("metric".into(), key.metric.name().into());
        row.insert("level".into(), (*key.level).into());
        row.insert("outcome".into(), key.outcome.name().into());
        row.insert("unit".into(), key.metric.unit().into());
    }
    let named: Map<String, Value> = percentiles
        .iter()
        .map(|percentile| (percentile.to_string(), histogram.value_at_percentile(*percentile).into()))
        .collect();
    let numbers = json!({
        "count": histogram.len(),
        "min": histogram.min(),
        "max": histogram.max(),
        "mean": histogram.mean(),
        "stddev": histogram.stdev(),
        "percentiles": named,
    });
    row.extend(numbers.as_object().cloned().unwrap_or_default());
    Value::Object(row)
}

/// The distribution as `AbstractHistogram.outputPercentileDistribution` of the Java library prints it, so that its
/// plotters take it. Values are divided by `scale`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "for people: 53 bits are more digits than are printed")]
pub fn hgrm(histogram: &Histogram<u64>, scale: f64) -> String {
    let digits = usize::from(histogram.sigfig());
    let mut text =
        format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let mut total = 0;
    for step in histogram.iter_quantiles(TICKS_PER_HALF) {
        total += step.count_since_last_iteration();
        let (value, quantile) = (step.value_iterated_to() as f64 / scale, step.quantile_iterated_to());
        let _ = write!(text, "{value:12.digits$} {quantile:2.12} {total:10}");
        let _ =
            if quantile < 1.0 { writeln!(text, " {:14.2}", 1.0 / (1.0 - quantile)) } else { writeln!(text) };
    }
    let (mean, deviation) = (histogram.mean() / scale, histogram.stdev() / scale);
    let max = histogram.max() as f64 / scale;
    let _ = writeln!(text, "#[Mean    = {mean:12.digits$}, StdDeviation   = {deviation:12.digits$}]");
    let _ = writeln!(text, "#[Max     = {max:12.digits$}, Total count    = {:12}]", histogram.len());
    let sub_buckets = (2 * 10_u64.pow(u32::from(histogram.sigfig()))).next_power_of_two();
    let _ = writeln!(text, "#[Buckets = {:12}, SubBuckets     = {sub_buckets:12}]", histogram.buckets());
    text
}
