//! How long a request may execute and how long it may wait for a seat.
//!
//! Execution: the server's request time-out, or the query's `timeout` if that is shorter; long-running
//! requests have no deadline. Waiting: a quarter of the execution time, or the server's default where
//! there is none, one minute at most. All of it counts from the reception of the request, so that what
//! authentication took is not given twice. Source: kube-apiserver's request deadline and priority and
//! fairness filters, apf-behaviour 1.18.

mod duration;

pub use duration::{DurationError, parse as parse_duration};

use crate::request_info::RequestInfo;
use crate::units::Nanos;

/// Until when a request may execute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Execution {
    /// When its time is up; `None`: never.
    pub deadline: Option<Nanos>,
    /// Whether its client has left.
    pub cancelled: bool,
}

/// Nobody waits longer than this for a seat.
const WAIT_MAX: Nanos = Nanos::from_secs(60);
/// A request may spend this part of its time waiting.
const WAIT_FRACTION: i64 = 4;

// === impl Execution ===

impl Execution {
    /// Of a request received at that time by a server that gives its requests `timeout_max`.
    ///
    /// # Errors
    /// [`DurationError`] if `timeout` is no duration: the client's fault, 400.
    pub fn of(request: &RequestInfo<'_>, received: Nanos, timeout_max: Nanos) -> Result<Self, DurationError> {
        if request.is_long_running() {
            return Ok(Self::default());
        }
        let asked = match request.query().first("timeout") {
            Some(value) if !value.is_empty() => duration::parse(&value)?,
            _ => Nanos::ZERO,
        };
        let timeout = if asked > Nanos::ZERO { asked.min(timeout_max) } else { timeout_max };
        Ok(Self { deadline: Some(received + timeout), cancelled: false })
    }

    /// Whether nothing is left of it.
    pub fn is_over(&self, now: Nanos) -> bool {
        self.cancelled || self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Until when the request may wait for a seat. `received`: when it came in, or `now` if nobody
    /// noted it. What is over does not wait: its own deadline, which may be none.
    pub fn wait_deadline(&self, now: Nanos, received: Nanos, default_limit: Nanos) -> Option<Nanos> {
        if self.is_over(now) {
            return self.deadline;
        }
        let limit = match self.deadline {
            Some(deadline) => Nanos((deadline - received).0 / WAIT_FRACTION),
            None => default_limit,
        };
        let wait = received + limit.min(WAIT_MAX);
        Some(self.deadline.map_or(wait, |deadline| deadline.min(wait)))
    }
}

/// How long requests without a deadline may wait, on a server that gives its requests `timeout_max`.
pub fn default_limit(timeout_max: Nanos) -> Nanos {
    Nanos(timeout_max.0 / WAIT_FRACTION)
}

#[cfg(test)]
mod tests;
