//! Doing something again and again, and telling only what is news.

use std::time::Duration;

/// After a failure.
const RETRY: Duration = Duration::from_secs(10);

/// What became of the last attempt; a log line only when it changes.
#[derive(Debug)]
pub(super) struct Patience {
    /// What is being done, for the log.
    what: &'static str,
    /// What to do about a failure.
    remedy: &'static str,
    every: Duration,
    last: Option<Result<(), String>>,
}

impl Patience {
    pub(super) fn new(what: &'static str, remedy: &'static str, every: Duration) -> Self {
        Self { what, remedy, every, last: None }
    }

    /// Notes an outcome and says how long to wait before the next attempt.
    pub(super) fn note(&mut self, outcome: Result<(), String>) -> Duration {
        if self.last.as_ref() != Some(&outcome) {
            match &outcome {
                Ok(()) => tracing::info!(what = self.what, "fetched"),
                Err(problem) => {
                    tracing::warn!(what = self.what, problem, remedy = self.remedy, "cannot be fetched");
                }
            }
        }
        let pause = if outcome.is_ok() { self.every } else { RETRY.min(self.every) };
        self.last = Some(outcome);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Patience, RETRY};

    #[test]
    fn failures_are_tried_again_sooner() {
        let mut patience = Patience::new("tea", "boil water", Duration::from_secs(60));
        assert_eq!(patience.note(Ok(())), Duration::from_secs(60));
        assert_eq!(patience.note(Err("cold".into())), RETRY);
        assert_eq!(patience.last, Some(Err("cold".into())));
    }
}
