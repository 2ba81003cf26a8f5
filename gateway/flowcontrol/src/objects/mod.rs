//! The two API kinds, `flowcontrol.apiserver.k8s.io/v1`, as plain values.
//!
//! Nothing is read from text here: with the feature `serde` these types speak it as the API does (`wire`),
//! and the gateway's `config` room reads YAML and JSON with that. As in the API, an absent list is an
//! empty list and an absent struct that is not optional is an empty one; optional members are `Option`.
//!
//! What is *not* here: the `apiVersion` and `kind` beside an object (whoever reads it looks at them first)
//! and the members of its metadata that flow control never looks at (`managedFields`, owners).

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

#[macro_use]
mod wire;

pub mod bootstrap;
pub mod defaults;
pub mod maintenance;
pub mod status;
mod time;
pub mod validation;

pub use time::Time;

/// The one API version that is served.
pub const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";
/// Name of the mandatory level and schema that nothing limits.
pub const EXEMPT: &str = "exempt";
/// Name of the mandatory level and schema for what nothing else matched.
pub const CATCH_ALL: &str = "catch-all";
/// Annotation: whether the maintenance loop keeps an object's spec as built in.
pub const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

objects! {
    /// Which requests go to which priority level, and what tells their flows apart.
    pub struct FlowSchema {
        /// Name, UID, annotations.
        pub metadata: ObjectMeta,
        /// What its author wants.
        pub spec: FlowSchemaSpec,
        /// What the controllers found.
        pub status: Status,
    }

    /// A priority level: its share of the seats and what happens to what does not fit.
    pub struct PriorityLevelConfiguration {
        /// Name, UID, annotations.
        pub metadata: ObjectMeta,
        /// What its author wants.
        pub spec: PriorityLevelSpec,
        /// What the controllers found.
        pub status: Status,
    }

    /// The part of `metav1.ObjectMeta` that flow control looks at.
    pub struct ObjectMeta {
        /// Name, unique among objects of its kind.
        pub name: String,
        /// Prefix for a generated name.
        pub generate_name: String,
        /// Must be empty: both kinds are cluster-scoped.
        pub namespace: String,
        /// UID as the API server gave it; empty for objects that exist only here.
        pub uid: String,
        /// Version in the store.
        pub resource_version: String,
        /// Counts changes of the spec.
        pub generation: i64,
        /// When the API server first stored it.
        pub creation_timestamp: Option<Time>,
        /// Labels.
        pub labels: BTreeMap<String, String>,
        /// Annotations; `apf.kubernetes.io/autoupdate-spec` is ours.
        pub annotations: BTreeMap<String, String>,
        /// Finalizers.
        pub finalizers: Vec<String>,
    }

    /// Spec of a [`FlowSchema`].
    pub struct FlowSchemaSpec {
        /// The level its requests go to.
        pub priority_level_configuration: LevelReference,
        /// The lowest value among the schemas that match wins.
        pub matching_precedence: i32,
        /// What tells flows apart; absent: one flow.
        pub distinguisher_method: Option<DistinguisherMethod>,
        /// It matches if one of these does.
        pub rules: Vec<PolicyRules>,
    }

    /// Names a priority level.
    pub struct LevelReference {
        /// Name of the level.
        pub name: String,
    }

    /// How flows of one schema are told apart.
    pub struct DistinguisherMethod {
        /// `ByUser` or `ByNamespace`.
        #[cfg_attr(feature = "serde", serde(rename = "type"))]
        pub kind: String,
    }

    /// Subjects and what they do: a request matches if a subject and a rule of its sort match.
    pub struct PolicyRules {
        /// Who.
        pub subjects: Vec<Subject>,
        /// What, for resource requests.
        pub resource_rules: Vec<ResourceRule>,
        /// What, for the others.
        pub non_resource_rules: Vec<NonResourceRule>,
    }

    /// Who makes the request; a union discriminated by `kind`.
    pub struct Subject {
        /// `User`, `Group` or `ServiceAccount`.
        pub kind: String,
        /// A user, or `*`.
        pub user: Option<NamedSubject>,
        /// A group, or `*`.
        pub group: Option<NamedSubject>,
        /// A service account.
        pub service_account: Option<ServiceAccountSubject>,
    }

    /// A user or a group.
    pub struct NamedSubject {
        /// Its name, or `*` for all.
        pub name: String,
    }

    /// A service account.
    pub struct ServiceAccountSubject {
        /// Its namespace.
        pub namespace: String,
        /// Its name, or `*` for all of the namespace.
        pub name: String,
    }

    /// Matches resource requests.
    pub struct ResourceRule {
        /// Verbs, or `*` alone.
        pub verbs: Vec<String>,
        /// API groups, or `*` alone; the core group is empty.
        pub api_groups: Vec<String>,
        /// `resource` or `resource/subresource`, or `*` alone.
        pub resources: Vec<String>,
        /// Whether requests without a namespace match.
        pub cluster_scope: bool,
        /// Namespaces, or `*` alone.
        pub namespaces: Vec<String>,
    }

    /// Matches requests that are about no resource.
    pub struct NonResourceRule {
        /// Lower-cased methods, or `*` alone.
        pub verbs: Vec<String>,
        /// Paths; a final `/*` covers what is below.
        #[cfg_attr(feature = "serde", serde(rename = "nonResourceURLs"))]
        pub non_resource_urls: Vec<String>,
    }

    /// Spec of a [`PriorityLevelConfiguration`]; a union discriminated by `type`.
    pub struct PriorityLevelSpec {
        /// `Limited` or `Exempt`.
        #[cfg_attr(feature = "serde", serde(rename = "type"))]
        pub kind: String,
        /// Present if limited.
        pub limited: Option<Limited>,
        /// Present if exempt.
        pub exempt: Option<Exempt>,
    }

    /// How a limited level is limited.
    pub struct Limited {
        /// Its share of the seats.
        pub nominal_concurrency_shares: Option<i32>,
        /// What happens to what does not fit.
        pub limit_response: LimitResponse,
        /// How much of its nominal limit others may borrow.
        pub lendable_percent: Option<i32>,
        /// How much it may borrow, in percent of its nominal limit; absent: no limit.
        pub borrowing_limit_percent: Option<i32>,
    }

    /// What an exempt level lends.
    pub struct Exempt {
        /// Its share of the seats.
        pub nominal_concurrency_shares: Option<i32>,
        /// How much of its nominal limit others may borrow.
        pub lendable_percent: Option<i32>,
    }

    /// What happens to a request that cannot run now; a union discriminated by `type`.
    pub struct LimitResponse {
        /// `Queue` or `Reject`.
        #[cfg_attr(feature = "serde", serde(rename = "type"))]
        pub kind: String,
        /// Present if it queues.
        pub queuing: Option<Queuing>,
    }

    /// Shape of a queue set.
    pub struct Queuing {
        /// Number of queues.
        pub queues: i32,
        /// Queues dealt to a flow.
        pub hand_size: i32,
        /// Requests that may wait in one queue.
        pub queue_length_limit: i32,
    }

    /// Status of either kind.
    pub struct Status {
        /// Keyed by type.
        pub conditions: Vec<Condition>,
    }

    /// One condition of a status.
    pub struct Condition {
        /// Type: `Dangling` is the one that is written.
        #[cfg_attr(feature = "serde", serde(rename = "type"))]
        pub kind: String,
        /// `True`, `False` or `Unknown`.
        pub status: String,
        /// When its status last changed.
        pub last_transition_time: Option<Time>,
        /// In one word.
        pub reason: String,
        /// For people.
        pub message: String,
    }
}
