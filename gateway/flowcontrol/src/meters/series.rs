//! The names of samples, as the Prometheus text format writes them.

use super::descriptions::{Description, Kind};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

impl Description {
    /// Names and labels of all samples of the child with those label values, in the order of
    /// [`Description::labels`]. Labels are sorted by name; a bucket's bound comes last.
    pub fn series(&self, values: &[&str]) -> Vec<String> {
        let labels = self.label_pairs(values);
        match self.kind {
            Kind::Counter | Kind::Gauge => [sample(self.name, "", &labels, None)].into(),
            Kind::Histogram | Kind::TimingHistogram => self
                .buckets
                .iter()
                .map(|bound| format!("{bound}"))
                .chain([String::from("+Inf")])
                .map(|bound| sample(self.name, "_bucket", &labels, Some(&bound)))
                .chain(["_sum", "_count"].map(|suffix| sample(self.name, suffix, &labels, None)))
                .collect(),
        }
    }

    /// All labels of a child, sorted by name.
    pub fn label_pairs<'a>(&self, values: &[&'a str]) -> Vec<(&'static str, &'a str)> {
        let varying = self.labels.iter().copied().zip(values.iter().copied());
        let mut pairs: Vec<_> = varying.chain(self.const_labels.iter().copied()).collect();
        pairs.sort_unstable_by_key(|(name, _)| *name);
        pairs
    }
}

/// `name_suffix{label="value",…}`.
fn sample(name: &str, suffix: &str, labels: &[(&str, &str)], bound: Option<&str>) -> String {
    let mut text = format!("{name}{suffix}");
    for (index, (label, value)) in labels.iter().copied().chain(bound.map(|bound| ("le", bound))).enumerate()
    {
        let _ = write!(text, "{}{label}=\"{}\"", if index == 0 { '{' } else { ',' }, escaped(value));
    }
    if text.contains('{') {
        text.push('}');
    }
    text
}

/// Escapes what would end a label's value.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}
