//! What a worker leaves in its ring for the holder of the role: a word, and the time of it.
//!
//! The particulars of a request are in its slot, those of a new configuration on the worker's desk.

use core::sync::atomic::fence;

use usher_flowcontrol::level::{Mode, Reason};
use usher_flowcontrol::units::Seats;

use crate::slots::{reason_code, reason_of};
use crate::sync::{Data, Ordering};

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A request arrived and is counted as waiting.
    Ticket(u32),
    /// Its worker gave it up; its slot says [`crate::slots::State::Cancelled`].
    Cancel(u32, Reason),
    /// A request that the sequencer knows is done.
    Finish(u32),
    /// A request that the sequencer knows lingers no more.
    LingerEnd(u32),
    /// New shape or limit.
    Reconfigure,
    /// That worker is gone.
    Bury(u32),
}

impl Operation {
    pub(crate) const fn code(self) -> u64 {
        match self {
            Self::Ticket(slot) => (slot as u64) << 8,
            Self::Cancel(slot, why) => 1 | reason_code(why) << 4 | (slot as u64) << 8,
            Self::Finish(slot) => 2 | (slot as u64) << 8,
            Self::LingerEnd(slot) => 3 | (slot as u64) << 8,
            Self::Reconfigure => 4,
            Self::Bury(worker) => 5 | (worker as u64) << 8,
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "written by `code`")]
    pub(crate) const fn of(code: u64) -> Self {
        let number = (code >> 8) as u32;
        match code & 0xf {
            0 => Self::Ticket(number),
            1 => Self::Cancel(number, reason_of(code >> 4)),
            2 => Self::Finish(number),
            3 => Self::LingerEnd(number),
            4 => Self::Reconfigure,
            _ => Self::Bury(number),
        }
    }
}

/// A mode and a limit where others can read them, in words that are not read together: a reader may meet
/// half of the old and half of the new. Both halves make sense with each other, and the new comes soon.
#[derive(Debug)]
pub(crate) struct Shape {
    kind: Data,
    queues: Data,
    limit: Data,
}

impl Shape {
    pub(crate) fn new(mode: Mode, limit: Seats) -> Self {
        let shape = Self { kind: Data::new(0), queues: Data::new(0), limit: Data::new(0) };
        shape.set(mode, limit);
        shape
    }

    pub(crate) fn set(&self, mode: Mode, limit: Seats) {
        let (kind, count) = match mode {
            Mode::Exempt => (0, 0),
            Mode::Reject => (1, 0),
            Mode::Queue { queues, hand_size, queue_length_limit } => {
                (2 | u64::from(hand_size) << 8 | u64::from(queue_length_limit) << 32, queues)
            }
        };
        self.kind.store(kind, Ordering::Relaxed);
        self.queues.store(u64::from(count), Ordering::Relaxed);
        self.limit.store(limit.0, Ordering::Relaxed);
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "written by `set`")]
    pub(crate) fn mode(&self) -> Mode {
        let kind = self.kind.load(Ordering::Relaxed);
        match kind & 0xff {
            0 => Mode::Exempt,
            1 => Mode::Reject,
            _ => Mode::Queue {
                queues: self.queues.load(Ordering::Relaxed) as u32,
                hand_size: (kind >> 8) as u8,
                queue_length_limit: (kind >> 32) as u32,
            },
        }
    }

    #[inline]
    pub(crate) fn limit(&self) -> Seats {
        Seats(self.limit.load(Ordering::Relaxed))
    }
}

/// Counts twice for each change of what is written in several words, so that a reader can tell whether he read during
/// one.
#[derive(Debug)]
pub(crate) struct Changes(Data);

impl Changes {
    pub(crate) fn new() -> Self {
        Self(Data::new(0))
    }

    /// By the one writer, before he writes.
    pub(crate) fn begin(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// When he has written.
    pub(crate) fn end(&self) {
        fence(Ordering::SeqCst);
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// What `look` sees; `None` if something was being changed.
    pub(crate) fn without<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        let before = self.0.load(Ordering::Acquire);
        fence(Ordering::SeqCst);
        let seen = look();
        fence(Ordering::SeqCst);
        (before.is_multiple_of(2) && self.0.load(Ordering::Acquire) == before).then_some(seen)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn operations_survive_the_ring() {
        for number in [0, 1, u32::MAX] {
            for operation in [
                Operation::Ticket(number),
                Operation::Cancel(number, Reason::TimeOut),
                Operation::Cancel(number, Reason::Cancelled),
                Operation::Finish(number),
                Operation::LingerEnd(number),
                Operation::Reconfigure,
                Operation::Bury(number),
            ] {
                assert_eq!(Operation::of(operation.code()), operation);
            }
        }
    }

    #[test]
    fn who_looks_during_a_change_knows() {
        let changes = Changes::new();
        assert_eq!(changes.without(|| 1), Some(1));
        changes.begin();
        assert_eq!(changes.without(|| 1), None);
        changes.end();
        assert_eq!(changes.without(|| changes.begin()), None);
        changes.end();
        assert_eq!(changes.without(|| 2), Some(2));
    }

    #[test]
    fn shapes_survive_the_desk() {
        let queues = Mode::Queue { queues: u32::MAX, hand_size: u8::MAX, queue_length_limit: u32::MAX };
        for mode in [Mode::Exempt, Mode::Reject, queues] {
            let shape = Shape::new(mode, Seats(7));
            assert_eq!((shape.mode(), shape.limit()), (mode, Seats(7)));
        }
    }
}
