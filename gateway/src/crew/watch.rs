//! The watch: hears of workers that end, and starts others in their places.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use usher_flowcontrol::units::Nanos;

use super::{Kept, Member, Posts, name};
use crate::ring::{self, Died};
use crate::steering::State;
use crate::worker::{self, Command};

/// Before a dead worker's place is taken. Not at once: what killed it may be there still, and the log must stay readable.
/// Soon: the connections that the kernel gives it wait.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause doubles with each death up to that: clients' connections to this worker time out after some ten seconds.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Between two tries to bury a dead worker whom others were just in the way of: the coordinator looks as often.
const BURY_AGAIN: Nanos = Nanos::from_millis(5);
/// A worker that has lived so long has got over what killed the one before: the pause begins again.
const SETTLED: Nanos = Nanos::from_millis(60_000);
/// How often telling a worker to drain is tried while its mailbox is full, [`PAUSE`] apart.
const ATTEMPTS: u32 = 50;

/// What the watch hears.
#[derive(Debug)]
pub(super) enum Event {
    /// A worker's thread is through.
    Ended(usize, End),
    /// One is to end, if it can be spared.
    Retire { worker: usize, grace: Duration, answer: SyncSender<Result<(), Kept>> },
    /// All are to end.
    Drain(Duration),
    /// All are to end: another process has their sockets and serves.
    HandOver(Duration),
}

/// How a worker ended.
#[derive(Debug)]
pub(super) enum End {
    /// It was told to.
    Told,
    /// By a panic.
    Died(String),
    /// Its ring cannot be set up, or failed.
    Failed(io::Error),
}

pub(super) struct Watch {
    settings: worker::Settings,
    places: Vec<Place>,
    bury: Box<dyn Fn(usize) -> bool + Send>,
    posts: Posts,
    events: Sender<Event>,
    heard: Receiver<Event>,
    draining: bool,
}

/// A worker's place, whoever has it.
struct Place {
    member: Member,
    thread: Option<JoinHandle<()>>,
    begun: Nanos,
    /// In a row, none of them settled.
    deaths: u32,
    /// When it is to be taken again.
    due: Option<Nanos>,
    /// It is not to be taken again.
    retired: bool,
}

impl Watch {
    pub(super) fn new(
        settings: worker::Settings,
        members: Vec<Member>,
        bury: Box<dyn Fn(usize) -> bool + Send>,
        posts: Posts,
        events: Sender<Event>,
        heard: Receiver<Event>,
    ) -> Self {
        let place =
            |member| Place { member, thread: None, begun: Nanos::ZERO, deaths: 0, due: None, retired: false };
        let places = members.into_iter().map(place).collect();
        Self { settings, places, bury, posts, events, heard, draining: false }
    }

