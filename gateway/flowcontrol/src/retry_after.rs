//! When a client that was turned away shall come back: `Retry-After` of one level, in seconds.
//!
//! It doubles when many are turned away in spite of it, and sinks by one second when few are. It
//! moves only in the first rejection of a second; nothing decays by itself. Seconds are Unix time:
//! the header is about the client's clock, not ours.

use alloc::collections::VecDeque;

/// A client waits at least so many seconds.
const RETRY_AFTER_MIN: u32 = 1;
/// A client waits at most so many seconds: more would look like an outage.
const RETRY_AFTER_MAX: u32 = 32;
/// Seconds that are remembered. More than [`RETRY_AFTER_MAX`] are only looked at when the clock
/// steps back; this bounds what such a clock can make us keep.
const HISTORY_MAX: usize = 128;

/// One level's memory of those it turned away.
#[derive(Clone, Debug)]
pub struct RetryAfter {
    seconds: u32,
    /// When `seconds` was last raised.
    raised_at: i64,
    /// The second that is being counted, and its count.
    current: Second,
    /// Earlier ones, in order of counting.
    history: VecDeque<Second>,
}

/// Rejections of one second.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    unix: i64,
    rejected: u64,
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self {
            seconds: RETRY_AFTER_MIN,
            raised_at: 0,
            current: Second::default(),
            history: VecDeque::with_capacity(HISTORY_MAX),
        }
    }
}

impl RetryAfter {
    /// Counts one that is turned away; ask for [`RetryAfter::seconds`] afterwards.
    pub fn record(&mut self, unix_second: i64) {
        if unix_second == self.current.unix {
            self.current.rejected += 1;
            return;
        }
        self.remember(self.current);
        self.current = Second { unix: unix_second, rejected: 1 };
        self.adapt(unix_second);
    }

    /// How many seconds a client shall wait.
    pub fn seconds(&self) -> u32 {
        self.seconds
    }

    /// Appends a second that is over, and forgets those too far before it to matter again.
    fn remember(&mut self, second: Second) {
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(second);
        let age_max = i64::from((2 * self.seconds).min(RETRY_AFTER_MAX));
        while self.history.front().is_some_and(|old| second.unix.saturating_sub(old.unix) > age_max) {
            self.history.pop_front();
        }
    }

    /// Compares the rejections of the last `seconds` seconds with what the present value should yield.
    fn adapt(&mut self, now: i64) {
        let recent = u64::from(self.seconds);
        let age = |unix: i64| now.saturating_sub(unix);
        let rejected: u64 = self
            .history
            .iter()
            .rev()
            .take_while(|second| age(second.unix) <= i64::from(self.seconds))
            .filter(|second| second.unix < now)
            .map(|second| second.rejected)
            .sum();
        if age(self.raised_at) >= i64::from(self.seconds) && rejected >= 3 * recent {
            self.seconds = (2 * self.seconds).min(RETRY_AFTER_MAX);
            self.raised_at = now;
        } else if rejected < recent && self.seconds > RETRY_AFTER_MIN {
            self.seconds -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drops(retry: &mut RetryAfter, second: i64, count: u32) -> u32 {
        (0..count).for_each(|_| retry.record(second));
        retry.seconds()
    }

    #[test]
    fn it_doubles_under_pressure_and_sinks_when_few_come() {
        let mut retry = RetryAfter::default();
        let rows = [
            (0, 5, 1),
            (1, 11, 2),
            (2, 1, 2),
            (3, 11, 4),
            (4, 1, 4),
            (7, 1, 8),
            (11, 1, 8),
            (15, 1, 7),
            (17, 1, 6),
        ];
        for (second, count, seconds) in rows {
            assert_eq!(drops(&mut retry, 1_700_000_000 + second, count), seconds, "second {second}");
        }
    }

    #[test]
    fn it_stays_between_its_bounds() {
        let mut retry = RetryAfter::default();
        for second in 1..1000 {
            drops(&mut retry, second, 1000);
        }
        assert_eq!(retry.seconds(), RETRY_AFTER_MAX);
        for second in 0..1000 {
            drops(&mut retry, 2000 + 100 * second, 1);
        }
        assert_eq!(retry.seconds(), RETRY_AFTER_MIN);
    }

    #[test]
    fn a_mad_clock_makes_it_neither_panic_nor_grow() {
        let mut retry = RetryAfter::default();
        for step in 0..10_000_i64 {
            retry.record(if step % 2 == 0 { i64::MAX - step } else { i64::MIN + step });
        }
        assert!(retry.history.len() <= HISTORY_MAX);
    }
}
