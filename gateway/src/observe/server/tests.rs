//! The admin port over a socket, in front of workers of the test's own making.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use usher_flowcontrol::controller::{Controller, User};
use usher_flowcontrol::dump::Details;
use usher_flowcontrol::level::Verdict;
use usher_flowcontrol::request_info::RequestInfo;
use usher_flowcontrol::units::{Nanos, Seats, Work};

use super::{bind, start};
use crate::identity::{Authenticator, Options};
use crate::observe::{Answer, NoAnswer, Process, View, Workers};
use crate::upstream::Look;

/// Answers the same each time.
struct Painted(Result<View, NoAnswer>);

impl Workers for Painted {
    fn look(&self) -> Answer<'_> {
        let view = self.0.clone();
        Box::pin(async move { view })
    }
}

/// One request executes.
fn busy() -> View {
    let mut controller = Controller::new(Nanos(0), Seats(600));
    controller.configure(Nanos(0), &[], &[]);
    let groups = ["system:authenticated".to_owned()];
    let info = RequestInfo::parse("GET", "/api/v1/namespaces/default/pods/x").unwrap();
    let class = controller.classify(User { name: "alice", groups: &groups }, &info);
    let verdict = controller.arrive(Nanos::from_secs(1), &class, Work::seats(1), 7);
    assert!(matches!(verdict, Verdict::Execute(_)));
    let details = Details { user: "alice".into(), verb: "get".into(), ..Details::default() };
    View {
        snapshot: Some(controller.snapshot(Nanos::from_secs(2))),
        details: [(7, details)].into(),
        upstreams: vec![Look { server: "https://a:1".into(), healthy: true, ..Look::default() }],
        ..View::default()
    }
}

fn serve(view: Result<View, NoAnswer>) -> SocketAddr {
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let authenticator = Arc::new(Authenticator::new(&Options::default()).unwrap());
    start(
        listener,
        Painted(view),
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
        },
    )
    .unwrap();
    address
}

/// Status line, headers and body.
fn get(address: SocketAddr, path: &str, headers: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

#[test]
fn metrics_hold_the_levels_and_ushers_own() {
    let address = serve(Ok(busy()));
    let (head, text) = get(address, "/metrics", "");
    assert!(head.starts_with("http/1.1 200") && head.contains("text/plain; version=0.0.4"), "{head}");
    for line in [
        "apiserver_flowcontrol_current_executing_requests{flow_schema=\"catch-all\",priority_level=\"catch-all\"} 1",
        "apiserver_flowcontrol_dispatched_requests_total{flow_schema=\"catch-all\",priority_level=\"catch-all\"} 1",
        "usher_config_generation 2",
        "usher_upstream_healthy{upstream=\"https://a:1\"} 1",
    ] {
        assert!(text.lines().any(|each| each == line), "no {line} in\n{text}");
    }
    let (head, text) = get(address, "/metrics", "Accept: application/openmetrics-text\r\n");
    assert!(head.contains("application/openmetrics-text") && text.ends_with("# EOF\n"), "{head}");
}

#[test]
fn every_line_of_the_metrics_can_be_parsed() {
    let address = serve(Ok(busy()));
    for (headers, open_metrics) in [("", false), ("Accept: application/openmetrics-text\r\n", true)] {
        parse(&get(address, "/metrics", headers).1, open_metrics);
    }
}

/// As strict as the formats are: families hang together, names fit, buckets add up.
fn parse(text: &str, open_metrics: bool) {
    let (mut family, mut kind) = ("", "");
    let mut known = std::collections::BTreeSet::new();
    let (mut series, mut bucket) = (std::collections::BTreeSet::new(), 0.0);
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split_once(' ').unwrap().0;
            assert!(known.insert(family), "{family} comes twice");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, told) = rest.split_once(' ').unwrap();
            assert_eq!(name, family);
            kind = told;
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number in {line}"));
        assert!(series.insert(name), "{name} comes twice");
        let metric = name.split('{').next().unwrap();
        assert!(metric.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{line}");
        let suffix = metric.strip_prefix(family).unwrap_or_else(|| panic!("{line} is not of {family}"));
        match (kind, suffix) {
            ("histogram", "_bucket") => {
                let first = name.contains(if open_metrics { "le=\"0.0\"" } else { "le=\"0\"" })
                    || name.contains("le=\"0.2\"");
                assert!(first || value >= bucket, "{line} holds less than the bucket before");
                bucket = value;
            }
            ("histogram", "_count") => {
                assert!((value - bucket).abs() < 1e-9, "{line} is not the last bucket's")
            }
            ("histogram", "_sum") | ("gauge", "") => {}
            ("counter", suffix) => assert_eq!(suffix, if open_metrics { "_total" } else { "" }, "{line}"),
            _ => panic!("{line} does not fit the type {kind}"),
        }
    }
    assert!(known.len() > 30, "{known:?}");
}

