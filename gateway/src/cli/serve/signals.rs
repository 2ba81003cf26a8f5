//! SIGTERM and SIGINT drain, a second one cuts short; SIGHUP reads the files again.

use std::io;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::crew::Crew;
use crate::reload::Watch;

/// How it ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// As asked.
    Drained,
    /// A second signal came first.
    CutShort,
    /// Otherwise, and why.
    ByItself(String),
}

/// Signals, heard from the moment that this is made: none that comes earlier than [`Signals::wait`] is lost, or kills.
pub(super) struct Signals {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Listens from now on.
    pub(super) fn listen() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let inside = runtime.enter();
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let hangup = signal(SignalKind::hangup())?;
        drop(inside);
        Ok(Self { runtime, terminate, interrupt, hangup })
    }

    /// Handles them until the workers have ended.
    pub(super) fn wait(self, mut crew: Crew, watch: &Watch, grace: Duration) -> Ending {
        let Self { runtime, mut terminate, mut interrupt, mut hangup } = self;
        runtime.block_on(async {
            let mut draining = false;
            loop {
                let name = tokio::select! {
                    result = crew.ended() => {
                        return result.map_or_else(Ending::ByItself, |()| Ending::Drained);
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
                    return Ending::CutShort;
                }
                draining = true;
                tracing::info!(signal = name, ?grace, "draining");
                crew.drain(grace);
            }
        })
    }
}
