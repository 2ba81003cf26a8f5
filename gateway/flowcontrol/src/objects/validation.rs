//! What is wrong with an object, field by field, in the API's words.
//!
//! An object is filled in ([`super::defaults`]) before it is validated. All errors are reported, in the
//! order in which kube-apiserver reports them, with its field paths and details: whoever knows its
//! messages knows ours. apf-behaviour §1.35 lists the rules; those for names, labels and annotations, which
//! hold for every kind of the API, are in `metadata` and `names`.
//!
//! What is *not* checked: whether the level that a schema refers to exists. That is a condition
//! ([`super::status`]), not an error, because objects come in any order.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{
    CATCH_ALL, EXEMPT, Exempt, FlowSchema, FlowSchemaSpec, LimitResponse, Limited, NamedSubject,
    NonResourceRule, PolicyRules, PriorityLevelConfiguration, PriorityLevelSpec, Queuing, ResourceRule,
    ServiceAccountSubject, Status, Subject, bootstrap,
};

use crate::shuffle::{ENTROPY_BITS_MAX, required_entropy_bits};

mod errors;
mod metadata;
mod names;

pub use errors::{ErrorKind, FieldError};
use errors::{Errors, Path};

/// The highest matching precedence, that of `catch-all`.
pub const MATCHING_PRECEDENCE_MAX: i32 = 10_000;
/// The most queues of a level: what a queue costs, times this, still fits a server's memory.
pub const QUEUES_MAX: i32 = 10_000_000;

/// The verbs that a rule may name; there are others, which only `*` matches.
const VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
/// Set on objects of an old version by a conversion that must not leak into this one.
const PRESERVE_ZERO_SHARES: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

/// Everything that is wrong with a flow schema, its status included; nothing if it is valid.
pub fn check_schema(schema: &FlowSchema) -> Vec<FieldError> {
    let mut errors = Errors::default();
    metadata::check(&mut errors, &schema.metadata);
    let spec = Path::root("spec");
    let name = schema.metadata.name.as_str();
    check_schema_spec(&mut errors, &spec, name, &schema.spec);
    if let Some(fixed) = bootstrap::mandatory_schemas().iter().find(|fixed| fixed.metadata.name == name)
        && fixed.spec != schema.spec
    {
        errors.invalid(&spec, "", format!("spec of '{name}' must equal the fixed value"));
    }
    check_conditions(&mut errors, &schema.status);
    errors.into_list()
}

/// Everything that is wrong with a priority level, its status included; nothing if it is valid.
pub fn check_level(level: &PriorityLevelConfiguration) -> Vec<FieldError> {
    let mut errors = Errors::default();
    metadata::check(&mut errors, &level.metadata);
    if level.metadata.annotations.contains_key(PRESERVE_ZERO_SHARES) {
        let detail = format!("annotation '{PRESERVE_ZERO_SHARES}' is forbidden");
        errors.forbidden(&Path::root("metadata").child("annotations"), &detail);
    }
    let name = level.metadata.name.as_str();
    check_level_spec(&mut errors, &Path::root("spec"), name, &level.spec);
    check_fixed_level(&mut errors, &Path::root("spec"), name, &level.spec);
    check_conditions(&mut errors, &level.status);
    errors.into_list()
}

/// Everything that is wrong with a status: all that counts when only that is written.
pub fn check_status(status: &Status) -> Vec<FieldError> {
    let mut errors = Errors::default();
    check_conditions(&mut errors, status);
    errors.into_list()
}

// === flow schemas ===

fn check_schema_spec(errors: &mut Errors, at: &Path, name: &str, spec: &FlowSchemaSpec) {
    let precedence = at.child("matchingPrecedence");
    if spec.matching_precedence <= 0 {
        errors.invalid(&precedence, spec.matching_precedence, "must be a positive value");
    }
    if spec.matching_precedence > MATCHING_PRECEDENCE_MAX {
        let detail = format!("must not be greater than {MATCHING_PRECEDENCE_MAX}");
        errors.invalid(&precedence, spec.matching_precedence, detail);
    }
    if spec.matching_precedence == 1 && name != EXEMPT {
        let detail = "only the schema named 'exempt' may have matchingPrecedence 1";
        errors.invalid(&precedence, spec.matching_precedence, detail);
    }
    if let Some(method) = &spec.distinguisher_method {
        let at = at.child("distinguisherMethod").child("type");
        errors.one_of(&at, &method.kind, &["ByNamespace", "ByUser"]);
    }
    let at_level = at.child("priorityLevelConfiguration").child("name");
    match spec.priority_level_configuration.name.as_str() {
        "" => errors.required(&at_level, "must reference a priority level"),
        level => errors.invalid_each(&at_level, level, names::subdomain(level)),
    }
    for (index, rules) in spec.rules.iter().enumerate() {
        check_rules(errors, &at.child("rules").index(index), rules);
    }
}

