//! FlowSchemas and levels of the test's own: drawn from the same words as the requests, so that they meet.

use serde_json::{Value, json};

use super::random::Random;
use super::words::{GROUPS, NAMESPACES, PATHS, RESOURCES, SERVICE_ACCOUNTS, USERS, VERBS};

/// Its schema is the last one made: once it is in force, so are all others.
pub(super) const SENTINEL: &str = "e2e-zz-sentinel";

/// The only user of that schema.
pub(super) const SENTINEL_USER: &str = "e2e-sentinel";

/// Schemas besides the defaults.
const SCHEMAS: usize = 40;

/// Levels besides the defaults.
const LEVELS: usize = 5;

/// Levels first, the sentinel last.
pub(super) fn generate(random: &mut Random) -> Vec<Value> {
    let mut objects: Vec<Value> = (0..LEVELS).map(|number| level(&format!("e2e-level-{number}"))).collect();
    objects.push(level(SENTINEL));
    objects.extend((0..SCHEMAS).map(|number| schema(random, number)));
    let subjects = json!([{"kind": "User", "user": {"name": SENTINEL_USER}}]);
    let everything = json!({
        "subjects": subjects,
        "resourceRules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"],
                           "namespaces": ["*"], "clusterScope": true}],
    });
    objects.push(flow_schema(SENTINEL, 2, SENTINEL, None, &[everything]));
    objects
}

fn level(name: &str) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 20,
            "limitResponse": {"type": "Queue",
                              "queuing": {"queues": 16, "handSize": 4, "queueLengthLimit": 100}},
        }},
    })
}

fn schema(random: &mut Random, number: usize) -> Value {
    // Few precedences, so that many are equal and names decide; some stand before the defaults, some after.
    let precedence = *random.one(&[3, 90, 90, 450, 450, 800, 900, 2000, 9900, 9900]);
    let level = match random.below(10) {
        0 => "exempt".into(),
        1 => "catch-all".into(),
        2 => "e2e-no-such-level".into(),
        _ => format!("e2e-level-{}", random.below(LEVELS)),
    };
    let distinguisher = *random.one(&[None, Some("ByUser"), Some("ByNamespace")]);
    let rules: Vec<Value> = (0..=random.below(3)).map(|_| rule(random)).collect();
    flow_schema(&format!("e2e-{number:02}"), precedence, &level, distinguisher, &rules)
}

fn flow_schema(
    name: &str,
    precedence: i32,
    level: &str,
    distinguisher: Option<&str>,
    rules: &[Value],
) -> Value {
    let mut object = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": name},
        "spec": {"matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": level}, "rules": rules},
    });
    if let Some(kind) = distinguisher {
        object["spec"]["distinguisherMethod"] = json!({"type": kind});
    }
    object
}

fn rule(random: &mut Random) -> Value {
    let subjects: Vec<Value> = (0..=random.below(3)).map(|_| subject(random)).collect();
    let mut rule = json!({"subjects": subjects});
    let kinds = random.below(3);
    if kinds != 1 {
        let rules: Vec<Value> = (0..=random.below(2)).map(|_| resource_rule(random)).collect();
        rule["resourceRules"] = json!(rules);
    }
    if kinds != 0 {
        rule["nonResourceRules"] = json!([non_resource_rule(random)]);
    }
    rule
}

fn subject(random: &mut Random) -> Value {
    match random.below(6) {
        0 => json!({"kind": "User", "user": {"name": "*"}}),
        1 | 2 => json!({"kind": "User", "user": {"name": random.one(USERS)}}),
        3 => json!({"kind": "Group", "group": {"name": random.one(GROUPS)}}),
        4 => {
            let groups = ["system:authenticated", "system:unauthenticated", "*", "system:serviceaccounts"];
            json!({"kind": "Group", "group": {"name": random.one(&groups)}})
        }
        _ => {
            let (namespace, name) = random.one(SERVICE_ACCOUNTS);
            let name = if random.percent(40) { "*" } else { name };
            json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}})
        }
    }
}

fn resource_rule(random: &mut Random) -> Value {
    let drawn = random.some(RESOURCES, 4);
    let mut groups: Vec<&str> = drawn.iter().map(|resource| resource.group).collect();
    let mut resources: Vec<String> = drawn.iter().map(|resource| resource.name.to_owned()).collect();
    for resource in &drawn {
        if let Some(sub) = resource.subresources.first().filter(|_| random.percent(40)) {
            resources.push(format!("{}/{sub}", resource.name));
        }
    }
    if random.percent(20) {
        resources = vec!["*".into()];
    }
    if random.percent(20) {
        groups = vec!["*"];
    }
    groups.sort_unstable();
    groups.dedup();
    let verbs: Vec<&str> =
        if random.percent(30) { vec!["*"] } else { random.some(VERBS, 4).into_iter().copied().collect() };
    // One of the two at least, or the API refuses the rule.
    let cluster_scope = random.percent(50);
    let namespaces: Vec<&str> = match random.below(3) {
        0 if cluster_scope => Vec::new(),
        1 => vec!["*"],
        _ => random.some(NAMESPACES, 2).into_iter().copied().collect(),
    };
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs,
           "clusterScope": cluster_scope, "namespaces": namespaces})
}

fn non_resource_rule(random: &mut Random) -> Value {
    let verbs: Vec<&str> =
        if random.percent(40) { vec!["*"] } else { random.some(VERBS, 2).into_iter().copied().collect() };
    let mut urls: Vec<String> = random
        .some(PATHS, 3)
        .into_iter()
        .map(|path| path.split('?').next().unwrap_or_default().to_owned())
        .filter(|path| path.starts_with('/') && !path.contains(' '))
        .collect();
    if random.percent(30) {
        urls.push(random.word(&["/healthz/*", "/apis/*", "/livez/*", "/openapi/*", "/api/*"]).into());
    }
    if random.percent(10) || urls.is_empty() {
        urls = vec!["*".into()];
    }
    urls.sort();
    urls.dedup();
    json!({"nonResourceURLs": urls, "verbs": verbs})
}
