//! A worker: one thread, one ring, one core of decisions, and all that happens between a client's bytes and an
//! apiserver's.
//!
//! Threads talk to it by [`Command`]s; it shares nothing else but counts ([`common`]). Rooms: [`listen`] and [`connection`] bring requests,
//! [`request`] takes one through its steps, [`entrance`] and [`admission`] ask the core, [`body`], [`watch`] and
//! [`upgrade`] are about what comes back, [`host`] ends what overruns, [`glitches`] those who misbehave.
//!
//! Seats come back whatever happens: they are values with destructors ([`admission`]), owned by the future that
//! awaits the answer and then by the answer's body.

mod admission;
mod ahead;
mod audience;
mod audit;
mod bells;
mod body;
mod command;
mod common;
mod connection;
mod counters;
mod entrance;
mod familiar;
mod flag;
mod glitches;
mod headers;
mod host;
mod inflight;
mod legacy;
mod listen;
mod portion;
mod quiet;
mod readers;
mod reply;
mod request;
mod roster;
#[cfg(debug_assertions)]
mod sabotage;
mod scarcity;
mod settings;
mod turned_away;
mod uids;
mod upgrade;
mod vital;
mod watch;

pub use admission::Described;
pub use bells::Bells;
pub use command::{Command, Handle, ObjectCount, Objects, Snapshot, run, spawn};
pub use common::Common;
pub use counters::Counters;
pub use glitches::{Glitch, Glitched, Glitches};
pub use legacy::Legacy;
#[cfg(debug_assertions)]
pub use sabotage::Sabotage;
pub use settings::{AdmissionSettings, Limits, Listen, Settings, Together};
pub use turned_away::TurnedAway;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, PoisonError};

use tokio::sync::Notify;
use usher_flowcontrol::estimate::Statistics;
use usher_flowcontrol::snapshot::Past;
use usher_flowcontrol::units::Nanos;

use crate::observe::hdr::Recorder;
use crate::ring;
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
    ahead: Ahead,
    /// A connection has ended.
    room: Notify,
    /// Listeners that may have accepted what is not served yet.
    accepting: Cell<usize>,
    /// The end is near.
    drain: Rc<Flag>,
    /// Another process serves from now on: so long clients that may still ask are waited for.
    linger: Cell<Option<Nanos>>,
    /// Where something is to break next.
    #[cfg(debug_assertions)]
    sabotage: Cell<Option<sabotage::Place>>,
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
                let (index, line) = (settings.index, settings.line.clone());
                Admit::FlowControl(Rc::new(Admission::new(server_limit, index, together.take(), line)))
            }
            AdmissionSettings::InFlight { reading_max, writing_max } => Admit::InFlight(InFlight::new(
                reading_max,
                writing_max,
                &settings.common,
                settings.line.clone(),
            )),
        };
        Self {
            recorder: settings.hdr.take().map(Recorder::new),
            admit,
            upstream: Upstream::start(settings.upstream.clone()),
            counters: Counting::default(),
            turned_away: RefCell::default(),
            glitches: Tally::new(settings.limits.glitches),
            statistics: RefCell::default(),
            handshakes: tls::Gate::shared(
                settings.limits.handshakes,
                Arc::clone(&settings.common.handshakes),
            ),
            roster: Rc::default(),
            readers: Rc::default(),
            scarcity: Scarcity::new(),
            ahead: Ahead::new(settings.limits.body_bytes_total, &settings.common),
            room: Notify::new(),
            accepting: Cell::default(),
            drain: Rc::default(),
            linger: Cell::default(),
            #[cfg(debug_assertions)]
            sabotage: Cell::default(),
            settings,
        }
    }

    /// The time of a request that is not long-running.
    fn request_timeout(&self) -> Nanos {
        Nanos(i64::try_from(self.settings.request_timeout.as_nanos()).unwrap_or(i64::MAX))
    }
}

/// The last to go with a worker's thread, after its connections.
impl Drop for Worker {
    fn drop(&mut self) {
        self.stalled_are(0, 0);
        let core = match &self.admit {
            Admit::FlowControl(admission) => admission.controller.borrow().past(ring::now()),
            Admit::InFlight(_) => Past::default(),
        };
        let mut legacy = self.settings.legacy.lock().unwrap_or_else(PoisonError::into_inner);
        let counters = self.counters();
        legacy.add(counters, &self.turned_away.borrow(), self.glitches.copy(), ring::look(), &core);
    }
}
