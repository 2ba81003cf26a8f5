//! Waiting: what a worker does between two turns. It sleeps until there is one thing to do, unless it was told that
//! more at once is worth a wait (`--ring-min-wait`), or a core that stays awake (`--ring-spin`).

use std::io;
use std::rc::Rc;
use std::time::Duration;

use usher_flowcontrol::units::Nanos;

use super::Uring;
use super::queue::{self, Wait};
use crate::ring::clock;

/// Completions of one wait that make a worker busy: a lone request never waits for others. With two, waits of 100
/// microseconds kept themselves going at 5 000 requests a second: each found two that came meanwhile.
pub(super) const SEVERAL: u64 = 4;
/// Completions that end a wait for several. A turn over so many takes longer than what calling the kernel costs.
pub(super) const MANY: u32 = 16;

// === impl Uring ===

impl Uring {
    /// Hands the turn's operations over, waits for something to do, and sees to what has completed.
    pub(super) fn wait(self: &Rc<Self>, waits: bool, timeout: Option<Duration>) -> io::Result<()> {
        let wait = if !waits || self.spin(timeout)? { Wait::No } else { self.patience() };
        self.enter(wait, timeout)?;
        clock::turn();
        let before = self.counted.completions.get();
        self.reap();
        self.batch.set(self.counted.completions.get() - before);
        while self.queue.borrow_mut().has_overflowed() {
            self.counted.overflows.add(1);
            self.enter(Wait::No, None)?;
            self.reap();
        }
        self.end_silence();
        Ok(())
    }

    fn enter(&self, wait: Wait, timeout: Option<Duration>) -> io::Result<()> {
        self.counted.enters.add(1);
        match self.queue.borrow_mut().enter(wait, timeout) {
            Err(error) if !queue::is_passing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// After a batch of that many completions.
    pub(super) fn patience(&self) -> Wait {
        let micros = self.settings.min_wait;
        if micros > 0 && self.features.min_wait && self.batch.get() >= SEVERAL {
            Wait::ForMany { most: MANY, micros }
        } else {
            Wait::ForOne
        }
    }

    /// Hands over what was sent in this turn and looks for what comes back, without sleeping. True if something has.
    fn spin(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let limit = Duration::from_micros(self.settings.spin.into());
        if limit.is_zero() || self.turn.borrow().silent.is_empty() {
            return Ok(false);
        }
        self.enter(Wait::No, None)?;
        let limit =
            i64::try_from(timeout.map_or(limit, |timeout| timeout.min(limit)).as_nanos()).unwrap_or(0);
        let until = clock::precise() + Nanos(limit);
        loop {
            if self.queue.borrow_mut().has_news() {
                return Ok(true);
            }
            if clock::precise() >= until {
                return Ok(false);
            }
            std::hint::spin_loop();
        }
    }
}
