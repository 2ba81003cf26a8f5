//! The seam to the operating system: all that a worker needs from it, and nothing else.
//!
//! A worker accepts, reads, writes, connects, sleeps, spawns and is woken only through what is named here;
//! [`crate::worker`] and [`crate::upstream`] know no runtime by name. Under it stands io_uring
//! ([`uring`]), or epoll (tokio's current-thread runtime) where that is not to be had: [`Settings`].
//!
//! Everything but [`Post`] belongs to one thread: nothing here is `Send`, nothing takes a lock.

mod chunk;
mod clock;
mod ending;
mod epoll;
mod look;
mod mailbox;
mod outgoing;
mod passage;
mod probe;
mod settings;
mod socket;
mod spare;
mod tasks;
mod timer;
mod uring;

pub use chunk::Chunk;
pub use clock::{date, now, precise, wall};
pub use ending::{AtEnd, Died, at_end, die};
pub use look::{Look, look};
pub use mailbox::{Full, Mailbox, Post, mailbox};
pub use outgoing::HIGH_WATER;
pub(crate) use passage::is_of_this_host;
pub use passage::{Pass, Passage, bound};
pub use probe::{Choice, Unavailable, choose};
pub use settings::{Io, Settings};
pub use socket::{Listener, Stream, bind, bind_beside, bind_shared, connect, connect_by, resolve};
pub use timer::{Sleep, Timer, sleep_until, within};

use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;

/// Runs a worker's future, and what it spawns, on this thread until it is done. What was spawned and is not
/// done by then is dropped.
///
/// # Errors
/// The operating system refused what a ring is made of; or [`Died`].
pub fn run_with<T>(settings: &Settings, future: impl Future<Output = T>) -> io::Result<T> {
    let io = if settings.io == Io::Auto { probe::automatic() } else { settings.io };
    match io {
        Io::Uring => uring::run(settings, future),
        Io::Auto | Io::Epoll => epoll::run(future),
    }
}

/// [`run_with`] the defaults. Unit tests can choose the way of I/O: `USHER_TEST_IO=uring`, `=epoll`, and with
/// `USHER_TEST_FLAGS=--ring-registered-files` connections in slots.
///
/// # Errors
/// As there.
pub fn run<T>(future: impl Future<Output = T>) -> io::Result<T> {
    let settings = Settings::default();
    #[cfg(test)]
    let settings = tests::settings(settings);
    run_with(&settings, future)
}

/// Starts a task of this thread. It runs until it is done, panics (which ends nothing else), or [`run`] returns.
pub fn spawn(task: impl Future<Output = ()> + 'static) {
    if let Err(task) = uring::spawn(task) {
        tokio::task::spawn_local(task);
    }
}

/// [`spawn`] for a task without which the thread is of no use: if it panics, [`run`] ends with [`Died`].
pub fn spawn_vital(task: impl Future<Output = ()> + 'static) {
    spawn(async {
        if AssertUnwindSafe(task).catch_unwind().await.is_err() {
            die("a task that it cannot do without has panicked");
        }
    });
}

/// hyper's way to [`spawn`].
#[derive(Clone, Copy, Debug)]
pub struct Executor;

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + 'static,
{
    fn execute(&self, future: F) {
        spawn(async move {
            future.await;
        });
    }
}

#[cfg(test)]
mod tests;
