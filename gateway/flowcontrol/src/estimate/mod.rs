//! How many seats a request will occupy, and for how long after it is done.
//!
//! KEP-1040, "Width of the request": lists cost by the bytes they are likely to hold in memory, watches
//! by what they begin with, writes by the watch notifications they set off, everything else one seat.
//! Guesses are drawn from the request alone and from what the caller knows ([`Facts`]); the constants and
//! the pessimism are those of Kubernetes 1.36 with its default features. apf-behaviour 1.27 to 1.29.

mod statistics;

pub use statistics::{Statistics, Stats, key};

use crate::limits::as_f64;
use crate::request_info::{ListOptions, RequestInfo};
use crate::units::{Nanos, SeatSeconds, Seats, Work};

/// What is known when a request arrives. Of what its [`Basis`] does not need any value will do.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Statistics of its resource: [`Statistics::of`].
    pub statistics: Stats,
    /// Watches interested in its object: [`crate::watches::Watches::interested`].
    pub watches: u64,
    /// The widest request that its level takes; 0: none set.
    pub max_seats: Seats,
    /// Whether the server answers lists that ask for the newest state out of its cache (it does where
    /// etcd reports progress: 3.4.31, 3.5.13 and later).
    pub consistent_reads: bool,
}

/// What an estimate needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Statistics of the resource.
    Statistics,
    /// The number of interested watches.
    Watches,
    /// Nothing: one seat.
    Nothing,
}

/// A list wider than this would rather wait for ever than run.
const LIST_SEATS_MAX: Seats = Seats(100);
/// Notifications of one write; more of them are stretched over a longer time.
const MUTATING_SEATS_MAX: Seats = Seats(10);
/// Bytes in memory that one seat stands for.
const BYTES_PER_SEAT: i64 = 100_000;
/// What a list out of the cache holds at once, since it is streamed.
const CACHED_BYTES_MAX: i64 = 1_000_000;
/// The size of an object that nobody has measured: as large as etcd takes.
const OBJECT_BYTES_MAX: i64 = 1_500_000;
/// How many objects a resource has about which nobody has reported for long.
const INFINITE_COUNT: i64 = 1_000_000_000;
/// Watches that one seat serves.
const WATCHES_PER_SEAT: u64 = 10;
/// How long it takes to notify those.
const EVENT_DURATION: Nanos = Nanos::from_millis(5);

/// The work of a request.
#[must_use]
pub fn work(request: &RequestInfo<'_>, facts: &Facts) -> Work {
    match Basis::of(request) {
        Basis::Statistics => Work::seats(list_seats(request, facts).0),
        Basis::Watches => mutation(facts),
        Basis::Nothing => Work::seats(1),
    }
}

/// The work of a request about which nothing could be found out: as wide as its level allows.
#[must_use]
pub fn unknown(max_seats: Seats) -> Work {
    Work::seats(capped(max_seats, LIST_SEATS_MAX.max(MUTATING_SEATS_MAX)).0)
}

/// What the level allows, if it says so and the server does not allow less.
fn capped(max_seats: Seats, limit: Seats) -> Seats {
    if max_seats == Seats(0) { limit } else { max_seats.min(limit) }
}

// === impl Basis ===

impl Basis {
    /// Decided by the verb alone.
    #[must_use]
    pub fn of(request: &RequestInfo<'_>) -> Self {
        match request.verb() {
            "list" | "watch" => Self::Statistics,
            "create" | "update" | "patch" | "delete" if !is_token_request(request) => Self::Watches,
            _ => Self::Nothing,
        }
    }
}

/// A token for a service account changes nothing that can be watched.
fn is_token_request(request: &RequestInfo<'_>) -> bool {
    request.resource() == b"serviceaccounts" && request.subresource() == b"token"
}

// === lists and watches ===

/// Seats of a list, or of what a watch begins with.
fn list_seats(request: &RequestInfo<'_>, facts: &Facts) -> Seats {
    let most = capped(facts.max_seats, LIST_SEATS_MAX);
    // What cannot be decoded is going to fail; until then it costs as much as anything.
    let Ok(options) = ListOptions::decode(request.query()) else { return most };
    let watch = request.verb() == "watch";
    if watch && !begins_with_a_list(&options) {
        return Seats(1);
    }
    let (count, size) = match facts.statistics {
        // Perhaps another server's resource: this one does not pay for it.
        Stats::Absent => return Seats(1),
        Stats::Stale => (INFINITE_COUNT, OBJECT_BYTES_MAX),
        Stats::Fresh { count, average_size } if average_size <= 0 && count != 0 => (count, OBJECT_BYTES_MAX),
        Stats::Fresh { count, average_size } => (count, average_size),
    };
    let cached = watch || is_cached(&options, facts.consistent_reads);
    let limited = if options.limit > 0 { count.min(options.limit) } else { count };
    let selects = !options.field_selector.is_empty() || !options.label_selector.is_empty();
    let objects = if !request.name().is_empty() {
        1
    } else if selects && !cached {
        // What the store reads and throws away is held for a while, too.
        limited.max(count / 2)
    } else {
        limited
    };
    let bytes = objects.saturating_mul(size);
    let bytes = if cached { bytes.min(CACHED_BYTES_MAX) } else { bytes };
    // Rounded up. Sizes below zero make huge numbers, as they do there.
    let seats = bytes / BYTES_PER_SEAT + i64::from(bytes % BYTES_PER_SEAT > 0);
    Seats(seats.cast_unsigned().clamp(1, most.0))
}

/// Whether a watch is told what exists: on request, and where it names no version to begin at.
fn begins_with_a_list(options: &ListOptions<'_>) -> bool {
    options.send_initial_events == Some(true) || matches!(&*options.resource_version, b"" | b"0")
}

/// Whether a list is answered out of the server's cache, taken to keep no old versions.
fn is_cached(options: &ListOptions<'_>, consistent_reads: bool) -> bool {
    match &*options.resource_version_match {
        b"NotOlderThan" => true,
        b"" if !options.continue_token.is_empty() => false,
        b"" => match &*options.resource_version {
            b"" => consistent_reads,
            b"0" => true,
            // A page at a version means just that version.
            _ => options.limit <= 0,
        },
        _ => false,
    }
}

// === writes ===

/// One seat, and those of the notifications if there are enough watches to matter.
fn mutation(facts: &Facts) -> Work {
    if facts.watches < WATCHES_PER_SEAT {
        return Work::seats(1);
    }
    let seats = Seats(facts.watches.div_ceil(WATCHES_PER_SEAT));
    let final_seats = seats.min(capped(facts.max_seats, MUTATING_SEATS_MAX));
    Work {
        initial_seats: Seats(1),
        final_seats,
        additional_latency: stretched(EVENT_DURATION, seats, final_seats),
    }
}

/// How long the same work takes on fewer seats.
fn stretched(duration: Nanos, seats: Seats, fewer: Seats) -> Nanos {
    SeatSeconds::of(as_f64(seats), duration).per_seat(as_f64(fewer))
}

#[cfg(test)]
mod tests;
