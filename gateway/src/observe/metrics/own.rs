//! Usher's own metrics, under `usher_`: one table, read by [`families`] and held complete by its test.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use usher_flowcontrol::meters::{Child, Description, Family, Kind, Stability, Value};

use crate::memory::Rung;
use crate::observe::{Process, State, View};
use crate::ring;
use crate::steering::Path;
use crate::worker::Counters;

/// Values of a metric's labels, and where its number is found.
type Number = (&'static [&'static str], fn(&Counters) -> u64);

/// A metric made of numbers of the workers.
struct Counted {
    description: Description,
    children: &'static [Number],
}

pub(super) const fn describe(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
) -> Description {
    Description {
        name,
        help,
        kind,
        labels,
        const_labels: &[],
        buckets: &[],
        stability: Stability::Alpha,
        deprecated: None,
    }
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    children: &'static [Number],
) -> Counted {
    Counted { description: describe(name, Kind::Counter, labels, help), children }
}

const fn gauge(name: &'static str, help: &'static str, children: &'static [Number]) -> Counted {
    Counted { description: describe(name, Kind::Gauge, &[], help), children }
}

/// What workers count.
static COUNTED: &[Counted] = &[
    counter("usher_connections_total", &[], "Connections accepted.", &[(&[], |c| c.connections_accepted)]),
    gauge("usher_connections_open", "Connections open now.", &[(&[], |c| c.connections_open)]),
    counter(
        "usher_accept_stops_total",
        &["reason"],
        "Times that accepting stopped: the limit on connections, or no descriptors or memory.",
        &[(&["full"], |c| c.connections_refused_full), (&["failed"], |c| c.accept_failed)],
    ),
    counter(
        "usher_connections_refused_total",
        &["reason"],
        "Connections accepted and closed at once.",
        &[(&["memory"], |c| c.connections_refused_memory)],
    ),
    counter(
        "usher_connections_ended_total",
        &["reason"],
        "Connections that usher ended, or that broke.",
        &[
            (&["header-time-out"], |c| c.header_timeouts),
            (&["idle"], |c| c.idle_timeouts),
            (&["memory"], |c| c.connections_shed),
            (&["protocol-error"], |c| c.connections_broken),
        ],
    ),
    counter(
        "usher_handshakes_delayed_total",
        &[],
        "TLS handshakes that had to wait for their turn.",
        &[(&[], |c| c.handshakes_delayed)],
    ),
    counter(
        "usher_handshakes_failed_total",
        &["reason"],
        "TLS handshakes that came to nothing.",
        &[
            (&["time-out"], |c| c.handshakes_timed_out),
            (&["closed"], |c| c.handshakes_closed),
            (&["not-tls"], |c| c.handshakes_not_tls),
            (&["too-long"], |c| c.handshakes_too_long),
            (&["crowded"], |c| c.handshakes_crowded),
            (&["incompatible"], |c| c.handshakes_incompatible),
            (&["certificate"], |c| c.handshakes_certificate),
            (&["refused"], |c| c.handshakes_refused),
            (&["protocol"], |c| c.handshakes_protocol),
        ],
    ),
    gauge(
        "usher_handshakes_half_done",
        "TLS handshakes answered once and not complete (--max-handshakes).",
        &[(&[], |c| c.handshakes_half_done)],
    ),
    counter("usher_requests_total", &[], "Requests received.", &[(&[], |c| c.requests)]),
    counter(
        "usher_requests_executed_total",
        &[],
        "Requests passed on, those that flow control lets pass without a seat included.",
        &[(&[], |c| c.executed)],
    ),
    counter(
        "usher_requests_refused_total",
        &["code", "reason"],
        "Requests that usher answered itself instead of passing them on.",
        &[
            (&["400", "malformed"], |c| c.refused_malformed),
            (&["400", "timeout-value"], |c| c.refused_timeout_value),
            (&["401", "unauthorized"], |c| c.refused_unauthorized),
            (&["408", "slow-body"], |c| c.refused_slow_body),
            (&["500", "no-attributes"], |c| c.refused_without_attributes),
            (&["429", "queue-full"], |c| c.rejected_queue_full),
            (&["429", "concurrency-limit"], |c| c.rejected_concurrency_limit),
            (&["429", "time-out"], |c| c.rejected_time_out),
            (&["429", "too-many-waiting"], |c| c.rejected_too_many_waiting),
            (&["429", "in-flight"], |c| c.rejected_in_flight),
            (&["429", "memory"], |c| c.rejected_memory),
            (&["502", "upstream-broken"], |c| c.upstream_broken),
            (&["503", "upstream-unavailable"], |c| c.upstream_unavailable),
            (&["503", "no-descriptors"], |c| c.upstream_starved),
            (&["504", "upstream-time-out"], |c| c.upstream_timed_out),
            (&["504", "request-time-out"], |c| c.timed_out_executing),
        ],
    ),
    counter(
        "usher_requests_cut_off_total",
        &["reason"],
        "Requests whose client left, or whose answer could not be completed.",
        &[
            (&["client-gone-waiting"], |c| c.cancelled_waiting),
            (&["client-gone"], |c| c.clients_gone),
            (&["time-out"], |c| c.timed_out_answering),
            (&["upstream-broken"], |c| c.upstream_broken_answering),
        ],
    ),
    gauge(
        "usher_stalled_responses",
        "Answers that their clients do not take (--slow-reader-grace), now.",
        &[(&[], |c| c.stalled_answers)],
    ),
    gauge("usher_stalled_bytes", "Bytes held for stalled answers now.", &[(&[], |c| c.stalled_bytes)]),
    counter(
        "usher_stalled_cut_total",
        &["reason"],
        "Stalled answers cut off: too many (--stalled-streams-max), too many bytes (--stalled-bytes-max), no memory.",
        &[
            (&["streams"], |c| c.stalled_cut_answers),
            (&["bytes"], |c| c.stalled_cut_bytes),
            (&["memory"], |c| c.stalled_cut_memory),
        ],
    ),
    counter(
        "usher_seats_released_for_stalled_total",
        &[],
        "Requests whose seats were given back because their answers had stalled.",
        &[(&[], |c| c.stalled_released)],
    ),
    counter(
        "usher_forged_identity_lines_total",
        &[],
        "X-Remote-* header lines of strangers, dropped.",
        &[(&[], |c| c.forged_identity_lines)],
    ),
    gauge("usher_watches_open", "Watches open now.", &[(&[], |c| c.watches_open)]),
    counter(
        "usher_watches_initialised_total",
        &["by"],
        "Watches that gave their seats back, by what told that they are initialised.",
        &[
            (&["bookmark"], |c| c.watches_initialised_by_bookmark),
            (&["silence"], |c| c.watches_initialised_by_silence),
            (&["bound"], |c| c.watches_initialised_by_bound),
        ],
    ),
    counter(
        "usher_upgrades_total",
        &[],
        "Connections switched to another protocol.",
        &[(&[], |c| c.upgrades)],
    ),
    gauge("usher_tunnels_open", "Switched connections open now.", &[(&[], |c| c.tunnels_open)]),
    counter(
        "usher_panics_total",
        &["cost"],
        "Panics contained, by what they cost: each is a mistake of ours. Those that cost a worker: usher_worker_deaths_total.",
        &[(&["request"], |c| c.panics_requests), (&["connection"], |c| c.panics_connections)],
    ),
];

