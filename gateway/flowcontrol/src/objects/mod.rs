//! The two API kinds, `flowcontrol.apiserver.k8s.io/v1`, as plain values.
//!
//! Nothing is read from text here: with the feature `serde` these types derive it, and the gateway's
//! `config` room reads YAML and JSON with that. As in the API, an absent list is an empty list and an
//! absent struct that is not optional is an empty one; optional members are `Option`.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

pub mod bootstrap;
pub mod defaults;
pub mod maintenance;
pub mod status;
pub mod validation;

/// Name of the mandatory level and schema that nothing limits.
pub const EXEMPT: &str = "exempt";
/// Name of the mandatory level and schema for what nothing else matched.
pub const CATCH_ALL: &str = "catch-all";

/// Which requests go to which priority level, and what tells their flows apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, rename_all = "camelCase")
)]
pub struct FlowSchema {
    /// Name, UID, annotations.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub metadata: ObjectMeta,
    /// What its author wants.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub spec: FlowSchemaSpec,
    /// What the controllers found.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub status: Status,
}

/// A priority level: its share of the seats and what happens to what does not fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, rename_all = "camelCase")
)]
pub struct PriorityLevelConfiguration {
    /// Name, UID, annotations.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub metadata: ObjectMeta,
    /// What its author wants.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub spec: PriorityLevelSpec,
    /// What the controllers found.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub status: Status,
}

/// The part of `metav1.ObjectMeta` that flow control looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, rename_all = "camelCase")
)]
pub struct ObjectMeta {
    /// Name, unique among objects of its kind.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub name: String,
    /// Prefix for a generated name.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub generate_name: String,
    /// Must be empty: both kinds are cluster-scoped.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub namespace: String,
    /// UID as the API server gave it; empty for objects that exist only here.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub uid: String,
    /// Version in the store.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub resource_version: String,
    /// Counts changes of the spec.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub generation: i64,
    /// Labels.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub labels: BTreeMap<String, String>,
    /// Annotations; `apf.kubernetes.io/autoupdate-spec` is ours.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub annotations: BTreeMap<String, String>,
    /// Finalizers.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub finalizers: Vec<String>,
}

/// Spec of a [`FlowSchema`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, rename_all = "camelCase")
)]
pub struct FlowSchemaSpec {
    /// The level its requests go to.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub priority_level_configuration: LevelReference,
    /// The lowest value among the schemas that match wins.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub matching_precedence: i32,
    /// What tells flows apart; absent: one flow.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub distinguisher_method: Option<DistinguisherMethod>,
    /// It matches if one of these does.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub rules: Vec<PolicyRules>,
}

/// Names a priority level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, rename_all = "camelCase")
)]
pub struct LevelReference {
    /// Name of the level.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub name: String,
}

/// How flows of one schema are told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, rename_all = "camelCase")
)]
pub struct DistinguisherMethod {
    /// `ByUser` or `ByNamespace`.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default", rename = "type"))]
    pub kind: String,
}

/// Subjects and what they do: a request matches if a subject and a rule of its sort match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, rename_all = "camelCase")
)]
pub struct PolicyRules {
    /// Who.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub subjects: Vec<Subject>,
    /// What, for resource requests.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub resource_rules: Vec<ResourceRule>,
    /// What, for the others.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub non_resource_rules: Vec<NonResourceRule>,
}

/// Who makes the request; a union discriminated by `kind`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, rename_all = "camelCase")
)]
pub struct Subject {
    /// `User`, `Group` or `ServiceAccount`.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub kind: String,
    /// A user, or `*`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub user: Option<NamedSubject>,
    /// A group, or `*`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub group: Option<NamedSubject>,
    /// A service account.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub service_account: Option<ServiceAccountSubject>,
}

/// A user or a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, rename_all = "camelCase")
)]
pub struct NamedSubject {
    /// Its name, or `*` for all.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub name: String,
}

/// A service account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, rename_all = "camelCase")
)]
pub struct ServiceAccountSubject {
    /// Its namespace.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub namespace: String,
    /// Its name, or `*` for all of the namespace.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub name: String,
}

/// Matches resource requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, rename_all = "camelCase")
)]
pub struct ResourceRule {
    /// Verbs, or `*` alone.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub verbs: Vec<String>,
    /// API groups, or `*` alone; the core group is empty.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub api_groups: Vec<String>,
    /// `resource` or `resource/subresource`, or `*` alone.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub resources: Vec<String>,
    /// Whether requests without a namespace match.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub cluster_scope: bool,
    /// Namespaces, or `*` alone.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub namespaces: Vec<String>,
}

/// Matches requests that are about no resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, rename_all = "camelCase")
)]
pub struct NonResourceRule {
    /// Lower-cased methods, or `*` alone.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub verbs: Vec<String>,
    /// Paths; a final `/*` covers what is below.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default", rename = "nonResourceURLs"))]
    pub non_resource_urls: Vec<String>,
}

/// Spec of a [`PriorityLevelConfiguration`]; a union discriminated by `type`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, rename_all = "camelCase")
)]
pub struct PriorityLevelSpec {
    /// `Limited` or `Exempt`.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default", rename = "type"))]
    pub kind: String,
    /// Present if limited.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub limited: Option<Limited>,
    /// Present if exempt.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub exempt: Option<Exempt>,
}

/// How a limited level is limited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, rename_all = "camelCase")
)]
pub struct Limited {
    /// Its share of the seats.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub nominal_concurrency_shares: Option<i32>,
    /// What happens to what does not fit.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub limit_response: LimitResponse,
    /// How much of its nominal limit others may borrow.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub lendable_percent: Option<i32>,
    /// How much it may borrow, in percent of its nominal limit; absent: no limit.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub borrowing_limit_percent: Option<i32>,
}

/// What an exempt level lends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, rename_all = "camelCase")
)]
pub struct Exempt {
    /// Its share of the seats.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub nominal_concurrency_shares: Option<i32>,
    /// How much of its nominal limit others may borrow.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub lendable_percent: Option<i32>,
}

/// What happens to a request that cannot run now; a union discriminated by `type`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, rename_all = "camelCase")
)]
pub struct LimitResponse {
    /// `Queue` or `Reject`.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default", rename = "type"))]
    pub kind: String,
    /// Present if it queues.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub queuing: Option<Queuing>,
}

/// Shape of a queue set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, rename_all = "camelCase")
)]
pub struct Queuing {
    /// Number of queues.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub queues: i32,
    /// Queues dealt to a flow.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub hand_size: i32,
    /// Requests that may wait in one queue.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub queue_length_limit: i32,
}

/// Status of either kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, rename_all = "camelCase")
)]
pub struct Status {
    /// Keyed by type.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub conditions: Vec<Condition>,
}

/// One condition of a status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, rename_all = "camelCase")
)]
pub struct Condition {
    /// Type: `Dangling` is the one that is written.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default", rename = "type"))]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub status: String,
    /// RFC 3339.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub last_transition_time: Option<String>,
    /// In one word.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub reason: String,
    /// For people.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "wire::or_default"))]
    pub message: String,
}

#[cfg(feature = "serde")]
mod wire {
    //! How absent and `null` members are read.
    use serde::{Deserialize, Deserializer};

    /// `null` means the same as absent: the empty value.
    pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
        from: D,
    ) -> Result<T, D::Error> {
        Option::<T>::deserialize(from).map(Option::unwrap_or_default)
    }
}
