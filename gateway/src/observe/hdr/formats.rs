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
    for Step { value, quantile, total } in steps(histogram, TICKS_PER_HALF) {
        let value = value as f64 / scale;
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

/// So many values are at most `value`; they are at least the part `quantile` of all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The largest that is not told from what was recorded.
    pub value: u64,
    /// From 0 to 1.
    pub quantile: f64,
    /// Values up to there.
    pub total: u64,
}

/// A distribution in so many steps for each halving of the distance to 100 %, with the comparisons of the Java
/// library's `PercentileIterator`: the crate's takes the next larger value where a step meets a count exactly.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "as in the Java library")]
pub fn steps(histogram: &Histogram<u64>, ticks_per_half: u32) -> Vec<Step> {
    let (mut steps, mut percentile, mut total) = (Vec::new(), 0.0, 0);
    for recorded in histogram.iter_recorded() {
        total += recorded.count_at_value();
        let value = recorded.value_iterated_to();
        while 100.0 * total as f64 / histogram.len() as f64 >= percentile {
            steps.push(Step { value, quantile: percentile / 100.0, total });
            let halvings = (100.0 / (100.0 - percentile)).log2().floor() + 1.0;
            percentile += 100.0 / (f64::from(ticks_per_half) * halvings.exp2());
            if total == histogram.len() {
                steps.push(Step { value, quantile: 1.0, total });
                return steps;
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_meets_a_count_exactly_takes_the_value_there() {
        let mut histogram = Histogram::new_with_bounds(1, 1000, 2).unwrap();
        (1..=10).for_each(|value| histogram.saturating_record(value));
        let steps = steps(&histogram, 5);
        let at = |wanted: f64| steps.iter().find(|step| step.quantile >= wanted).unwrap();
        assert_eq!((at(0.5).value, at(0.5).total), (5, 5));
        assert_eq!(steps[0], Step { value: 1, quantile: 0.0, total: 1 });
        assert_eq!(*steps.last().unwrap(), Step { value: 10, quantile: 1.0, total: 10 });
        assert!(super::steps(&Histogram::new(2).unwrap(), 5).is_empty());
    }
}
