//! What flow control turned away under the names by which kube-apiserver's dashboards count 429s:
//! `apiserver_request_total` and `apiserver_request_terminations_total`. What the apiserver answers itself it
//! counts itself.

use std::collections::BTreeMap;

use usher_flowcontrol::meters::{Child, Description, Family, Kind, Stability, Value};
use usher_flowcontrol::reply::RequestLabels;

use crate::worker::TurnedAway;

/// The only status that flow control answers with.
const CODE: &str = "429";

static TOTAL: Description = Description {
    stability: Stability::Beta,
    labels: &[
        "code",
        "component",
        "dry_run",
        "group",
        "resource",
        "scope",
        "subresource",
        "system_client",
        "verb",
        "version",
    ],
    ..counter("apiserver_request_total", "Requests that usher turned away; all others the apiserver counts.")
};

static TERMINATIONS: Description = Description {
    labels: &["code", "component", "group", "resource", "scope", "subresource", "verb", "version"],
    ..counter(
        "apiserver_request_terminations_total",
        "Requests that usher turned away to protect the apiserver.",
    )
};

static UNLISTED: Description = counter(
    "usher_requests_turned_away_unlisted_total",
    "Requests turned away that are missing above, for there were too many kinds of them.",
);

const fn counter(name: &'static str, help: &'static str) -> Description {
    Description {
        name,
        help,
        kind: Kind::Counter,
        labels: &[],
        const_labels: &[],
        buckets: &[],
        stability: Stability::Alpha,
        deprecated: None,
    }
}

/// What was turned away. Kinds of requests that differ only in what a metric does not show are added up.
#[must_use]
pub fn families(turned_away: &TurnedAway) -> Vec<Family<'_>> {
    let unlisted = Child { labels: Vec::new(), value: Value::Count(turned_away.others) };
    vec![
        family(&TERMINATIONS, turned_away, |labels| labels.of_termination(CODE).to_vec()),
        family(&TOTAL, turned_away, |labels| labels.of_total(CODE).to_vec()),
        Family { description: &UNLISTED, children: vec![unlisted] },
    ]
}

fn family<'a>(
    description: &'static Description,
    turned_away: &'a TurnedAway,
    labels_of: impl Fn(&'a RequestLabels) -> Vec<(&'static str, &'a str)>,
) -> Family<'a> {
    let mut sums: BTreeMap<Vec<&str>, u64> = BTreeMap::new();
    for (labels, count) in turned_away.each() {
        let pairs = labels_of(labels);
        debug_assert!(pairs.iter().map(|(name, _)| name).eq(description.labels), "labels are sorted by name");
        *sums.entry(pairs.into_iter().map(|(_, value)| value).collect()).or_default() += count;
    }
    let children = sums.into_iter().map(|(labels, count)| Child { labels, value: Value::Count(count) });
    Family { description, children: children.collect() }
}

#[cfg(test)]
mod tests {
    use usher_flowcontrol::reply::RequestLabels;
    use usher_flowcontrol::request_info::RequestInfo;

    use super::families;
    use crate::observe::metrics::Format;
    use crate::worker::TurnedAway;

    #[test]
    fn kinds_that_look_alike_are_one_child() {
        let mut turned_away = TurnedAway::default();
        for target in ["/a", "/b", "/b", "/api/v1/pods"] {
            turned_away.count(RequestLabels::of("GET", &RequestInfo::parse("GET", target).unwrap(), ""));
        }
        let text = Format::Prometheus.render(&families(&turned_away));
        let path = |path: &str| {
            format!(
                "apiserver_request_terminations_total{{code=\"429\",component=\"apiserver\",group=\"\",resource=\"\",\
                 scope=\"\",subresource=\"{path}\",verb=\"GET\",version=\"\"}}"
            )
        };
        let total = "apiserver_request_total{code=\"429\",component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"\",\
                     scope=\"\",subresource=\"\",system_client=\"\",verb=\"GET\",version=\"\"} 3";
        for line in [&format!("{} 1", path("/a")), &format!("{} 2", path("/b")), total] {
            assert!(text.lines().any(|each| each == line), "no {line} in\n{text}");
        }
        assert!(text.contains("resource=\"pods\"") && text.contains("unlisted_total 0"), "{text}");
    }
}
