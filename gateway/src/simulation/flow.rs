//! Clients: what they want, how they ask for it, and what they do when they do not get it.

use serde::Deserialize;
use usher_flowcontrol::units::Nanos;

use super::scenario::LONGEST;
use super::span::Span;

/// Clients alike. Exactly one of `connections`, `rate` and `burst` is there.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Written")]
pub struct Flow {
    /// What the report calls it.
    pub name: String,
    /// The level that it belongs to; without a name, the first one.
    pub level: String,
    /// So many flows like this.
    pub count: u32,
    /// How it asks.
    pub asks: Asks,
    /// Where its connections are.
    pub on: Places,
    /// How long it executes, and with how many seats.
    pub work: Work,
    /// From an answer to the next request of the same connection.
    pub think: Span,
    /// From being turned away to trying again.
    pub retry: Retry,
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
    /// So many requests at once, each tried until it was served; and as many again every so often.
    Burst(u32, Option<Span>),
}

/// Where the connections of flows alike are.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Places {
    /// Spread over all workers.
    #[default]
    All,
    /// All connections of a flow on one worker; the next flow's on the next worker.
    OneEach,
    /// Nine of ten connections on the first worker, the others spread over the rest.
    MostlyFirst,
    /// On these workers, in turn.
    #[serde(untagged)]
    These(Vec<usize>),
}

/// What requests cost.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Mean time of an execution.
    pub service: Span,
    /// How execution times are distributed.
    pub distribution: Distribution,
    /// Fewest and most seats of a request, equally likely.
    pub seats: (u64, u64),
    /// Seats are held for so long after the execution.
    pub linger: Span,
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
    /// One in twenty takes twenty times as long as the others.
    Heavy,
}

/// When a client that was turned away tries again.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// Mean time to the first try.
    pub first: Span,
    /// Each further one takes twice as long, up to this: a controller that backs off.
    pub most: Span,
}

/// [`Flow`] as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Written {
    name: String,
    #[serde(default)]
    level: String,
    #[serde(default = "one")]
    count: u32,
    connections: Option<u32>,
    rate: Option<f64>,
    burst: Option<u32>,
    every: Option<Span>,
    #[serde(default)]
    on: Places,
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
    retry_max: Option<Span>,
    patience: Option<Span>,
    #[serde(default)]
    start: Span,
}

/// Estimates end there.
const WIDTH_MAX: u64 = 100;
/// Shorter ones are a slip of the pen, and an endless loop.
const SHORTEST: Nanos = Nanos(1000);

// === impl Flow ===

impl Flow {
    /// Clients that are there from the beginning.
    pub(super) fn clients(&self) -> u32 {
        match self.asks {
            Asks::Connections(count) | Asks::Burst(count, None) => count,
            Asks::Rate(_) | Asks::Burst(_, Some(_)) => 0,
        }
    }

    /// The same clients, so many times as fast.
    pub(super) fn faster(&mut self, factor: f64) {
        let spans = [&mut self.work.service, &mut self.work.linger, &mut self.think, &mut self.start];
        let retries = [&mut self.retry.first, &mut self.retry.most];
        spans.into_iter().chain(retries).chain(&mut self.patience).for_each(|span| span.divide(factor));
        match &mut self.asks {
            Asks::Rate(rate) => *rate *= factor,
            Asks::Burst(_, Some(every)) => every.divide(factor),
            Asks::Burst(_, None) | Asks::Connections(_) => {}
        }
    }
}

impl Places {
    /// The worker of a flow's connection: the flow's number among its like, the connection's among all there are.
    pub(super) fn worker(&self, flow: usize, connection: usize, workers: usize) -> usize {
        match self {
            Self::All => connection % workers,
            Self::OneEach => flow % workers,
            Self::MostlyFirst if !connection.is_multiple_of(10) || workers == 1 => 0,
            Self::MostlyFirst => 1 + connection / 10 % (workers - 1),
            Self::These(these) => these[connection % these.len()],
        }
    }

    /// Those that are named.
    pub(super) fn named(&self) -> &[usize] {
        if let Self::These(these) = self { these } else { &[] }
    }
}

impl Retry {
    /// The mean time to the next try of a client that was turned away so often before.
    pub(super) fn after(self, failures: u32) -> Nanos {
        let longer = self.first.0.0.saturating_mul(1 << failures.min(30));
        Nanos(longer.min(self.most.0.0))
    }
}

impl TryFrom<Written> for Flow {
    type Error = String;

    fn try_from(flow: Written) -> Result<Self, String> {
        let Written { name, level, count, on, service, distribution, seats, linger, think, .. } = flow;
        let wrong = |what: &str| Err(format!("flow {name}: {what}"));
        let asks = match (flow.connections, flow.rate, flow.burst) {
            (Some(count), None, None) => Asks::Connections(count),
            (None, Some(rate), None) => Asks::Rate(rate),
            (None, None, Some(count)) => Asks::Burst(count, flow.every),
            _ => return wrong("wanted one of connections, rate, burst"),
        };
        if matches!(asks, Asks::Rate(rate) if !(rate > 0.0 && rate <= 1e6)) {
            return wrong("rate: wanted more than 0 and at most 1000000 a second");
        }
        if flow.every.is_some_and(|every| flow.burst.is_none() || every.0 < SHORTEST) {
            return wrong("every: wanted 1us or more, beside burst");
        }
        if service.0 < SHORTEST || service > LONGEST {
            return wrong("service: wanted 1us or more");
        }
        if seats.0 == 0 || seats.0 > seats.1 || seats.1 > WIDTH_MAX {
            return wrong("seats: wanted [fewest, most], 1 to 100");
        }
        let retry = Retry { first: flow.retry, most: flow.retry_max.unwrap_or(flow.retry) };
        if retry.first.0 < SHORTEST || retry.most < retry.first {
            return wrong("retry: wanted 1us or more, and no more than retry-max");
        }
        if matches!(&on, Places::These(these) if these.is_empty()) {
            return wrong("on: wanted all, one-each, mostly-first, or numbers of workers");
        }
        let work = Work { service, distribution, seats, linger };
        Ok(Self {
            name,
            level,
            count,
            asks,
            on,
            work,
            think,
            retry,
            patience: flow.patience,
            start: flow.start,
        })
    }
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
