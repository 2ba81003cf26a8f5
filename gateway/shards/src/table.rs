//! A worker's slots at a level: a table that grows with what the worker ever had there at once.
//!
//! How many requests may wait is configuration and changes; how many do wait is seldom many. So no memory is set aside:
//! the table is made of chunks, each as large as all before it together, and the worker makes the next one when it has
//! used all slots there are. Nothing in it ever moves, so others read it meanwhile. Memory is asked for once for each
//! new high mark; it is kept for the next one.
//!
//! Each chunk comes with a ring in which the holder of the role tells of any slot up to there. A slot is in one ring at
//! most, and once, so rings are never full. The holder turns to the newest ring that he sees; the worker follows when
//! the one before is empty for good, so what is told keeps its order.

use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;

use crate::ring::Ring;
use crate::slots::Slot;
use crate::sync::{AtomicU64, Ordering, Step, left_out};

/// The table.
#[derive(Debug)]
pub(crate) struct Table {
    /// There from the beginning: a few kilobytes, and all that most workers ever need.
    first: Chunk,
    rest: [OnceLock<Chunk>; CHUNKS - 1],
    /// Chunks that are there; written by the worker.
    made: AtomicU64,
    /// Slots that there may be.
    most: usize,
    /// The chunk with the ring that the holder of the role fills; written by him.
    filled: CachePadded<AtomicU64>,
}

/// A part of the slots.
#[derive(Debug)]
struct Chunk {
    slots: Box<[Slot]>,
    /// A bit per slot whose request was bypassed. Only a hint where to look; written by the worker.
    bypassed: Box<[AtomicU64]>,
    /// From the holder of the role, with room for all slots up to here.
    told: Arc<Ring>,
}

/// The worker's end of what is told.
#[derive(Debug)]
pub(crate) struct News {
    /// The ring that it reads.
    ring: Arc<Ring>,
    /// Of that chunk.
    chunk: u64,
}

/// The mark of one slot.
#[derive(Debug)]
pub(crate) struct Mark<'a> {
    word: &'a AtomicU64,
    bit: u64,
}

/// Slots of the first chunk: 4 KiB. In models few, so that tables grow there, too.
const FIRST: u32 = if cfg!(loom) { 2 } else { 64 };

/// As many as make [`SLOTS_MAX`] slots and more.
const CHUNKS: usize = 11;

/// Slots that a table can have: more than may wait in a whole usher by default (`--max-waiting-requests`), so that queues
/// and clients' patience are what bounds a level, not its table.
pub(crate) const SLOTS_MAX: usize = (1 << 16) - 1;
const _: () = assert!(cfg!(loom) || SLOTS_MAX <= (FIRST as usize) << (CHUNKS - 1));

impl Table {
    /// For so many slots at the most; few of them are there yet.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            first: Chunk::new(0),
            rest: [const { OnceLock::new() }; CHUNKS - 1],
            made: AtomicU64::new(1),
            most,
            filled: CachePadded::new(AtomicU64::new(0)),
        }
    }

    /// By the worker: the slot will be used. `false` if there may not be as many.
    pub(crate) fn make(&self, slot: u32) -> bool {
        let (chunk, _) = place(slot);
        let may = (slot as usize) < self.most && chunk < CHUNKS;
        if may && chunk > 0 {
            self.rest[chunk - 1].get_or_init(|| {
                debug_assert_eq!(chunk, index(self.made.load(Ordering::Relaxed)), "one after the other");
                Chunk::new(chunk)
            });
            self.made.fetch_max(chunk as u64 + 1, Ordering::Release);
        }
        may
    }

    /// A slot that was made.
    #[inline]
    pub(crate) fn slot(&self, slot: u32) -> &Slot {
        let (chunk, at) = self.place(slot);
        &chunk.slots[at]
    }

    /// Every slot there is.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.made().flat_map(|chunk| &chunk.slots)
    }

    // === which requests were bypassed ===

    /// By the worker, who begins or ends a bypassed request there: the slot, and its mark.
    #[inline]
    pub(crate) fn marked_slot(&self, slot: u32) -> (&Slot, Mark<'_>) {
        let (chunk, at) = self.place(slot);
        (&chunk.slots[at], Mark { word: &chunk.bypassed[at / 64], bit: 1 << (at % 64) })
    }

    /// Slots in which bypassed requests may be running.
    pub(crate) fn marked(&self) -> impl Iterator<Item = u32> {
        let chunks = self.made().enumerate().map(|(chunk, made)| (first_of(chunk), made));
        let words = chunks.flat_map(|(first, made)| (0..).map(move |at| first + at * 64).zip(&made.bypassed));
        words.flat_map(|(first, word)| {
            let bits = word.load(Ordering::Relaxed);
            (0..64).filter(move |bit| bits & (1 << bit) != 0).map(move |bit| first + bit)
        })
    }

    pub(crate) fn clear_marks(&self) {
        self.made().flat_map(|chunk| &chunk.bypassed).for_each(|word| word.store(0, Ordering::Relaxed));
    }

    // === what is told ===

    /// By the holder of the role: there is news of that slot.
    pub(crate) fn tell(&self, slot: u32) {
        let newest = self.made.load(Ordering::Acquire) - 1;
        if newest > self.filled.load(Ordering::Relaxed) {
            self.filled.store(newest, Ordering::Release);
        }
        let told = self.chunk(index(newest)).told.push(u64::from(slot), 0);
        debug_assert!(told, "a slot is told about once in its life");
    }

    /// By whoever buries the worker: nothing is told any more.
    pub(crate) fn forget_news(&self) {
        self.made().for_each(|chunk| while chunk.told.pop().is_some() {});
    }

    // === chunks ===

    fn made(&self) -> impl Iterator<Item = &Chunk> {
        let made = index(self.made.load(Ordering::Acquire));
        std::iter::once(&self.first).chain(self.rest.iter().take(made - 1).map_while(OnceLock::get))
    }

    #[inline]
    fn place(&self, slot: u32) -> (&Chunk, usize) {
        if slot < FIRST {
            return (&self.first, slot as usize);
        }
        let (chunk, at) = place(slot);
        (self.chunk(chunk), at)
    }

    fn chunk(&self, chunk: usize) -> &Chunk {
        let chunk = if chunk == 0 { Some(&self.first) } else { self.rest[chunk - 1].get() };
        chunk.expect("a slot is made before anybody names it")
    }
}

