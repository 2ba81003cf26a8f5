//! SIGTERM and SIGINT drain, a second one cuts short; SIGHUP reads the files again.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::reload::Watch;
use crate::worker::{Command, Handle};

/// How it ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// As asked.
    Drained,
    /// A second signal came first.
    CutShort,
    /// Nobody asked.
    ByItself(io::Result<()>),
}

/// Handles signals until the worker has ended.
pub(super) fn wait(worker: Handle, watch: &Watch, grace: Duration) -> io::Result<Ending> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let mut hangup = signal(SignalKind::hangup())?;
        let post = worker.post();
        let mut ended = end_of(worker)?;
        let mut draining = false;
        loop {
            let name = tokio::select! {
                result = &mut ended => {
                    let result = result.unwrap_or_else(|_| Err(io::Error::other("it panicked")));
                    return Ok(if draining && result.is_ok() { Ending::Drained } else { Ending::ByItself(result) });
                }
                _ = hangup.recv() => {
                    tracing::info!(signal = "SIGHUP", "reading all files again");
                    watch.check_now();
                    continue;
                }
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            if draining {
                return Ok(Ending::CutShort);
            }
            draining = true;
            tracing::info!(signal = name, ?grace, "draining");
            if post.send(Command::Drain { grace }).is_err() {
                return Ok(Ending::ByItself(Err(io::Error::other("it takes no messages"))));
            }
        }
    })
}

/// Completed when the worker's thread ends; an error if it panicked.
fn end_of(worker: Handle) -> io::Result<oneshot::Receiver<io::Result<()>>> {
    let (sender, ended) = oneshot::channel();
    std::thread::Builder::new().name("usher-join".into()).spawn(move || {
        let _ = sender.send(worker.join());
    })?;
    Ok(ended)
}
