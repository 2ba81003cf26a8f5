//! What a worker's I/O has done so far, in numbers.

use super::uring;

/// Counters of the thread's ring since it began; all 0 on epoll, which counts nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// System calls that handed over operations and waited.
    pub enters: u64,
    /// Completions seen.
    pub completions: u64,
    /// The completion queue was full, and the kernel put some aside.
    pub overflows: u64,
    /// Something arrived and no buffer was left.
    pub buffers_exhausted: u64,
    /// Chunks copied out of their buffer because few were left.
    pub chunks_copied: u64,
    /// A connection received more than its reader read, and was paused.
    pub receives_paused: u64,
    /// Sends.
    pub sends: u64,
    /// Of them, those that the kernel did not take whole.
    pub sends_short: u64,
    /// Of them, those that were not copied.
    pub sends_zero_copy: u64,
    /// Other rings woken by a message.
    pub messages: u64,
}

impl Look {
    /// With another ring's.
    pub fn add(&mut self, other: &Self) {
        let Self {
            enters,
            completions,
            overflows,
            buffers_exhausted,
            chunks_copied,
            receives_paused,
            sends,
            sends_short,
            sends_zero_copy,
            messages,
        } = other;
        self.enters += enters;
        self.completions += completions;
        self.overflows += overflows;
        self.buffers_exhausted += buffers_exhausted;
        self.chunks_copied += chunks_copied;
        self.receives_paused += receives_paused;
        self.sends += sends;
        self.sends_short += sends_short;
        self.sends_zero_copy += sends_zero_copy;
        self.messages += messages;
    }
}

/// How this thread's ring stands.
#[must_use]
pub fn look() -> Look {
    uring::current().map_or_else(Look::default, |driver| driver.look())
}
