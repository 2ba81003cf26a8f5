//! What is simulated: a level, workers, clients, and what goes wrong meanwhile. YAML that a user can write for his own
//! cluster; `scenarios/` has examples, which the program contains.

use std::path::Path;

use serde::Deserialize;
use usher_flowcontrol::level::Mode;
use usher_flowcontrol::units::Nanos;

pub use super::span::Span;

/// A scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    /// What it shows, in a line.
    #[serde(default)]
    pub about: String,
    /// When the last request may arrive; what is there then is finished.
    pub duration: Span,
    /// What happens before this is not counted.
    #[serde(default)]
    pub warm_up: Span,
    /// Workers, 1 to 256.
    pub workers: usize,
    /// kube-apiserver's order bit for bit: no request starts without the sequencer.
    #[serde(default)]
    pub exact: bool,
    /// From waking a worker to its looking.
    #[serde(default = "default_delay")]
    pub message_delay: Span,
    /// Requests that a worker may have at a time.
    #[serde(default = "default_slots")]
    pub slots: usize,
    /// The priority level.
    pub level: Shape,
    /// Who asks.
    pub flows: Vec<Flow>,
    /// Workers that do nothing for a while.
    #[serde(default)]
    pub stalls: Vec<Stall>,
    /// Workers that die; others bury them, and a new one takes the place.
    #[serde(default)]
    pub deaths: Vec<Death>,
    /// Changes of the level's limit.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// A flow of connections: does it gain from having them on all workers instead of one?
    #[serde(default)]
    pub spread: Option<String>,
    /// Internals that only drawn scenarios vary.
    #[serde(skip)]
    pub knobs: Knobs,
}

/// A priority level.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Shape {
    /// Its limit.
    pub seats: u64,
    /// Its queues; 0: what does not fit is turned away.
    pub queues: u32,
    /// Queues dealt to a flow.
    #[serde(default = "default_hand")]
    pub hand_size: u8,
    /// Requests that may wait in a queue.
    #[serde(default = "default_length")]
    pub queue_length_limit: u32,
}

/// Clients alike. Exactly one of `connections`, `rate` and `burst` is there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", try_from = "Written")]
pub struct Flow {
    /// What the report calls it.
    pub name: String,
    /// So many flows like this.
    pub count: u32,
    /// How it asks.
    pub asks: Asks,
    /// Workers that its connections are on, in turn; empty: all.
    pub on: Vec<usize>,
    /// Mean time of an execution.
    pub service: Span,
    /// How execution times are distributed.
    pub distribution: Distribution,
    /// Fewest and most seats of a request, equally likely.
    pub seats: (u64, u64),
    /// Seats are held for so long after the execution.
    pub linger: Span,
    /// From an answer to the next request of the same connection.
    pub think: Span,
    /// Mean time from being turned away to trying again.
    pub retry: Span,
    /// How long a client waits before it gives up.
    pub patience: Option<Span>,
    /// When it begins.
    pub start: Span,
}

/// How a flow asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Asks {
    /// So many connections, one request each at a time.
    Connections(u32),
    /// Requests a second, whatever becomes of them (Poisson).
    Rate(f64),
    /// So many requests at once, each tried until it was served.
    Burst(u32),
}

/// [`Flow`] as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Written {
    name: String,
    #[serde(default = "one")]
    count: u32,
    connections: Option<u32>,
    rate: Option<f64>,
    burst: Option<u32>,
    #[serde(default)]
    on: Vec<usize>,
    service: Span,
    #[serde(default)]
    distribution: Distribution,
    #[serde(default = "one_seat")]
    seats: (u64, u64),
    #[serde(default)]
    linger: Span,
    #[serde(default)]
    think: Span,
    #[serde(default = "default_retry")]
    retry: Span,
    patience: Option<Span>,
    #[serde(default)]
    start: Span,
}

/// Of execution times.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Always the same.
    Fixed,
    /// Often short, seldom long.
    #[default]
    Exponential,
}

/// A worker does nothing for a while.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Stall {
    /// Which one.
    pub worker: usize,
    /// From when.
    pub at: Span,
    /// How long.
    #[serde(rename = "for")]
    pub lasts: Span,
}

/// A worker dies. The last one alive does not.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Death {
    /// Which one.
    pub worker: usize,
    /// When.
    pub at: Span,
}

/// The level's limit changes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Limit {
    /// When.
    pub at: Span,
    /// To how many seats.
    pub seats: u64,
}

/// See [`usher_shards::Options`].
#[derive(Clone, Copy, Debug)]
pub struct Knobs {
    pub(super) ring: usize,
    pub(super) hold: u32,
    pub(super) lease: u64,
    pub(super) lease_from: u64,
}

/// A file of this size was not written by hand.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// An hour of virtual time takes minutes; beyond, nobody waits for the end.
const LONGEST: Span = Span(Nanos::from_secs(3600));
/// Each has a histogram of some 25 KiB.
const FLOWS_MAX: u64 = 4096;
/// Clients that are there at a time.
const CLIENTS_MAX: u64 = 200_000;
/// Estimates end there.
const WIDTH_MAX: u64 = 100;

/// The scenarios that the program contains.
pub const EMBEDDED: &[(&str, &str)] = &[
    ("runaway", include_str!("scenarios/runaway.yaml")),
    ("restart", include_str!("scenarios/restart.yaml")),
    ("tenants", include_str!("scenarios/tenants.yaml")),
];

// === impl Scenario ===

