//! A budget of bytes taken ahead: what HTTP/2 clients may send before anybody asks for it, all connections together.
//!
//! A connection's window is a promise: the client may send so much at once, and it must be held until a request's
//! turn comes. Every connection with a window for sixteen bodies would promise 64 GiB to 16 384 clients. So each is
//! promised a share of what is still free: the first get all that is useful, later ones less, and those for whom
//! nothing is left the 64 KiB that HTTP/2 begins with. They are slower with large bodies, not refused.

use std::sync::Arc;

use super::common::Common;

/// The budget.
#[derive(Debug)]
pub(super) struct Ahead {
    bytes: u64,
    common: Arc<Common>,
}

/// A connection's window. Dropped, it is free again.
#[derive(Debug)]
pub(super) struct Window {
    common: Arc<Common>,
    taken: u64,
    bytes: u32,
}

/// A connection gets one of so many parts of what is free, so that a few do not take all.
const SHARE: u64 = 64;

/// The window that every connection begins with (RFC 9113, section 6.9.2); less cannot be had.
pub(super) const WINDOW_MIN: u32 = 65_535;

impl Ahead {
    pub(super) fn new(bytes: u64, common: &Arc<Common>) -> Self {
        Self { bytes, common: Arc::clone(common) }
    }

    /// A window for a new connection: `wanted` bytes at most; the smallest if memory is `tight`.
    pub(super) fn window(&self, wanted: u32, tight: bool) -> Window {
        let mut bytes = WINDOW_MIN;
        let taken = self.common.ahead.take_part(self.bytes, |free| {
            let share = if tight { 0 } else { u32::try_from(free / SHARE).unwrap_or(u32::MAX) };
            bytes = share.min(wanted).max(WINDOW_MIN);
            u64::from(bytes)
        });
        Window { common: Arc::clone(&self.common), taken, bytes }
    }
}

impl Window {
    /// How large it is.
    pub(super) const fn bytes(&self) -> u32 {
        self.bytes
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.common.ahead.give(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u32 = 1 << 20;

    #[test]
    fn a_budget_is_shared_and_comes_back() {
        let budget = u64::from(256 * MIB);
        let common = Common::new(2);
        let ahead = Ahead::new(budget, &common);
        let windows: Vec<Window> = (0..5000).map(|_| ahead.window(4 * MIB, false)).collect();
        assert_eq!(windows[0].bytes(), 4 * MIB);
        assert!(windows.is_sorted_by_key(|window| std::cmp::Reverse(window.bytes())));
        assert_eq!(windows[4999].bytes(), WINDOW_MIN);
        assert_eq!(common.ahead.get(), budget);
        let promised: u64 = windows.iter().map(|window| u64::from(window.bytes())).sum();
        assert!(promised <= budget + 5000 * u64::from(WINDOW_MIN));
        drop(windows);
        assert_eq!(common.ahead.get(), 0);
        assert_eq!(ahead.window(4 * MIB, true).bytes(), WINDOW_MIN, "memory is tight");
        assert_eq!(ahead.window(1, false).bytes(), WINDOW_MIN);
        assert_eq!(common.ahead.get(), 0);
    }
}
