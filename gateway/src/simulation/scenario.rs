//! What is simulated: a level, workers, clients, and what goes wrong meanwhile. YAML that a user can write for his own
//! cluster; `scenarios/` has examples, which the program contains.

use std::path::Path;

use serde::Deserialize;
use usher_flowcontrol::level::Mode;
use usher_flowcontrol::units::Nanos;

use super::flow::{Asks, Flow};
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
pub(super) const LONGEST: Span = Span(Nanos::from_secs(3600));
/// Each has a histogram of some 25 KiB.
const FLOWS_MAX: u64 = 4096;
/// Clients that are there at a time.
const CLIENTS_MAX: u64 = 200_000;

/// The scenarios that the program contains.
pub const EMBEDDED: &[(&str, &str)] = &[
    ("runaway", include_str!("scenarios/runaway.yaml")),
    ("restart", include_str!("scenarios/restart.yaml")),
    ("tenants", include_str!("scenarios/tenants.yaml")),
    ("spread-out", include_str!("scenarios/study/spread-out.yaml")),
    ("concentrated", include_str!("scenarios/study/concentrated.yaml")),
    ("lopsided", include_str!("scenarios/study/lopsided.yaml")),
    ("light", include_str!("scenarios/study/light.yaml")),
    ("overload", include_str!("scenarios/study/overload.yaml")),
    ("scarce", include_str!("scenarios/study/scarce.yaml")),
    ("bursts", include_str!("scenarios/study/bursts.yaml")),
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
        let places = places
            .flat_map(|(at, flow)| flow.on.named().iter().map(move |on| (format!("flows[{at}].on"), *on)));
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

    /// The same with clients so many times as fast; what workers need for a message stays as it is.
    pub(super) fn faster(&mut self, factor: f64) {
        self.duration.divide(factor);
        self.warm_up.divide(factor);
        self.flows.iter_mut().for_each(|flow| flow.faster(factor));
    }

    /// How the level treats what does not fit.
    pub(super) fn mode(&self) -> Mode {
        let Shape { queues, hand_size, queue_length_limit, .. } = self.level;
        if queues == 0 { Mode::Reject } else { Mode::Queue { queues, hand_size, queue_length_limit } }
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