impl Scenario {
    /// The scenario of that name or in that file; or what is wrong with it, and where.
    pub fn read(name: &str) -> Result<Self, String> {
        if let Some((_, text)) = EMBEDDED.iter().find(|(embedded, _)| *embedded == name) {
            return Self::parse(name, text);
        }
        let cannot = |error: std::io::Error| {
            let names: Vec<_> = EMBEDDED.iter().map(|(name, _)| *name).collect();
            format!("{name}: {error} (without a file there are {}, drawn)", names.join(", "))
        };
        let size = std::fs::metadata(Path::new(name)).map_err(cannot)?.len();
        if size > FILE_BYTES_MAX {
            return Err(format!("{name}: larger than {FILE_BYTES_MAX} bytes"));
        }
        Self::parse(name, &std::fs::read_to_string(name).map_err(cannot)?)
    }

    /// The scenario in that text; `name` is for what is wrong.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let scenario: Self =
            serde_saphyr::from_str(text).map_err(|error| format!("{name}: {}", error.without_snippet()))?;
        scenario.check().map_err(|fault| format!("{name}: {fault}"))?;
        Ok(scenario)
    }

    /// What is wrong with it, if anything.
    pub fn check(&self) -> Result<(), String> {
        let wrong = |field: &str, problem: &str| Err(format!("{field}: {problem}"));
        if self.duration > LONGEST || self.duration <= self.warm_up {
            return wrong("duration", "wanted more than warm-up, at most 60m");
        }
        if !(1..=256).contains(&self.workers) {
            return wrong("workers", "wanted 1 to 256");
        }
        if self.level.queues > 8192 || self.level.seats > 1_000_000 {
            return wrong("level", "wanted at most 8192 queues and 1000000 seats");
        }
        let hands = 1..=self.level.queues.clamp(1, 64);
        if self.level.queues > 0 && !hands.contains(&self.level.hand_size.into()) {
            return wrong("level.hand-size", "wanted at least 1, at most the number of queues");
        }
        let flows: u64 = self.flows.iter().map(|flow| u64::from(flow.count)).sum();
        let clients = self.flows.iter().map(|flow| u64::from(flow.count) * u64::from(flow.clients()));
        if flows == 0 || flows > FLOWS_MAX || clients.sum::<u64>() > CLIENTS_MAX {
            return wrong("flows", "wanted 1 to 4096 flows, at most 200000 clients");
        }
        let places = self.flows.iter().enumerate();
        let places =
            places.flat_map(|(at, flow)| flow.on.iter().map(move |on| (format!("flows[{at}].on"), *on)));
        let stalls =
            self.stalls.iter().enumerate().map(|(at, it)| (format!("stalls[{at}].worker"), it.worker));
        let deaths =
            self.deaths.iter().enumerate().map(|(at, it)| (format!("deaths[{at}].worker"), it.worker));
        if let Some((field, worker)) = places.chain(stalls).chain(deaths).find(|(_, it)| *it >= self.workers)
        {
            return wrong(&field, &format!("there is no worker {worker}: they are counted from 0"));
        }
        let closed = |flow: &Flow| matches!(flow.asks, Asks::Connections(_)) && flow.count == 1;
        match &self.spread {
            Some(name) if !self.flows.iter().any(|flow| flow.name == *name && closed(flow)) => {
                wrong("spread", "wanted the name of a single flow with connections")
            }
            _ => Ok(()),
        }
    }

    /// How the level treats what does not fit.
    pub(super) fn mode(&self) -> Mode {
        let Shape { queues, hand_size, queue_length_limit, .. } = self.level;
        if queues == 0 { Mode::Reject } else { Mode::Queue { queues, hand_size, queue_length_limit } }
    }
}

// === impl Flow ===

impl Flow {
    pub(super) fn clients(&self) -> u32 {
        match self.asks {
            Asks::Connections(count) | Asks::Burst(count) => count,
            Asks::Rate(_) => 0,
        }
    }
}

impl TryFrom<Written> for Flow {
    type Error = String;

    fn try_from(flow: Written) -> Result<Self, String> {
        let Written {
            name,
            count,
            on,
            service,
            distribution,
            seats,
            linger,
            think,
            retry,
            patience,
            start,
            ..
        } = flow;
        let asks = match (flow.connections, flow.rate, flow.burst) {
            (Some(count), None, None) => Asks::Connections(count),
            (None, Some(rate), None) => Asks::Rate(rate),
            (None, None, Some(count)) => Asks::Burst(count),
            _ => return Err(format!("flow {name}: wanted one of connections, rate, burst")),
        };
        if matches!(asks, Asks::Rate(rate) if !(rate > 0.0 && rate <= 1e6)) {
            return Err(format!("flow {name}: rate: wanted more than 0 and at most 1000000 a second"));
        }
        if service.0 < Nanos(1000) || service > LONGEST {
            return Err(format!("flow {name}: service: wanted 1us or more"));
        }
        if seats.0 == 0 || seats.0 > seats.1 || seats.1 > WIDTH_MAX {
            return Err(format!("flow {name}: seats: wanted [fewest, most], 1 to 100"));
        }
        if retry.0 < Nanos(1000) {
            return Err(format!("flow {name}: retry: wanted 1us or more"));
        }
        Ok(Self {
            name,
            count,
            asks,
            on,
            service,
            distribution,
            seats,
            linger,
            think,
            retry,
            patience,
            start,
        })
    }
}

// === impl Knobs ===

impl Default for Knobs {
    fn default() -> Self {
        let usual = usher_shards::Options::default();
        Self { ring: usual.ring, hold: usual.hold, lease: usual.lease, lease_from: usual.lease_from }
    }
}

fn default_delay() -> Span {
    Span(Nanos(5_000))
}

fn default_slots() -> usize {
    1024
}

fn default_hand() -> u8 {
    6
}

fn default_length() -> u32 {
    50
}

fn default_retry() -> Span {
    Span(Nanos::from_secs(1))
}

fn one() -> u32 {
    1
}

fn one_seat() -> (u64, u64) {
    (1, 1)
}
