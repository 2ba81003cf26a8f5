//! The metrics: names, labels and buckets are kube-apiserver's, the words are ours.
//!
//! Dashboards and alerts of existing users look for exactly these. Sorted by name. A timing histogram
//! weighs every value by the nanoseconds that it was held.

/// What sort of numbers a metric shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// A value as of now.
    Gauge,
    /// Observations in buckets.
    Histogram,
    /// The same in the exposition; an observation's weight is the nanoseconds that it lasted.
    TimingHistogram,
}

/// What kube-apiserver promises about a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// May change any time.
    Alpha,
    /// Keeps its labels for a while.
    Beta,
}

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Description {
    /// Its full name.
    pub name: &'static str,
    /// What it says, in one sentence.
    pub help: &'static str,
    /// Sort of numbers.
    pub kind: Kind,
    /// Names of the labels whose values vary, in order.
    pub labels: &'static [&'static str],
    /// Labels that never vary.
    pub const_labels: &'static [(&'static str, &'static str)],
    /// Upper bounds, ascending, without the last, infinite one; empty unless it is a histogram.
    pub buckets: &'static [f64],
    /// kube-apiserver's promise.
    pub stability: Stability,
    /// Since when it is deprecated. Deprecated metrics are known and not exposed.
    pub deprecated: Option<&'static str>,
}

impl Description {
    /// Known by name, but not exposed.
    pub const fn is_hidden(&self) -> bool {
        self.deprecated.is_some()
    }
}

/// Upper bounds of waiting and execution times, in seconds.
pub const DURATIONS: [f64; 13] = [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
/// Upper bounds of queue lengths, in requests.
pub const QUEUE_LENGTHS: [f64; 8] = [0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
/// Upper bounds of numbers of watches.
pub const WATCH_COUNTS: [f64; 6] = [0.0, 1.0, 10.0, 100.0, 1000.0, 10_000.0];
/// Upper bounds of the width of a request, in seats.
pub const WIDTHS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0];
/// Upper bounds of the part of a level's seats that is in use.
pub const SEAT_UTILIZATIONS: [f64; 13] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];
/// Upper bounds of the part of a level's room for requests that is in use.
pub const REQUEST_UTILIZATIONS: [f64; 10] = [0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0];
/// Upper bounds of the part of the server's room that reading or writing requests use.
pub const READ_WRITE_UTILIZATIONS: [f64; 15] =
    [0.0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];
/// Upper bounds of a level's seat demand, in parts of its limit.
pub const DEMANDS: [f64; 12] = [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.8, 4.0, 6.0];

/// Label of a level's name.
const LEVEL: &str = "priority_level";
/// Label of a schema's name.
const SCHEMA: &str = "flow_schema";

use Kind::{Counter, Gauge, Histogram, TimingHistogram};
use Stability::{Alpha, Beta};

/// A metric with one child a level and schema, without more labels; the others are made from it.
const fn by_schema(name: &'static str, kind: Kind, stability: Stability, help: &'static str) -> Description {
    Description {
        name,
        help,
        kind,
        labels: &[LEVEL, SCHEMA],
        const_labels: &[],
        buckets: &[],
        stability,
        deprecated: None,
    }
}

/// A gauge with one child a level.
const fn by_level(name: &'static str, help: &'static str) -> Description {
    Description { labels: &[LEVEL], ..by_schema(name, Gauge, Alpha, help) }
}

macro_rules! metrics {
    ($($constant:ident = $description:expr;)*) => {
        $(
            #[doc = "The metric of that name, under `apiserver_flowcontrol_`."]
            pub const $constant: Description = $description;
        )*

        /// All of them.
        pub const ALL: &[Description] = &[$($constant),*];
    };
}

