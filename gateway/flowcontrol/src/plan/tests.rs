//! Order, references, what is mandatory; equal objects make equal plans.
use super::*;
use crate::level::Mode;
use crate::objects::bootstrap::{suggested_levels, suggested_schemas};
use crate::objects::{
    LevelReference, LimitResponse, NamedSubject, PolicyRules, Queuing, ResourceRule, Subject,
};
use crate::shuffle::InvalidHand;
use alloc::string::ToString;
use proptest::prelude::*;

fn schema(name: &str, precedence: i32, level: &str) -> FlowSchema {
    let mut schema = FlowSchema::default();
    schema.metadata.name = name.into();
    schema.spec.matching_precedence = precedence;
    schema.spec.priority_level_configuration = LevelReference { name: level.into() };
    schema
}

fn level(name: &str, queues: i32, hand_size: i32) -> PriorityLevelConfiguration {
    let mut level = suggested_levels().remove(0);
    level.metadata.name = name.into();
    let queuing = Some(Queuing { queues, hand_size, queue_length_limit: 50 });
    if let Some(limited) = &mut level.spec.limited {
        limited.limit_response = LimitResponse { kind: "Queue".into(), queuing };
    }
    level
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.schemas().iter().map(|schema| schema.name.as_str()).collect()
}

#[test]
fn the_built_in_ones_stand_first_and_last() {
    let plan = Plan::compile(&[schema("b", 0, "l"), schema("a", i32::MAX, "l")], &[level("l", 2, 1)]);
    assert_eq!(names(&plan), ["exempt", "b", "a", "catch-all"]);
    let levels: Vec<_> = plan.levels().iter().map(|level| (level.name.as_str(), level.built_in)).collect();
    assert_eq!(levels, [("catch-all", true), ("exempt", true), ("l", false)]);
    let own = Plan::compile(&[schema("exempt", 5, "exempt"), schema("a", 3, "l")], &[level("l", 2, 1)]);
    assert_eq!(names(&own), ["a", "exempt", "catch-all"]);
}

#[test]
fn mandatory_levels_never_dangle() {
    let schemas = [schema("probes", 2, "exempt"), schema("rest", 3, "catch-all"), schema("lost", 4, "l")];
    let plan = Plan::compile(&schemas, &[]);
    assert_eq!(names(&plan), ["exempt", "probes", "rest", "catch-all"]);
    assert_eq!(plan.dangling(), [Dangling { schema: "lost".into(), level: "l".into() }]);
    let there = Plan::compile_as_given(&schemas, &[]);
    assert_eq!(names(&there), ["exempt", "catch-all"]);
    assert_eq!(there.dangling().len(), 3);
}

#[test]
fn exempt_may_lack_what_it_lends() {
    let mut exempt =
        mandatory_levels().into_iter().find(|level| level.metadata.name == EXEMPT).expect("mandatory");
    exempt.spec.exempt = None;
    exempt.metadata.uid = "u".into();
    let levels = [exempt];
    let uid =
        |plan: &Plan| plan.levels().iter().find(|level| level.name == EXEMPT).map(|level| level.uid.clone());
    let plan = Plan::compile(&[], &levels);
    assert_eq!((uid(&plan).as_deref(), plan.unusable()), (Some("u"), &[][..]));
    let there = Plan::compile_as_given(&[], &levels);
    assert_eq!(
        (uid(&there).as_deref(), there.unusable()),
        (Some(""), &[("exempt".to_string(), Unusable::Kind)][..])
    );
}

#[test]
fn what_is_unusable_counts_as_absent() {
    let mut surplus = level("surplus", 2, 1);
    surplus.spec.exempt = Some(crate::objects::Exempt::default());
    let mut missing = level("missing", 2, 1);
    missing.spec.limited = None;
    let mut mixed = level("mixed", 2, 1);
    mixed.spec.limited.as_mut().expect("limited").limit_response.kind = "Reject".into();
    let mut named =
        mandatory_levels().into_iter().find(|level| level.metadata.name == EXEMPT).expect("mandatory");
    named.metadata.name = "named".into();
    let levels =
        [surplus, missing, mixed, named, level("hand", 512, 8), level("none", 0, 0), level("less", -1, 1)];
    let plan = Plan::compile(&[schema("s", 1, "hand")], &levels);
    let why: Vec<_> = plan.unusable().iter().map(|(name, why)| (name.as_str(), why.clone())).collect();
    let hand = Unusable::Hand(InvalidHand::TooMuchEntropy { deck: 512, hand: 8 });
    assert_eq!(
        why,
        [
            ("hand", hand),
            ("missing", Unusable::Kind),
            ("mixed", Unusable::Response),
            ("named", Unusable::Name),
            ("surplus", Unusable::Kind),
        ]
    );
    let modes: Vec<_> = plan.levels().iter().map(|level| (level.name.as_str(), level.mode)).collect();
    assert_eq!(
        modes,
        [
            ("catch-all", Mode::Reject),
            ("exempt", Mode::Exempt),
            ("less", Mode::Reject),
            ("none", Mode::Reject),
        ]
    );
    assert_eq!(plan.dangling().len(), 1);
}

