//! Every way in which an object can be wrong, written as an operator would write it.

use super::{LEVEL, SCHEMA, refused};

/// A change of [`SCHEMA`] or [`LEVEL`], and the start of the finding that it leads to.
type Mistake = (&'static str, &'static str, &'static str);

fn each_is_found(good: &str, object: &str, mistakes: &[Mistake]) {
    for (old, new, expected) in mistakes {
        assert!(good.contains(old), "{old} is not in the good object");
        let findings = refused(&[("a.yaml", &good.replacen(old, new, 1))]);
        let expected = format!("a.yaml, document 1, {object}: {expected}");
        assert!(
            findings.iter().any(|finding| finding.starts_with(&expected) && finding.contains("; ")),
            "{new}: expected {expected}…, found {findings:#?}"
        );
    }
}

#[test]
fn of_flow_schemas() {
    let kind = "kind: User";
    let pods = "resources: [pods]";
    let everywhere = "namespaces: ['*']";
    let non_resource = "nonResourceRules: [{verbs: [get], nonResourceURLs: ";
    let urls = |list: &str| format!("{non_resource}{list}}}]");
    let rule = "resourceRules: [{verbs: ['*'], apiGroups: [''], resources: [pods], namespaces: ['*']}]";
    each_is_found(
        SCHEMA,
        "FlowSchema \"mine\"",
        &[
            (
                "spec:",
                "spec:\n  matchingPrecedence: -1",
                "spec.matchingPrecedence: Invalid value: -1: must be a pos",
            ),
            (
                "spec:",
                "spec:\n  matchingPrecedence: 10001",
                "spec.matchingPrecedence: Invalid value: 10001: must not",
            ),
            (
                "spec:",
                "spec:\n  matchingPrecedence: 1",
                "spec.matchingPrecedence: Invalid value: 1: only the schema",
            ),
            ("spec:", "spec:\n  matchingPrecedence: 2147483648", "spec.matchingPrecedence: invalid value"),
            ("spec:", "spec:\n  matchingPrecedence: 1.5", "spec.matchingPrecedence: invalid type"),
            ("spec:", "spec:\n  matchingPrecedence: '7'", "spec.matchingPrecedence: invalid type"),
            ("spec:", "spec:\n  matchingPrecedence: 0755", "spec.matchingPrecedence: invalid type"),
            ("ByUser", "ByMood", "spec.distinguisherMethod.type: Unsupported value: \"ByMood\""),
            ("{type: ByUser}", "{}", "spec.distinguisherMethod.type: Unsupported value: \"\""),
            ("{type: ByUser}", "[ByUser]", "spec.distinguisherMethod: invalid type"),
            ("{name: my-level}", "{}", "spec.priorityLevelConfiguration.name: Required value"),
            ("my-level", "My_Level", "spec.priorityLevelConfiguration.name: Invalid value"),
            ("[{kind: User, user: {name: alice}}]", "[]", "spec.rules[0].subjects: Required value"),
            (
                "[{kind: User, user: {name: alice}}]",
                "[null]",
                "spec.rules[0].subjects[0].kind: Unsupported value",
            ),
            (kind, "kind: Robot", "spec.rules[0].subjects[0].kind: Unsupported value: \"Robot\""),
            (kind, "kind: Group", "spec.rules[0].subjects[0].group: Required value"),
            (kind, "kind: Group", "spec.rules[0].subjects[0].user: Forbidden"),
            (kind, "kind: ServiceAccount", "spec.rules[0].subjects[0].serviceAccount: Required value"),
            ("{name: alice}", "{}", "spec.rules[0].subjects[0].user.name: Required value"),
            (
                "User, user: {name: alice}",
                "ServiceAccount, serviceAccount: {name: a}",
                "spec.rules[0].subjects[0].serviceAccount.namespace: Required value",
            ),
            (
                "User, user: {name: alice}",
                "ServiceAccount, serviceAccount: {name: A, namespace: '*'}",
                "spec.rules[0].subjects[0].serviceAccount.namespace: Invalid value: \"*\"",
            ),
            (
                "User, user: {name: alice}",
                "ServiceAccount, serviceAccount: {name: A, namespace: n}",
                "spec.rules[0].subjects[0].serviceAccount.name: Invalid value: \"A\"",
            ),
            (rule, "resourceRules: []", "spec.rules[0]: Required value"),
            ("verbs: ['*']", "verbs: []", "spec.rules[0].resourceRules[0].verbs: Required value"),
            ("verbs: ['*']", "verbs: '*'", "spec.rules[0].resourceRules[0].verbs: invalid type"),
            ("verbs: ['*']", "verbs: ['*', get]", "spec.rules[0].resourceRules[0].verbs: Invalid value"),
            ("verbs: ['*']", "verbs: [post]", "spec.rules[0].resourceRules[0].verbs: Unsupported value"),
            ("['']", "[]", "spec.rules[0].resourceRules[0].apiGroups: Required value"),
            ("['']", "['', '*']", "spec.rules[0].resourceRules[0].apiGroups: Invalid value"),
            (pods, "resources: []", "spec.rules[0].resourceRules[0].resources: Required value"),
            (pods, "resources: [pods, '*']", "spec.rules[0].resourceRules[0].resources: Invalid value"),
            (everywhere, "namespaces: []", "spec.rules[0].resourceRules[0].namespaces: Required value"),
            (everywhere, "namespaces: [a, '*']", "spec.rules[0].resourceRules[0].namespaces: Invalid value"),
            (everywhere, "namespaces: [a.b]", "spec.rules[0].resourceRules[0].namespaces[0]: Invalid value"),
            (everywhere, "clusterScope: yes", "spec.rules[0].resourceRules[0].clusterScope: invalid type"),
        ],
    );
    for (list, expected) in [
        ("[]", ": Required value"),
        ("['*', /a]", ": Invalid value"),
        ("[/a, '']", "[1]: Invalid value: \"\": must not be empty"),
        ("[a]", "[0]: Invalid value: \"a\": must start with slash"),
        ("['/a b']", "[0]: Invalid value: \"/a b\": must not contain white-space"),
        ("[/a//b]", "[0]: Invalid value: \"/a//b\": must not contain double slash"),
        ("[/a*]", "[0]: Invalid value: \"/a*\": wildcard can only do suffix matching"),
    ] {
        let findings = refused(&[("a.yaml", &SCHEMA.replace(rule, &urls(list)))]);
        let expected = format!("spec.rules[0].nonResourceRules[0].nonResourceURLs{expected}");
        assert!(findings.iter().any(|finding| finding.contains(&expected)), "{list}: {findings:?}");
    }
}

#[test]
fn of_priority_levels() {
    let queuing = "queuing: {}";
    let limited = "limited: {";
    each_is_found(
        LEVEL,
        "PriorityLevelConfiguration \"my-level\"",
        &[
            ("type: Limited", "type: Unlimited", "spec.type: Unsupported value: \"Unlimited\""),
            (
                "type: Limited",
                "type: Exempt",
                "spec.type: Invalid value: Exempt: must be 'Exempt' if and only if",
            ),
            ("type: Limited", "type: Exempt", "spec.limited: Forbidden"),
            ("type: Limited", "type: Limited, exempt: {}", "spec.exempt: Forbidden"),
            (limited, "limitless: {", "spec.limited: Required value"),
            (
                limited,
                "limited: {nominalConcurrencyShares: -1, ",
                "spec.limited.nominalConcurrencyShares: Invalid",
            ),
            (limited, "limited: {lendablePercent: 101, ", "spec.limited.lendablePercent: Invalid value: 101"),
            (limited, "limited: {borrowingLimitPercent: -1, ", "spec.limited.borrowingLimitPercent: Invalid"),
            ("type: Queue", "type: Drop", "spec.limited.limitResponse.type: Unsupported value: \"Drop\""),
            ("type: Queue", "type: Reject", "spec.limited.limitResponse.queuing: Forbidden"),
            (queuing, "queuing: null", "spec.limited.limitResponse.queuing: Required value"),
            (queuing, "queuing: []", "spec.limited.limitResponse.queuing: invalid type"),
            (
                queuing,
                "queuing: {queues: -1}",
                "spec.limited.limitResponse.queuing.queues: Invalid value: -1",
            ),
            (
                queuing,
                "queuing: {queues: 10000001}",
                "spec.limited.limitResponse.queuing.queues: Invalid value",
            ),
            (
                queuing,
                "queuing: {handSize: -1}",
                "spec.limited.limitResponse.queuing.handSize: Invalid value: -1",
            ),
            (
                queuing,
                "queuing: {handSize: 65}",
                "spec.limited.limitResponse.queuing.handSize: Invalid value: 65",
            ),
            (
                queuing,
                "queuing: {handSize: 11}",
                "spec.limited.limitResponse.queuing.handSize: Invalid value: 11",
            ),
            (
                queuing,
                "queuing: {queueLengthLimit: -1}",
                "spec.limited.limitResponse.queuing.queueLengthLimit: Inv",
            ),
            (
                "spec:",
                "status: {conditions: [{type: A}, {type: A}]}\nspec:",
                "status.conditions[1].type: Duplicate",
            ),
            ("spec:", "status: {conditions: [{}]}\nspec:", "status.conditions[0].type: Required value"),
            (
                "spec:",
                "status: {conditions: [{type: A, lastTransitionTime: noon}]}\nspec:",
                "status.conditions[0].lastTransitionTime: invalid value",
            ),
        ],
    );
}

#[test]
fn of_metadata_and_mandatory_objects() {
    for (metadata, expected) in [
        ("{}", "FlowSchema \"\": metadata.name: Required value"),
        ("{name: A b}", "FlowSchema \"A b\": metadata.name: Invalid value: \"A b\""),
        ("{name: 7}", "FlowSchema \"\": metadata.name: invalid type"),
        ("[]", "FlowSchema \"\": metadata: invalid type"),
        ("{name: a, namespace: b}", "FlowSchema \"a\": metadata.namespace: Forbidden"),
        ("{name: a, generateName: B}", "FlowSchema \"a\": metadata.generateName: Invalid value"),
        ("{name: a, generation: -1}", "FlowSchema \"a\": metadata.generation: Invalid value: -1"),
        ("{name: a, labels: {'-': x}}", "FlowSchema \"a\": metadata.labels: Invalid value"),
        ("{name: a, labels: {a: '-'}}", "FlowSchema \"a\": metadata.labels: Invalid value"),
        ("{name: a, labels: {a: 1}}", "FlowSchema \"a\": metadata.labels.a: invalid type"),
        ("{name: a, annotations: {a/b/c: x}}", "FlowSchema \"a\": metadata.annotations: Invalid value"),
        ("{name: a, finalizers: [x]}", "FlowSchema \"a\": metadata.finalizers[0]: Invalid value"),
        (
            "{name: exempt}",
            "FlowSchema \"exempt\": spec: Invalid value: spec of 'exempt' must equal the fixed value",
        ),
        ("{name: catch-all}", "FlowSchema \"catch-all\": spec: Invalid value"),
    ] {
        let object = SCHEMA.replace("{name: mine, uid: 6d0c2f0e-0000-4000-8000-000000000001}", metadata);
        let findings = refused(&[("a.yaml", &object)]);
        let expected = format!("a.yaml, document 1, {expected}");
        assert!(findings.iter().any(|finding| finding.starts_with(&expected)), "{metadata}: {findings:#?}");
    }
    let level = LEVEL.replace(
        "uid:",
        "annotations: {flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares: ''}, uid:",
    );
    assert!(refused(&[("a.yaml", &level)])[0].contains("metadata.annotations: Forbidden"));
    let level = LEVEL.replace("name: my-level", "name: catch-all");
    assert!(refused(&[("a.yaml", &level)])[0].contains("take the object out of the folder"));
}

#[test]
fn of_kinds_versions_and_files() {
    let served = "flowcontrol.apiserver.k8s.io/v1";
    for (name, content, expected) in [
        (
            "a.yaml",
            SCHEMA.replace(served, "flowcontrol.apiserver.k8s.io/v1beta3"),
            "a.yaml, document 1: FlowSchema of \
            \"flowcontrol.apiserver.k8s.io/v1beta3\", which is not served; flowcontrol.apiserver.k8s.io/v1 is; fetch",
        ),
        (
            "a.yaml",
            SCHEMA.replace("apiVersion:", "version:"),
            "a.yaml, document 1: FlowSchema without an apiVersion",
        ),
        ("a.yaml", SCHEMA.replace("kind: FlowSchema", "type: FlowSchema"), "a.yaml, document 1: has no kind"),
        (
            "a.yaml",
            "{apiVersion: v1, kind: ConfigMap}".into(),
            "a.yaml, document 1: kind \"ConfigMap\" of \"v1\" is no",
        ),
        ("a.yaml", "- 1\n- 2\n".into(), "a.yaml, document 1: has no kind"),
        (
            "a.yaml",
            format!(
                "{{apiVersion: v1, kind: List, items: [{{apiVersion: {served}, kind: FlowSchemaList}}]}}"
            ),
            "a.yaml, document 1, item 1: kind \"FlowSchemaList\"",
        ),
        (
            "a.yaml",
            "{apiVersion: v1, kind: List, items: 7}".into(),
            "a.yaml, document 1: items: is not a list",
        ),
        ("a.yaml", format!("{LEVEL}kind: FlowSchema\n"), "a.yaml: is not YAML that usher takes: "),
        ("a.yaml", "a: [".into(), "a.yaml: is not YAML that usher takes: "),
        ("a.json", "{\"a\":".into(), "a.json: is not JSON: "),
        ("a.json", "yaml: 1".into(), "a.json: is not JSON: "),
        (
            "a.json",
            format!("{{\"apiVersion\":\"{served}\",\"kind\":\"FlowSchema\"}} 7 true"),
            "a.json, document 2: has no kind",
        ),
    ] {
        let findings = refused(&[(name, &content)]);
        assert!(findings.iter().any(|finding| finding.starts_with(expected)), "{content}: {findings:#?}");
    }
}

#[test]
fn all_at_once_and_in_order() {
    let bad = SCHEMA.replace("ByUser", "ByMood");
    let findings = refused(&[("b.yaml", &format!("{bad}---\nkind: Pod\n")), ("a.yaml", "a: [")]);
    let starts: Vec<&str> = findings.iter().map(|finding| &finding[..18]).collect();
    assert_eq!(starts, ["a.yaml: is not YAM", "b.yaml, document 2", "b.yaml, document 1"]);
}
