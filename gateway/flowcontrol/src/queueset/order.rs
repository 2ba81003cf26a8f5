//! The queues with waiting requests, in the order in which their heads would finish.
//!
//! A sorted list in blocks of half a kilobyte, and a list of the blocks. The next queue is the first entry of the first
//! block; giving a queue a new place takes two short searches and two short moves of memory. A search tree would
//! touch a cache line at every step down instead, and where workers take turns each of those comes from another core.
//!
//! Virtual time moves on: blocks fill at the back and empty at the front, so none is ever joined with another. No cost
//! grows with the configured number of queues, and nothing is allocated once warm.

use crate::units::SeatSeconds;
use alloc::vec::Vec;

/// A set of queues ordered by (virtual finish, index). A queue is named by its slot.
#[derive(Debug)]
pub(crate) struct FinishOrder {
    /// The blocks in use, in order; none of them empty.
    directory: Vec<Shelf>,
    blocks: Vec<Block>,
    /// Blocks that are empty.
    spare: Vec<u32>,
}

/// A queue and its key in one number, ordered as such: virtual finish, index, slot. Whoever adds a queue keeps its entry, to
/// remove it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry(u128);

/// A block in the directory.
#[derive(Clone, Copy, Debug)]
struct Shelf {
    /// No entry of the block is before it, nor any of the blocks before behind it; of the first block it is the least
    /// that an entry can be.
    from: Entry,
    block: u32,
}

/// Some entries, in order.
#[derive(Clone, Debug)]
struct Block {
    len: usize,
    entries: [Entry; BLOCK],
}

/// Entries of a block: half a kilobyte, of which an insertion moves half.
const BLOCK: usize = 32;

impl FinishOrder {
    pub(crate) fn new() -> Self {
        Self { directory: Vec::new(), blocks: Vec::new(), spare: Vec::new() }
    }

    /// Empties the set.
    pub(crate) fn clear(&mut self) {
        for shelf in self.directory.drain(..) {
            self.blocks[shelf.block as usize].len = 0;
            self.spare.push(shelf.block);
        }
    }

    /// Adds a queue, which must not be in the set.
    pub(crate) fn insert(&mut self, entry: Entry) {
        if self.directory.is_empty() {
            self.put_up(0, Entry::LEAST);
        }
        let mut place = self.place_of(entry);
        if self.block(place).len == BLOCK {
            let upper = self.split(place);
            place += usize::from(entry >= upper);
        }
        let block = &mut self.blocks[self.directory[place].block as usize];
        let at = block.first_from(entry);
        block.entries.copy_within(at..block.len, at + 1);
        block.entries[at] = entry;
        block.len += 1;
    }

    /// Removes a queue, which must be in the set under that entry.
    pub(crate) fn remove(&mut self, entry: Entry) {
        let place = self.place_of(entry);
        let shelf = self.directory[place].block;
        let block = &mut self.blocks[shelf as usize];
        let at = block.first_from(entry);
        debug_assert_eq!(block.filled().get(at), Some(&entry), "the queue is in the set");
        block.entries.copy_within(at + 1..block.len, at);
        block.len -= 1;
        if block.len == 0 {
            self.directory.remove(place);
            self.spare.push(shelf);
            if let Some(first) = self.directory.first_mut() {
                first.from = Entry::LEAST;
            }
        }
    }

    /// The queue with the least virtual finish; among equals the first after `robin` in cyclic order of
    /// index. A finish of [`SeatSeconds::MAX`] is never chosen, as in kube-apiserver.
    pub(crate) fn earliest(&self, robin: u32) -> Option<u32> {
        let shelf = self.directory.first()?;
        let block = self.blocks[shelf.block as usize].filled();
        let (first, second) = (*block.first()?, block.get(1));
        let finish = first.finish();
        if finish == SeatSeconds::MAX {
            return None;
        }
        if second.is_some_and(|second| second.finish() != finish) {
            return Some(first.slot());
        }
        let after =
            self.first_after(Entry::new(finish, robin, u32::MAX)).filter(|entry| entry.finish() == finish);
        Some(after.unwrap_or(first).slot())
    }

    /// The first entry behind `entry`, which need not be in the set.
    fn first_after(&self, entry: Entry) -> Option<Entry> {
        let place = self.place_of(entry);
        let here = self.block(place).filled();
        if let Some(found) = here.get(self.block(place).first_from(entry)) {
            return Some(*found);
        }
        let next = self.directory.get(place + 1)?;
        self.blocks[next.block as usize].filled().first().copied()
    }

    /// The place in the directory, which is not empty, of the block in which an entry is, or would be.
    fn place_of(&self, entry: Entry) -> usize {
        self.directory.partition_point(|shelf| shelf.from <= entry) - 1
    }

    fn block(&self, place: usize) -> &Block {
        &self.blocks[self.directory[place].block as usize]
    }

