//! What the holder of the role publishes for all to read: queue lengths, and the level's mode and limit.
//!
//! Other cores see it when it reaches them, some hundred nanoseconds later; nothing may depend on seeing it sooner. In a
//! simulation on one thread everybody would see it at once, so there it can be kept back for as long as one likes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use usher_flowcontrol::level::Mode;
use usher_flowcontrol::units::Seats;

use crate::level::{Common, Level};

/// Something published.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Publication {
    /// So many wait in that queue, of so many that may.
    Length { queue: u32, length: u32, limit: u32 },
    /// New mode and limit; lengths begin anew.
    Shape { mode: Mode, limit: Seats },
}

/// What is kept back, in order.
#[derive(Debug, Default)]
pub(crate) struct KeptBack(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    queue: VecDeque<Publication>,
    /// Ever taken out of the queue.
    shown: u64,
}

impl Common {
    /// By the holder of the role.
    #[inline]
    pub(crate) fn publish(&self, what: Publication) {
        match &self.kept_back {
            None => self.show(what),
            Some(kept) => kept.inside().queue.push_back(what),
        }
    }

    #[inline]
    fn show(&self, what: Publication) {
        match what {
            Publication::Length { queue, length, limit } => self.lengths.publish(queue, length, limit),
            Publication::Shape { mode, limit } => {
                self.shape.set(mode, limit);
                self.set_leases(mode, limit);
                self.lengths.clear();
            }
        }
    }
}

impl Level {
    /// Of a level that keeps back what it publishes ([`Level::keeping_back`]): how much that ever was.
    #[must_use]
    pub fn published(&self) -> u64 {
        self.common.kept_back.as_ref().map_or(0, |kept| {
            let kept = kept.inside();
            kept.shown + kept.queue.len() as u64
        })
    }

    /// Of such a level: so much of it can be seen now.
    pub fn show(&self, published: u64) {
        let Some(kept) = &self.common.kept_back else { return };
        let mut kept = kept.inside();
        while kept.shown < published
            && let Some(what) = kept.queue.pop_front()
        {
            self.common.show(what);
            kept.shown += 1;
        }
    }
}

impl KeptBack {
    fn inside(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
