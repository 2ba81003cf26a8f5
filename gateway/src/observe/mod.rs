//! What operators see: metrics, dumps, health, log lines.
//!
//! The admin port ([`server`]) has a thread of its own and asks workers for a [`View`] through [`Workers`]: a copy
//! taken between two of their turns. A scrape, however slow, stops nobody; a worker that does not answer within
//! [`server::ANSWER_TIMEOUT`] is itself an answer.

pub mod dumps;
pub mod hdr;
pub mod health;
pub mod logging;
pub mod metrics;
pub mod server;
pub mod status;
mod workers;

pub use workers::{Each, Everybody, State};

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use usher_flowcontrol::snapshot::Snapshot;
use usher_shards::Starts;

use crate::handover;
use crate::identity::Authenticator;
use crate::memory;
use crate::reload::Reload;
use crate::ring;
use crate::steering::Steering;
use crate::takeover::Takeover;
use crate::upstream;
use crate::worker::{Counters, Glitched, TurnedAway};

/// What the workers together looked like at one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Levels, queues, requests; `None` where flow control is off.
    pub snapshot: Option<Snapshot>,
    /// What those requests are about.
    pub details: dumps::ByTag,
    /// What they counted.
    pub counters: Counters,
    /// What they turned away, by kind.
    pub turned_away: TurnedAway,
    /// What their connections did that honest ones do not.
    pub glitched: Glitched,
    /// The apiservers as they see them.
    pub upstreams: Vec<upstream::Look>,
    /// What their I/O has done.
    pub ring: ring::Look,
    /// No new requests are taken: the end is near.
    pub draining: bool,
    /// How requests were started that had levels in common; `None`: one worker has them for itself.
    pub starts: Option<Starts>,
    /// The workers by themselves.
    pub workers: Vec<Each>,
}

/// What the process as a whole knows.
pub struct Process {
    /// How workers do their I/O, and why.
    pub io: ring::Choice,
    /// Everything that follows files.
    pub files: Vec<Arc<dyn Reload>>,
    /// Who is asking.
    pub authenticator: Arc<Authenticator>,
    /// How much memory there is, and is used.
    pub memory: Arc<memory::Gauge>,
    /// Who was here before, and who has tried to come after.
    pub handover: Arc<handover::Ledger>,
    /// Who brings connections to workers.
    pub steering: Arc<Steering>,
    /// The workers' histograms; `None`: nobody collects them.
    pub hdr: Option<hdr::Desk>,
    /// Whose an apiserver's port is; `None`: none is taken over.
    pub takeover: Option<Arc<Takeover>>,
}

/// A worker did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// Its mailbox is full.
    #[error("{0} takes no messages: it is stuck")]
    Stuck(String),
    /// It takes too long.
    #[error("{0} did not answer within {timeout:?}", timeout = server::ANSWER_TIMEOUT)]
    Late(String),
}

/// An answer that is awaited.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<View, NoAnswer>> + Send + 'a>>;

/// Those who can be asked for a look.
pub trait Workers: Send + Sync + 'static {
    /// What they look like now; within [`server::ANSWER_TIMEOUT`].
    fn look(&self) -> Answer<'_>;
}

impl std::fmt::Debug for Process {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Process").field("io", &self.io).finish_non_exhaustive()
    }
}
