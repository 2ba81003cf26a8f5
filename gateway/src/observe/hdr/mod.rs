//! Latencies for capacity planning: HDR histograms of every worker, by priority level and outcome.
//!
//! | metric | from … to … | of which requests |
//! |---|---|---|
//! | `dispatch` | attributes parsed and user known … the level's verdict | one in two, by chance |
//! | `wait` | arrival at the level … seats, or giving up | all |
//! | `execution` | seats taken … seats given back; lingering excluded, of a watch only its beginning | those that ran |
//! | `added` | head complete … head handed to the upstream room, less `wait`; plus answer's head there … answer handed to the client's connection. For those turned away: head complete … answer, less `wait` | one in two, by chance |
//! | `seats` | seats that the request takes | all |
//!
//! "Complete" and "there" are the beginning of the turn that finds them so: waiting for one's turn counts as added.
//! What the kernel, TLS and the making of a new connection to the apiserver take does not. Requests that no level
//! seats (exec, proxy …) and those of a usher without flow control are not recorded.
//!
//! [`recorder`] is what workers write, by the names of [`keys`]. The [`collector`]'s thread merges it interval by
//! interval, appends it to [`files`] in the format of [`hlog`], keeps a [`history`], and answers a [`query`] in one of
//! several [`formats`].

pub mod files;
pub mod formats;
pub mod hlog;
pub mod keys;
pub mod query;
pub mod recorder;

mod collector;
mod history;

pub use collector::Ask;
pub use keys::{Key, Metric, Outcome};
pub use query::Query;
pub use recorder::{Feed, Filled, Measured, Recorder, Set, feeds};

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Ended, RecvTimeoutError, sync_channel};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use collector::{Collector, Message};
use files::{Counts, Files, Keep, Medium};
use query::Answer;

/// How long the last interval may take to be written when usher ends. A disk that hangs must not keep it.
const FINISH_MAX: Duration = Duration::from_secs(2);
/// Questions that may wait; the admin port has 64 connections.
const MESSAGES_MAX: usize = 64;

/// What is recorded, how often, where to.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long an interval is.
    pub interval: Duration,
    /// The log; `None`: histograms are only in memory.
    pub log: Option<Keep>,
    /// Whether io_uring may write it. Where it cannot, plain writes do.
    pub uring: bool,
}

/// To ask the collector, from any thread.
#[derive(Clone, Debug)]
pub struct Desk {
    messages: mpsc::Sender<Message>,
    /// What became of the log.
    pub counts: Arc<Counts>,
}

/// The collector's thread.
#[derive(Debug)]
pub struct Handle {
    desk: Desk,
    ended: Ended<()>,
}

/// Starts the thread. `filled` is the other end of the workers' feeds, `workers` a way to ask each.
///
/// # Errors
/// No thread, or no runtime.
pub fn start(settings: Settings, filled: mpsc::Receiver<Filled>, workers: Vec<Ask>) -> io::Result<Handle> {
    let (messages, waiting) = mpsc::channel(MESSAGES_MAX);
    let desk = Desk { messages, counts: Arc::default() };
    let (end, ended) = sync_channel(1);
    let counts = Arc::clone(&desk.counts);
    let run = move || {
        run(settings, counts, |files, interval| Collector::new(interval, workers, filled, waiting, files));
        let _ = end.send(()); // nobody waits if it was too late
    };
    std::thread::Builder::new().name("usher-hdr".into()).spawn(run)?;
    Ok(Handle { desk, ended })
}

/// By io_uring if there is a log to write and it is to be had, else plainly.
fn run(
    settings: Settings,
    counts: Arc<Counts>,
    collector: impl FnOnce(Option<Files>, Duration) -> Collector,
) {
    let Settings { interval, log, uring } = settings;
    let uring = uring && log.is_some();
    let files = |medium| log.map(|keep| Files::new(keep, medium, counts));
    if uring {
        match tokio_uring::Runtime::new(&tokio_uring::builder()) {
            Ok(runtime) => return runtime.block_on(collector(files(Medium::Uring), interval).run()),
            Err(error) => {
                tracing::info!(%error, "io_uring is not to be had; histograms are logged with plain writes")
            }
        }
    }
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(collector(files(Medium::Plain), interval).run()),
        Err(error) => tracing::error!(%error, "histograms are not collected: no runtime"),
    }
}

impl Desk {
    /// Asks; `None` if the collector has ended.
    pub async fn ask(&self, query: Query) -> Option<Answer> {
        let (asker, answer) = oneshot::channel();
        self.messages.send(Message::Query(query, asker)).await.ok()?;
        answer.await.ok()
    }
}

impl Handle {
    /// To ask it.
    #[must_use]
    pub fn desk(&self) -> Desk {
        self.desk.clone()
    }

    /// The workers have ended: the last interval is written, and the thread ends.
    pub fn finish(self) {
        let told = self.desk.messages.try_send(Message::Finish);
        if told.is_err() || self.ended.recv_timeout(FINISH_MAX) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the last interval of the histograms may be missing in the log");
        }
    }
}

#[cfg(test)]
mod tests;
