//! What is simulated: levels, workers, clients, and what goes wrong meanwhile. YAML that a user can write for his own
//! cluster; `scenarios/` has examples, which the program contains.

use std::path::Path;

use serde::Deserialize;
use serde_json::json;
use usher_flowcontrol::level::Mode;
use usher_flowcontrol::limits::{self, Limits, Share};
use usher_flowcontrol::objects::PriorityLevelConfiguration;
use usher_flowcontrol::units::{Nanos, Seats};
use usher_shards::Options;

use super::flow::{Asks, Flow, Places};
use super::span::Span;
use super::troubles::{Absence, Change, ClockStep, Death, Stall};

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
    /// From publishing queue lengths and limits to workers' seeing them.
    #[serde(default = "default_publish_delay")]
    pub publish_delay: Span,
    /// Requests that a worker may have at a time.
    #[serde(default = "default_slots")]
    pub slots: usize,
    /// The priority level, if there is one only; taken over into `levels`.
    #[serde(default)]
    pub level: Option<Shape>,
    /// Levels that lend each other seats, in order of their names.
    #[serde(default)]
    pub levels: Vec<Shape>,
    /// Seats that such levels share.
    #[serde(default)]
    pub seats: u64,
    /// Who asks.
    pub flows: Vec<Flow>,
    /// Workers that do nothing for a while.
    #[serde(default)]
    pub stalls: Vec<Stall>,
    /// Workers that die; the coordinator buries them, and a new one takes the place.
    #[serde(default)]
    pub deaths: Vec<Death>,
    /// When there is no coordinator.
    #[serde(default)]
    pub coordinator_lost: Vec<Absence>,
    /// Clocks that jump.
    #[serde(default)]
    pub clocks: Vec<ClockStep>,
    /// Changes of the configuration, in order of time.
    #[serde(default)]
    pub changes: Vec<Change>,
    /// A flow of connections: does it gain from having them on all workers instead of one?
    #[serde(default)]
    pub spread: Option<String>,
    /// Internals that only drawn scenarios vary.
    #[serde(skip)]
    pub knobs: Knobs,
}

/// A priority level.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Shape {
    /// What flows and changes call it.
    #[serde(default)]
    pub name: String,
    /// Its limit; of levels that lend: by configuration, before any seat is moved.
    #[serde(default)]
    pub seats: u64,
    /// Of levels that lend: its part of the server's seats, beside the others' shares.
    #[serde(default)]
    pub shares: u32,
    /// Of levels that lend: the part of its seats that others may have.
    #[serde(default)]
    pub lendable_percent: u32,
    /// Of levels that lend: how much it may borrow, as a part of its own seats; absent: all there is.
    pub borrowing_limit_percent: Option<u32>,
    /// Its queues; 0: what does not fit is turned away.
    pub queues: u32,
    /// Queues dealt to a flow.
    #[serde(default = "default_hand")]
    pub hand_size: u8,
    /// Requests that may wait in a queue.
    #[serde(default = "default_length")]
    pub queue_length_limit: u32,
}

/// See [`usher_shards::Options`].
#[derive(Clone, Copy, Debug)]
pub struct Knobs {
    pub(super) ring: usize,
    pub(super) hold: u32,
    pub(super) lease: u64,
    pub(super) lease_from: u64,
    /// From one look at the levels' demand to the next.
    pub(super) sample: Nanos,
}

/// A file of this size was not written by hand.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// An hour of virtual time takes minutes; beyond, nobody waits for the end.
pub(super) const LONGEST: Span = Span(Nanos::from_secs(3600));
/// A level has 256 desks, one of them the coordinator's.
const WORKERS_MAX: usize = 255;
/// Levels that exist without being asked for.
const MANDATORY: [&str; 2] = ["catch-all", "exempt"];
/// Those of the level that is always there.
const CATCH_ALL_SHARES: u32 = 5;
/// What `usher_shards` has for a worker.
const SLOTS_MAX: usize = 65_535;
/// Each is looked at after every event.
const LEVELS_MAX: usize = 64;
/// Each has a histogram of some 25 KiB.
const FLOWS_MAX: u64 = 4096;
/// Clients that are there at a time.
const CLIENTS_MAX: u64 = 200_000;

