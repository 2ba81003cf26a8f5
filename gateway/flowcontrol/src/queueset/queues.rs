//! The queues that exist: those in use, and some idle ones whose last reading is still known.
//!
//! A level may have ten million queues; one is made when a request comes to it. When nothing refers to
//! it any more it is idle, and could be forgotten at once, because a queue that gets its first request
//! starts at the present reading of the meter. The latest [`IDLE_MAX`] idle ones are kept all the same:
//! operators look at their readings, and a queue that comes back needs no new slot.

use super::order::Entry;
use super::requests::List;
use crate::units::{SeatSeconds, Seats};
use alloc::vec::Vec;
use hashbrown::HashMap;

/// Idle queues that are remembered: 32 times the default level's 128, about half a megabyte.
pub(crate) const IDLE_MAX: usize = 4096;

/// Indexes whose slots are looked up in a table, 32 KiB at the most; those beyond are hashed.
const NEAR_MAX: u32 = 8192;

/// No slot.
const NONE: u32 = u32::MAX;

/// One queue, on two cache lines of its own.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Queue {
    /// Which of the level's queues.
    pub(crate) index: u32,
    /// The meter's reading at which its next request is served, in the virtual world where all queues
    /// are served at once: the paper's virtual start.
    pub(crate) next_dispatch_r: SeatSeconds,
    /// Its place in the order of virtual finish, while a request waits.
    pub(crate) place: Entry,
    /// First in, first out.
    pub(crate) waiting: List,
    /// In order of dispatch.
    pub(crate) executing: List,
    /// Its requests that linger.
    pub(crate) lingering: u32,
    /// Invariant: the sum of the seats of `executing` and of those that linger.
    pub(crate) seats_in_use: Seats,
    /// Invariant: these three are the sums over `waiting`.
    pub(crate) initial_seats_sum: Seats,
    pub(crate) max_seats_sum: Seats,
    pub(crate) total_work_sum: SeatSeconds,
    /// Neighbours among the idle; a vacant slot: `next` is the next vacant one.
    previous: u32,
    next: u32,
}

/// All queues that exist.
#[derive(Debug)]
pub(crate) struct Queues {
    slots: Vec<Queue>,
    /// From index to slot.
    by_index: Slots,
    /// First vacant slot.
    vacant: u32,
    /// Longest and latest idle.
    idle_first: u32,
    idle_last: u32,
    idle_len: usize,
}

// === impl Queue ===

impl Queue {
    fn new(index: u32) -> Self {
        Self {
            index,
            next_dispatch_r: SeatSeconds::ZERO,
            place: Entry::LEAST,
            waiting: List::EMPTY,
            executing: List::EMPTY,
            lingering: 0,
            seats_in_use: Seats(0),
            initial_seats_sum: Seats(0),
            max_seats_sum: Seats(0),
            total_work_sum: SeatSeconds::ZERO,
            previous: NONE,
            next: NONE,
        }
    }

    /// Something waits or executes. Lingering does not count.
    pub(crate) fn is_active(&self) -> bool {
        !self.waiting.is_empty() || !self.executing.is_empty()
    }

    /// No request refers to it.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_active() && self.lingering == 0
    }
}

// === impl Queues ===

