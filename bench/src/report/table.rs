//! Tables for people.

use std::fmt::Write as _;

use super::{Better, Report, Row};

/// One cell: a line for each contestant, medians, and in brackets the ratio to the contestant `base` where it is there.
pub(crate) fn cell(rows: &[Row], base: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for series in rows.iter().flat_map(|row| &row.series) {
        if !names.contains(&series.metric.as_str()) {
            names.push(&series.metric);
        }
    }
    let base = rows.iter().find(|row| row.contestant == base);
    let mut text = format!("  {:<22}", "");
    for name in &names {
        let _ = write!(text, "  {name:>21}");
    }
    text.push('\n');
    for row in rows {
        let _ = write!(text, "  {:<22}", row.contestant);
        for name in &names {
            let _ = write!(text, "  {:>21}", number(row, base, name));
        }
        text.push('\n');
    }
    text
}

fn number(row: &Row, base: Option<&Row>, metric: &str) -> String {
    let Some(series) = row.series(metric) else { return "-".to_owned() };
    let value = shown(series.median());
    let base = base.filter(|_| series.better != Better::Neither);
    match base.and_then(|base| row.ratio(base, metric)) {
        Some(ratio) => format!("{value} ({})", shown(ratio)),
        None => value,
    }
}

/// Three digits or so.
pub(crate) fn shown(value: f64) -> String {
    match value.abs() {
        big if big >= 1000.0 => format!("{value:.0}"),
        middle if middle >= 100.0 => format!("{value:.1}"),
        small if small > 0.0 && small < 0.1 => format!("{value:.3}"),
        _ => format!("{value:.2}"),
    }
}

/// Two runs side by side: ratios to `base` where there are any, as those carry over from one hour to another; the
/// bare numbers where not.
pub(crate) fn comparison(earlier: &Report, now: &Report, base: &str) -> String {
    let mut text = format!(
        "compared with the earlier run (ratios to {base} in the same run where it was measured, else the numbers)\n"
    );
    for (name, rows) in &now.cells {
        let (base_then, base_now) = (earlier.row(name, base), now.row(name, base));
        for row in rows.iter().filter(|row| row.contestant != base) {
            let Some(then) = earlier.row(name, &row.contestant) else { continue };
            for series in row.series.iter().filter(|series| series.better != Better::Neither) {
                let metric = series.metric.as_str();
                let relative = |row: &Row, base: Option<&Row>| base.and_then(|base| row.ratio(base, metric));
                let both = relative(then, base_then).zip(relative(row, base_now));
                let (old, new) = match both {
                    Some(both) => both,
                    None => match then.series(metric) {
                        Some(old) => (old.median(), series.median()),
                        None => continue,
                    },
                };
                let change = (new / old - 1.0) * 100.0;
                let _ = writeln!(
                    text,
                    "  {name:<22} {:<16} {metric:<22} {:>10} -> {:>10}  {change:+.1} %",
                    row.contestant,
                    shown(old),
                    shown(new)
                );
            }
        }
    }
    text
}
