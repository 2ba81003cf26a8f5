//! One worker is let go while the others serve.

use std::sync::mpsc;
use std::time::Duration;

use super::name;
use super::watch::Event;

/// Lets workers go, one by one. Clones are the same.
#[derive(Clone, Debug)]
pub struct Retiring(mpsc::Sender<Event>);

/// Why a worker is kept. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Kept {
    /// There is none of that number.
    #[error("there is no {}: the workers are {} to {}", name(*worker), name(0), name(workers.saturating_sub(1)))]
    Unknown {
        /// Which.
        worker: usize,
        /// How many there are.
        workers: usize,
    },
    /// It was told before.
    #[error("{} drains already", name(*.0))]
    Drains(usize),
    /// It was told before, and has ended.
    #[error("{} has drained already, and is out", name(*.0))]
    Out(usize),
    /// Nobody else is there.
    #[error("{} is the last worker that serves: SIGTERM drains the whole process", name(*.0))]
    Last(usize),
    /// It is stuck, or is ending at this moment.
    #[error("{} takes no messages: try again", name(*.0))]
    Deaf(usize),
    /// The whole process drains, or has no workers any more.
    #[error("all workers drain: this usher is about to end")]
    Ending,
}

impl Retiring {
    pub(super) fn new(events: mpsc::Sender<Event>) -> Self {
        Self(events)
    }

    /// That worker takes no new connections from now on; its requests, and those that may be on their way, have `grace` to
    /// finish; then it ends, and nobody takes its place. What the kernel had ready for it goes to others, if connections are
    /// steered or the kernel is told to (`net.ipv4.tcp_migrate_req`); else it is reset.
    ///
    /// Waits for the watch, which may be busy with a worker that takes no messages.
    ///
    /// # Errors
    /// It is kept.
    pub fn retire(&self, worker: usize, grace: Duration) -> Result<(), Kept> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.0.send(Event::Retire { worker, grace, answer }).map_err(|_| Kept::Ending)?;
        answered.recv().unwrap_or(Err(Kept::Ending)) // the watch has ended
    }
}
