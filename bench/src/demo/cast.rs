//! Who is in the demo: a controller that has run away, and those who must not notice.

use std::time::Duration;

use http::Method;

use crate::load::{Ask, Population};

/// Nodes, each with a kubelet that sends heartbeats.
pub(super) const NODES: usize = 20;
/// Connections of the runaway controller, and requests that it keeps under way on each.
const ELEPHANT: (usize, usize) = (8, 50);
/// People with kubectl and a short patience.
const PEOPLE: usize = 4;
/// The leader-election clients of a control plane.
const LEADERS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// A token, the user behind it and its groups: one line of the token file.
pub(super) struct Credential {
    pub(super) token: String,
    pub(super) user: String,
    pub(super) groups: &'static str,
}

/// All clients.
pub(super) fn everyone() -> Vec<Population> {
    vec![
        Population {
            name: "runaway controller",
            clients: ELEPHANT.0,
            streams: ELEPHANT.1,
            pause: Duration::ZERO,
            ask: |_| get("/api/v1/pods?resourceVersion=0"),
            token: |_| "elephant".to_owned(),
        },
        Population {
            name: "well-behaved controller",
            clients: 1,
            streams: 2,
            pause: Duration::from_millis(100),
            ask: |_| get("/api/v1/namespaces/team-1/configmaps/settings"),
            token: |_| "mouse".to_owned(),
        },
        Population {
            name: "kubelet heartbeats",
            clients: NODES,
            streams: 1,
            pause: Duration::from_millis(1000),
            ask: |client| Ask {
                method: Method::PATCH,
                path: format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-{client}"),
                body: r#"{"spec":{"renewTime":"2026-01-01T00:00:00.000000Z"}}"#.to_owned(),
            },
            token: |client| format!("node-{client}"),
        },
        Population {
            name: "leader election",
            clients: LEADERS.len(),
            streams: 1,
            pause: Duration::from_millis(250),
            ask: |client| {
                let name = LEADERS[client];
                Ask {
                    method: Method::PUT,
                    path: format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}"),
                    body: format!(
                        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"holderIdentity":"{name}"}}}}"#
                    ),
                }
            },
            token: |client| LEADERS[client].to_owned(),
        },
        Population {
            name: "people with kubectl",
            clients: PEOPLE,
            streams: 1,
            pause: Duration::from_millis(300),
            ask: |client| get(&format!("/api/v1/namespaces/team-{client}/pods/web-0")),
            token: |client| format!("person-{client}"),
        },
    ]
}

/// The token file's lines.
pub(super) fn credentials() -> Vec<Credential> {
    let credential = |token: &str, user: &str, groups| Credential {
        token: token.to_owned(),
        user: user.to_owned(),
        groups,
    };
    let mut all = vec![
        credential("admin", "admin", "system:masters"),
        credential(
            "elephant",
            "system:serviceaccount:team-0:elephant",
            "system:serviceaccounts,system:serviceaccounts:team-0",
        ),
        credential(
            "mouse",
            "system:serviceaccount:team-1:mouse",
            "system:serviceaccounts,system:serviceaccounts:team-1",
        ),
    ];
    all.extend((0..NODES).map(|node| {
        credential(&format!("node-{node}"), &format!("system:node:node-{node}"), "system:nodes")
    }));
    all.extend(LEADERS.iter().map(|name| credential(name, &format!("system:{name}"), "")));
    all.extend(
        (0..PEOPLE)
            .map(|person| credential(&format!("person-{person}"), &format!("person-{person}"), "people")),
    );
    all
}

fn get(path: &str) -> Ask {
    Ask { method: Method::GET, path: path.to_owned(), body: String::new() }
}
