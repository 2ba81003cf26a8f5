//! The seam to the operating system: all that a worker needs from it, and nothing else.
//!
//! A worker accepts, reads, writes, connects, sleeps, spawns and is woken only through what is named here;
//! [`crate::worker`] and [`crate::upstream`] know no runtime by name. Under it stands epoll (tokio's
//! current-thread runtime) today; an io_uring driver takes its place behind the same names.
//!
//! Everything but [`Post`] belongs to one thread: nothing here is `Send`, nothing takes a lock.

mod chunk;
mod clock;
mod epoll;
mod mailbox;
mod outgoing;
mod timer;

pub use chunk::Chunk;
pub use clock::{date, now, precise, wall};
pub use epoll::{Listener, Stream, bind, connect, resolve};
pub use mailbox::{Full, Mailbox, Post, mailbox};
pub use outgoing::HIGH_WATER;
pub use timer::{Sleep, Timer, sleep_until, within};

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;

/// Runs a worker's future, and what it spawns, on this thread until it is done. What was spawned and is not
/// done by then is dropped.
///
/// # Errors
/// The operating system refused the descriptors that a ring is made of.
pub fn run<T>(future: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = tokio::task::LocalSet::new();
    Ok(runtime.block_on(async {
        let mut turns = pin!(tasks.run_until(future));
        poll_fn(|cx| {
            clock::turn();
            let turned = turns.as_mut().poll(cx);
            epoll::flush(&tasks);
            turned
        })
        .await
    }))
}

/// Starts a task of this thread. It runs until it is done, panics (which ends nothing else), or [`run`] returns.
pub fn spawn(task: impl Future<Output = ()> + 'static) {
    tokio::task::spawn_local(task);
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