/// The scenarios that the program contains.
pub const EMBEDDED: &[(&str, &str)] = &[
    ("runaway", include_str!("scenarios/runaway.yaml")),
    ("restart", include_str!("scenarios/restart.yaml")),
    ("tenants", include_str!("scenarios/tenants.yaml")),
    ("lending", include_str!("scenarios/lending.yaml")),
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
        let mut scenario: Self =
            serde_saphyr::from_str(text).map_err(|error| format!("{name}: {}", error.without_snippet()))?;
        scenario.settle().map_err(|fault| format!("{name}: {fault}"))?;
        scenario.check().map_err(|fault| format!("{name}: {fault}"))?;
        Ok(scenario)
    }

    /// One level or several: from now on all are in `levels`, with their limits.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        match (self.level.take(), self.levels.is_empty(), self.seats) {
            (Some(level), true, 0) => self.levels = vec![level],
            (None, false, 1..) => {
                self.levels.sort_by(|one, other| one.name.cmp(&other.name));
                let limits = self.limits();
                self.levels.iter_mut().zip(limits).for_each(|(level, its)| level.seats = its.nominal.0);
            }
            _ => return Err("wanted either level, or levels and the seats that they share".to_owned()),
        }
        Ok(())
    }

    /// What is wrong with it, if anything.
    pub fn check(&self) -> Result<(), String> {
        let wrong = |field: &str, problem: &str| Err(format!("{field}: {problem}"));
        if self.duration > LONGEST || self.duration <= self.warm_up {
            return wrong("duration", "wanted more than warm-up, at most 60m");
        }
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            return wrong("workers", &format!("wanted 1 to {WORKERS_MAX}"));
        }
        let same = |pair: &[Shape]| pair[0].name == pair[1].name;
        if self.levels.len() > LEVELS_MAX || self.levels.windows(2).any(same) {
            return wrong("levels", &format!("wanted at most {LEVELS_MAX}, each with a name of its own"));
        }
        self.levels.iter().try_for_each(Shape::check)?;
        let flows: u64 = self.flows.iter().map(|flow| u64::from(flow.count)).sum();
        let clients = self.flows.iter().map(|flow| u64::from(flow.count) * u64::from(flow.clients()));
        if flows == 0 || flows > FLOWS_MAX || clients.sum::<u64>() > CLIENTS_MAX {
            return wrong("flows", "wanted 1 to 4096 flows, at most 200000 clients");
        }
        for (index, flow) in self.flows.iter().enumerate() {
            self.position(&flow.level).map_err(|fault| format!("flows[{index}].level: {fault}"))?;
        }
        for (index, change) in self.changes.iter().enumerate() {
            self.check_change(change).map_err(|fault| format!("changes[{index}]: {fault}"))?;
        }
        self.check_workers()?;
        let closed = |flow: &Flow| matches!(flow.asks, Asks::Connections(_)) && flow.count == 1;
        match &self.spread {
            Some(name) if !self.flows.iter().any(|flow| flow.name == *name && closed(flow)) => {
                wrong("spread", "wanted the name of a single flow with connections")
            }
            _ => Ok(()),
        }
    }

    fn check_change(&self, change: &Change) -> Result<(), String> {
        let place = self.position(&change.level)?;
        if change.removed && place == 0 {
            return Err("removed: the first level stays".to_owned());
        }
        if change.seats.is_some() && self.lends() || change.shares.is_some() && !self.lends() {
            return Err("wanted shares where levels lend, seats where there is one level".to_owned());
        }
        let mut shape = self.levels[place].clone();
        shape.change(change);
        shape.check()
    }

    /// Every worker that is named is there.
    fn check_workers(&self) -> Result<(), String> {
        let on = self.flows.iter().enumerate();
        let on = on.flat_map(|(at, flow)| flow.on.named().iter().map(move |on| ("flows", at, *on)));
        let stalls = self.stalls.iter().enumerate().map(|(at, it)| ("stalls", at, it.worker));
        let deaths = self.deaths.iter().enumerate().map(|(at, it)| ("deaths", at, it.worker));
        let clocks = self.clocks.iter().enumerate().map(|(at, it)| ("clocks", at, it.worker));
        let mut all = on.chain(stalls).chain(deaths).chain(clocks);
        match all.find(|(_, _, worker)| *worker >= self.workers) {
            Some(("flows", at, worker)) => Err(format!("flows[{at}].on: {}", nobody(worker))),
            Some((field, at, worker)) => Err(format!("{field}[{at}].worker: {}", nobody(worker))),
            None => Ok(()),
        }
    }

    /// Whether seats are moved between levels.
    pub(super) fn lends(&self) -> bool {
        self.seats > 0
    }

    /// The place of the level of that name; without a name, the first one's.
    pub(super) fn position(&self, name: &str) -> Result<usize, String> {
        if name.is_empty() {
            return Ok(0);
        }
        let place = self.levels.iter().position(|level| level.name == name);
        place.ok_or_else(|| format!("there is no level {name}"))
    }

    /// The fewest seats that a level which lends will ever have; `None` if that may change.
    pub(super) fn least(&self, shape: &Shape) -> Option<u64> {
        let changes = self.changes.iter().any(|change| change.removed || change.shares.is_some());
        let place = self.levels.iter().position(|level| level.name == shape.name)?;
        (!changes).then(|| self.limits()[place].minimum.0)
    }

    /// Limits by configuration of levels that lend. `catch-all`, where nobody asks, has its shares, too.
    fn limits(&self) -> Vec<Limits> {
        let catch_all = Share { shares: CATCH_ALL_SHARES, ..Share::default() };
        let shares: Vec<_> = self.levels.iter().map(Shape::share).chain([catch_all]).collect();
        limits::all(Seats(self.seats), &shares).collect()
    }

    /// The same for one worker with whom nothing goes wrong, who asks the exact level for every request.
    pub(super) fn alone(&self) -> Self {
        let mut scenario = self.clone();
        (scenario.workers, scenario.exact, scenario.message_delay) = (1, true, Span::default());
        scenario.slots = (self.slots * self.workers).min(SLOTS_MAX);
        scenario.stalls.clear();
        scenario.deaths.clear();
        scenario.clocks.clear();
        scenario.coordinator_lost.clear();
        scenario.flows.iter_mut().for_each(|flow| flow.on = Places::All);
        scenario
    }

    /// The same with clients so many times as fast; what workers need for a message stays as it is.
    pub(super) fn faster(&mut self, factor: f64) {
        self.duration.divide(factor);
        self.warm_up.divide(factor);
        self.flows.iter_mut().for_each(|flow| flow.faster(factor));
    }
}

