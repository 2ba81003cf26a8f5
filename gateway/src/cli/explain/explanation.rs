//! The explanation as plain values; also its JSON.

use serde::Serialize;
use usher_flowcontrol::classify::{Mismatch, User as Subject};
use usher_flowcontrol::controller::{self, Controller};
use usher_flowcontrol::estimate::{self, Facts, Stats};
use usher_flowcontrol::flow::Method;
use usher_flowcontrol::level::Mode;
use usher_flowcontrol::request_info::RequestInfo;
use usher_flowcontrol::units::{Nanos, Seats, Work};
use usher_flowcontrol::wait_limit::{Execution, default_limit};

use crate::config::objects::Objects;
use crate::config::options::FlowControl;

/// Where a request goes, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What the request is about.
    pub request: Request,
    /// Who makes it.
    pub user: User,
    /// Whether flow control looks at it; if not, nothing follows.
    pub managed: bool,
    /// Schemas that were tried and did not match, in order.
    pub refusals: Vec<Refusal>,
    /// Where it goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

/// What a request is about (Kubernetes' `RequestInfo`).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are the API's")]
pub struct Request {
    pub method: String,
    pub target: String,
    pub is_resource_request: bool,
    pub verb: String,
    pub path: String,
    pub api_prefix: String,
    pub api_group: String,
    pub api_version: String,
    pub namespace: String,
    pub resource: String,
    pub subresource: String,
    pub name: String,
    pub field_selector: String,
    pub label_selector: String,
    pub long_running: bool,
}

/// Who makes a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its groups, those that authentication adds included.
    pub groups: Vec<String>,
}

/// A schema that did not match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// Its name.
    pub schema: String,
    /// Its precedence.
    pub precedence: i32,
    /// How far the request got with it, in one word.
    pub reason: &'static str,
    /// The same in a sentence.
    pub message: String,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// Its schema.
    pub schema: Named,
    /// The schema's precedence.
    pub precedence: i32,
    /// Whether the schema matched; if not, it is `catch-all` for want of another.
    pub matched: bool,
    /// Its level.
    pub level: Named,
    /// What the level does with what does not fit: `exempt`, `reject` or `queue`.
    pub response: &'static str,
    /// The level's queues, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<Queues>,
    /// Its flow among those of the schema.
    pub flow: Flow,
    /// Seats.
    pub seats: SeatCounts,
    /// How long it may wait for them, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_limit_seconds: Option<f64>,
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Its UID; empty for one that is built in.
    pub uid: String,
}

/// A level's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Queues {
    /// How many.
    pub count: u32,
    /// How many of them a flow may use.
    pub hand_size: u8,
    /// How many requests wait in one.
    pub length_limit: u32,
}

/// What tells a flow from others of its schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Flow {
    /// `ByUser` or `ByNamespace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<&'static str>,
    /// Name of that user or namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distinguisher: Option<String>,
    /// Hash of schema and distinguisher, in hexadecimal as JSON's numbers are too small for it; 0 at levels
    /// with one queue or none.
    pub hash: String,
    /// Indexes of the queues that it may use, in dealing order.
    pub hand: Vec<u32>,
}

/// Seats of the request and of its level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeatCounts {
    /// What it occupies while it executes, as estimated from what is known.
    pub initial: u64,
    /// What it occupies afterwards, while others are notified of its change.
    pub afterwards: u64,
    /// How long that takes, in seconds.
    pub lingers_seconds: f64,
    /// The widest that the level lets a request be estimated; 0: it says nothing.
    pub max: u64,
    /// The level's nominal limit.
    pub level_nominal: u64,
    /// What the level never lends.
    pub level_minimum: u64,
    /// What it has with all that it can borrow.
    pub level_maximum: u64,
}

/// What is to be explained.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// Who asks.
    pub user: User,
    /// Method of the request.
    pub method: &'a str,
    /// Its URL, or path and query.
    pub url: &'a str,
    /// What its cost is estimated from.
    pub known: Known,
}

/// What its cost is estimated from.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Number and size of the resource's objects.
    pub statistics: Stats,
    /// Watches that a write has to notify.
    pub watches: u64,
}

