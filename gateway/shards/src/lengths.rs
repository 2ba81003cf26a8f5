//! Published queue lengths, so that an overload is turned away where it arrives.
//!
//! A request is turned away if every queue of its hand is full: whichever the sequencer would choose, it
//! would turn the request away, too. A length may be as old as the last visit; then a request is turned away
//! a moment after there was room again, or makes the way to the sequencer to be turned away there.

use core::sync::atomic::AtomicU32;

use usher_flowcontrol::shuffle::Dealer;
use usher_flowcontrol::units::FlowHash;

use crate::sync::{Data, Ordering};

/// Lengths by queue; written by the holder of the role. Hints, so loom need not watch them.
#[derive(Debug)]
pub(crate) struct Lengths {
    queues: Box<[AtomicU32]>,
    /// Queues that are full: nobody deals a hand while it is 0.
    full: Data,
}

/// Queues whose lengths are published, 32 KiB a level; a level with more has all requests that do not
/// fit come to the sequencer.
const PUBLISHED_MAX: usize = 8192;

impl Lengths {
    pub(crate) fn new(queues: u32) -> Self {
        let count = usize::try_from(queues).unwrap_or(usize::MAX).min(PUBLISHED_MAX);
        Self { queues: (0..count).map(|_| AtomicU32::new(0)).collect(), full: Data::new(0) }
    }

    /// That queue has so many waiting requests, of at most `limit`.
    pub(crate) fn publish(&self, queue: u32, length: u32, limit: u32) {
        let Some(published) = self.queues.get(queue as usize) else { return };
        let before = published.load(Ordering::Relaxed);
        published.store(length, Ordering::Relaxed);
        let full = self.full.load(Ordering::Relaxed);
        match (before >= limit, length >= limit) {
            (false, true) => self.full.store(full + 1, Ordering::Relaxed),
            (true, false) => self.full.store(full.saturating_sub(1), Ordering::Relaxed),
            _ => {}
        }
    }

    /// Forgets everything: the limit is another one now, or the queues are.
    pub(crate) fn clear(&self) {
        self.full.store(0, Ordering::Relaxed);
        self.queues.iter().for_each(|length| length.store(0, Ordering::Relaxed));
    }

    /// Whether no queue of that flow's hand has room.
    #[inline]
    pub(crate) fn all_full(&self, queues: u32, hand_size: u8, flow: FlowHash, limit: u32) -> bool {
        // Without room for anybody every queue is full from the beginning: that is the sequencer's to say.
        if self.full.load(Ordering::Relaxed) == 0 || limit == 0 {
            return false;
        }
        let hand = Dealer::clamped(queues, hand_size).deal(flow);
        let length =
            |card: &u32| self.queues.get(*card as usize).map(|length| length.load(Ordering::Relaxed));
        hand.cards().iter().all(|card| length(card).is_some_and(|length| length >= limit))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_a_flow_without_any_room_is_turned_away() {
        let lengths = Lengths::new(4);
        let full = |lengths: &Lengths| lengths.all_full(4, 2, FlowHash(0), 3);
        lengths.publish(0, 3, 3);
        assert!(!full(&lengths), "the hand is 0 and 1");
        lengths.publish(1, 4, 3);
        assert!(full(&lengths));
        lengths.publish(0, 2, 3);
        assert!(!full(&lengths));
        lengths.publish(0, 3, 3);
        lengths.clear();
        assert!(!full(&lengths));
    }

    #[test]
    fn queues_beyond_the_published_are_never_full() {
        let lengths = Lengths::new(1);
        lengths.publish(0, 9, 1);
        lengths.publish(5, 9, 1);
        assert!(!lengths.all_full(10, 10, FlowHash(0), 1));
    }
}
