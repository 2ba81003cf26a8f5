//! The three tables of `/debug/api_priority_and_fairness/`, byte for byte as kube-apiserver aligns them.
//!
//! parity: C23. Levels are sorted by name and requests by arrival, from a [`Snapshot`] that stopped
//! nobody; columns and their spelling (`FlowDistingsher`) are what existing scripts expect. The same
//! values as JSON are the gateway's business. A name with a tab or a line break in it is as
//! troublesome here as there.

mod table;
pub mod time;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::flow::Method;
use crate::level::QueueState;
use crate::request_info::Query;
use crate::snapshot::{Level, Request, Snapshot};
use crate::units::{Nanos, Work};
use table::Table;

/// What the owner of a request knows about it, for [`requests`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details<'a> {
    /// Name of the user.
    pub user: Cow<'a, str>,
    /// Verb.
    pub verb: Cow<'a, str>,
    /// Path, decoded.
    pub path: Cow<'a, str>,
    /// Namespace.
    pub namespace: Cow<'a, str>,
    /// Name of the object.
    pub name: Cow<'a, str>,
    /// API group.
    pub api_group: Cow<'a, str>,
    /// API version.
    pub api_version: Cow<'a, str>,
    /// Resource.
    pub resource: Cow<'a, str>,
    /// Subresource.
    pub subresource: Cow<'a, str>,
}

/// Index shown for what has none.
const NO_INDEX: &str = "-1";

/// Whether a query asks [`requests`] for all it knows: any value does, but an empty one (`false` too).
#[must_use]
pub fn asks_for_details(query: Query<'_>) -> bool {
    query.first("includeRequestDetails").is_some_and(|value| !value.is_empty())
}

/// The `Content-Type` of a table: kube-apiserver names none, so that Go guesses one from the beginning.
/// Control characters in somebody's name make it a binary file.
#[must_use]
pub fn content_type(table: &str) -> &'static str {
    let is_binary = |byte: &u8| matches!(byte, 0..=0x08 | 0x0B | 0x0E..=0x1A | 0x1C..=0x1F);
    if table.as_bytes().iter().take(SNIFFED).any(is_binary) {
        "application/octet-stream"
    } else {
        "text/plain; charset=utf-8"
    }
}

/// Bytes that Go looks at to guess a content type.
const SNIFFED: usize = 512;

/// `dump_priority_levels`: a line for every level.
#[must_use]
pub fn priority_levels(snapshot: &Snapshot) -> String {
    let mut table = Table::new(&[
        "PriorityLevelName",
        "ActiveQueues",
        "IsIdle",
        "IsQuiescing",
        "WaitingRequests",
        "ExecutingRequests",
        "DispatchedRequests",
        "RejectedRequests",
        "TimedoutRequests",
        "CancelledRequests",
    ]);
    for level in &snapshot.levels {
        let active = level.queues.iter().filter(|queue| queue.state.waiting > 0).count();
        table.row(&[
            &level.name,
            &active,
            &level.idle,
            &level.quiescing,
            &level.waiting,
            &level.executing,
            &level.counters.dispatched,
            &level.counters.rejected,
            &level.counters.timed_out,
            &level.counters.cancelled,
        ]);
    }
    table.render()
}

/// `dump_queues`: a line for every queue of every level.
#[must_use]
pub fn queues(snapshot: &Snapshot) -> String {
    let mut table = Table::new(&[
        "PriorityLevelName",
        "Index",
        "PendingRequests",
        "ExecutingRequests",
        "SeatsInUse",
        "NextDispatchR",
        "InitialSeatsSum",
        "MaxSeatsSum",
        "TotalWorkSum",
    ]);
    for level in &snapshot.levels {
        for state in queue_states(level) {
            table.row(&[
                &level.name,
                &state.index,
                &state.waiting,
                &state.executing,
                &state.seats_in_use,
                &state.next_dispatch_r,
                &state.initial_seats_sum,
                &state.max_seats_sum,
                &state.total_work_sum,
            ]);
        }
    }
    table.render()
}