impl Mark<'_> {
    #[inline]
    pub(crate) fn set(&self) {
        self.word.store(self.word.load(Ordering::Relaxed) | self.bit, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn clear(&self) {
        self.word.store(self.word.load(Ordering::Relaxed) & !self.bit, Ordering::Relaxed);
    }
}

impl News {
    /// From the first ring on, whoever read it before.
    pub(crate) fn of(table: &Table) -> Self {
        Self { ring: Arc::clone(&table.first.told), chunk: 0 }
    }

    /// The next slot of which there is news.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "written by `tell`")]
    pub(crate) fn next(&mut self, table: &Table) -> Option<u32> {
        loop {
            if let Some((slot, _)) = self.ring.pop() {
                return Some(slot as u32);
            }
            if table.filled.load(Ordering::Acquire) == self.chunk {
                return None;
            }
            // The holder has turned to another ring: now all that he put into this one can be seen.
            if !left_out(Step::EmptyBeforeNextRing)
                && let Some((slot, _)) = self.ring.pop()
            {
                return Some(slot as u32);
            }
            self.chunk += 1;
            self.ring = Arc::clone(&table.chunk(index(self.chunk)).told);
        }
    }
}

impl Chunk {
    fn new(chunk: usize) -> Self {
        let slots = FIRST << chunk.saturating_sub(1);
        Self {
            slots: (0..slots).map(|_| Slot::new()).collect(),
            bypassed: (0..slots.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            told: Arc::new(Ring::new((FIRST as usize) << chunk)),
        }
    }
}

/// The chunk of a slot, and its place there.
#[inline]
fn place(slot: u32) -> (usize, usize) {
    let chunk = (u32::BITS - (slot / FIRST).leading_zeros()) as usize;
    (chunk, (slot - first_of(chunk)) as usize)
}

/// The first slot of a chunk.
#[inline]
fn first_of(chunk: usize) -> u32 {
    if chunk == 0 { 0 } else { FIRST << (chunk - 1) }
}

#[expect(clippy::cast_possible_truncation, reason = "fewer than `CHUNKS`")]
fn index(chunk: u64) -> usize {
    chunk as usize
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::slots::State;

    #[test]
    fn every_slot_has_a_place_of_its_own() {
        let table = Table::new(SLOTS_MAX);
        let most = u32::try_from(SLOTS_MAX).expect("fits");
        assert!((0..most).all(|slot| table.make(slot)) && !table.make(most));
        assert_eq!(table.made().count(), CHUNKS);
        let places = (0..most).map(place);
        assert!(places.clone().zip(places.skip(1)).all(|(one, next)| {
            next == (one.0, one.1 + 1)
                || next == (one.0 + 1, 0) && one.1 + 1 == table.chunk(one.0).slots.len()
        }));
        assert_eq!(table.slots().count(), SLOTS_MAX + 1);
    }

    #[test]
    fn what_is_not_used_takes_no_memory() {
        let table = Table::new(1000);
        assert_eq!((table.marked().count(), News::of(&table).next(&table)), (0, None));
        assert!(table.make(63));
        assert_eq!(table.slots().count(), FIRST as usize);
        assert!(table.make(64) && table.make(128));
        assert_eq!(table.slots().count(), 256);
        assert!(!table.make(1000));
    }

    #[test]
    fn marks_name_their_slots() {
        let table = Table::new(1000);
        for slot in 0..400 {
            assert!(table.make(slot));
            table.marked_slot(slot).1.set();
        }
        assert!(table.marked().eq(0..400));
        table.marked_slot(63).1.clear();
        table.marked_slot(300).1.clear();
        assert!(table.marked().eq((0..400).filter(|slot| ![63, 300].contains(slot))));
        table.slot(399).set(State::Lingering);
        assert_eq!(table.slots().position(|slot| slot.state() == State::Lingering), Some(399));
        table.clear_marks();
        assert_eq!(table.marked().count(), 0);
    }

    #[test]
    fn what_is_told_keeps_its_order_while_the_table_grows() {
        let table = Table::new(1000);
        assert!(table.make(0));
        let mut news = News::of(&table);
        let mut all = |many: usize| std::iter::from_fn(|| news.next(&table)).take(many).collect::<Vec<_>>();
        (0..64).for_each(|slot| table.tell(slot));
        assert_eq!(all(1), [0]);
        assert!((64..200).all(|slot| table.make(slot)));
        (64..200).for_each(|slot| table.tell(slot));
        assert_eq!(all(999), (1..200).collect::<Vec<_>>());
        (0..200).rev().for_each(|slot| table.tell(slot));
        assert_eq!(all(999), (0..200).rev().collect::<Vec<_>>());
        // Who comes after a dead one begins at the first ring.
        (0..200).for_each(|slot| table.tell(slot));
        table.forget_news();
        table.tell(7);
        let mut successor = News::of(&table);
        assert_eq!((successor.next(&table), successor.next(&table)), (Some(7), None));
    }
}
