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
    start(listener, Painted(view), Process { io: "epoll", files: Vec::new(), authenticator }).unwrap();
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
    assert_eq!(get(address, "/livez", "").1, "ok");
}

#[test]
fn a_worker_that_is_gone_is_said_to_be() {
    let address = serve(Err(NoAnswer::Gone));
    let (head, text) = get(address, "/metrics", "");
    assert!(
        head.starts_with("http/1.1 503") && text.contains("the worker takes no messages"),
        "{head} {text}"
    );
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