// === impl Shape ===

impl Shape {
    fn check(&self) -> Result<(), String> {
        if self.queues > 8192 || self.seats > 1_000_000 {
            return Err(format!("level {}: wanted at most 8192 queues and 1000000 seats", self.name));
        }
        if MANDATORY.contains(&self.name.as_str()) {
            return Err(format!("level {}: it is always there, and has no clients here", self.name));
        }
        let hands = 1..=self.queues.clamp(1, 64);
        if self.queues > 0 && !hands.contains(&self.hand_size.into()) {
            return Err(format!("level {}: hand-size: wanted 1 to the number of queues", self.name));
        }
        Ok(())
    }

    pub(super) fn change(&mut self, change: &Change) {
        self.seats = change.seats.unwrap_or(self.seats);
        self.shares = change.shares.unwrap_or(self.shares);
        self.queues = change.queues.unwrap_or(self.queues);
        self.hand_size = change.hand_size.unwrap_or(self.hand_size);
        self.queue_length_limit = change.queue_length_limit.unwrap_or(self.queue_length_limit);
    }

    fn share(&self) -> Share {
        Share {
            shares: self.shares,
            lendable_percent: self.lendable_percent,
            borrowing_limit_percent: self.borrowing_limit_percent,
            hand_size: (self.queues > 0).then_some(self.hand_size.into()),
        }
    }

    /// As the object that configures it.
    pub(super) fn object(&self) -> PriorityLevelConfiguration {
        let response = if self.queues == 0 {
            json!({"type": "Reject"})
        } else {
            let (queues, hand, length) = (self.queues, self.hand_size, self.queue_length_limit);
            json!({"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": length}})
        };
        let limited = json!({
            "nominalConcurrencyShares": self.shares, "limitResponse": response,
            "lendablePercent": self.lendable_percent, "borrowingLimitPercent": self.borrowing_limit_percent,
        });
        let object =
            json!({"metadata": {"name": self.name}, "spec": {"type": "Limited", "limited": limited}});
        serde_json::from_value(object).expect("is one")
    }

    /// How the level treats what does not fit.
    pub(super) fn mode(&self) -> Mode {
        let Self { queues, hand_size, queue_length_limit, .. } = *self;
        if queues == 0 { Mode::Reject } else { Mode::Queue { queues, hand_size, queue_length_limit } }
    }
}

fn nobody(worker: usize) -> String {
    format!("there is no worker {worker}: they are counted from 0")
}

// === impl Knobs ===

impl Knobs {
    /// Of levels; workers and slots are the scenario's.
    pub(super) fn options(self) -> Options {
        let Self { ring, hold, lease, lease_from, .. } = self;
        Options { ring, hold, lease, lease_from, ..Options::default() }
    }
}

impl Default for Knobs {
    fn default() -> Self {
        let usual = Options::default();
        Self {
            ring: usual.ring,
            hold: usual.hold,
            lease: usual.lease,
            lease_from: usual.lease_from,
            sample: Nanos::from_millis(5),
        }
    }
}

fn default_delay() -> Span {
    Span(Nanos(5_000))
}

fn default_publish_delay() -> Span {
    Span(Nanos(500))
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
