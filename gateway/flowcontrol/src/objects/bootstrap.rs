//! The mandatory and the suggested objects: what exists before anyone has configured anything.
//!
//! Mandatory ones always exist and cannot be changed (but for what `exempt` lends); suggested ones are a
//! good start that operators may edit. The values are those of Kubernetes v1.36, in the order in which the
//! maintenance loop visits them. KEP-1040, "Default Behavior"; apf-behaviour §1.33. The KEP's text lets
//! `exempt` lend 50 %, every release says 0, and so do we.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{
    AUTO_UPDATE, CATCH_ALL, DistinguisherMethod, EXEMPT, Exempt, FlowSchema, FlowSchemaSpec, LevelReference,
    LimitResponse, Limited, NamedSubject, NonResourceRule, ObjectMeta, PolicyRules,
    PriorityLevelConfiguration, PriorityLevelSpec, Queuing, ResourceRule, ServiceAccountSubject, Status,
    Subject,
};

/// The levels that always exist.
pub fn mandatory_levels() -> Vec<PriorityLevelConfiguration> {
    let reject = LimitResponse { kind: "Reject".into(), queuing: None };
    let exempt = Exempt { nominal_concurrency_shares: Some(0), lendable_percent: Some(0) };
    [
        level(CATCH_ALL, limited(5, 0, reject)),
        level(EXEMPT, PriorityLevelSpec { kind: "Exempt".into(), limited: None, exempt: Some(exempt) }),
    ]
    .into()
}

/// The schemas that always exist.
pub fn mandatory_schemas() -> Vec<FlowSchema> {
    [
        schema(EXEMPT, 1, EXEMPT, "", [everything([group("system:masters")])]),
        schema(CATCH_ALL, 10_000, CATCH_ALL, "ByUser", [everything(everyone())]),
    ]
    .into()
}

/// The levels that exist unless an operator decides otherwise.
pub fn suggested_levels() -> Vec<PriorityLevelConfiguration> {
    [
        level("system", limited(30, 33, queue(64, 6))),
        level("node-high", limited(40, 25, queue(64, 6))),
        level("leader-election", limited(10, 0, queue(16, 4))),
        level("workload-high", limited(40, 50, queue(128, 6))),
        level("workload-low", limited(100, 90, queue(128, 6))),
        level("global-default", limited(20, 50, queue(128, 6))),
    ]
    .into()
}

/// The schemas that exist unless an operator decides otherwise.
pub fn suggested_schemas() -> Vec<FlowSchema> {
    let (manager, scheduler) = ("system:kube-controller-manager", "system:kube-scheduler");
    let leases = |verbs: &[&str]| resources(verbs, &["coordination.k8s.io"], &["leases"], false);
    let probes = NonResourceRule {
        verbs: strings(&["get"]),
        non_resource_urls: strings(&["/healthz", "/readyz", "/livez"]),
    };
    let nodes = resources(&["*"], &[""], &["nodes", "nodes/status"], true);
    [
        schema("system-nodes", 500, "system", "ByUser", [everything([group("system:nodes")])]),
        schema(
            "system-node-high",
            400,
            "node-high",
            "ByUser",
            [rules([group("system:nodes")], [nodes, leases(&["*"])], [])],
        ),
        schema("probes", 2, EXEMPT, "", [rules(everyone(), [], [probes])]),
        schema(
            "system-leader-election",
            100,
            "leader-election",
            "ByUser",
            [rules(
                [user(manager), user(scheduler), service_accounts_of("kube-system")],
                [leases(&["get", "create", "update"])],
                [],
            )],
        ),
        schema("kube-controller-manager", 800, "workload-high", "ByNamespace", [everything([user(manager)])]),
        schema("kube-scheduler", 800, "workload-high", "ByNamespace", [everything([user(scheduler)])]),
        schema(
            "kube-system-service-accounts",
            900,
            "workload-high",
            "ByNamespace",
            [everything([service_accounts_of("kube-system")])],
        ),
        schema(
            "service-accounts",
            9000,
            "workload-low",
            "ByUser",
            [everything([group("system:serviceaccounts")])],
        ),
        schema("global-default", 9900, "global-default", "ByUser", [everything(everyone())]),
    ]
    .into()
}

fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: name.into(),
        annotations: [(AUTO_UPDATE.to_string(), "true".to_string())].into(),
        ..ObjectMeta::default()
    }
}

fn level(name: &str, spec: PriorityLevelSpec) -> PriorityLevelConfiguration {
    PriorityLevelConfiguration { metadata: metadata(name), spec, status: Status::default() }
}

fn limited(shares: i32, lendable: i32, limit_response: LimitResponse) -> PriorityLevelSpec {
    let limited = Limited {
        nominal_concurrency_shares: Some(shares),
        limit_response,
        lendable_percent: Some(lendable),
        borrowing_limit_percent: None,
    };
    PriorityLevelSpec { kind: "Limited".into(), limited: Some(limited), exempt: None }
}

fn queue(queues: i32, hand_size: i32) -> LimitResponse {
    LimitResponse {
        kind: "Queue".into(),
        queuing: Some(Queuing { queues, hand_size, queue_length_limit: 50 }),
    }
}

/// A schema; an empty `distinguisher` is none.
fn schema<const N: usize>(
    name: &str,
    matching_precedence: i32,
    level: &str,
    distinguisher: &str,
    rules: [PolicyRules; N],
) -> FlowSchema {
    let spec = FlowSchemaSpec {
        priority_level_configuration: LevelReference { name: level.into() },
        matching_precedence,
        distinguisher_method: (!distinguisher.is_empty())
            .then(|| DistinguisherMethod { kind: distinguisher.into() }),
        rules: rules.into(),
    };
    FlowSchema { metadata: metadata(name), spec, status: Status::default() }
}

/// Whatever those subjects do.
fn everything<const N: usize>(subjects: [Subject; N]) -> PolicyRules {
    let any = NonResourceRule { verbs: strings(&["*"]), non_resource_urls: strings(&["*"]) };
    rules(subjects, [resources(&["*"], &["*"], &["*"], true)], [any])
}

fn rules<const S: usize, const R: usize, const N: usize>(
    subjects: [Subject; S],
    resource_rules: [ResourceRule; R],
    non_resource_rules: [NonResourceRule; N],
) -> PolicyRules {
    PolicyRules {
        subjects: subjects.into(),
        resource_rules: resource_rules.into(),
        non_resource_rules: non_resource_rules.into(),
    }
}

fn resources(verbs: &[&str], groups: &[&str], resources: &[&str], cluster_scope: bool) -> ResourceRule {
    ResourceRule {
        verbs: strings(verbs),
        api_groups: strings(groups),
        resources: strings(resources),
        cluster_scope,
        namespaces: strings(&["*"]),
    }
}

fn everyone() -> [Subject; 2] {
    [group("system:unauthenticated"), group("system:authenticated")]
}

fn group(name: &str) -> Subject {
    let group = NamedSubject { name: name.into() };
    Subject { kind: "Group".into(), group: Some(group), ..Subject::default() }
}

fn user(name: &str) -> Subject {
    let user = NamedSubject { name: name.into() };
    Subject { kind: "User".into(), user: Some(user), ..Subject::default() }
}

fn service_accounts_of(namespace: &str) -> Subject {
    let account = ServiceAccountSubject { namespace: namespace.into(), name: "*".into() };
    Subject { kind: "ServiceAccount".into(), service_account: Some(account), ..Subject::default() }
}

fn strings(of: &[&str]) -> Vec<String> {
    of.iter().map(ToString::to_string).collect()
}