#[test]
fn dumps_come_as_text_and_as_json() {
    let address = serve(Ok(busy()));
    let dumps = "/debug/api_priority_and_fairness";
    let (head, text) = get(address, &format!("{dumps}/dump_priority_levels"), "");
    assert!(head.contains("content-type: text/plain; charset=utf-8"), "{head}");
    assert!(text.starts_with("PriorityLevelName, ActiveQueues, IsIdle,"), "{text}");
    let (_, text) = get(address, &format!("{dumps}/dump_requests?includeRequestDetails=1"), "");
    assert!(text.contains("1970-01-01T00:00:01Z") && text.contains("alice"), "{text}");
    let (_, text) = get(address, &format!("{dumps}/dump_requests?includeRequestDetails="), "");
    assert!(!text.contains("UserName") && !text.contains("alice"), "{text}");
    for (path, headers) in
        [("dump_priority_levels?output=json", ""), ("dump_priority_levels", "Accept: application/json\r\n")]
    {
        let (_, text) = get(address, &format!("{dumps}/{path}"), headers);
        let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(rows[0]["PriorityLevelName"], "catch-all");
        assert_eq!(rows[0]["ExecutingRequests"], 1);
    }
    let (_, text) = get(address, &format!("{dumps}/dump_requests?includeRequestDetails=1&output=json"), "");
    let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&rows[0]["UserName"], &rows[0]["Verb"]), (&"alice".into(), &"get".into()));
    assert!(get(address, &format!("{dumps}/dump_tea"), "").0.starts_with("http/1.1 404"));
}

#[test]
fn health_says_why() {
    let address = serve(Ok(busy()));
    assert_eq!(get(address, "/readyz", "").1, "ok");
    assert!(get(address, "/readyz?verbose", "").1.contains("[+]upstream ok"));
    assert_eq!(get(address, "/readyz/upstream", "").1, "ok");
    assert!(get(address, "/readyz/weather", "").0.starts_with("http/1.1 404"));
    assert!(get(address, "/weather", "").0.starts_with("http/1.1 404"));
    let address = serve(Ok(View { draining: true, ..busy() }));
    let (head, text) = get(address, "/readyz", "");
    assert!(
        head.starts_with("http/1.1 500") && text.contains("[-]shutdown failed: draining"),
        "{head} {text}"
    );
    let (head, text) = get(address, "/readyz?verbose", "");
    let all = ["[i]io ", "[i]steering ", "[-]shutdown failed"].map(|part| text.contains(part));
    assert!(head.starts_with("http/1.1 500") && all == [true; 3], "{head} {text}");
    assert_eq!(get(address, "/livez", "").1, "ok");
}

#[test]
fn a_worker_that_is_stuck_is_said_to_be() {
    let address = serve(Err(NoAnswer::Stuck("worker-0".into())));
    let (head, text) = get(address, "/metrics", "");
    assert!(head.starts_with("http/1.1 503") && text.contains("worker-0 takes no messages"), "{head} {text}");
    assert!(get(address, "/healthz", "").1.contains("[-]worker failed"));
}

#[test]
fn without_flow_control_there_are_no_dumps() {
    let address = serve(Ok(View { snapshot: None, ..busy() }));
    let (head, text) = get(address, "/debug/api_priority_and_fairness/dump_queues", "");
    assert!(head.starts_with("http/1.1 404") && text.contains("flow control is off"), "{head} {text}");
    assert!(get(address, "/metrics", "").1.contains("usher_requests_total 0"));
}

#[test]
fn an_address_in_use_is_refused_with_its_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = bind(taken.local_addr().unwrap()).expect_err("taken");
    assert!(error.contains("--admin-bind-address=127.0.0.1:") && error.contains("give another"), "{error}");
}
