//! Prometheus text (version 0.0.4) and OpenMetrics (version 1.0.0), as the scraper likes.
//!
//! They differ here in four things: OpenMetrics names a counter's family without `_total`, writes whole bounds as
//! `1.0`, ends with `# EOF`, and has another content type.

use std::fmt::Write as _;

use usher_flowcontrol::meters::{Child, Family, Kind, Value};

/// What the scraper reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text, what kube-apiserver writes and everybody reads.
    Prometheus,
    /// OpenMetrics text.
    OpenMetrics,
}

impl Format {
    /// The one to answer an `Accept` header with: OpenMetrics for who names it and does not like plain text more.
    #[must_use]
    pub fn accepted(accept: &str) -> Self {
        let quality_of = |wanted: &str| {
            accept.split(',').filter_map(|range| quality(range, wanted)).reduce(f64::max).unwrap_or(0.0)
        };
        let open = quality_of("application/openmetrics-text");
        if open > 0.0 && open >= quality_of("text/plain") { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Value of `Content-Type`.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Writes families.
    #[must_use]
    pub fn render(self, families: &[Family<'_>]) -> String {
        let mut text = String::new();
        for family in families {
            self.head(&mut text, family);
            for child in &family.children {
                self.child(&mut text, family, child);
            }
        }
        if self == Self::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }

    fn head(self, text: &mut String, family: &Family<'_>) {
        let description = family.description;
        let (name, kind) = match description.kind {
            Kind::Counter if self == Self::OpenMetrics => {
                (description.name.strip_suffix("_total").unwrap_or(description.name), "counter")
            }
            Kind::Counter => (description.name, "counter"),
            Kind::Gauge => (description.name, "gauge"),
            Kind::Histogram | Kind::TimingHistogram => (description.name, "histogram"),
        };
        let help = description.help.replace('\\', r"\\").replace('\n', r"\n");
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn child(self, text: &mut String, family: &Family<'_>, child: &Child<'_>) {
        let description = family.description;
        let labels = description.label_pairs(&child.labels);
        let name = description.name;
        match &child.value {
            Value::Count(count) => line(text, name, "", &labels, None, count),
            Value::Number(number) => line(text, name, "", &labels, None, &Number(*number)),
            Value::Buckets(counts, sum) => {
                let bounds = description.buckets.iter().map(|bound| self.bound(*bound));
                for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(counts) {
                    line(text, name, "_bucket", &labels, Some(&bound), count);
                }
                line(text, name, "_sum", &labels, None, &Number(*sum));
                line(text, name, "_count", &labels, None, counts.last().unwrap_or(&0));
            }
        }
    }

    /// A bucket's bound.
    fn bound(self, bound: f64) -> String {
        match self {
            Self::Prometheus => format!("{bound}"),
            Self::OpenMetrics => format!("{bound:?}"),
        }
    }
}

/// How much a media range with its parameters likes the type; `None` if it is another.
fn quality(range: &str, wanted: &str) -> Option<f64> {
    let mut parts = range.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(wanted) {
        return None;
    }
    let quality = parts.find_map(|part| part.strip_prefix("q="));
    Some(quality.map_or(1.0, |quality| quality.parse().unwrap_or(0.0)))
}

/// `name_suffix{label="value",…,le="bound"} value`.
fn line(
    text: &mut String,
    name: &str,
    suffix: &str,
    labels: &[(&str, &str)],
    bound: Option<&str>,
    value: &dyn std::fmt::Display,
) {
    let _ = write!(text, "{name}{suffix}");
    let labels = labels.iter().copied().chain(bound.map(|bound| ("le", bound)));
    let mut separator = '{';
    for (label, value) in labels {
        let value = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
        let _ = write!(text, "{separator}{label}=\"{value}\"");
        separator = ',';
    }
    let end = if separator == ',' { "}" } else { "" };
    let _ = writeln!(text, "{end} {value}");
}

/// A sample's value as the formats spell it.
struct Number(f64);

impl std::fmt::Display for Number {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            infinite if infinite == f64::INFINITY => formatter.write_str("+Inf"),
            infinite if infinite == f64::NEG_INFINITY => formatter.write_str("-Inf"),
            number => write!(formatter, "{number}"),
        }
    }
}

#[cfg(test)]
mod tests;
