//! What the driver has counted.

use std::cell::Cell;

use crate::ring::Look;

/// Counters of one ring.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) enters: Count,
    pub(super) completions: Count,
    pub(super) overflows: Count,
    pub(super) buffers_exhausted: Count,
    pub(super) chunks_copied: Count,
    pub(super) receives_paused: Count,
    pub(super) sends: Count,
    pub(super) sends_short: Count,
    pub(super) sends_zero_copy: Count,
    pub(super) messages: Count,
}

/// Counts up.
#[derive(Debug, Default)]
pub(super) struct Count(Cell<u64>);

impl Count {
    pub(super) fn get(&self) -> u64 {
        self.0.get()
    }

    pub(super) fn add(&self, count: u64) {
        self.0.set(self.0.get() + count);
    }
}

impl Counted {
    /// As they stand.
    pub(super) fn look(&self) -> Look {
        Look {
            enters: self.enters.0.get(),
            completions: self.completions.0.get(),
            overflows: self.overflows.0.get(),
            buffers_exhausted: self.buffers_exhausted.0.get(),
            chunks_copied: self.chunks_copied.0.get(),
            receives_paused: self.receives_paused.0.get(),
            sends: self.sends.0.get(),
            sends_short: self.sends_short.0.get(),
            sends_zero_copy: self.sends_zero_copy.0.get(),
            messages: self.messages.0.get(),
        }
    }
}