/// Why there is no explanation.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The method is none.
    #[error("{0:?} is no HTTP method; give GET, POST, PUT, PATCH, DELETE or another token")]
    Method(String),
    /// The URL is none.
    #[error("{0:?} is no URL; give https://HOST/PATH?QUERY or /PATH?QUERY")]
    Url(String),
    /// kube-apiserver would not understand the request.
    #[error("kube-apiserver refuses such a request: {0}")]
    Refused(String),
}

// === impl Explanation ===

impl Explanation {
    /// Explains a request under these objects.
    ///
    /// # Errors
    /// [`Fault`]: method or URL are none, or the request would be refused before it is classified.
    pub fn of(objects: &Objects, options: &FlowControl, question: Question<'_>) -> Result<Self, Fault> {
        let Question { user, method, url, known } = question;
        http::Method::from_bytes(method.as_bytes()).map_err(|_| Fault::Method(method.into()))?;
        let target = target(url)?;
        let refused = |error: &dyn std::fmt::Display| Fault::Refused(error.to_string());
        let info = RequestInfo::parse(method, &target).map_err(|error| refused(&error))?;
        let timeout = Nanos(i64::try_from(options.request_timeout.as_nanos()).unwrap_or(i64::MAX));
        let received = Nanos::ZERO;
        let execution = Execution::of(&info, received, timeout).map_err(|error| refused(&error))?;
        let request = Request::of(method, &target, &info);
        if info.bypasses_flow_control() {
            return Ok(Self { request, user, managed: false, refusals: Vec::new(), place: None });
        }

        let server =
            u64::from(options.max_requests_inflight) + u64::from(options.max_mutating_requests_inflight);
        let mut controller = Controller::new(received, Seats(server.max(1)));
        controller.configure(received, &objects.schemas, &objects.levels);
        let subject = Subject { name: &user.name, groups: &user.groups };
        let found = controller.explain(subject, &info);
        let refusals = found.refusals.iter().map(|refusal| Refusal {
            schema: refusal.schema.clone(),
            precedence: refusal.precedence,
            reason: reason(refusal.why),
            message: sentence(refusal.why, &request),
        });
        let refusals = refusals.collect();
        let wait = execution.wait_deadline(received, received, default_limit(timeout));
        let facts = Facts {
            statistics: known.statistics,
            watches: known.watches,
            max_seats: found.max_seats,
            consistent_reads: true,
        };
        let place = Place::of(&mut controller, &found, estimate::work(&info, &facts), wait);
        Ok(Self { request, user, managed: true, refusals, place })
    }
}

/// Path and query of a URL.
fn target(url: &str) -> Result<String, Fault> {
    if url.starts_with('/') {
        return Ok(url.to_owned());
    }
    let behind = url.split_once("://").map(|(_, behind)| behind).ok_or_else(|| Fault::Url(url.into()))?;
    Ok(match behind.find(['/', '?']) {
        Some(start) if behind[start..].starts_with('/') => behind[start..].to_owned(),
        Some(start) => format!("/{}", &behind[start..]),
        None => "/".to_owned(),
    })
}

// === impl Request ===

impl Request {
    fn of(method: &str, target: &str, info: &RequestInfo<'_>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            method: method.into(),
            target: target.into(),
            is_resource_request: info.is_resource_request(),
            verb: info.verb().into(),
            path: text(info.path()),
            api_prefix: text(info.api_prefix()),
            api_group: text(info.api_group()),
            api_version: text(info.api_version()),
            namespace: text(info.namespace()),
            resource: text(info.resource()),
            subresource: text(info.subresource()),
            name: text(info.name()),
            field_selector: text(&info.field_selector()),
            label_selector: text(&info.label_selector()),
            long_running: info.is_long_running(),
        }
    }

    /// `pods`, `pods/log`.
    pub(super) fn resource_and_subresource(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }
}

// === impl User ===

const ANONYMOUS: &str = "system:anonymous";
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

