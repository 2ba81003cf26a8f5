//! metrics.json: what the metrics are called, and the series of a child.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use usher_flowcontrol::meters::{ALL, Kind, Stability};

use crate::compare::compare;
use crate::numbers::{each_case, list, text};
use crate::{File, Outcome};

pub(crate) fn run(file: &File) -> Vec<(String, Outcome)> {
    each_case(file, case)
}

fn case(case: &Value) -> Result<(), String> {
    let name = text(case, "name")?;
    let metric = ALL.iter().find(|metric| metric.name == name).ok_or_else(|| format!("{name} is unknown"))?;
    let kind = match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
        Kind::TimingHistogram => "timing_histogram",
    };
    let exposed_type = if metric.kind == Kind::TimingHistogram { "histogram" } else { kind };
    let stability = match metric.stability {
        Stability::Alpha => "ALPHA",
        Stability::Beta => "BETA",
    };
    let const_labels: serde_json::Map<String, Value> =
        metric.const_labels.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    for (what, ours) in [
        ("type", json!(kind)),
        ("labels", json!(metric.labels)),
        ("const_labels", Value::Object(const_labels)),
        ("stability", json!(stability)),
        ("deprecated_version", json!(metric.deprecated)),
        ("hidden_by_default", json!(metric.is_hidden())),
        ("exposed_type", if metric.is_hidden() { Value::Null } else { json!(exposed_type) }),
    ] {
        compare(what, &ours, &case[what])?;
    }
    let bounds: Vec<f64> =
        case["buckets"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    if bounds != metric.buckets {
        return Err(format!("buckets {:?} instead of {bounds:?}", metric.buckets));
    }
    let values: Vec<&str> = list(case, "label_values")?.iter().filter_map(Value::as_str).collect();
    let ours = if metric.is_hidden() { Vec::new() } else { metric.series(&values) };
    let ours: BTreeSet<&str> = ours.iter().map(String::as_str).collect();
    let theirs: BTreeSet<&str> = list(case, "series")?.iter().filter_map(Value::as_str).collect();
    if ours == theirs { Ok(()) } else { Err(format!("series {ours:?} instead of {theirs:?}")) }
}
