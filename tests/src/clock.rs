//! The one place of the tests that reads the clock, and waiting without sleeping for luck: [`until`] asks
//! again and again and says what it heard last.

use std::time::{Duration, Instant};

use crate::Outcome;

/// Pause between two questions of [`until`]: far below what a person notices, far above what a question costs.
const PAUSE: Duration = Duration::from_millis(50);

/// The monotonic clock.
#[expect(clippy::disallowed_methods, reason = "the tests' one place that asks the machine for the time")]
pub fn now() -> Instant {
    Instant::now()
}

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "the tests' one place that asks the machine for the date")]
pub fn unix() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Why an attempt of [`until`] brought nothing.
#[derive(Debug)]
pub enum Pending {
    /// Ask again; the sentence says what was missing.
    NotYet(String),
    /// Asking again is of no use.
    Never(String),
}

impl From<String> for Pending {
    fn from(why: String) -> Self {
        Self::NotYet(why)
    }
}

/// Asks until the answer is `Ok`, for at most `within`; then fails with the last reason.
pub async fn until<T>(
    what: &str,
    within: Duration,
    mut ask: impl AsyncFnMut() -> Result<T, Pending>,
) -> Outcome<T> {
    let end = now() + within;
    let mut last = String::from("not asked in time");
    loop {
        match tokio::time::timeout(end.saturating_duration_since(now()), ask()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(Pending::Never(why))) => return Err(format!("{what}: {why}")),
            Ok(Err(Pending::NotYet(why))) => last = why,
            Err(_) => {}
        }
        if now() >= end {
            return Err(format!("{what}: not within {within:?}; last: {last}"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