fn check_rules(errors: &mut Errors, at: &Path, rules: &PolicyRules) {
    if rules.subjects.is_empty() {
        errors.required(&at.child("subjects"), "subjects must contain at least one value");
    }
    for (index, subject) in rules.subjects.iter().enumerate() {
        check_subject(errors, &at.child("subjects").index(index), subject);
    }
    if rules.resource_rules.is_empty() && rules.non_resource_rules.is_empty() {
        errors.required(at, "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    for (index, rule) in rules.resource_rules.iter().enumerate() {
        check_resource_rule(errors, &at.child("resourceRules").index(index), rule);
    }
    for (index, rule) in rules.non_resource_rules.iter().enumerate() {
        check_non_resource_rule(errors, &at.child("nonResourceRules").index(index), rule);
    }
}

fn check_subject(errors: &mut Errors, at: &Path, subject: &Subject) {
    // Each member: its kind, its name, and whether it is there; the others are forbidden in this order.
    let members = [
        ("ServiceAccount", "serviceAccount", subject.service_account.is_some()),
        ("User", "user", subject.user.is_some()),
        ("Group", "group", subject.group.is_some()),
    ];
    match subject.kind.as_str() {
        "ServiceAccount" => match &subject.service_account {
            Some(account) => check_service_account(errors, &at.child("serviceAccount"), account),
            None => errors.required_member(at, "serviceAccount", "ServiceAccount"),
        },
        "User" => check_named(errors, at, "user", "User", subject.user.as_ref()),
        "Group" => check_named(errors, at, "group", "Group", subject.group.as_ref()),
        _ => {
            errors.one_of(&at.child("kind"), &subject.kind, &["Group", "ServiceAccount", "User"]);
            return;
        }
    }
    for (kind, member, present) in members {
        if present && subject.kind != kind {
            let detail = format!("{member} is forbidden when subject kind is not '{kind}'");
            errors.forbidden(&at.child(member), &detail);
        }
    }
}

fn check_named(errors: &mut Errors, at: &Path, member: &str, kind: &str, named: Option<&NamedSubject>) {
    match named {
        None => errors.required_member(at, member, kind),
        Some(named) if named.name.is_empty() => errors.required(&at.child(member).child("name"), ""),
        Some(_) => {}
    }
}

fn check_service_account(errors: &mut Errors, at: &Path, account: &ServiceAccountSubject) {
    match account.name.as_str() {
        "" => errors.required(&at.child("name"), ""),
        "*" => {}
        name => errors.invalid_each(&at.child("name"), name, names::subdomain(name)),
    }
    match account.namespace.as_str() {
        "" => errors.required(&at.child("namespace"), "must specify namespace for service account"),
        namespace => errors.invalid_each(&at.child("namespace"), namespace, names::label(namespace)),
    }
}

fn check_resource_rule(errors: &mut Errors, at: &Path, rule: &ResourceRule) {
    check_verbs(errors, &at.child("verbs"), &rule.verbs);
    let groups = at.child("apiGroups");
    match wildcard(&rule.api_groups) {
        Wildcard::Empty => errors.required(&groups, "resource rules must supply at least one api group"),
        Wildcard::Mixed => errors.mixed_wildcard(&groups, &rule.api_groups, "api groups"),
        Wildcard::Alone | Wildcard::Absent => {}
    }
    let resources = at.child("resources");
    match wildcard(&rule.resources) {
        Wildcard::Empty => errors.required(&resources, "resource rules must supply at least one resource"),
        Wildcard::Mixed => errors.mixed_wildcard(&resources, &rule.resources, "resources"),
        Wildcard::Alone | Wildcard::Absent => {}
    }
    let namespaces = at.child("namespaces");
    match wildcard(&rule.namespaces) {
        Wildcard::Empty if !rule.cluster_scope => errors.required(
            &namespaces,
            "resource rules that are not cluster scoped must supply at least one namespace",
        ),
        Wildcard::Mixed => errors.mixed_wildcard(&namespaces, &rule.namespaces, "namespaces"),
        Wildcard::Empty | Wildcard::Alone => {}
        Wildcard::Absent => {
            for (index, namespace) in rule.namespaces.iter().enumerate() {
                let wrong = names::label(namespace).into_iter().map(|wrong| {
                    format!("each member of this list must be '*' or a DNS-1123 label; {wrong}")
                });
                errors.invalid_each(&namespaces.index(index), namespace, wrong);
            }
        }
    }
}

fn check_non_resource_rule(errors: &mut Errors, at: &Path, rule: &NonResourceRule) {
    check_verbs(errors, &at.child("verbs"), &rule.verbs);
    let urls = at.child("nonResourceURLs");
    match wildcard(&rule.non_resource_urls) {
        Wildcard::Empty => errors.required(&urls, "nonResourceURLs must contain at least one value"),
        Wildcard::Mixed => errors.mixed_wildcard(&urls, &rule.non_resource_urls, "non-resource URLs"),
        Wildcard::Alone => {}
        Wildcard::Absent => {
            for (index, url) in rule.non_resource_urls.iter().enumerate() {
                errors.invalid_each(&urls.index(index), url, wrong_with_url(url));
            }
        }
    }
}

fn wrong_with_url(url: &str) -> Option<&'static str> {
    let wildcards = url.matches('*').count();
    match url {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !url.starts_with('/') => Some("must start with slash"),
        _ if url.contains(' ') => Some("must not contain white-space"),
        _ if url.contains("//") => Some("must not contain double slash"),
        _ if wildcards > 1 || (wildcards == 1 && !url.ends_with("/*")) => {
            Some("wildcard can only do suffix matching")
        }
        _ => None,
    }
}