#[test]
fn only_levels_that_say_queue_tell_flows_apart() {
    let mut odd = level("odd", 8, 2);
    if let Some(limited) = &mut odd.spec.limited {
        limited.limit_response.kind = "Foo".into();
    }
    let plan = Plan::compile(&[], &[level("many", 8, 2), odd, level("one", 1, 1)]);
    let told: Vec<_> =
        plan.levels().iter().map(|level| (level.name.as_str(), level.tells_flows_apart)).collect();
    assert_eq!(
        told,
        [("catch-all", false), ("exempt", false), ("many", true), ("odd", false), ("one", false)]
    );
}

#[test]
fn nobody_in_particular_goes_to_the_catch_all() {
    let plan = Plan::compile(&suggested_schemas(), &suggested_levels());
    let info = RequestInfo::parse("GET", "/api/v1/pods").expect("valid");
    let user = User { name: "a", groups: &[] };
    let found = plan.classify(user, &info);
    assert_eq!((plan.schemas()[found.schema].name.as_str(), found.matched), (CATCH_ALL, false));
    assert_eq!(plan.mismatches(user, &info).count(), plan.schemas().len());
    let groups = ["system:nodes".to_string()];
    let node = User { name: "system:node:n", groups: &groups };
    let found = plan.classify(node, &info);
    assert_eq!((plan.schemas()[found.schema].name.as_str(), found.matched), ("system-nodes", true));
    assert_eq!(plan.distinguisher(found.schema, node, &info), Some(&b"system:node:n"[..]));
    let why: Vec<_> = plan.mismatches(node, &info).map(|(schema, why)| (schema.name.as_str(), why)).collect();
    assert_eq!(why.last(), Some(&("system-node-high", Mismatch::Resource)));
    assert_eq!(why.len(), found.schema);
}

/// A schema for one user (or all) and one verb (or all).
fn narrow(name: &str, precedence: i32, user: &str, verb: &str) -> FlowSchema {
    let list = |text: &str| Vec::from([text.to_string()]);
    let mut schema = schema(name, precedence, "l");
    let user = Some(NamedSubject { name: user.into() });
    schema.spec.rules = [PolicyRules {
        subjects: [Subject { kind: "User".into(), user, ..Subject::default() }].into(),
        resource_rules: [ResourceRule {
            verbs: list(verb),
            api_groups: list("*"),
            resources: list("*"),
            cluster_scope: true,
            namespaces: list("*"),
        }]
        .into(),
        ..PolicyRules::default()
    }]
    .into();
    schema
}

proptest! {
    /// Of all schemas that match, found by asking each of them, the one of least precedence, then name.
    #[test]
    fn the_best_match_is_the_least_of_all_matches(
        written in prop::collection::vec((1..4_i32, 0..3_usize, 0..3_usize), 0..9),
        user in 0..2_usize,
        verb in 0..2_usize,
        master in any::<bool>(),
    ) {
        let (users, verbs, methods) = (["alice", "bob", "*"], ["get", "create", "*"], ["GET", "POST"]);
        let name = |index: usize| alloc::format!("s{}", index * 7 % 10);
        let objects: Vec<_> = written
            .iter()
            .enumerate()
            .map(|(index, &(precedence, user, verb))| narrow(&name(index), precedence, users[user], verbs[verb]))
            .collect();
        let plan = Plan::compile(&objects, &[level("l", 2, 1)]);
        let groups: Vec<String> = master.then(|| "system:masters".into()).into_iter().collect();
        let info = RequestInfo::parse(methods[verb], "/api/v1/pods/x").expect("valid");
        let found = plan.classify(User { name: users[user], groups: &groups }, &info);

        let fits = |wanted: usize, is: usize| wanted == 2 || wanted == is;
        let matches = (0..).zip(&written).filter(|(_, (_, of, on))| fits(*of, user) && fits(*on, verb));
        let least = matches.map(|(index, (precedence, _, _))| (*precedence, name(index))).min();
        let expected = if master { Some(EXEMPT.into()) } else { least.map(|(_, name)| name) };
        prop_assert_eq!(found.matched, expected.is_some());
        prop_assert_eq!(&plan.schemas()[found.schema].name, expected.as_deref().unwrap_or(CATCH_ALL));
    }

    #[test]
    fn the_order_of_objects_does_not_matter(
        schemas in Just(suggested_schemas()).prop_shuffle(),
        levels in Just(suggested_levels()).prop_shuffle(),
    ) {
        let plan = Plan::compile(&schemas, &levels);
        let sorted = Plan::compile(&suggested_schemas(), &suggested_levels());
        prop_assert_eq!(alloc::format!("{plan:?}"), alloc::format!("{sorted:?}"));
    }

    #[test]
    fn levels_and_catch_all_are_where_they_say(
        schemas in prop::collection::vec((0..6_usize, any::<i32>(), 0..4_usize), 0..8),
    ) {
        let names = ["exempt", "catch-all", "a", "b", "c", "d"];
        let levels = ["exempt", "catch-all", "l", "absent"];
        let objects: Vec<_> =
            schemas.iter().map(|&(name, precedence, level)| schema(names[name], precedence, levels[level])).collect();
        let given = [level("l", 2, 1)];
        for plan in [Plan::compile(&objects, &given), Plan::compile_as_given(&objects, &given)] {
            prop_assert_eq!(&plan.schemas()[plan.catch_all].name, CATCH_ALL);
            prop_assert!(plan.schemas().iter().any(|schema| schema.name == EXEMPT));
            prop_assert!(plan.schemas().iter().all(|schema| schema.level < plan.levels().len()));
            prop_assert!(plan.levels().is_sorted_by(|one, other| one.name < other.name));
        }
    }
}