impl User {
    /// With the groups that kube-apiserver's authentication gives such a user.
    pub fn complete(name: Option<&str>, groups: &[String]) -> Self {
        let name = name.unwrap_or(ANONYMOUS);
        let mut groups = groups.to_vec();
        let mut add = |group: &str| {
            if !groups.iter().any(|known| known == group) {
                groups.push(group.to_owned());
            }
        };
        if let Some((namespace, _)) =
            name.strip_prefix(SERVICE_ACCOUNT_PREFIX).and_then(|account| account.split_once(':'))
        {
            add("system:serviceaccounts");
            add(&format!("system:serviceaccounts:{namespace}"));
        }
        add(if name == ANONYMOUS { "system:unauthenticated" } else { "system:authenticated" });
        Self { name: name.to_owned(), groups }
    }
}

// === impl Place ===

impl Place {
    fn of(
        controller: &mut Controller,
        found: &controller::Explanation,
        work: Work,
        wait: Option<Nanos>,
    ) -> Option<Self> {
        let snapshot = controller.snapshot(Nanos::ZERO);
        let schema = controller.plan().schemas().iter().find(|schema| schema.name == found.schema)?;
        let level = snapshot.levels.iter().find(|level| *level.name == *found.level)?;
        let queues = match found.mode {
            Mode::Queue { queues, hand_size, queue_length_limit } => {
                Some(Queues { count: queues, hand_size, length_limit: queue_length_limit })
            }
            Mode::Exempt | Mode::Reject => None,
        };
        let response = match found.mode {
            Mode::Exempt => "exempt",
            Mode::Reject => "reject",
            Mode::Queue { .. } => "queue",
        };
        let told_apart = found.class.distinguisher;
        let flow = Flow {
            method: told_apart.map(|method| match method {
                Method::ByUser => "ByUser",
                Method::ByNamespace => "ByNamespace",
            }),
            distinguisher: told_apart
                .and(found.distinguisher.as_deref())
                .map(|name| String::from_utf8_lossy(name).into()),
            hash: format!("{:#018x}", found.class.flow.0),
            hand: found.hand.clone(),
        };
        Some(Self {
            schema: Named { name: found.schema.clone(), uid: schema.uid.clone() },
            precedence: schema.precedence,
            matched: found.class.matched,
            level: Named { name: found.level.clone(), uid: level.uid.to_string() },
            response,
            queues,
            flow,
            seats: SeatCounts {
                initial: work.initial_seats.0,
                afterwards: work.final_seats.0,
                lingers_seconds: seconds(work.additional_latency),
                max: found.max_seats.0,
                level_nominal: level.limits.nominal.0,
                level_minimum: level.limits.minimum.0,
                level_maximum: level.limits.maximum.0,
            },
            wait_limit_seconds: wait.filter(|_| found.mode != Mode::Exempt).map(seconds),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "minutes at most")]
fn seconds(span: Nanos) -> f64 {
    span.0 as f64 / 1e9
}

fn reason(why: Mismatch) -> &'static str {
    match why {
        Mismatch::NoRules => "noRules",
        Mismatch::Subject => "subject",
        Mismatch::Sort => "sort",
        Mismatch::Verb => "verb",
        Mismatch::Resource => "resource",
        Mismatch::ApiGroup => "apiGroup",
        Mismatch::Namespace => "namespace",
        Mismatch::Path => "path",
    }
}

fn sentence(why: Mismatch, request: &Request) -> String {
    match why {
        Mismatch::NoRules => "it has no rules".into(),
        Mismatch::Subject => "none of its subjects is the user or one of its groups".into(),
        Mismatch::Sort if request.is_resource_request => {
            "its rules for this user are about paths only".into()
        }
        Mismatch::Sort => "its rules for this user are about resources only".into(),
        Mismatch::Verb => format!("no rule for this user has the verb {:?}", request.verb),
        Mismatch::Resource => {
            format!("no rule for this user and verb has the resource {}", request.resource_and_subresource())
        }
        Mismatch::ApiGroup => {
            format!("the rules that come nearest are not for the API group {:?}", request.api_group)
        }
        Mismatch::Namespace if request.namespace.is_empty() => {
            "the rules that come nearest do not set clusterScope".into()
        }
        Mismatch::Namespace => {
            format!("the rules that come nearest are not for the namespace {}", request.namespace)
        }
        Mismatch::Path => format!("no rule for this user and verb covers the path {}", request.path),
    }
}
