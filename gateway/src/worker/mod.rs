//! A worker: one thread, one ring, one core of decisions, and all that happens between a client's bytes and an
//! apiserver's.
//!
//! Threads talk to it by [`Command`]s; it shares nothing else. Rooms: [`listen`] and [`connection`] bring requests,
//! [`request`] takes one through its steps, [`entrance`] and [`admission`] ask the core, [`body`], [`watch`] and
//! [`upgrade`] are about what comes back, [`host`] ends what overruns, [`glitches`] those who misbehave.
//!
//! Seats come back whatever happens: they are values with destructors ([`admission`]), owned by the future that
//! awaits the answer and then by the answer's body.

mod admission;
mod ahead;
mod audit;
mod bells;
mod body;
mod command;
mod connection;
mod counters;
mod entrance;
mod familiar;
mod flag;
mod glitches;
mod headers;
mod host;
mod inflight;
mod listen;
mod portion;
mod quiet;
mod readers;
mod reply;
mod request;
mod roster;
mod scarcity;
mod settings;
mod turned_away;
mod uids;
mod upgrade;
mod watch;

pub use admission::Described;
pub use bells::Bells;
pub use command::{Command, Handle, ObjectCount, Objects, Snapshot, spawn};
pub use counters::Counters;
pub use glitches::{Glitch, Glitched, Glitches};
pub use settings::{AdmissionSettings, Limits, Listen, Settings, Together};
pub use turned_away::TurnedAway;

use std::cell::RefCell;
use std::rc::Rc;

use tokio::sync::Notify;
use usher_flowcontrol::estimate::Statistics;
use usher_flowcontrol::units::Nanos;
use usher_flowcontrol::watches::Watches;

use crate::observe::hdr::Recorder;
use crate::tls;
use crate::upstream::Upstream;
use admission::Admission;
use ahead::Ahead;
use counters::Counting;
use flag::Flag;
use glitches::Tally;
use inflight::InFlight;
use readers::Readers;
use roster::Roster;
use scarcity::Scarcity;

/// What the tasks of a worker have in common.
#[derive(Debug)]
struct Worker {
    settings: Settings,
    admit: Admit,
    upstream: Rc<Upstream>,
    counters: Counting,
    turned_away: RefCell<TurnedAway>,
    /// What connections did that honest ones do not.
    glitches: Rc<Tally>,
    /// Its histograms, if they are kept.
    recorder: Option<Rc<Recorder>>,
    /// Watches that run, for the cost of writes.
    watches: RefCell<Watches>,
    /// Objects that there are, for the cost of lists.
    statistics: RefCell<Statistics>,
    /// TLS handshakes take turns.
    handshakes: Rc<tls::Gate>,
    /// Open connections.
    roster: Rc<Roster>,
    /// Answers under way.
    readers: Rc<Readers>,
    /// How scarce memory is.
    scarcity: Scarcity,
    /// What HTTP/2 clients may send before it is asked for.
    ahead: Rc<Ahead>,
    /// A connection has ended.
    room: Notify,
    /// The end is near.
    drain: Rc<Flag>,
}

/// Who decides.
#[derive(Debug)]
enum Admit {
    FlowControl(Rc<Admission>),
    InFlight(InFlight),
}

impl Worker {
    fn new(mut settings: Settings) -> Self {
        let admit = match settings.admission {
            AdmissionSettings::FlowControl { server_limit, ref mut together } => {
                Admit::FlowControl(Rc::new(Admission::new(server_limit, together.take())))
            }
            AdmissionSettings::InFlight { reading_max, writing_max } => {
                Admit::InFlight(InFlight::new(reading_max, writing_max))
            }
        };
        Self {
            recorder: settings.hdr.take().map(Recorder::new),
            admit,
            upstream: Upstream::start(settings.upstream.clone()),
            counters: Counting::default(),
            turned_away: RefCell::default(),
            glitches: Tally::new(settings.limits.glitches),
            watches: RefCell::default(),
            statistics: RefCell::default(),
            handshakes: tls::Gate::new(settings.limits.handshakes),
            roster: Rc::default(),
            readers: Rc::default(),
            scarcity: Scarcity::new(),
            ahead: Ahead::new(settings.limits.body_bytes_total),
            room: Notify::new(),
            drain: Rc::default(),
            settings,
        }
    }

    /// The time of a request that is not long-running.
    fn request_timeout(&self) -> Nanos {
        Nanos(i64::try_from(self.settings.request_timeout.as_nanos()).unwrap_or(i64::MAX))
    }
}
