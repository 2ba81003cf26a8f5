//! The old one's side: gives, waits whether the new one gets ready, lets go.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Ledger, Offer, READY_MAX, REPORT_EVERY, Ready, Report};
use crate::control::{Line, Reply};
use crate::ring::Io;

/// A descriptor that goes over, and what it is for ([`super::what`]).
pub type Belonging = (&'static str, Arc<dyn AsFd + Send + Sync>);

/// What there is besides at the moment when somebody asks.
#[derive(Default)]
pub struct Besides {
    /// What goes over.
    pub belongings: Vec<Belonging>,
    /// Since when the apiserver's port is whose it is: time since 1970.
    pub takeover_since: Option<Duration>,
}

/// Gives what it has to whoever asks and gets ready, once.
pub struct Giver {
    state: Mutex<State>,
    besides: Box<dyn Fn() -> Besides + Send + Sync>,
    io: Io,
    ledger: Arc<Ledger>,
    /// Stops accepting, and drains. Called once.
    let_go: Box<dyn Fn() + Send + Sync>,
    /// Puts right what the new one may have changed before it was ready.
    keeps: Box<dyn Fn() + Send + Sync>,
    /// How that goes; `None`: not known just now.
    look: Box<dyn Fn() -> Option<Report> + Send + Sync>,
}

/// What the giver has.
enum State {
    Has(Vec<Belonging>),
    /// Somebody else is about to have it, too.
    Giving(Vec<Belonging>),
    /// This process is about to end.
    Gone,
}

impl Giver {
    /// `besides`: what else there is when somebody asks. `let_go`: stops accepting, and drains. `look`: how that goes.
    #[must_use]
    pub fn new(
        belongings: Vec<Belonging>,
        besides: impl Fn() -> Besides + Send + Sync + 'static,
        io: Io,
        ledger: Arc<Ledger>,
        let_go: impl Fn() + Send + Sync + 'static,
        look: impl Fn() -> Option<Report> + Send + Sync + 'static,
    ) -> Self {
        let state = Mutex::new(State::Has(belongings));
        Self {
            state,
            besides: Box::new(besides),
            io,
            ledger,
            let_go: Box::new(let_go),
            keeps: Box::new(|| ()),
            look: Box::new(look),
        }
    }

    /// `keeps` is called when the new one did not get ready: it may have changed something until then.
    #[must_use]
    pub fn or_else_keeps(self, keeps: impl Fn() + Send + Sync + 'static) -> Self {
        Self { keeps: Box::new(keeps), ..self }
    }

    /// Nobody gets anything any more, and nothing is kept open for him.
    pub fn end(&self) {
        *self.lock() = State::Gone;
    }

    /// Gives to who asks on this line.
    pub fn give(&self, mut line: Line) {
        let given = match self.begin() {
            Ok(belongings) => {
                let besides = (self.besides)();
                Besides { belongings: [belongings, besides.belongings].concat(), ..besides }
            }
            Err(why) => {
                let _ = line.send(&Reply::Error(why.into()), &[]); // who does not wait need not know
                return;
            }
        };
        tracing::info!("another usher is about to take over");
        self.ledger.under_way.store(true, Ordering::Relaxed);
        let ready = self.offer(&mut line, &given);
        self.ledger.under_way.store(false, Ordering::Relaxed);
        drop(given);
        match ready {
            Ok(()) => self.let_it_have_all(line),
            Err(why) => {
                (self.keeps)(); // before the next one may begin, who would change it again
                self.keep();
                self.ledger.given_up.fetch_add(1, Ordering::Relaxed);
                let _ = line.send(&Reply::Error(format!("not ready in time: {why}")), &[]); // most likely it has ended
                tracing::warn!(why, "the usher that was to take over did not get ready; this one goes on");
            }
        }
    }

    fn begin(&self) -> Result<Vec<Belonging>, &'static str> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Gone) {
            State::Has(belongings) => {
                *state = State::Giving(belongings.clone());
                Ok(belongings)
            }
            State::Giving(belongings) => {
                *state = State::Giving(belongings);
                Err("another usher is taking over at this moment")
            }
            State::Gone => Err("this usher is about to end"),
        }
    }

    /// It was for nothing.
    fn keep(&self) {
        let mut state = self.lock();
        *state = match std::mem::replace(&mut *state, State::Gone) {
            State::Giving(belongings) => State::Has(belongings),
            other => other,
        };
    }

    /// Shows what there is, and waits until the other one works with it.
    fn offer(&self, line: &mut Line, given: &Besides) -> Result<(), String> {
        let items = &given.belongings;
        let offer = Offer {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            io: self.io.name().to_owned(),
            items: items.iter().map(|(what, _)| (*what).to_owned()).collect(),
            takeover_since: given.takeover_since.map(|since| since.as_secs()),
        };
        let offer = serde_json::to_value(&offer).map_err(|error| error.to_string())?;
        let descriptors: Vec<BorrowedFd<'_>> = items.iter().map(|(_, it)| it.as_fd()).collect();
        line.send(&Reply::Ok(offer), &descriptors).map_err(|broken| broken.to_string())?;
        let letter = line.receive(READY_MAX).map_err(|broken| broken.to_string())?;
        let letter = letter.ok_or("it has ended")?;
        match letter.read() {
            Ok(Ready { ready: true }) => Ok(()),
            Ok(Ready { ready: false }) => Err("it says that it cannot".into()),
            Err(broken) => Err(broken.to_string()),
        }
    }

    /// It serves: this process stops, and tells how it comes to its end.
    fn let_it_have_all(&self, mut line: Line) {
        self.end();
        (self.let_go)();
        let mut told = line.send(&Reply::Ok("draining".into()), &[]);
        while told.is_ok() {
            std::thread::sleep(REPORT_EVERY);
            if let Some(report) = (self.look)() {
                told = line.send(&report, &[]);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Giver {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Giver").field("io", &self.io).finish_non_exhaustive()
    }
}