/// A metric that is a number of a ring.
type OfRing = (Description, fn(&ring::Look) -> u64);

/// What rings count; all 0 on epoll.
static RINGS: &[OfRing] = &[
    (ring("usher_ring_enters_total", "System calls that handed over operations and waited."), |r| r.enters),
    (ring("usher_ring_completions_total", "Completions of operations."), |r| r.completions),
    (ring("usher_ring_overflows_total", "Times that the completion queue was full."), |r| r.overflows),
    (
        ring(
            "usher_ring_buffers_exhausted_total",
            "Times that no buffer was left to receive into (--ring-buffers).",
        ),
        |r| r.buffers_exhausted,
    ),
    (ring("usher_ring_chunks_copied_total", "Chunks copied because few buffers were left."), |r| {
        r.chunks_copied
    }),
    (ring("usher_ring_receives_paused_total", "Times that a connection waited for its reader."), |r| {
        r.receives_paused
    }),
    (ring("usher_ring_sends_total", "Sends."), |r| r.sends),
    (ring("usher_ring_sends_short_total", "Sends that the kernel did not take whole."), |r| r.sends_short),
    (ring("usher_ring_sends_zero_copy_total", "Sends that were not copied (--ring-zero-copy-from)."), |r| {
        r.sends_zero_copy
    }),
    (ring("usher_ring_messages_total", "Messages from ring to ring that woke another worker."), |r| {
        r.messages
    }),
];

