//! The compiled rules against a naive reading of the same rules.
use super::*;
use crate::objects::{NamedSubject, NonResourceRule, ResourceRule, ServiceAccountSubject, Subject};
use alloc::format;
use alloc::string::ToString;
use proptest::prelude::*;

/// apf-behaviour 1.5 word for word: nothing prepared, everything looked up.
mod naive {
    use super::*;

    pub(super) fn matches(rules: &[PolicyRules], user: User<'_>, info: &RequestInfo<'_>) -> bool {
        rules.iter().any(|rule| {
            rule.subjects.iter().any(|subject| subject_matches(subject, user))
                && if info.is_resource_request() {
                    rule.resource_rules.iter().any(|rule| resource_matches(rule, info))
                } else {
                    rule.non_resource_rules.iter().any(|rule| path_matches(rule, info))
                }
        })
    }

    fn contains(list: &[String], seek: &str) -> bool {
        list.len() == 1 && list[0] == "*" || list.iter().any(|member| member == seek)
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8(bytes.to_vec()).expect("the generator makes text")
    }

    fn subject_matches(subject: &Subject, user: User<'_>) -> bool {
        match (subject.kind.as_str(), &subject.user, &subject.group, &subject.service_account) {
            ("User", Some(named), _, _) => named.name == "*" || named.name == user.name,
            ("Group", _, Some(named), _) => named.name == "*" || user.groups.contains(&named.name),
            ("ServiceAccount", _, _, Some(account)) => {
                let prefix = format!("system:serviceaccount:{}:", account.namespace);
                match user.name.strip_prefix(prefix.as_str()) {
                    Some(name) => account.name == "*" || account.name == name,
                    None => false,
                }
            }
            _ => false,
        }
    }

    fn resource_matches(rule: &ResourceRule, info: &RequestInfo<'_>) -> bool {
        let mut resource = text(info.resource());
        if !info.subresource().is_empty() {
            resource = format!("{resource}/{}", text(info.subresource()));
        }
        let namespace = text(info.namespace());
        contains(&rule.verbs, info.verb())
            && contains(&rule.resources, &resource)
            && contains(&rule.api_groups, &text(info.api_group()))
            && if namespace.is_empty() { rule.cluster_scope } else { contains(&rule.namespaces, &namespace) }
    }

    fn path_matches(rule: &NonResourceRule, info: &RequestInfo<'_>) -> bool {
        let path = text(info.path());
        contains(&rule.verbs, info.verb())
            && rule.non_resource_urls.iter().any(|url| {
                let mut prefix = url.strip_suffix('*').unwrap_or(url).to_string();
                if !prefix.ends_with('/') {
                    prefix.push('/');
                }
                url == "*" || *url == path || path.starts_with(&prefix)
            })
    }
}

fn some(of: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(prop::sample::select(of).prop_map(String::from), 0..=most)
}

fn subject() -> impl Strategy<Value = Subject> {
    let kinds = prop::sample::select(["User", "Group", "ServiceAccount", "Robot"].as_slice());
    let users = prop::sample::select(
        ["*", "alice", "", "system:serviceaccount:ns:a", "system:serviceaccount:ns:"].as_slice(),
    );
    let groups = prop::sample::select(["*", "dev", "system:masters"].as_slice());
    let accounts = prop::sample::select(["*", "a", "", "a:b"].as_slice());
    let namespaces = prop::sample::select(["ns", "n", "", "ns:a"].as_slice());
    let named = |name: &str| NamedSubject { name: name.into() };
    (kinds, users, groups, namespaces, accounts, any::<(bool, bool, bool)>()).prop_map(
        move |(kind, user, group, namespace, name, absent)| Subject {
            kind: kind.into(),
            user: (!absent.0).then(|| named(user)),
            group: (!absent.1).then(|| named(group)),
            service_account: (!absent.2)
                .then(|| ServiceAccountSubject { namespace: namespace.into(), name: name.into() }),
        },
    )
}

fn resource_rule() -> impl Strategy<Value = ResourceRule> {
    (
        some(&["*", "get", "list", "create", "", "watch", "frob"], 2),
        some(&["*", "", "apps"], 2),
        some(&["*", "pods", "pods/status", "pods/", "/status", "pods/*", "namespaces", "pods/status/x"], 2),
        any::<bool>(),
        some(&["*", "ns", "other", ""], 2),
    )
        .prop_map(|(verbs, api_groups, resources, cluster_scope, namespaces)| ResourceRule {
            verbs,
            api_groups,
            resources,
            cluster_scope,
            namespaces,
        })
}