    /// Starts all.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        (0..self.places.len()).try_for_each(|index| self.start(index))
    }

    /// Until all have ended. Says why, if they were not told to.
    pub(super) fn keep(mut self) -> Result<(), String> {
        let mut drained = Ok(());
        while self.places.iter().any(|place| place.thread.is_some() || place.due.is_some()) {
            let event = match self.next_due() {
                Some(due) => {
                    let patience = u64::try_from((due - ring::precise()).0).unwrap_or(0);
                    self.heard.recv_timeout(Duration::from_nanos(patience))
                }
                None => self.heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(Event::Drain(grace)) => {
                    let told = self.drain(&|| Command::Drain { grace });
                    drained = drained.and(told);
                }
                Ok(Event::HandOver(grace)) => {
                    let told = self.drain(&|| Command::HandOver { grace });
                    drained = drained.and(told);
                }
                Ok(Event::Retire { worker, grace, answer }) => {
                    let _ = answer.send(self.retire(worker, grace)); // who does not wait need not know
                }
                Ok(Event::Ended(index, end)) => {
                    let asked = matches!(end, End::Told);
                    self.note(index, &end)?;
                    if self.draining && !asked {
                        drained = Err(format!("{} has died while it drained", name(index)));
                    }
                }
                Err(_) => self.start_due(),
            }
        }
        drained
    }

    fn next_due(&self) -> Option<Nanos> {
        self.places.iter().filter_map(|place| place.due).min()
    }

    fn start(&mut self, index: usize) -> io::Result<()> {
        let place = &mut self.places[index];
        let berth = self.posts.berths().swap_remove(index);
        let settings = worker::Settings {
            name: name(index),
            index,
            line: place.member.line.clone(),
            core: place.member.core,
            listeners: place.member.listeners.clone(),
            hdr: place.member.hdr.clone(),
            legacy: Arc::clone(&berth.legacy),
            ..self.settings.clone()
        };
        let (post, mailbox) = ring::mailbox();
        let events = self.events.clone();
        let work = move || {
            let ended = catch_unwind(AssertUnwindSafe(|| worker::run(settings, mailbox)));
            let _ = events.send(Event::Ended(index, End::of(ended))); // the watch has ended: nobody is to be told
        };
        place.thread = Some(std::thread::Builder::new().name(name(index)).spawn(work)?);
        (place.begun, place.due) = (ring::precise(), None);
        self.posts.arrived(index, post);
        Ok(())
    }

    /// Takes the places again whose time has come. Not one whose last owner is not buried everywhere: the next one would
    /// find his desks taken, and would have no part of those levels for as long as it lives.
    fn start_due(&mut self) {
        let now = ring::precise();
        for index in 0..self.places.len() {
            if self.places[index].due.is_none_or(|due| due > now) {
                continue;
            }
            if !(self.bury)(index) {
                self.places[index].due = Some(now + BURY_AGAIN);
                continue;
            }
            match self.start(index) {
                Ok(()) => tracing::info!(worker = name(index), "a worker takes the place of the dead one"),
                Err(error) => {
                    tracing::error!(worker = name(index), %error, "a worker cannot be started: no thread");
                    self.die(index);
                }
            }
        }
    }

    /// A worker's thread is through.
    fn note(&mut self, index: usize, end: &End) -> Result<(), String> {
        if let Some(thread) = self.places[index].thread.take() {
            let _ = thread.join(); // its panic was caught, and is in `end`
        }
        self.places[index].member.line.is(State::Absent); // it has said so itself, unless it could not even do that
        self.posts.left(index, !matches!(end, End::Told));
        let why = match end {
            End::Told => {
                if !self.draining {
                    let _is_buried = (self.bury)(index); // others go on without it; if not now, the coordinator tries again
                    tracing::info!(worker = name(index), "a worker has drained, and is out");
                }
                return Ok(());
            }
            End::Died(why) => why.clone(),
            // It never worked: another try would end likewise, and the operator should hear at once.
            End::Failed(error) if self.places[index].deaths == 0 && !self.is_settled(index) => {
                return Err(format!("{} has ended: {error}", name(index)));
            }
            End::Failed(error) => error.to_string(),
        };
        let _is_buried = (self.bury)(index); // now, for those who wait for its seats; before its place is taken, for the next one
        let pause = self.die(index);
        tracing::error!(worker = name(index), why, ?pause, "a worker has died; its connections are closed");
        Ok(())
    }

    fn is_settled(&self, index: usize) -> bool {
        ring::precise() - self.places[index].begun >= SETTLED
    }

    /// Its place is free. Returns for how long.
    fn die(&mut self, index: usize) -> Option<Duration> {
        if self.draining || self.places[index].retired {
            return None;
        }
        if self.is_settled(index) {
            self.places[index].deaths = 0;
        }
        let place = &mut self.places[index];
        let pause = PAUSE.saturating_mul(1 << place.deaths.min(16)).min(PAUSE_MAX);
        place.deaths += 1;
        place.due = Some(ring::precise() + Nanos(i64::try_from(pause.as_nanos()).unwrap_or(i64::MAX)));
        Some(pause)
    }

    /// One may go, if others stay. Told first: if it does not hear, nothing has changed. Who is just being restarted need not
    /// hear; what it held is the coordinator's to give back, if it was not at once.
    fn retire(&mut self, index: usize, grace: Duration) -> Result<(), Kept> {
        let workers = self.places.len();
        let place = self.places.get(index).ok_or(Kept::Unknown { worker: index, workers })?;
        let stays =
            |(other, place): (usize, &Place)| other != index && place.thread.is_some() && !place.retired;
        let is_there = place.thread.is_some();
        if self.draining {
            return Err(Kept::Ending);
        }
        if place.retired {
            return Err(if is_there { Kept::Drains(index) } else { Kept::Out(index) });
        }
        if !self.places.iter().enumerate().any(stays) {
            return Err(Kept::Last(index));
        }
        if is_there && !self.posts.send(index, Command::HandOver { grace }) {
            return Err(Kept::Deaf(index));
        }
        self.close(index);
        tracing::info!(worker = name(index), ?grace, "a worker drains; the others serve");
        Ok(())
    }

    /// Nobody's place is taken again, and no connection waits for anybody. One that takes no messages is not waited for: the
    /// others have requests to finish.
    fn drain(&mut self, command: &dyn Fn() -> Command) -> Result<(), String> {
        self.draining = true;
        let workers = 0..self.places.len();
        workers.clone().for_each(|index| self.close(index));
        let untold: Vec<usize> = workers.filter(|index| !self.posts.send(*index, command())).collect();
        let mut all_told = Ok(());
        for index in untold {
            if let Err(deaf) = self.insist(index, command) {
                self.places[index].thread = None;
                all_told = Err(deaf);
            }
        }
        all_told
    }

    /// The place is not taken again, and no connection waits for anybody there.
    fn close(&mut self, index: usize) {
        let place = &mut self.places[index];
        (place.due, place.retired) = (None, true);
        let state = if place.thread.is_some() { State::Draining } else { State::Absent };
        place.member.line.is(state); // before its sockets close, so that nobody is sent to them
        place.member.listeners.clear();
        self.posts.retires(index);
    }

    /// Tells a worker, again and again if its mailbox is full.
    fn insist(&self, index: usize, command: &dyn Fn() -> Command) -> Result<(), String> {
        let place = &self.places[index];
        let told = || self.posts.send(index, command());
        let mut attempts = 0;
        while place.thread.as_ref().is_some_and(|thread| !thread.is_finished()) && !told() {
            attempts += 1;
            if attempts == ATTEMPTS {
                return Err(format!("{} takes no messages", name(index)));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

impl End {
    fn of(ended: Result<io::Result<()>, Box<dyn Any + Send>>) -> Self {
        match ended {
            Ok(Ok(())) => Self::Told,
            Ok(Err(error)) => match error.get_ref().and_then(|inner| inner.downcast_ref::<Died>()) {
                Some(died) => Self::Died(died.to_string()),
                None => Self::Failed(error),
            },
            Err(_) => Self::Died("a panic in its ring".to_owned()),
        }
    }
}