metrics! {
    CURRENT_EXECUTING_REQUESTS = by_schema("apiserver_flowcontrol_current_executing_requests", Gauge, Beta,
        "Requests that execute; of watches, those that are being initialised.");
    CURRENT_EXECUTING_SEATS = by_schema("apiserver_flowcontrol_current_executing_seats", Gauge, Beta,
        "Seats held by requests that execute or linger.");
    CURRENT_INQUEUE_REQUESTS = by_schema("apiserver_flowcontrol_current_inqueue_requests", Gauge, Beta,
        "Requests that wait in a queue.");
    CURRENT_INQUEUE_SEATS = by_schema("apiserver_flowcontrol_current_inqueue_seats", Gauge, Alpha,
        "Seats wanted by the requests that wait in a queue.");
    CURRENT_LIMIT_SEATS = by_level("apiserver_flowcontrol_current_limit_seats",
        "Seats that the level may use until the next adjustment.");
    CURRENT_R = by_level("apiserver_flowcontrol_current_r",
        "The progress meter (virtual time) of the level's queues, in seat-seconds.");
    DEMAND_SEATS = Description { kind: TimingHistogram, buckets: &DEMANDS,
        ..by_level("apiserver_flowcontrol_demand_seats",
        "Seats in use and wanted, in parts of the level's current limit, weighed by nanoseconds.") };
    DEMAND_SEATS_AVERAGE = by_level("apiserver_flowcontrol_demand_seats_average",
        "Average of the seat demand over the last adjustment period.");
    DEMAND_SEATS_HIGH_WATERMARK = by_level("apiserver_flowcontrol_demand_seats_high_watermark",
        "Largest seat demand of the last adjustment period.");
    DEMAND_SEATS_SMOOTHED = by_level("apiserver_flowcontrol_demand_seats_smoothed",
        "Seat demand as borrowing sees it: follows rises at once, falls slowly.");
    DEMAND_SEATS_STDEV = by_level("apiserver_flowcontrol_demand_seats_stdev",
        "Standard deviation of the seat demand over the last adjustment period.");
    DISPATCH_R = by_level("apiserver_flowcontrol_dispatch_r",
        "The progress meter at the latest dispatch, in seat-seconds.");
    DISPATCHED_REQUESTS_TOTAL = by_schema("apiserver_flowcontrol_dispatched_requests_total", Counter, Beta,
        "Requests that began to execute.");
    EPOCH_ADVANCE_TOTAL = Description { kind: Counter, labels: &[LEVEL, "success"],
        ..by_level("apiserver_flowcontrol_epoch_advance_total",
        "Times that the progress meter was wound back, and whether every reading could follow.") };
    LATEST_S = by_level("apiserver_flowcontrol_latest_s",
        "Virtual start of the request dispatched last, in seat-seconds.");
    LOWER_LIMIT_SEATS = by_level("apiserver_flowcontrol_lower_limit_seats",
        "Seats of the level that it never lends.");
    NEXT_DISCOUNTED_S_BOUNDS = Description { labels: &[LEVEL, "bound"],
        ..by_level("apiserver_flowcontrol_next_discounted_s_bounds",
        "Smallest and largest virtual start among the heads of queues, less the guessed work of what executes.") };
    NEXT_S_BOUNDS = Description { labels: &[LEVEL, "bound"],
        ..by_level("apiserver_flowcontrol_next_s_bounds",
        "Smallest and largest virtual start among the heads of queues, in seat-seconds.") };
    NOMINAL_LIMIT_SEATS = Description { stability: Beta,
        ..by_level("apiserver_flowcontrol_nominal_limit_seats",
        "Seats of the level by its shares, before anything is lent or borrowed.") };
    PRIORITY_LEVEL_REQUEST_UTILIZATION = Description {
        kind: TimingHistogram, labels: &["phase", LEVEL], buckets: &REQUEST_UTILIZATIONS,
        ..by_level("apiserver_flowcontrol_priority_level_request_utilization",
        "Requests of a level in parts of its room for them, weighed by nanoseconds.") };
    PRIORITY_LEVEL_SEAT_UTILIZATION = Description {
        kind: TimingHistogram, const_labels: &[("phase", "executing")], buckets: &SEAT_UTILIZATIONS,
        ..by_level("apiserver_flowcontrol_priority_level_seat_utilization",
        "Seats in use in parts of the level's current limit, weighed by nanoseconds.") };
    READ_VS_WRITE_CURRENT_REQUESTS = Description {
        kind: TimingHistogram, labels: &["phase", "request_kind"], buckets: &READ_WRITE_UTILIZATIONS,
        ..by_level("apiserver_flowcontrol_read_vs_write_current_requests",
        "Reading and writing requests in parts of the server's room for requests, weighed by nanoseconds.") };
    REJECTED_REQUESTS_TOTAL = Description { labels: &[LEVEL, SCHEMA, "reason"],
        ..by_schema("apiserver_flowcontrol_rejected_requests_total", Counter, Beta,
        "Requests that were turned away, or gave up waiting.") };
    REQUEST_CONCURRENCY_IN_USE = Description { deprecated: Some("1.31.0"),
        ..by_schema("apiserver_flowcontrol_request_concurrency_in_use", Gauge, Alpha,
        "Former name of apiserver_flowcontrol_current_executing_seats.") };
    REQUEST_CONCURRENCY_LIMIT = Description { deprecated: Some("1.30.0"),
        ..by_level("apiserver_flowcontrol_request_concurrency_limit",
        "Former name of apiserver_flowcontrol_nominal_limit_seats.") };
    REQUEST_DISPATCH_NO_ACCOMMODATION_TOTAL = by_schema(
        "apiserver_flowcontrol_request_dispatch_no_accommodation_total", Counter, Alpha,
        "Times that the request whose turn it was needed more seats than were free.");
    REQUEST_EXECUTION_SECONDS = Description { labels: &[LEVEL, SCHEMA, "type"], buckets: &DURATIONS,
        ..by_schema("apiserver_flowcontrol_request_execution_seconds", Histogram, Alpha,
        "How long requests executed; of watches, how long they took to initialise.") };
    REQUEST_QUEUE_LENGTH_AFTER_ENQUEUE = Description { buckets: &QUEUE_LENGTHS,
        ..by_schema("apiserver_flowcontrol_request_queue_length_after_enqueue", Histogram, Alpha,
        "Length of the queue that a request has just joined, itself included.") };
    REQUEST_WAIT_DURATION_SECONDS = Description { labels: &[LEVEL, SCHEMA, "execute"], buckets: &DURATIONS,
        ..by_schema("apiserver_flowcontrol_request_wait_duration_seconds", Histogram, Beta,
        "How long requests waited, and whether they executed in the end.") };
    SEAT_FAIR_FRAC = Description { labels: &[],
        ..by_level("apiserver_flowcontrol_seat_fair_frac",
        "Part of its target that every level without a binding limit got at the last adjustment.") };
    TARGET_SEATS = by_level("apiserver_flowcontrol_target_seats",
        "Seats that the level was reckoned to want at the last adjustment.");
    UPPER_LIMIT_SEATS = by_level("apiserver_flowcontrol_upper_limit_seats",
        "Seats that the level may have with all that it can borrow.");
    WATCH_COUNT_SAMPLES = Description { buckets: &WATCH_COUNTS,
        ..by_schema("apiserver_flowcontrol_watch_count_samples", Histogram, Alpha,
        "Watches that a writing request has to notify.") };
    WORK_ESTIMATED_SEATS = Description { buckets: &WIDTHS,
        ..by_schema("apiserver_flowcontrol_work_estimated_seats", Histogram, Alpha,
        "Estimated width of requests, in seats.") };
}