impl Queues {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            by_index: Slots::default(),
            vacant: NONE,
            idle_first: NONE,
            idle_last: NONE,
            idle_len: 0,
        }
    }

    pub(crate) fn get(&self, slot: u32) -> &Queue {
        &self.slots[slot as usize]
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Queue {
        &mut self.slots[slot as usize]
    }

    /// The queue of that index, if it exists.
    pub(crate) fn find(&self, index: u32) -> Option<&Queue> {
        self.by_index.get(index).map(|slot| self.get(slot))
    }

    /// Every queue that exists, with its slot, in no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Queue)> {
        (0..).zip(&self.slots).filter(|(slot, queue)| self.by_index.get(queue.index) == Some(*slot))
    }

    /// Every slot, vacant ones included.
    pub(crate) fn slots(&self) -> core::ops::Range<u32> {
        0..u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// The slot of the queue of that index; made, and idle, if it did not exist.
    pub(crate) fn open(&mut self, index: u32) -> u32 {
        if let Some(slot) = self.by_index.get(index) {
            return slot;
        }
        let slot = self.make(index);
        self.by_index.insert(index, slot);
        self.rest(slot);
        slot
    }

    /// Takes a queue from among the idle: a request has come.
    pub(crate) fn wake(&mut self, slot: u32) {
        let Queue { previous, next, .. } = *self.get(slot);
        match previous {
            NONE => self.idle_first = next,
            _ => self.get_mut(previous).next = next,
        }
        match next {
            NONE => self.idle_last = previous,
            _ => self.get_mut(next).previous = previous,
        }
        self.idle_len -= 1;
    }

    /// Puts a queue among the idle, as the latest.
    pub(crate) fn rest(&mut self, slot: u32) {
        debug_assert!(self.get(slot).is_idle(), "only an idle queue rests");
        let last = self.idle_last;
        let queue = self.get_mut(slot);
        (queue.previous, queue.next) = (last, NONE);
        match last {
            NONE => self.idle_first = slot,
            _ => self.get_mut(last).next = slot,
        }
        self.idle_last = slot;
        self.idle_len += 1;
    }

    /// Forgets a queue that no request refers to and that is not among the idle.
    pub(crate) fn forget(&mut self, slot: u32) {
        debug_assert!(self.get(slot).is_idle(), "only an idle queue is forgotten");
        let vacant = self.vacant;
        let queue = self.get_mut(slot);
        queue.next = vacant;
        let index = queue.index;
        self.by_index.remove(index);
        self.vacant = slot;
    }

    /// Forgets the idle queues from that index on.
    pub(crate) fn forget_idle_from(&mut self, index: u32) {
        let mut at = self.idle_first;
        while at != NONE {
            let Queue { index: this, next, .. } = *self.get(at);
            if this >= index {
                self.wake(at);
                self.forget(at);
            }
            at = next;
        }
    }

    /// A slot with a new queue: that of the longest idle one if many are remembered, a vacant one, or a
    /// fresh one.
    fn make(&mut self, index: u32) -> u32 {
        if self.idle_len >= IDLE_MAX {
            let slot = self.idle_first;
            self.wake(slot);
            self.forget(slot);
        }
        if self.vacant != NONE {
            let slot = self.vacant;
            self.vacant = self.get(slot).next;
            *self.get_mut(slot) = Queue::new(index);
            return slot;
        }
        self.slots.push(Queue::new(index));
        self.by_index.make_room(self.slots.capacity());
        u32::try_from(self.slots.len() - 1).expect("memory ends before four billion queues")
    }
}

/// Where each queue is.
#[derive(Debug, Default)]
struct Slots {
    /// By index, up to the highest that was ever in use; [`NONE`] where there is no queue.
    near: Vec<u32>,
    far: HashMap<u32, u32>,
}

impl Slots {
    fn get(&self, index: u32) -> Option<u32> {
        if index >= NEAR_MAX {
            return self.far.get(&index).copied();
        }
        self.near.get(index as usize).copied().filter(|&slot| slot != NONE)
    }

    fn insert(&mut self, index: u32, slot: u32) {
        if index >= NEAR_MAX {
            self.far.insert(index, slot);
            return;
        }
        if self.near.len() <= index as usize {
            self.near.resize((index as usize + 1).next_power_of_two(), NONE);
        }
        self.near[index as usize] = slot;
    }

    fn remove(&mut self, index: u32) {
        if index >= NEAR_MAX {
            self.far.remove(&index);
        } else if let Some(slot) = self.near.get_mut(index as usize) {
            *slot = NONE;
        }
    }

    /// So many queues may exist.
    fn make_room(&mut self, queues: usize) {
        // With room for twice as many the map cleans up in place and never allocates when queues merely come and go.
        let room = 2 * queues;
        if !self.far.is_empty() && self.far.capacity() < room {
            self.far.reserve(room - self.far.len());
        }
    }
}