fn check_verbs(errors: &mut Errors, at: &Path, verbs: &[String]) {
    match wildcard(verbs) {
        Wildcard::Empty => errors.required(at, "verbs must contain at least one value"),
        Wildcard::Mixed => errors.mixed_wildcard(at, verbs, "verbs"),
        Wildcard::Alone => {}
        Wildcard::Absent => {
            if verbs.iter().any(|verb| !VERBS.contains(&verb.as_str())) {
                errors.not_supported(at, format!("{verbs:?}"), VERBS);
            }
        }
    }
}

/// How a list uses `*`, which must stand alone.
enum Wildcard {
    Empty,
    Absent,
    Alone,
    Mixed,
}

fn wildcard(list: &[String]) -> Wildcard {
    match list {
        [] => Wildcard::Empty,
        [one] if one == "*" => Wildcard::Alone,
        _ if list.iter().any(|one| one == "*") => Wildcard::Mixed,
        _ => Wildcard::Absent,
    }
}

// === priority levels ===

fn check_level_spec(errors: &mut Errors, at: &Path, name: &str, spec: &PriorityLevelSpec) {
    if (name == EXEMPT) != (spec.kind == "Exempt") {
        let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.invalid(&at.child("type"), &spec.kind, detail);
    }
    match spec.kind.as_str() {
        "Exempt" => {
            if spec.limited.is_some() {
                errors.forbidden(&at.child("limited"), "must be nil if the type is not Limited");
            }
            if let Some(exempt) = &spec.exempt {
                check_exempt(errors, &at.child("exempt"), exempt);
            }
        }
        "Limited" => {
            if spec.exempt.is_some() {
                errors.forbidden(&at.child("exempt"), "must be nil if the type is Limited");
            }
            match &spec.limited {
                Some(limited) => check_limited(errors, &at.child("limited"), limited),
                None => errors.required(&at.child("limited"), "must not be empty when type is Limited"),
            }
        }
        _ => errors.one_of(&at.child("type"), &spec.kind, &["Exempt", "Limited"]),
    }
}

