//! What other threads may ask of a worker, and its main loop.

use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::oneshot;
use usher_flowcontrol::objects::{FlowSchema, PriorityLevelConfiguration};
use usher_flowcontrol::snapshot;
use usher_flowcontrol::units::Nanos;
use usher_shards::Shared;

#[cfg(debug_assertions)]
use super::Sabotage;
use super::{Admit, Counters, Described, Glitched, Listen, Settings, TurnedAway, Worker, listen};
use crate::memory::Rung;
use crate::observe::hdr;
use crate::ring::{self, Full, Listener, Mailbox, Post};
use crate::steering::State;
use crate::upstream;

/// What a worker can be asked.
#[derive(Debug)]
pub enum Command {
    /// From now on these objects are in force. They have been validated.
    Configure(Arc<Objects>),
    /// A level that workers shared has gone: forget it, once nothing is held there.
    Tidy,
    /// So many objects there are; the whole table, about once a minute.
    Statistics(Arc<[ObjectCount]>),
    /// Go on with these empty histograms and hand over the full ones.
    Histograms(Box<hdr::Set>),
    /// Memory is so scarce. While it is, said again with each reading.
    Memory(Rung),
    /// How does everything stand? Answered between two turns.
    Snapshot(oneshot::Sender<Box<Snapshot>>),
    /// Stop: no new connections, watches end between two events, requests have `grace` to finish.
    Drain {
        /// After that, what is left is cut off.
        grace: Duration,
    },
    /// The same, but others serve in its stead, another process or the other workers: nobody is in a hurry, and a client whose request may be
    /// under way is waited for and answered.
    HandOver {
        /// As above.
        grace: Duration,
    },
    /// Break on purpose. For tests: what is shipped has no such command.
    #[cfg(debug_assertions)]
    Break(Sabotage),
}

/// Flow control's objects.
#[derive(Debug, Default)]
pub struct Objects {
    /// Schemas.
    pub schemas: Vec<FlowSchema>,
    /// Levels.
    pub levels: Vec<PriorityLevelConfiguration>,
    /// The levels that workers share; `None`: a worker has its own.
    pub shared: Option<Shared>,
}

/// How many objects a resource has, and of what size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectCount {
    /// `RESOURCE.GROUP`, or `RESOURCE` alone in the core group: [`usher_flowcontrol::estimate::key`].
    pub key: String,
    /// Objects.
    pub count: i64,
    /// Bytes of one, on average; 0 if nobody knows.
    pub average_size: i64,
}

/// A worker as it is at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Name of the worker.
    pub worker: String,
    /// What it has counted.
    pub counters: Counters,
    /// What was turned away, by kind.
    pub turned_away: TurnedAway,
    /// What its connections did that honest ones do not.
    pub glitched: Glitched,
    /// The core; `None` without flow control.
    pub core: Option<snapshot::Snapshot>,
    /// What the tags in `core` stand for.
    pub requests: Vec<(u64, Described)>,
    /// The apiservers.
    pub upstreams: Vec<upstream::Look>,
    /// What its I/O has done.
    pub ring: ring::Look,
    /// It is about to end.
    pub draining: bool,
}

/// A worker that runs.
#[derive(Debug)]
pub struct Handle {
    post: Post<Command>,
    addresses: Vec<SocketAddr>,
    thread: JoinHandle<io::Result<()>>,
}

/// Starts a worker in a thread of its own.
///
/// # Errors
/// The operating system gives no thread.
pub fn spawn(settings: Settings) -> io::Result<Handle> {
    let addresses =
        settings.listeners.iter().map(|listen| listen.socket.local_addr()).collect::<io::Result<_>>()?;
    let (post, mailbox) = ring::mailbox();
    let thread =
        std::thread::Builder::new().name(settings.name.clone()).spawn(move || run(settings, mailbox))?;
    Ok(Handle { post, addresses, thread })
}

/// Works in this thread until it is told to [`Command::Drain`], or nobody can tell it anything any more.
///
/// # Errors
/// Its ring cannot be set up, or fails; [`ring::Died`] if it cannot be trusted any more: a panic in the midst of it.
pub fn run(settings: Settings, mailbox: Mailbox<Command>) -> io::Result<()> {
    if let Some(core) = settings.core
        && !core_affinity::set_for_current(core)
    {
        tracing::warn!(worker = settings.name, core = core.id, "the kernel does not pin the worker");
    }
    let io = settings.io.clone();
    // Caught here, so that its connections do not end while something unwinds.
    let work = AssertUnwindSafe(work(settings, mailbox)).catch_unwind();
    ring::run_with(&io, work)?
        .unwrap_or_else(|_| Err(io::Error::other(ring::Died("a panic in the worker's main loop"))))
}

/// How long at most a worker whose sockets another process has waits for a client that may ask once more. Heartbeats and
/// renewals of leases come every two to ten seconds: their connections end with `Connection: close` on an answer, not
/// with a close that may cross a request.
const LINGER_MAX: Nanos = Nanos::from_millis(10_000);

