//! Who asks: nodes that must not notice anything, and a controller that has run away.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::Capacity;

/// A sort of client that asks at fixed moments, whatever has become of what it asked before.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// Where it connects from: what connections are steered by.
    pub(super) source: Ipv4Addr,
    /// Tries a second, first ones and repeated ones together.
    pub(super) rate: u32,
    pub(super) connections: usize,
    /// Requests under way on each connection; what is due beyond them waits in the client, and the time counts.
    pub(super) streams: usize,
    /// When a try is given up, counted from when it was due.
    pub(super) patience: Duration,
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) body: &'static str,
    pub(super) token: &'static str,
}

/// Heartbeats a second: with 50 ms of service 1.25 of the protected level's two seats, spaced evenly, so that no
/// heartbeat waits for another one and what is measured is what others do to them.
const HEARTBEATS: u32 = 25;

/// Connections and streams of the controller: as many streams as a kube-apiserver allows, and 2 000 requests under way,
/// which without admission all end up in the apiserver.
const RUNAWAY: (usize, usize) = (20, 100);

/// Shares of the two levels and of the mandatory catch-all, in thousandths of all seats.
const SHARES: (u32, u32) = (PROTECTED_SHARES, 995 - PROTECTED_SHARES);
const PROTECTED_SHARES: u32 = 50;

/// What kubelets send: leases renewed. They give up as theirs do, after 10 s.
pub(super) fn nodes(quick: bool) -> Client {
    Client {
        source: Ipv4Addr::new(127, 0, 0, 2),
        rate: if quick { 10 } else { HEARTBEATS },
        connections: 10,
        streams: 10,
        patience: Duration::from_secs(10),
        method: Method::PUT,
        path: "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-0",
        body: r#"{"metadata":{"name":"node-0"},"spec":{"holderIdentity":"node-0"}}"#,
        token: "node",
    }
}

/// One controller that asks `times` what the apiserver can answer.
pub(super) fn runaway(capacity: Capacity, times: u32) -> Client {
    Client {
        source: Ipv4Addr::new(127, 0, 0, 3),
        rate: capacity.per_second() * times,
        connections: RUNAWAY.0,
        streams: RUNAWAY.1,
        patience: Duration::from_secs(30),
        method: Method::GET,
        path: "/api/v1/namespaces/team-0/configmaps/settings",
        body: "",
        token: "runaway",
    }
}

/// The token file.
pub(super) fn tokens() -> String {
    let mut text = String::new();
    let account = "system:serviceaccount:team-0:runaway";
    for (token, user, groups) in [
        ("node", "system:node:node-0", "system:nodes"),
        ("runaway", account, "system:serviceaccounts,system:serviceaccounts:team-0"),
    ] {
        let _ = writeln!(text, "{token},{user},{user},\"{groups}\"");
    }
    text
}

/// Two levels that neither lend nor borrow, so that everybody's seats are known from the first moment on.
pub(super) fn objects() -> Vec<Value> {
    let (protected, workload) = SHARES;
    vec![
        level("protected", protected),
        schema("protected", "system:nodes"),
        level("workload", workload),
        schema("workload", "system:serviceaccounts"),
    ]
}

fn level(name: &str, shares: u32) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration", "metadata": {"name": name},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares, "lendablePercent": 0, "borrowingLimitPercent": 0,
            // kube-apiserver's suggestion for workloads.
            "limitResponse": {"type": "Queue", "queuing": {"queues": 128, "handSize": 6, "queueLengthLimit": 50}},
        }},
    })
}

fn schema(name: &str, group: &str) -> Value {
    let everything = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true});
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": name}, "matchingPrecedence": 1000, "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": [{"kind": "Group", "group": {"name": group}}], "resourceRules": [everything]}],
        },
    })
}