/// The specs of the mandatory levels are fixed, but for the shares of `exempt` and what it lends.
fn check_fixed_level(errors: &mut Errors, at: &Path, name: &str, spec: &PriorityLevelSpec) {
    let mandatory = bootstrap::mandatory_levels();
    let Some(fixed) = mandatory.into_iter().find(|level| level.metadata.name == name) else { return };
    let mut fixed = fixed.spec;
    if name == CATCH_ALL && fixed != *spec {
        errors.invalid(at, "", format!("spec of '{name}' must equal the fixed value"));
    }
    if name == EXEMPT {
        fixed.exempt.clone_from(&spec.exempt);
        if fixed != *spec {
            let detail = "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value";
            errors.invalid(at, "", detail);
        }
    }
}

fn check_exempt(errors: &mut Errors, at: &Path, exempt: &Exempt) {
    check_shares(errors, at, exempt.nominal_concurrency_shares);
    check_lendable(errors, at, exempt.lendable_percent);
}

fn check_limited(errors: &mut Errors, at: &Path, limited: &Limited) {
    check_shares(errors, at, limited.nominal_concurrency_shares);
    check_limit_response(errors, &at.child("limitResponse"), &limited.limit_response);
    check_lendable(errors, at, limited.lendable_percent);
    if let Some(percent) = limited.borrowing_limit_percent
        && percent < 0
    {
        let detail = "if specified, must be a non-negative integer";
        errors.invalid(&at.child("borrowingLimitPercent"), percent, detail);
    }
}

fn check_shares(errors: &mut Errors, at: &Path, shares: Option<i32>) {
    if let Some(shares) = shares
        && shares < 0
    {
        errors.invalid(&at.child("nominalConcurrencyShares"), shares, "must be a non-negative integer");
    }
}

fn check_lendable(errors: &mut Errors, at: &Path, percent: Option<i32>) {
    if let Some(percent) = percent
        && !(0..=100).contains(&percent)
    {
        errors.invalid(&at.child("lendablePercent"), percent, "must be between 0 and 100, inclusive");
    }
}

fn check_limit_response(errors: &mut Errors, at: &Path, response: &LimitResponse) {
    let queuing = at.child("queuing");
    match (response.kind.as_str(), &response.queuing) {
        ("Reject", None) => {}
        ("Reject", Some(_)) => {
            errors.forbidden(&queuing, "must be nil if limited.limitResponse.type is not Limited");
        }
        ("Queue", None) => {
            errors.required(&queuing, "must not be empty if limited.limitResponse.type is Limited");
        }
        ("Queue", Some(shape)) => check_queuing(errors, &queuing, shape),
        _ => errors.one_of(&at.child("type"), &response.kind, &["Queue", "Reject"]),
    }
}

fn check_queuing(errors: &mut Errors, at: &Path, queuing: &Queuing) {
    let Queuing { queues, hand_size, queue_length_limit } = *queuing;
    if queue_length_limit <= 0 {
        errors.invalid(&at.child("queueLengthLimit"), queue_length_limit, "must be positive");
    }
    if queues <= 0 {
        errors.invalid(&at.child("queues"), queues, "must be positive");
    } else if queues > QUEUES_MAX {
        errors.invalid(&at.child("queues"), queues, format!("must not be greater than {QUEUES_MAX}"));
    }
    let at = at.child("handSize");
    if hand_size <= 0 {
        errors.invalid(&at, hand_size, "must be positive");
    } else if hand_size > queues {
        errors.invalid(&at, hand_size, format!("should not be greater than queues ({queues})"));
    } else if required_entropy_bits(queues.unsigned_abs(), hand_size.unsigned_abs()) > ENTROPY_BITS_MAX {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand_size} \
             should not be greater than {ENTROPY_BITS_MAX}"
        );
        errors.invalid(&at, hand_size, detail);
    }
}

// === status ===

fn check_conditions(errors: &mut Errors, status: &Status) {
    let mut seen = BTreeSet::new();
    for (index, condition) in status.conditions.iter().enumerate() {
        let at = Path::root("status").child("conditions").index(index).child("type");
        if !seen.insert(condition.kind.as_str()) {
            errors.duplicate(&at, &condition.kind);
        }
        if condition.kind.is_empty() {
            errors.required(&at, "");
        }
    }
}

#[cfg(test)]
mod tests;
