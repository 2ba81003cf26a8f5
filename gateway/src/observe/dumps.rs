//! `/debug/api_priority_and_fairness/…`: kube-apiserver's three tables, as text or as JSON.
//!
//! The text is the core's ([`usher_flowcontrol::dump`]), byte for byte as kube-apiserver writes it. The JSON holds
//! the same rows under the names of the columns, with `FlowDistinguisher` spelt right.

use std::collections::HashMap;

use serde_json::{Value, json};
use usher_flowcontrol::dump::{self, Details, time};
use usher_flowcontrol::flow::Method;
use usher_flowcontrol::snapshot::{Level, Request, Snapshot};
use usher_flowcontrol::units::Nanos;

/// Where the tables are.
pub const PREFIX: &str = "/debug/api_priority_and_fairness/";

/// The clock of workers counts from the start of 1970.
const UNIX_EPOCH: Nanos = Nanos::ZERO;

/// What requests are about, by tag.
pub type ByTag = HashMap<u64, Details<'static>>;

/// Which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// A row for every level.
    PriorityLevels,
    /// A row for every queue.
    Queues,
    /// A row for every request that waits or executes.
    Requests {
        /// With what it is about.
        in_full: bool,
    },
}

impl Table {
    /// By the last part of its path. `include_details`: the query's `includeRequestDetails`, for which, as in
    /// kube-apiserver, any value but the empty one will do.
    #[must_use]
    pub fn named(name: &str, include_details: &str) -> Option<Self> {
        Some(match name {
            "dump_priority_levels" => Self::PriorityLevels,
            "dump_queues" => Self::Queues,
            "dump_requests" => Self::Requests { in_full: !include_details.is_empty() },
            _ => return None,
        })
    }

    /// As kube-apiserver writes it.
    #[must_use]
    pub fn text(self, snapshot: &Snapshot, details: &ByTag) -> String {
        match self {
            Self::PriorityLevels => dump::priority_levels(snapshot),
            Self::Queues => dump::queues(snapshot),
            Self::Requests { in_full } => {
                dump::requests(snapshot, UNIX_EPOCH, |tag| details.get(&tag).cloned(), in_full)
            }
        }
    }

    /// As a list of objects.
    #[must_use]
    pub fn json(self, snapshot: &Snapshot, details: &ByTag) -> Value {
        let rows: Vec<Value> = match self {
            Self::PriorityLevels => snapshot.levels.iter().map(level).collect(),
            Self::Queues => snapshot.levels.iter().flat_map(queues).collect(),
            Self::Requests { in_full } => {
                let row = |level: &Level, queue: Option<u32>, place: Option<usize>, request: &Request| {
                    let details = details.get(&request.tag).cloned().unwrap_or_default();
                    self::request(level, queue, place, request, &details, in_full)
                };
                snapshot.levels.iter().flat_map(|level| requests(level, &row)).collect()
            }
        };
        Value::Array(rows)
    }
}

fn level(level: &Level) -> Value {
    json!({
        "PriorityLevelName": &*level.name,
        "ActiveQueues": level.queues.iter().filter(|queue| queue.state.waiting > 0).count(),
        "IsIdle": level.idle,
        "IsQuiescing": level.quiescing,
        "WaitingRequests": level.waiting,
        "ExecutingRequests": level.executing,
        "DispatchedRequests": level.counters.dispatched,
        "RejectedRequests": level.counters.rejected,
        "TimedoutRequests": level.counters.timed_out,
        "CancelledRequests": level.counters.cancelled,
        "SeatsInUse": level.seats_in_use.0,
        "SeatsWaiting": level.seats_waiting.0,
        "CurrentLimit": level.limit.0,
        "NominalLimit": level.limits.nominal.0,
    })
}

/// Queues that ever had a request; the others are blank.
fn queues(level: &Level) -> Vec<Value> {
    let row = |queue: &usher_flowcontrol::snapshot::Queue| {
        let state = &queue.state;
        json!({
            "PriorityLevelName": &*level.name,
            "Index": state.index,
            "PendingRequests": state.waiting,
            "ExecutingRequests": state.executing,
            "SeatsInUse": state.seats_in_use.0,
            "NextDispatchR": state.next_dispatch_r.to_string(),
            "InitialSeatsSum": state.initial_seats_sum.0,
            "MaxSeatsSum": state.max_seats_sum.0,
            "TotalWorkSum": state.total_work_sum.to_string(),
        })
    };
    level.queues.iter().map(row).collect()
}

/// Makes a row of a level, the index of a queue, a place in there, and a request.
type Row<'a> = dyn Fn(&Level, Option<u32>, Option<usize>, &Request) -> Value + 'a;

fn requests(level: &Level, row: &Row<'_>) -> Vec<Value> {
    let queued = level.queues.iter().flat_map(|queue| {
        let index = Some(queue.state.index);
        let waiting = queue.waiting.iter().enumerate();
        let waiting = waiting.map(move |(place, request)| row(level, index, Some(place), request));
        waiting.chain(queue.executing.iter().map(move |request| row(level, index, None, request)))
    });
    queued.chain(level.queueless.iter().map(|request| row(level, None, None, request))).collect()
}

fn request(
    level: &Level,
    queue: Option<u32>,
    place: Option<usize>,
    request: &Request,
    details: &Details<'_>,
    in_full: bool,
) -> Value {
    let clock = |at: Nanos| time::rfc3339_nano(at - UNIX_EPOCH);
    let mut row = json!({
        "PriorityLevelName": &*level.name,
        "FlowSchemaName": &*request.schema,
        "QueueIndex": queue,
        "RequestIndexInQueue": place,
        "FlowDistinguisher": match request.distinguisher {
            Some(Method::ByUser) => &*details.user,
            Some(Method::ByNamespace) => &*details.namespace,
            None => "",
        },
        "ArriveTime": clock(request.arrived),
        "InitialSeats": request.work.initial_seats.0,
        "FinalSeats": request.work.final_seats.0,
        "AdditionalLatency": time::duration(request.work.additional_latency),
        "StartTime": request.started.map(clock),
    });
    if in_full && let Some(row) = row.as_object_mut() {
        for (name, value) in [
            ("UserName", &details.user),
            ("Verb", &details.verb),
            ("APIPath", &details.path),
            ("Namespace", &details.namespace),
            ("Name", &details.name),
            ("APIGroup", &details.api_group),
            ("APIVersion", &details.api_version),
            ("Resource", &details.resource),
            ("SubResource", &details.subresource),
        ] {
            row.insert(name.to_owned(), json!(value));
        }
    }
    row
}