/// `dump_requests`: a line for every request that waits or executes. `unix_epoch` is the instant, on
/// the snapshot's clock, of the start of 1970; `details` finds what a tag stands for; `in_full` shows it.
#[must_use]
pub fn requests<'a>(
    snapshot: &Snapshot,
    unix_epoch: Nanos,
    details: impl Fn(u64) -> Option<Details<'a>>,
    in_full: bool,
) -> String {
    let mut columns = Vec::from([
        "PriorityLevelName",
        "FlowSchemaName",
        "QueueIndex",
        "RequestIndexInQueue",
        "FlowDistingsher",
        "ArriveTime",
        "InitialSeats",
        "FinalSeats",
        "AdditionalLatency",
        "StartTime",
    ]);
    if in_full {
        columns.extend([
            "UserName",
            "Verb",
            "APIPath",
            "Namespace",
            "Name",
            "APIVersion",
            "Resource",
            "SubResource",
        ]);
    }
    let mut table = Table::new(&columns);
    let clock = |at: Nanos| time::rfc3339_nano(at - unix_epoch);
    for level in &snapshot.levels {
        each_request(level, &mut |queue, place, request| {
            let details = details(request.tag).unwrap_or_default();
            let distinguisher = distinguisher(request, &details);
            let arrived = clock(request.arrived);
            let started = request.started.map_or_else(|| String::from(time::NEVER), clock);
            let latency = time::duration(request.work.additional_latency);
            let Work { initial_seats, final_seats, .. } = request.work;
            let mut cells: Vec<&dyn ToString> = Vec::from([
                &level.name as &dyn ToString,
                &request.schema,
                queue,
                place,
                &distinguisher,
                &arrived,
                &initial_seats,
                &final_seats,
                &latency,
                &started,
            ]);
            let version = group_version(&details);
            if in_full {
                cells.extend([
                    &details.user as &dyn ToString,
                    &details.verb,
                    &details.path,
                    &details.namespace,
                    &details.name,
                    &version,
                    &details.resource,
                    &details.subresource,
                ]);
            }
            table.row(&cells);
        });
    }
    table.render()
}

/// A level with more queues than that lists only those that are known: a table of ten million blank lines
/// helps nobody and costs gigabytes. parity: kube-apiserver lists all.
const QUEUES_LISTED_MAX: u32 = 16_384;

/// All queues of a level, the blank ones too.
fn queue_states(level: &Level) -> Box<dyn Iterator<Item = QueueState> + '_> {
    if level.queue_count > QUEUES_LISTED_MAX {
        return Box::new(level.queues.iter().map(|queue| queue.state));
    }
    Box::new((0..level.queue_count).map(|index| {
        level.queue(index).map_or(QueueState { index, ..QueueState::default() }, |queue| queue.state)
    }))
}

/// Requests in the order of the table, each with the index of its queue and its place in there.
fn each_request(level: &Level, show: &mut dyn FnMut(&dyn ToString, &dyn ToString, &Request)) {
    for queue in &level.queues {
        for (place, request) in queue.waiting.iter().enumerate() {
            show(&queue.state.index, &place, request);
        }
        queue.executing.iter().for_each(|request| show(&queue.state.index, &NO_INDEX, request));
    }
    level.queueless.iter().for_each(|request| show(&NO_INDEX, &NO_INDEX, request));
}

/// What told the flow of a request apart.
fn distinguisher<'a>(request: &Request, details: &'a Details<'_>) -> &'a str {
    match request.distinguisher {
        Some(Method::ByUser) => &details.user,
        Some(Method::ByNamespace) => &details.namespace,
        None => "",
    }
}

fn group_version(details: &Details<'_>) -> String {
    if details.api_group.is_empty() {
        details.api_version.to_string()
    } else {
        format!("{}/{}", details.api_group, details.api_version)
    }
}
