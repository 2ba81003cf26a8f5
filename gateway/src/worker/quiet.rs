//! A connection on which nothing is going on: for how long, and whether a header has begun.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use usher_flowcontrol::units::Nanos;

use super::Worker;
use super::glitches::{Glitch, Glitches};
use super::settings::Limits;
use crate::ring;

/// Watches over a connection between requests.
pub(super) struct Quiet {
    header_timeout: Nanos,
    idle_timeout: Nanos,
    phase: Phase,
    alarm: Option<Pin<Box<ring::Sleep>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A request is being answered.
    Busy,
    /// Between requests; holds the bytes received until then.
    Idle(u64),
    /// A header has begun, or the connection has.
    Header,
}

/// It took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TooQuiet {
    Header,
    Idle,
}

impl Quiet {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            header_timeout: nanos(limits.header_timeout),
            idle_timeout: nanos(limits.idle_timeout),
            phase: Phase::Header,
            alarm: Some(Box::pin(ring::sleep_until(ring::now() + nanos(limits.header_timeout)))),
        }
    }

    /// To be polled whenever something may have changed: whether a request is being answered, and how many bytes
    /// were received so far (always 0: a header that has begun is not told apart).
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, busy: bool, received: u64) -> Poll<TooQuiet> {
        let phase = match self.phase {
            _ if busy => Phase::Busy,
            Phase::Busy => Phase::Idle(received),
            Phase::Idle(before) if received > before => Phase::Header,
            same => same,
        };
        if phase != self.phase {
            self.phase = phase;
            self.set_alarm();
        }
        if phase == Phase::Busy {
            return Poll::Pending;
        }
        let Some(alarm) = &mut self.alarm else { return Poll::Pending };
        alarm.as_mut().poll(cx).map(|()| match phase {
            Phase::Header => TooQuiet::Header,
            Phase::Idle(_) | Phase::Busy => TooQuiet::Idle,
        })
    }

    fn set_alarm(&mut self) {
        let timeout = match self.phase {
            Phase::Busy => return,
            Phase::Idle(_) => self.idle_timeout,
            Phase::Header => self.header_timeout,
        };
        let at = ring::now() + timeout;
        match &mut self.alarm {
            Some(alarm) => alarm.as_mut().reset(at),
            None => self.alarm = Some(Box::pin(ring::sleep_until(at))),
        }
    }
}

impl TooQuiet {
    pub(super) fn count(self, worker: &Worker, glitches: &Glitches) {
        match self {
            Self::Header => {
                worker.counters.header_timeouts.add();
                glitches.note(Glitch::SlowHeader);
            }
            Self::Idle => worker.counters.idle_timeouts.add(),
        }
    }
}

fn nanos(duration: Duration) -> Nanos {
    Nanos(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}