const fn ring(name: &'static str, help: &'static str) -> Description {
    describe(name, Kind::Counter, &[], help)
}

static WORKERS: Description = describe(
    "usher_workers",
    Kind::Gauge,
    &["state"],
    "Workers by what they do: serving, draining, out once they have drained, or restarting after they died.",
);
static WORKER_CONNECTIONS: Description = describe(
    "usher_worker_connections_total",
    Kind::Counter,
    &["worker"],
    "Connections accepted, by worker: how the kernel spreads them.",
);
static WORKER_OPEN: Description =
    describe("usher_worker_connections_open", Kind::Gauge, &["worker"], "Connections open now, by worker.");
static WORKER_REQUESTS: Description =
    describe("usher_worker_requests_total", Kind::Counter, &["worker"], "Requests received, by worker.");
static WORKER_DEATHS: Description = describe(
    "usher_worker_deaths_total",
    Kind::Counter,
    &["worker"],
    "Times that a worker died of a panic, and its connections with it. Each is a mistake of ours.",
);

static STARTS: Description = describe(
    "usher_shared_starts_total",
    Kind::Counter,
    &["by"],
    "Requests started at levels that workers share: alone, while nobody waited; in the common order, by their own worker or by another, who had to tell it.",
);

static BUILD: Description =
    describe("usher_build_info", Kind::Gauge, &["version", "io"], "What runs. Always 1.");
static RING: Description = describe(
    "usher_ring_info",
    Kind::Gauge,
    &["io", "reason"],
    "How workers do their I/O, and why. Always 1.",
);
static STEERING: Description = describe(
    "usher_steering_info",
    Kind::Gauge,
    &["mode", "reason"],
    "Whether the kernel's steering program brings connections to workers, and why. Always 1.",
);
static STEERED: Description = describe(
    "usher_steering_connections_total",
    Kind::Counter,
    &["address", "path"],
    "Connections by how the steering program found their worker, as long as it is on.",
);
static GENERATION: Description = describe(
    "usher_config_generation",
    Kind::Gauge,
    &[],
    "Counts the flow-control configurations put in force.",
);
static RELOADS: Description = describe(
    "usher_config_reloads_total",
    Kind::Counter,
    &["what", "result"],
    "Changed files taken over, and refused.",
);
static TOKENS: Description = describe(
    "usher_tokens_total",
    Kind::Counter,
    &["result"],
    "Bearer tokens looked at: remembered, verified, or unknown here and passed on.",
);
static UPSTREAM: Description =
    describe("usher_upstream_healthy", Kind::Gauge, &["upstream"], "Whether an apiserver is well.");
