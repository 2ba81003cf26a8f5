//! Explanations through one door: a request under the built-in objects, and the text that comes out.

use clap::{Args as _, Command, FromArgMatches as _};

use super::{Explain, Explanation, Fault, Format, Known, Question, User};
use crate::config::objects::{Objects, Source};
use usher_flowcontrol::estimate::Stats;

fn objects() -> Objects {
    Source { folder: None, suggested: true }.read().unwrap()
}

fn explain(user: &str, groups: &[&str], method: &str, url: &str) -> Result<Explanation, Fault> {
    let matches = Explain::augment_args(Command::new("explain"))
        .try_get_matches_from(["explain", method, url])
        .unwrap();
    let explain = Explain::from_arg_matches(&matches).unwrap();
    let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
    let user = User::complete(Some(user).filter(|user| !user.is_empty()), &groups);
    let known = Known { statistics: Stats::Fresh { count: 500, average_size: 2000 }, watches: 30 };
    Explanation::of(&objects(), &explain.flow_control, Question { user, method, url, known })
}

#[track_caller]
fn check(user: &str, method: &str, url: &str, text: &str) {
    let groups: &[&str] = if user.starts_with("system:node:") { &["system:nodes"] } else { &[] };
    let explanation = explain(user, groups, method, url).unwrap();
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let got = Format::Text.render(&explanation);
    for line in lines.into_iter().filter(|line| !line.is_empty()) {
        assert!(got.contains(line), "no line {line:?} in\n{got}");
    }
}

#[test]
fn a_list_in_full() {
    let explanation = explain("alice", &["dev"], "GET", "/api/v1/namespaces/default/pods?limit=5").unwrap();
    let wanted = "\
request   GET /api/v1/namespaces/default/pods?limit=5
          list pods, core/v1, namespace default
user      alice
groups    dev, system:authenticated
not       exempt                            1  none of its subjects is the user or one of its groups
          probes                            2  its rules for this user are about paths only
          system-leader-election          100  none of its subjects is the user or one of its groups
          system-node-high                400  none of its subjects is the user or one of its groups
          system-nodes                    500  none of its subjects is the user or one of its groups
          kube-controller-manager         800  none of its subjects is the user or one of its groups
          kube-scheduler                  800  none of its subjects is the user or one of its groups
          kube-system-service-accounts    900  none of its subjects is the user or one of its groups
          service-accounts               9000  none of its subjects is the user or one of its groups
schema    global-default (no UID), precedence 9900
level     global-default (no UID)
          128 queues, 50 requests wait in each, a flow uses 6
          49 seats nominally, 24 to 649
flow      ByUser \"alice\", hash 0xf4de3bd42ccdf6b7
hand      queues 55, 62, 126, 125, 105, 1
seats     1 (at this level 8 at most)
wait      15 s at most
";
    assert_eq!(Format::Text.render(&explanation), wanted);
}

#[test]
fn mismatches_are_told() {
    check(
        "system:kube-scheduler",
        "GET",
        "/api/v1/pods?watch=1",
        "watch pods, core/v1, no namespace, long-running
         exempt                       1  none of its subjects is the user or one of its groups
         probes                       2  its rules for this user are about paths only
         system-leader-election     100  no rule for this user has the verb \"watch\"
         schema    kube-scheduler (no UID), precedence 800
         flow      ByNamespace \"\"",
    );
    let (scheduler, node) = ("system:kube-scheduler", "system:node:n");
    check(
        scheduler,
        "GET",
        "/api/v1/namespaces/kube-system/pods/x/status",
        "get pods/status \"x\"
         no rule for this user and verb has the resource pods/status",
    );
    check(scheduler, "GET", "/apis/x.y/v1/namespaces/kube-system/leases/x", "not for the API group \"x.y\"");
    check(
        node,
        "GET",
        "/apis/coordination.k8s.io/v1/leases",
        "the rules that come nearest do not set clusterScope",
    );
    check("bob", "GET", "/metrics", "2  no rule for this user and verb covers the path /metrics");
}

#[test]
fn exempt_reject_and_bypass_say_so() {
    check(
        "",
        "GET",
        "/healthz",
        "user      system:anonymous\ngroups    system:unauthenticated\nexempt: everything",
    );
    check("", "POST", "/api/v1/namespaces/n/pods/p/exec", "flow control lets it pass without a seat");
    let mut nobody = explain("bob", &[], "GET", "/x").unwrap();
    assert!(Format::Text.render(&nobody).contains("schema    global-default"));
    nobody = explain("bob", &["system:masters"], "GET", "/x").unwrap();
    assert!(nobody.refusals.is_empty());
    assert_eq!(nobody.place.unwrap().wait_limit_seconds, None);
}

#[test]
fn seats_follow_what_is_known() {
    let list = explain("bob", &[], "GET", "/api/v1/pods").unwrap().place.unwrap();
    assert_eq!((list.seats.initial, list.seats.max), (8, 8));
    let write = explain("bob", &[], "DELETE", "/api/v1/namespaces/n/pods/p").unwrap().place.unwrap();
    assert_eq!((write.seats.initial, write.seats.afterwards), (1, 3));
    assert!((write.seats.lingers_seconds - 0.005).abs() < 1e-9);
}

#[test]
fn the_query_shortens_the_wait() {
    let place = explain("bob", &[], "GET", "/api/v1/pods?timeout=10s").unwrap().place.unwrap();
    assert_eq!(place.wait_limit_seconds, Some(2.5));
}

#[test]
fn service_accounts_get_their_groups() {
    let user = User::complete(Some("system:serviceaccount:kube-system:x"), &[]);
    assert_eq!(
        user.groups,
        ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"]
    );
}

#[test]
fn json_has_what_programs_need() {
    let explanation =
        explain("alice", &[], "GET", "https://host:6443/api/v1/namespaces/default/pods").unwrap();
    let json: serde_json::Value = serde_json::from_str(&Format::Json.render(&explanation)).unwrap();
    for (pointer, wanted) in [
        ("/request/target", "/api/v1/namespaces/default/pods"),
        ("/request/resource", "pods"),
        ("/user/groups/0", "system:authenticated"),
        ("/refusals/0/reason", "subject"),
        ("/refusals/1/reason", "sort"),
        ("/place/schema/name", "global-default"),
        ("/place/response", "queue"),
        ("/place/flow/hash", "0xf4de3bd42ccdf6b7"),
        ("/place/flow/method", "ByUser"),
    ] {
        assert_eq!(json.pointer(pointer).and_then(|value| value.as_str()), Some(wanted), "{pointer}");
    }
    assert_eq!(json.pointer("/place/flow/hand/0"), Some(&serde_json::json!(55)));
    assert_eq!(json.pointer("/place/queues/count"), Some(&serde_json::json!(128)));
}

#[test]
fn what_is_no_request_is_refused() {
    for (method, url, complaint) in [
        ("G T", "/", "is no HTTP method"),
        ("GET", "pods", "is no URL"),
        ("GET", "/api/v1/pods?timeout=soon", "kube-apiserver refuses such a request"),
    ] {
        let fault = explain("bob", &[], method, url).expect_err(complaint).to_string();
        assert!(fault.contains(complaint), "{fault}");
    }
}

#[test]
fn names_cannot_draw_on_the_terminal() {
    let explanation = explain("eve\u{1b}[2J\nlevel     exempt", &[], "GET", "/x").unwrap();
    let text = Format::Text.render(&explanation);
    assert!(text.contains("eve\\u{1b}[2J\\nlevel"), "{text}");
}
