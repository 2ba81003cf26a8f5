//! SIGTERM and SIGINT drain, a second one cuts short; SIGHUP reads the files again.

use std::io;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::estate::Open;
use crate::crew::Crew;
use crate::reload::Watch;
use crate::takeover::Takeover;

/// After the apiserver has its port again, before workers stop taking connections: some came to usher until then, and
/// have a handshake to finish and a first request to send. (A client without a request is told to go when usher drains.)
const PORT_GIVEN_BACK: Duration = Duration::from_millis(200);

/// How it is to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// What requests have to finish.
    pub(super) grace: Duration,
    /// After a hand-over the process waits for a signal.
    pub(super) stays: bool,
}

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

    /// Handles them until the workers have ended. One that ends them and comes after a hand-over does not cut the drain
    /// short: whoever ends a process that is about to end, as Kubernetes does, does not mean that.
    pub(super) fn wait(
        self,
        mut crew: Crew,
        watch: &Watch,
        estate: &mut Open,
        takeover: Option<&Takeover>,
        end: End,
    ) -> Ending {
        let Self { runtime, mut terminate, mut interrupt, mut hangup } = self;
        let End { grace, stays } = end;
        runtime.block_on(async {
            let (mut told, mut handed_over) = (false, false);
            loop {
                let name = tokio::select! {
                    result = crew.ended() => {
                        if let Err(why) = result {
                            return Ending::ByItself(why);
                        }
                        if handed_over && stays && !told {
                            tracing::info!("drained; waits for SIGTERM, so as not to be started again");
                            tokio::select! {
                                _ = terminate.recv() => {}
                                _ = interrupt.recv() => {}
                            }
                        }
                        return Ending::Drained;
                    }
                    () = estate.handed_over(), if !handed_over => {
                        handed_over = true;
                        if !told {
                            tracing::info!(?grace, "another usher has taken over; draining");
                            crew.hand_over(grace);
                        }
                        continue;
                    }
                    _ = hangup.recv() => {
                        tracing::info!(signal = "SIGHUP", "reading all files again");
                        watch.check_now();
                        continue;
                    }
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                if told {
                    return Ending::CutShort;
                }
                told = true;
                tracing::info!(signal = name, ?grace, "draining");
                if !handed_over {
                    estate.give_up();
                    if takeover.is_some_and(Takeover::end) {
                        tokio::time::sleep(PORT_GIVEN_BACK).await;
                    }
                    crew.drain(grace);
                }
            }
        })
    }
}