static POOL: Description = describe(
    "usher_upstream_connections",
    Kind::Gauge,
    &["upstream", "kind"],
    "Connections to an apiserver: unused ones of HTTP/1.1, all of HTTP/2.",
);
static UNASKED: Description = describe(
    "usher_upstream_unasked_total",
    Kind::Counter,
    &["upstream"],
    "Connections closed because the apiserver sent what nobody had asked for.",
);
static GLITCHES: Description = describe(
    "usher_glitches_total",
    Kind::Counter,
    &["kind"],
    "What clients' connections did that honest ones do seldom or never.",
);
static CUTS: Description = describe(
    "usher_connections_cut_total",
    Kind::Counter,
    &["reason"],
    "Connections cut for their glitches, by the last straw.",
);
static MEMORY_LIMIT: Description = describe(
    "usher_memory_limit_bytes",
    Kind::Gauge,
    &[],
    "The memory that usher keeps to (--memory-limit); 0: none.",
);
static MEMORY_USED: Description =
    describe("usher_memory_used_bytes", Kind::Gauge, &[], "What is compared with usher_memory_limit_bytes.");
static MEMORY_PRESSURE: Description = describe(
    "usher_memory_pressure",
    Kind::Gauge,
    &["rung"],
    "Whether memory is so tight that large bodies or new connections are refused, idle ones closed, slow readers cut.",
);
static HANDOVERS: Description = describe(
    "usher_handovers_total",
    Kind::Counter,
    &["result"],
    "Hand-overs: this process took over from another (taken), or one that wanted to take over from it did not get ready (given-up).",
);
static FORMER_CONNECTIONS: Description = describe(
    "usher_handover_former_connections",
    Kind::Gauge,
    &[],
    "Connections that the former process still serves while it drains.",
);
static FORMER_REQUESTS: Description = describe(
    "usher_handover_former_requests",
    Kind::Gauge,
    &["phase"],
    "Requests that the former process still has while it drains: they hold seats beside those given out here.",
);
static LINES: Description =
    describe("usher_log_lines_dropped_total", Kind::Counter, &[], "Log lines that nobody read in time.");

static HDR_INTERVALS: Description = describe(
    "usher_hdr_log_intervals_total",
    Kind::Counter,
    &[],
    "Intervals of histograms written to --hdr-log-dir.",
);
static HDR_ERRORS: Description = describe(
    "usher_hdr_log_errors_total",
    Kind::Counter,
    &[],
    "Intervals of histograms that could not be written to --hdr-log-dir, old files that could not be removed.",
);