/// A worker's life.
async fn work(mut settings: Settings, mut mailbox: Mailbox<Command>) -> io::Result<()> {
    let listeners = std::mem::take(&mut settings.listeners);
    let worker = Rc::new(Worker::new(settings));
    // Goes before everything else does, however this ends: nobody is sent here any more while connections are closed.
    let _present = worker.settings.line.presence();
    let mut closed = Some(listeners);
    if worker.knows_its_levels() {
        open(&worker, closed.take())?;
    }
    if let Admit::FlowControl(admission) = &worker.admit {
        ring::spawn_vital(Rc::clone(admission).keep_time());
        ring::spawn_vital(Rc::clone(admission).heed_others());
    }
    ring::spawn_vital(Rc::clone(&worker).watch_readers());
    let mut grace = None;
    while grace.is_none() {
        grace = match mailbox.next().await {
            Some(command @ Command::Configure(_)) => {
                let grace = worker.obey(command);
                open(&worker, closed.take())?;
                grace
            }
            Some(command) => worker.obey(command),
            None => Some(Duration::ZERO), // nobody can ask for anything any more
        };
    }
    worker.settings.line.is(State::Draining); // before its sockets close, so that nobody is sent to them
    worker.drain.raise();
    let mut until = ring::now() + nanos(grace.unwrap_or_default());
    loop {
        tokio::select! {
            biased;
            () = worker.emptied() => return Ok(()),
            () = ring::sleep_until(until) => return Ok(()),
            Some(command) = mailbox.next() => {
                // Told again, it is not given more time: one that retires when the whole process ends.
                if let Some(grace) = worker.obey(command) {
                    until = until.min(ring::now() + nanos(grace));
                }
            }
        }
    }
}

/// Takes connections from now on, once it is told by what.
fn open(worker: &Rc<Worker>, listeners: Option<Vec<Listen>>) -> io::Result<()> {
    let Some(listeners) = listeners else { return Ok(()) };
    for Listen { socket, tls } in listeners {
        let listener = Listener::new(socket.try_clone()?)?;
        drop(socket);
        ring::spawn_vital(listen::accept(Rc::clone(worker), listener, tls));
    }
    worker.settings.line.is(State::Serving);
    Ok(())
}

impl Worker {
    /// Whether it can decide about requests. One that shares its levels is told of them first.
    fn knows_its_levels(&self) -> bool {
        !matches!(&self.admit, Admit::FlowControl(admission) if !admission.is_alone())
    }

    /// Does what is asked; `Some` if that is to end.
    fn obey(&self, command: Command) -> Option<Duration> {
        match command {
            Command::Configure(objects) => {
                if let Admit::FlowControl(admission) = &self.admit {
                    admission.configure(&objects);
                }
            }
            Command::Tidy => {
                if let Admit::FlowControl(admission) = &self.admit {
                    admission.act(|controller| controller.tidy(ring::now()));
                }
            }
            Command::Statistics(table) => {
                let mut statistics = self.statistics.borrow_mut();
                for row in table.iter() {
                    statistics.report(ring::now(), row.key.as_bytes(), row.count, row.average_size);
                }
                statistics.prune(ring::now());
            }
            Command::Memory(rung) => self.memory_is(rung),
            Command::Snapshot(asker) => {
                let _ = asker.send(Box::new(self.snapshot())); // who does not wait any more need not know
            }
            Command::Histograms(fresh) => {
                if let Some(recorder) = &self.recorder {
                    recorder.hand_over(fresh);
                }
            }
            Command::Drain { grace } => return Some(grace),
            Command::HandOver { grace } => {
                self.linger.set(Some(LINGER_MAX.min(nanos(grace / 2))));
                return Some(grace);
            }
            #[cfg(debug_assertions)]
            Command::Break(sabotage) => self.sabotaged(sabotage),
        }
        None
    }

    fn snapshot(&self) -> Snapshot {
        let (core, requests) = match &self.admit {
            Admit::FlowControl(admission) => {
                (Some(admission.controller.borrow_mut().snapshot(ring::now())), admission.described())
            }
            Admit::InFlight(_) => (None, Vec::new()),
        };
        Snapshot {
            worker: self.settings.name.clone(),
            counters: self.counters(),
            turned_away: self.turned_away.borrow().clone(),
            glitched: self.glitches.copy(),
            core,
            requests,
            upstreams: self.upstream.look(),
            ring: ring::look(),
            draining: self.drain.is_raised(),
        }
    }

    pub(super) fn counters(&self) -> Counters {
        Counters {
            handshakes_delayed: self.handshakes.delayed(),
            handshakes_half_done: self.handshakes.half_done() as u64,
            ..self.counters.copy()
        }
    }

    /// No connection is open, or comes from a listener.
    async fn emptied(&self) {
        while self.counters.connections_open.get() > 0 || self.accepting.get() > 0 {
            self.room.notified().await;
        }
    }
}

impl Handle {
    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// A way to send it commands from anywhere.
    #[must_use]
    pub fn post(&self) -> Post<Command> {
        self.post.clone()
    }

    /// Sends it a command.
    ///
    /// # Errors
    /// It has ended, or is stuck.
    pub fn send(&self, command: Command) -> Result<(), Full<Command>> {
        self.post.send(command)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It could not set up its ring. A panic of the worker's main loop goes on here.
    pub fn join(self) -> io::Result<()> {
        let Self { post, thread, .. } = self;
        drop(post);
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn nanos(duration: Duration) -> Nanos {
    Nanos(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}