    /// Puts an empty block into the directory, for entries not before `from`.
    fn put_up(&mut self, place: usize, from: Entry) -> usize {
        let block = self.spare.pop().unwrap_or_else(|| {
            self.blocks.push(Block { len: 0, entries: [Entry::LEAST; BLOCK] });
            // Every block may become a spare one: never then is memory asked for.
            self.spare.reserve(self.blocks.len());
            u32::try_from(self.blocks.len() - 1).expect("memory ends before four billion blocks")
        });
        self.directory.insert(place, Shelf { from, block });
        block as usize
    }

    /// Moves the upper half of a full block into one of its own behind it; returns where that begins.
    fn split(&mut self, place: usize) -> Entry {
        let lower = self.directory[place].block as usize;
        let moved = self.blocks[lower].entries;
        let upper = self.put_up(place + 1, moved[BLOCK / 2]);
        self.blocks[upper].entries[..BLOCK - BLOCK / 2].copy_from_slice(&moved[BLOCK / 2..]);
        self.blocks[upper].len = BLOCK - BLOCK / 2;
        self.blocks[lower].len = BLOCK / 2;
        moved[BLOCK / 2]
    }
}

impl Entry {
    /// Of no queue that was ever added: not behind any other.
    pub(crate) const LEAST: Self = Self(0);

    /// The queue in `slot`, of that index.
    pub(crate) fn new(finish: SeatSeconds, index: u32, slot: u32) -> Self {
        Self(u128::from(finish.raw()) << 64 | u128::from(index) << 32 | u128::from(slot))
    }

    fn finish(self) -> SeatSeconds {
        SeatSeconds::from_raw((self.0 >> 64) as u64)
    }

    #[expect(clippy::cast_possible_truncation, reason = "as put in")]
    fn slot(self) -> u32 {
        self.0 as u32
    }
}

impl Block {
    fn filled(&self) -> &[Entry] {
        &self.entries[..self.len]
    }

    /// Where the entries not before that one begin.
    fn first_from(&self, entry: Entry) -> usize {
        self.filled().partition_point(|other| *other < entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Queues that fill more than one block.
    const COUNT: u32 = 160;
    const _: () = assert!(COUNT as usize >= 5 * BLOCK);

    /// kube-apiserver's way: look at every queue, starting after `robin`; the first minimum wins.
    fn scan(finishes: &[Option<u64>], robin: u32) -> Option<u32> {
        let n = u32::try_from(finishes.len()).expect("few queues");
        let (mut best, mut least) = (None, u64::MAX);
        for step in 1..=n {
            let index = (robin + step) % n;
            if let Some(finish) = finishes[index as usize].filter(|&finish| finish < least) {
                (best, least) = (Some(index), finish);
            }
        }
        best
    }

    #[test]
    fn the_last_reading_is_never_chosen() {
        let mut order = FinishOrder::new();
        order.insert(Entry::new(SeatSeconds::MAX, 0, 0));
        assert_eq!(order.earliest(0), None);
    }

    proptest! {
        /// Few distinct finishes, so that ties are the rule and cross from block to block.
        #[test]
        fn earliest_is_the_first_minimum_of_a_full_scan(
            steps in prop::collection::vec((0..COUNT, 0_u64..6, 0..COUNT), 1..2000)
        ) {
            let mut order = FinishOrder::new();
            let mut finishes = [None; COUNT as usize];
            for (index, finish, robin) in steps {
                let slot = COUNT - 1 - index; // slots are not indexes
                let entry = |finish| Entry::new(SeatSeconds::from_raw(finish), index, slot);
                if let Some(finish) = finishes[index as usize].take() {
                    order.remove(entry(finish));
                } else {
                    order.insert(entry(finish));
                    finishes[index as usize] = Some(finish);
                }
                prop_assert_eq!(order.earliest(robin).map(|slot| COUNT - 1 - slot), scan(&finishes, robin));
            }
        }

        /// Whatever comes and goes, all blocks in the directory hold something and are in order, and the others are spare.
        #[test]
        fn blocks_are_in_order_and_none_is_lost(
            steps in prop::collection::vec((0_u32..400, 0_u64..1000), 1..2000)
        ) {
            let mut order = FinishOrder::new();
            let mut inside = alloc::collections::BTreeMap::new();
            for (slot, finish) in steps {
                if let Some(entry) = inside.remove(&slot) {
                    order.remove(entry);
                } else {
                    let entry = Entry::new(SeatSeconds::from_raw(finish), slot, slot);
                    order.insert(entry);
                    inside.insert(slot, entry);
                }
            }
            let shelves = order.directory.iter().map(|shelf| order.blocks[shelf.block as usize].filled());
            let entries: Vec<Entry> = shelves.inspect(|entries| assert!(!entries.is_empty())).flatten().copied().collect();
            prop_assert!(entries.is_sorted());
            prop_assert_eq!(entries.len(), inside.len());
            prop_assert_eq!(order.directory.len() + order.spare.len(), order.blocks.len());
            order.clear();
            prop_assert_eq!(order.earliest(0), None);
            prop_assert_eq!(order.spare.len(), order.blocks.len());
        }
    }
}
