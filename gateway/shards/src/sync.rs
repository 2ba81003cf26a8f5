//! The atomics: of the standard library, or loom's when the crate is model-checked (`--cfg loom`).
//!
//! [`Data`] is always the standard library's: it carries particulars that another atomic publishes, and loom
//! need not try every order in which they could be read. Whoever changes an atomic into data must be able
//! to name that other atomic.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU64, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, fence};

pub(crate) use core::sync::atomic::{AtomicU64 as Data, Ordering};

/// A step that the protocol needs. A model can leave it out, to see that the model would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A request is counted as waiting before its ticket can be seen.
    CountBeforeTicket,
    /// Whoever parks seats in his lease looks once more whether somebody waits.
    LookAfterParking,
    /// The fence between parking seats and that look.
    FenceAfterParking,
    /// Leases are swept before it is decided that somebody must wait.
    SweepLeases,
    /// The fence before the sweep.
    FenceBeforeSweep,
    /// Whoever gives seats back while somebody waits has the sequencer visited.
    VisitAfterGiving,
    /// The fence between leaving an operation and trying for the role.
    FenceAfterPosting,
    /// The fence between giving up the role and looking at the mail.
    FenceAfterRole,
    /// Whoever gives up the role looks at the mail once more.
    MailAfterRole,
    /// A seat is granted by compare-and-swap, which a cancelled request has lost.
    GrantBySwap,
    /// A running request is taken over by compare-and-swap, which a finished one has lost.
    AdoptBySwap,
    /// What a running request described is read before that swap, not after.
    ReadBeforeAdopting,
    /// A worker lowers its flag before it reads its notices, not after.
    FlagBeforeNotices,
    /// A worker empties a ring of notices before it goes on to the one that the holder fills now.
    EmptyBeforeNextRing,
    /// A holder who stops early wakes somebody to go on.
    PassOn,
    /// Who puts back an operation that found the ring full has himself woken to try again.
    RetryWhenFull,
}

/// Whether this thread's model does without that step.
#[cfg(not(loom))]
#[inline]
pub(crate) const fn left_out(_: Step) -> bool {
    false
}

#[cfg(loom)]
pub use model::leave_out;
#[cfg(loom)]
pub(crate) use model::left_out;

#[cfg(loom)]
mod model {
    use super::Step;
    use std::cell::Cell;

    // All threads of a model run on the one real thread that called `loom::model`.
    std::thread_local! {
        static LEFT_OUT: Cell<Option<Step>> = const { Cell::new(None) };
    }

    /// From now on models on this thread do without that step.
    pub fn leave_out(step: Step) {
        LEFT_OUT.set(Some(step));
    }

    pub(crate) fn left_out(step: Step) -> bool {
        LEFT_OUT.get() == Some(step)
    }
}
