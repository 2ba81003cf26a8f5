//! Every number that a worker counts is shown, once.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{COUNTED, families};
use usher_flowcontrol::meters::Kind;

use crate::identity::{Authenticator, Options};
use crate::observe::metrics::Format;
use crate::observe::{Each, Process, State, View};
use crate::upstream::Look;
use crate::worker::Counters;

fn process() -> Process {
    let authenticator = Arc::new(Authenticator::new(&Options::default()).unwrap());
    Process {
        io: crate::ring::Choice {
            io: crate::ring::Io::Epoll,
            registered_files: false,
            reason: "asked for".to_owned(),
        },
        files: Vec::new(),
        authenticator,
        memory: Arc::default(),
        handover: Arc::default(),
        hdr: None,
        takeover: None,
        steering: Arc::default(),
    }
}

#[test]
fn every_number_of_a_worker_is_shown_once() {
    let counters = Counters::numbered();
    let counted: BTreeSet<u64> = counters.each().map(|(_, number)| number).collect();
    let mut shown: Vec<u64> =
        COUNTED.iter().flat_map(|metric| metric.children).map(|(_, number)| number(&counters)).collect();
    shown.sort_unstable();
    assert_eq!(shown, counted.into_iter().collect::<Vec<_>>());
}

#[test]
fn what_is_open_now_is_what_the_dead_do_not_leave() {
    let counters = Counters::numbered();
    let gauges: BTreeSet<u64> = COUNTED
        .iter()
        .filter(|metric| metric.description.kind == Kind::Gauge)
        .flat_map(|metric| metric.children)
        .map(|(_, number)| number(&counters))
        .collect();
    let left: BTreeSet<u64> = counters.of_the_dead().each().map(|(_, number)| number).collect();
    let gone = counters.each().map(|(_, number)| number).filter(|number| !left.contains(number)).collect();
    assert_eq!(gauges, gone);
}

#[test]
fn labels_fit_their_metrics_and_names_are_ours() {
    let mut names = BTreeSet::new();
    for metric in COUNTED {
        assert!(metric.description.name.starts_with("usher_"), "{}", metric.description.name);
        assert!(names.insert(metric.description.name), "{} twice", metric.description.name);
        for (labels, _) in metric.children {
            assert_eq!(labels.len(), metric.description.labels.len(), "{}", metric.description.name);
        }
    }
}

#[test]
fn the_process_and_the_apiservers_are_shown() {
    let view = View {
        counters: Counters { requests: 7, ..Counters::default() },
        upstreams: vec![Look {
            server: "https://a:1".into(),
            healthy: true,
            http1_idle: 3,
            http1_unasked: 2,
            http2: 1,
        }],
        workers: vec![Each {
            name: "worker-1".to_owned(),
            core: None,
            state: State::Restarting(usher_flowcontrol::units::Nanos::ZERO),
            deaths: 2,
            connections_open: 3,
            connections: 4,
            requests: 5,
        }],
        starts: Some(usher_shards::Starts { alone: 1, by_own: 2, by_others: 3 }),
        ring: crate::ring::Look { sends_short: 5, ..crate::ring::Look::default() },
        ..View::default()
    };
    let process = process();
    let text = Format::Prometheus.render(&families(&view, &process));
    for line in [
        "usher_requests_total 7",
        "usher_upstream_healthy{upstream=\"https://a:1\"} 1",
        "usher_upstream_connections{kind=\"http1-idle\",upstream=\"https://a:1\"} 3",
        "usher_upstream_unasked_total{upstream=\"https://a:1\"} 2",
        "usher_tokens_total{result=\"verified\"} 0",
        "usher_requests_refused_total{code=\"429\",reason=\"queue-full\"} 0",
        "# TYPE usher_connections_open gauge",
        "usher_glitches_total{kind=\"reset\"} 0",
        "usher_connections_cut_total{reason=\"reset\"} 0",
        "usher_log_lines_dropped_total 0",
        "usher_workers{state=\"serving\"} 0",
        "usher_workers{state=\"out\"} 0",
        "usher_workers{state=\"restarting\"} 1",
        "usher_worker_deaths_total{worker=\"worker-1\"} 2",
        "usher_worker_connections_open{worker=\"worker-1\"} 3",
        "usher_worker_connections_total{worker=\"worker-1\"} 4",
        "usher_worker_requests_total{worker=\"worker-1\"} 5",
        "usher_ring_info{io=\"epoll\",reason=\"asked for\"} 1",
        "usher_ring_sends_short_total 5",
        "usher_shared_starts_total{by=\"other-worker\"} 3",
        "usher_steering_info{mode=\"off\",reason=\"asked for\"} 1",
    ] {
        assert!(text.lines().any(|each| each == line), "no {line} in\n{text}");
    }
    assert!(
        text.contains(&format!(
            "usher_build_info{{io=\"epoll\",version=\"{}\"}} 1",
            env!("CARGO_PKG_VERSION")
        ))
    );
}