fn path_rule() -> impl Strategy<Value = NonResourceRule> {
    let urls = &["*", "/", "/healthz", "/healthz*", "/healthz/*", "/healthz/", "/a", "", "/a**"];
    (some(&["*", "get", "post", "frob"], 2), some(urls, 2))
        .prop_map(|(verbs, non_resource_urls)| NonResourceRule { verbs, non_resource_urls })
}

fn rules() -> impl Strategy<Value = Vec<PolicyRules>> {
    let rule = (
        prop::collection::vec(subject(), 0..3),
        prop::collection::vec(resource_rule(), 0..3),
        prop::collection::vec(path_rule(), 0..3),
    );
    let rule = rule.prop_map(|(subjects, resource_rules, non_resource_rules)| PolicyRules {
        subjects,
        resource_rules,
        non_resource_rules,
    });
    prop::collection::vec(rule, 0..4)
}

fn target() -> impl Strategy<Value = &'static str> {
    prop::sample::select(
        [
            "/api/v1/pods",
            "/api/v1/namespaces/ns/pods",
            "/api/v1/namespaces/other/pods/x/status",
            "/apis/apps/v1/pods/x/status",
            "/api/v1/namespaces/ns",
            "/api/v1/x//status",
            "/api/v1//x/status",
            "/healthz",
            "/healthz/",
            "/healthz/etcd",
            "/healthzz",
            "/",
            "/a*",
            "/a**",
            "/a*/b",
            "//",
            "/api/v1",
        ]
        .as_slice(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn compiled_rules_are_the_written_ones(
        written in rules(),
        name in prop::sample::select(["alice", "", "system:serviceaccount:ns:a", "system:serviceaccount:ns:", "system:serviceaccount:ns:a:b"].as_slice()),
        groups in some(&["dev", "system:masters", "*"], 2),
        method in prop::sample::select(["GET", "POST", "FROB", "frob", "OPTIONS"].as_slice()),
        target in target(),
    ) {
        let user = User { name, groups: &groups };
        let info = RequestInfo::parse(method, target).expect("valid");
        let compiled = Rules::compile(&written).check(user, &Digest::of(&info));
        prop_assert_eq!(compiled.is_ok(), naive::matches(&written, user, &info), "{:?}", compiled);
    }
}

#[test]
fn the_farthest_rule_says_why() {
    let rule = |verb: &str, resource: &str| ResourceRule {
        verbs: [verb.to_string()].into(),
        api_groups: [String::new()].into(),
        resources: [resource.to_string()].into(),
        cluster_scope: false,
        namespaces: ["*".to_string()].into(),
    };
    let everyone =
        Subject { kind: "User".into(), user: Some(NamedSubject { name: "*".into() }), ..Subject::default() };
    let why = |rules: Vec<ResourceRule>, target: &str| {
        let rules = [PolicyRules {
            subjects: [everyone.clone()].into(),
            resource_rules: rules,
            ..PolicyRules::default()
        }];
        let info = RequestInfo::parse("GET", target).expect("valid");
        Rules::compile(&rules).check(User { name: "a", groups: &[] }, &Digest::of(&info))
    };
    assert_eq!(why([].into(), "/api/v1/pods"), Err(Mismatch::Sort));
    assert_eq!(why([rule("*", "*")].into(), "/healthz"), Err(Mismatch::Sort));
    assert_eq!(why([rule("create", "*")].into(), "/api/v1/pods"), Err(Mismatch::Verb));
    assert_eq!(why([rule("*", "*"), rule("*", "nodes")].into(), "/api/v1/pods"), Err(Mismatch::Namespace));
    assert_eq!(why([rule("*", "nodes")].into(), "/api/v1/pods"), Err(Mismatch::Resource));
    assert_eq!(why([rule("*", "*")].into(), "/apis/g/v1/pods"), Err(Mismatch::ApiGroup));
    assert_eq!(why([rule("*", "*")].into(), "/api/v1/namespaces/a/pods"), Ok(()));
    assert_eq!(
        Rules::compile(&[]).check(
            User { name: "a", groups: &[] },
            &Digest::of(&RequestInfo::parse("GET", "/").expect("valid"))
        ),
        Err(Mismatch::NoRules)
    );
}
