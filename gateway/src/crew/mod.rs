//! All workers of the process: starts them, watches over them, starts a dead one again, ends one or all.
//!
//! Workers do not know each other. Each has a thread, a core ([`cores`]), a ring, sockets of its own on the common
//! addresses, connections of its own to the apiservers. They are told things together ([`posts`]) and watched over by a
//! thread of its own ([`watch`]).
//!
//! **A worker dies** when it panics where nothing contains it: in its main loop, in its ring, in the core of decisions,
//! in a task that it cannot do without. Its connections are closed and its seats come back by their destructors; what it
//! has counted stays. Connections that the kernel had ready for it wait: the watch holds its sockets, too, and another
//! worker takes its place, with the same sockets, after a pause that grows if it dies again and again.
//!
//! **A worker retires** when it is told to ([`Retiring`]): the others serve on, nobody takes its place. Besides the worker
//! only the watch holds its sockets, so that the kernel sees them close and lets others have what it had ready for it.

pub mod cores;
mod posts;
mod retiring;
mod watch;

pub use posts::{Berth, Order, Posts};
pub use retiring::{Kept, Retiring};

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::observe::hdr;
use crate::steering::Line;
use crate::worker::{self, Common, Listen};
use watch::{Event, Watch};

/// What a crew is started with.
pub struct Settings {
    /// What is alike for all. Its name, index, core, sockets, feed and what is common are set for each.
    pub worker: worker::Settings,
    /// Of each worker.
    pub members: Vec<Member>,
    /// Called with its index after a worker has died, and again before another one takes its place: what it left is
    /// cleared up. `false`: not all of it is yet, and its place must not be taken; it is called again soon.
    pub bury: Box<dyn Fn(usize) -> bool + Send>,
    /// They accept nothing before [`Crew::open`].
    pub shut: bool,
}

/// What one worker has for itself.
#[derive(Debug)]
pub struct Member {
    /// Its sockets.
    pub listeners: Vec<Listen>,
    /// Where it says how it is, for those who send connections.
    pub line: Line,
    /// Its core; `None`: wherever the kernel likes.
    pub core: Option<core_affinity::CoreId>,
    /// Where its histograms go; `None`: it keeps none.
    pub hdr: Option<hdr::Feed>,
}

/// The workers, at work.
#[derive(Debug)]
pub struct Crew {
    posts: Posts,
    addresses: Vec<SocketAddr>,
    common: Arc<Common>,
    events: mpsc::Sender<Event>,
    ended: oneshot::Receiver<Result<(), String>>,
}

/// Starts all workers, and the thread that watches over them.
///
/// # Errors
/// No thread.
pub fn start(settings: Settings) -> io::Result<Crew> {
    let Settings { mut worker, members, bury, shut } = settings;
    let mut addresses = match members.first() {
        Some(first) => {
            let sockets = first.listeners.iter();
            sockets.map(|listen| listen.socket.local_addr()).collect::<io::Result<Vec<_>>>()?
        }
        None => Vec::new(),
    };
    addresses.dedup(); // a worker may have several sockets on one address
    worker.common = if shut { Common::shut(members.len()) } else { Common::new(members.len()) };
    let common = Arc::clone(&worker.common);
    let named =
        members.iter().enumerate().map(|(index, member)| (name(index), member.core.map(|core| core.id)));
    let posts = Posts::new(named);
    let (events, heard) = mpsc::channel();
    let (end, ended) = oneshot::channel();
    let mut watch = Watch::new(worker, members, bury, posts.clone(), events.clone(), heard);
    watch.begin()?;
    std::thread::Builder::new().name("usher-crew".into()).spawn(move || {
        let _ = end.send(watch.keep()); // nobody waits if the process ends before
    })?;
    Ok(Crew { posts, addresses, common, events, ended })
}

/// The name of a worker: of its thread, in the log, in the metrics.
#[must_use]
pub fn name(index: usize) -> String {
    format!("worker-{index}")
}

impl Crew {
    /// To tell and to ask them.
    #[must_use]
    pub fn posts(&self) -> Posts {
        self.posts.clone()
    }

    /// Where they listen, all on the same.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// From now on they accept connections.
    pub fn open(&self) {
        self.common.open();
    }

    /// No new connections; requests have `grace` to finish; then all end.
    pub fn drain(&self, grace: Duration) {
        let _ = self.events.send(Event::Drain(grace)); // who has ended need not
    }

    /// The same, but another process has their sockets: what may have been asked already is answered.
    pub fn hand_over(&self, grace: Duration) {
        let _ = self.events.send(Event::HandOver(grace)); // who has ended need not
    }

    /// By which one of them is let go.
    #[must_use]
    pub fn retiring(&self) -> Retiring {
        Retiring::new(self.events.clone())
    }

    /// Waits until all have ended.
    ///
    /// # Errors
    /// Unasked, and why; or one had died by then.
    pub async fn ended(&mut self) -> Result<(), String> {
        let ended = &mut self.ended;
        ended.await.unwrap_or_else(|_| Err("the thread that watches over the workers has panicked".into()))
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Settings").field("members", &self.members).finish_non_exhaustive()
    }
}