/// Usher's own metrics, sorted by name.
#[must_use]
pub fn families<'a>(view: &'a View, process: &'a Process) -> Vec<Family<'a>> {
    let mut all: BTreeMap<&str, Family<'a>> = BTreeMap::new();
    let mut add = |description: &'static Description, labels: Vec<&'a str>, value: Value| {
        let family = all.entry(description.name).or_insert(Family { description, children: Vec::new() });
        family.children.push(Child { labels, value });
    };
    for metric in COUNTED {
        for (labels, number) in metric.children {
            let number = number(&view.counters);
            add(&metric.description, labels.to_vec(), value(&metric.description, number));
        }
    }
    for state in State::NAMES {
        let count = view.workers.iter().filter(|worker| worker.state.name() == state).count();
        add(&WORKERS, vec![state], value(&WORKERS, count as u64));
    }
    for worker in &view.workers {
        for (description, number) in [
            (&WORKER_CONNECTIONS, worker.connections),
            (&WORKER_OPEN, worker.connections_open),
            (&WORKER_REQUESTS, worker.requests),
            (&WORKER_DEATHS, worker.deaths),
        ] {
            add(description, vec![&worker.name], value(description, number));
        }
    }
    if let Some(starts) = view.starts {
        for (by, count) in
            [("alone", starts.alone), ("own-worker", starts.by_own), ("other-worker", starts.by_others)]
        {
            add(&STARTS, vec![by], Value::Count(count));
        }
    }
    add(&BUILD, vec![env!("CARGO_PKG_VERSION"), process.io.io.name()], Value::Number(1.0));
    add(&RING, vec![process.io.io.name(), &process.io.reason], Value::Number(1.0));
    let steering = &process.steering;
    add(&STEERING, vec![steering.mode(), steering.reason()], Value::Number(1.0));
    for (address, counts) in steering.tallies() {
        for (path, count) in Path::ALL.into_iter().zip(counts) {
            add(&STEERED, vec![address, path.name()], Value::Count(count));
        }
    }
    if let Some(snapshot) = &view.snapshot {
        add(&GENERATION, Vec::new(), value(&GENERATION, snapshot.generation));
    }
    for (description, number) in RINGS {
        add(description, Vec::new(), Value::Count(number(&view.ring)));
    }
    for (kind, glitches, cuts) in view.glitched.each() {
        add(&GLITCHES, vec![kind], Value::Count(glitches));
        add(&CUTS, vec![kind], Value::Count(cuts));
    }
    for file in &process.files {
        add(&RELOADS, vec![file.what(), "reloaded"], Value::Count(file.reloads()));
        add(&RELOADS, vec![file.what(), "refused"], Value::Count(file.refusals()));
    }
    let tokens = process.authenticator.counts();
    add(&TOKENS, vec!["remembered"], Value::Count(tokens.tokens_remembered));
    add(&TOKENS, vec!["verified"], Value::Count(tokens.tokens_verified));
    add(&TOKENS, vec!["unknown"], Value::Count(tokens.tokens_unknown));
    for upstream in &view.upstreams {
        add(&UPSTREAM, vec![&upstream.server], value(&UPSTREAM, u64::from(upstream.healthy)));
        for (kind, count) in [("http1-idle", upstream.http1_idle), ("http2", upstream.http2)] {
            add(&POOL, vec![&upstream.server, kind], value(&POOL, count as u64));
        }
        add(&UNASKED, vec![&upstream.server], Value::Count(upstream.http1_unasked));
    }
    add(&MEMORY_LIMIT, Vec::new(), value(&MEMORY_LIMIT, process.memory.limit()));
    if process.memory.limit() > 0 {
        add(&MEMORY_USED, Vec::new(), value(&MEMORY_USED, process.memory.used()));
        for rung in Rung::ALL {
            let given_up = u64::from(process.memory.is_at(rung));
            add(&MEMORY_PRESSURE, vec![rung.name()], value(&MEMORY_PRESSURE, given_up));
        }
    }
    if let Some(desk) = &process.hdr {
        add(&HDR_INTERVALS, Vec::new(), Value::Count(desk.counts.written.load(Ordering::Relaxed)));
        add(&HDR_ERRORS, Vec::new(), Value::Count(desk.counts.errors.load(Ordering::Relaxed)));
    }
    let handover = &process.handover;
    add(&HANDOVERS, vec!["taken"], Value::Count(u64::from(handover.has_taken_over())));
    add(&HANDOVERS, vec!["given-up"], Value::Count(handover.given_up()));
    let former = handover.former().unwrap_or_default();
    add(&FORMER_CONNECTIONS, Vec::new(), value(&FORMER_CONNECTIONS, former.connections));
    add(&FORMER_REQUESTS, vec!["executing"], value(&FORMER_REQUESTS, former.executing));
    add(&FORMER_REQUESTS, vec!["waiting"], value(&FORMER_REQUESTS, former.waiting));
    add(&LINES, Vec::new(), Value::Count(crate::observe::logging::dropped()));
    all.into_values().collect()
}

#[expect(clippy::cast_precision_loss, reason = "gauges here count things that fit in memory")]
fn value(description: &Description, number: u64) -> Value {
    match description.kind {
        Kind::Counter => Value::Count(number),
        _ => Value::Number(number as f64),
    }
}

#[cfg(test)]
mod tests;
