//! The text, held against the names that kube-apiserver exposes and against what parsers want.

use std::collections::BTreeSet;

use usher_flowcontrol::meters::{ALL, Child, Description, Family, Value};

use super::Format;

/// A family with one child.
fn family(description: &'static Description) -> Family<'static> {
    let value = match description.buckets.len() {
        0 if description.name.ends_with("_total") => Value::Count(3),
        0 => Value::Number(1.5),
        bounds => Value::Buckets((0..=bounds as u64).collect(), 2.5),
    };
    Family { description, children: vec![Child { labels: values(description), value }] }
}

/// Values for its labels, in order.
fn values(description: &Description) -> Vec<&'static str> {
    ["lvl", "sch", "why"].into_iter().take(description.labels.len()).collect()
}

#[test]
fn prometheus_text_has_the_names_of_kube_apiserver() {
    for description in ALL {
        let text = Format::Prometheus.render(&[family(description)]);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let samples: BTreeSet<&str> = lines.map(|line| line.rsplit_once(' ').unwrap().0).collect();
        let wanted = description.series(&values(description));
        assert_eq!(samples, wanted.iter().map(String::as_str).collect(), "{}", description.name);
    }
}

#[test]
fn the_two_formats_differ_where_they_must() {
    let counter = ALL.iter().find(|metric| metric.name.ends_with("dispatched_requests_total")).unwrap();
    let name = "apiserver_flowcontrol_dispatched_requests";
    let sample = format!("{name}_total{{flow_schema=\"sch\",priority_level=\"lvl\"}} 3\n");
    let help = counter.help;
    assert_eq!(
        Format::Prometheus.render(&[family(counter)]),
        format!("# HELP {name}_total {help}\n# TYPE {name}_total counter\n{sample}")
    );
    assert_eq!(
        Format::OpenMetrics.render(&[family(counter)]),
        format!("# HELP {name} {help}\n# TYPE {name} counter\n{sample}# EOF\n")
    );
    let histogram = ALL.iter().find(|metric| metric.name.ends_with("wait_duration_seconds")).unwrap();
    assert!(Format::Prometheus.render(&[family(histogram)]).contains("le=\"1\"} "));
    assert!(Format::OpenMetrics.render(&[family(histogram)]).contains("le=\"1.0\"} "));
}

#[test]
fn labels_and_odd_numbers_are_escaped() {
    let gauge = ALL.iter().find(|metric| metric.name.ends_with("current_limit_seats")).unwrap();
    let child = |value| Child { labels: vec!["a\"b\\c\nd"], value: Value::Number(value) };
    let family = Family {
        description: gauge,
        children: vec![child(f64::NAN), child(f64::INFINITY), child(f64::NEG_INFINITY), child(0.25)],
    };
    let text = Format::Prometheus.render(&[family]);
    let values: Vec<&str> = text.lines().skip(2).collect();
    let series = "apiserver_flowcontrol_current_limit_seats{priority_level=\"a\\\"b\\\\c\\nd\"}";
    let wanted = ["NaN", "+Inf", "-Inf", "0.25"].map(|value| format!("{series} {value}"));
    assert_eq!(values, wanted);
}

#[test]
fn the_scraper_chooses() {
    for (accept, wanted) in [
        ("", Format::Prometheus),
        ("*/*", Format::Prometheus),
        ("text/plain", Format::Prometheus),
        ("application/openmetrics-text", Format::OpenMetrics),
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
             text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
            Format::OpenMetrics,
        ),
        ("application/openmetrics-text;q=0.1, text/plain;q=0.9", Format::Prometheus),
        ("application/openmetrics-text;q=0", Format::Prometheus),
        ("application/openmetrics-text;q=x", Format::Prometheus),
    ] {
        assert_eq!(Format::accepted(accept), wanted, "{accept}");
    }
}
