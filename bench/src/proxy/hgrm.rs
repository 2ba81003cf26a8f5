//! `.hgrm`: percentiles as text, as HdrHistogram's own tools print and plot them.

use std::fmt::Write as _;

use hdrhistogram::Histogram;

/// Steps in each half of the distance to 100 %, as in Java's `outputPercentileDistribution`.
const TICKS_PER_HALF: u32 = 5;

/// Values divided by `unit`, with the same columns as Java prints.
pub(super) fn text(histogram: &Histogram<u64>, unit: f64) -> String {
    let mut text =
        format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let mut count = 0;
    for step in histogram.iter_quantiles(TICKS_PER_HALF) {
        count += step.count_since_last_iteration();
        let quantile = step.quantile_iterated_to();
        let value = scaled(step.value_iterated_to(), unit);
        let _ = write!(text, "{value:12.3} {quantile:2.12} {count:10}");
        if quantile < 1.0 {
            let _ = write!(text, " {:14.2}", 1.0 / (1.0 - quantile));
        }
        text.push('\n');
    }
    let (mean, deviation) = (histogram.mean() / unit, histogram.stdev() / unit);
    let _ = writeln!(text, "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]");
    let max = scaled(histogram.max(), unit);
    let _ = writeln!(text, "#[Max     = {max:12.3}, Total count    = {:12}]", histogram.len());
    text
}

#[expect(clippy::cast_precision_loss, reason = "three digits are kept")]
fn scaled(value: u64, unit: f64) -> f64 {
    value as f64 / unit
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    #[test]
    fn the_last_line_holds_the_greatest_value_and_all_counts() {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).expect("bounds");
        (1..=1000).for_each(|value| histogram.record(value * 1000).expect("within bounds"));
        let text = super::text(&histogram, 1000.0);
        let rows: Vec<&str> =
            text.lines().skip(2).filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        let last: Vec<&str> = rows.last().expect("rows").split_whitespace().collect();
        assert_eq!((last[1], last[2], last.len()), ("1.000000000000", "1000", 3));
        let greatest: f64 = last[0].parse().expect("a number");
        assert!((999.0..=1001.0).contains(&greatest), "{greatest}");
        assert!(rows[0].trim_start().starts_with("1.000 0.000000000000"), "{}", rows[0]);
    }
}
