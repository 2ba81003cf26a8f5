//! The queues with waiting requests, in the order in which their heads would finish.
//!
//! A treap over plain arrays: a binary search tree by (virtual finish, index) that is also a heap by a
//! random priority, which keeps it shallow whatever the keys. Finding the next queue costs a descent or
//! two among the queues that wait, however many are configured; nothing is allocated once warm.

use crate::units::SeatSeconds;
use alloc::vec::Vec;

/// No node.
const NONE: u32 = u32::MAX;

/// A set of queues ordered by (virtual finish, index). A queue is named by its slot.
#[derive(Debug)]
pub(crate) struct FinishOrder {
    /// By slot. Meaningful for the slots that are in the tree.
    nodes: Vec<Node>,
    root: u32,
    /// State of the generator of priorities.
    seed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    finish: SeatSeconds,
    index: u32,
    priority: u32,
    left: u32,
    right: u32,
}

/// A place that holds a subtree.
#[derive(Clone, Copy)]
enum Link {
    Root,
    Left(u32),
    Right(u32),
}

impl FinishOrder {
    pub(crate) fn new() -> Self {
        Self { nodes: Vec::new(), root: NONE, seed: 0 }
    }

    /// Empties the set.
    pub(crate) fn clear(&mut self) {
        self.root = NONE;
    }

    /// Adds the queue in `slot`, which must not be in the set.
    pub(crate) fn insert(&mut self, slot: u32, finish: SeatSeconds, index: u32) {
        let blank = Node { finish: SeatSeconds::ZERO, index: 0, priority: 0, left: NONE, right: NONE };
        if self.nodes.len() <= slot as usize {
            self.nodes.resize(slot as usize + 1, blank);
        }
        let priority = self.draw();
        *self.node_mut(slot) = Node { finish, index, priority, ..blank };
        let mut place = Link::Root;
        while let Some(at) = self.at(place).filter(|&at| self.node(at).priority >= priority) {
            place = if (finish, index) < self.key(at) { Link::Left(at) } else { Link::Right(at) };
        }
        let below = self.put(place, slot);
        self.split(below, slot);
    }

    /// Removes the queue in `slot`, which must be in the set.
    pub(crate) fn remove(&mut self, slot: u32) {
        let key = self.key(slot);
        let mut place = Link::Root;
        while let Some(at) = self.at(place).filter(|&at| at != slot) {
            place = if key < self.key(at) { Link::Left(at) } else { Link::Right(at) };
        }
        debug_assert_eq!(self.at(place), Some(slot), "the queue is in the set");
        let Node { left, right, .. } = *self.node(slot);
        self.merge(place, left, right);
    }

    /// The key under which the queue in `slot` was added.
    pub(crate) fn finish(&self, slot: u32) -> SeatSeconds {
        self.node(slot).finish
    }

    /// The queue with the least virtual finish; among equals the first after `robin` in cyclic order of
    /// index. A finish of [`SeatSeconds::MAX`] is never chosen, as in kube-apiserver.
    pub(crate) fn earliest(&self, robin: u32) -> Option<u32> {
        let mut first = self.at(Link::Root)?;
        while let Some(left) = self.at(Link::Left(first)) {
            first = left;
        }
        let finish = self.finish(first);
        if finish == SeatSeconds::MAX {
            return None;
        }
        let after = self.first_after((finish, robin)).filter(|&slot| self.finish(slot) == finish);
        Some(after.unwrap_or(first))
    }

    /// The least key above `key`.
    fn first_after(&self, key: (SeatSeconds, u32)) -> Option<u32> {
        let (mut place, mut best) = (Link::Root, None);
        while let Some(at) = self.at(place) {
            if self.key(at) > key {
                best = Some(at);
                place = Link::Left(at);
            } else {
                place = Link::Right(at);
            }
        }
        best
    }

    /// Hangs the subtree `below` under `slot`: smaller keys left, greater ones right.
    fn split(&mut self, below: u32, slot: u32) {
        let key = self.key(slot);
        let (mut smaller, mut greater) = (Link::Left(slot), Link::Right(slot));
        let mut at = below;
        while at != NONE {
            if self.key(at) < key {
                self.put(smaller, at);
                smaller = Link::Right(at);
                at = self.node(at).right;
            } else {
                self.put(greater, at);
                greater = Link::Left(at);
                at = self.node(at).left;
            }
        }
        self.put(smaller, NONE);
        self.put(greater, NONE);
    }

    /// Puts two subtrees, all keys of `left` below all of `right`, into one place.
    fn merge(&mut self, mut place: Link, mut left: u32, mut right: u32) {
        while left != NONE && right != NONE {
            if self.node(left).priority >= self.node(right).priority {
                self.put(place, left);
                place = Link::Right(left);
                left = self.node(left).right;
            } else {
                self.put(place, right);
                place = Link::Left(right);
                right = self.node(right).left;
            }
        }
        self.put(place, if left == NONE { right } else { left });
    }

    fn node(&self, slot: u32) -> &Node {
        &self.nodes[slot as usize]
    }

    fn node_mut(&mut self, slot: u32) -> &mut Node {
        &mut self.nodes[slot as usize]
    }

    fn key(&self, slot: u32) -> (SeatSeconds, u32) {
        let node = self.node(slot);
        (node.finish, node.index)
    }

    fn at(&self, place: Link) -> Option<u32> {
        let slot = match place {
            Link::Root => self.root,
            Link::Left(parent) => self.node(parent).left,
            Link::Right(parent) => self.node(parent).right,
        };
        (slot != NONE).then_some(slot)
    }

    /// Puts a subtree into a place and returns what was there.
    fn put(&mut self, place: Link, subtree: u32) -> u32 {
        let held = match place {
            Link::Root => &mut self.root,
            Link::Left(parent) => &mut self.node_mut(parent).left,
            Link::Right(parent) => &mut self.node_mut(parent).right,
        };
        core::mem::replace(held, subtree)
    }

    /// The next priority (SplitMix64). Only the depth of the tree depends on it, never an answer.
    fn draw(&mut self) -> u32 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.seed;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        order.insert(0, SeatSeconds::MAX, 0);
        assert_eq!(order.earliest(0), None);
    }

    proptest! {
        /// Few distinct finishes, so that ties are the rule.
        #[test]
        fn earliest_is_the_first_minimum_of_a_full_scan(
            steps in prop::collection::vec((0_u32..24, 0_u64..4, 0_u32..24), 1..300)
        ) {
            let mut order = FinishOrder::new();
            let mut finishes = [None; 24];
            for (index, finish, robin) in steps {
                let slot = 23 - index; // slots are not indexes
                if finishes[index as usize].take().is_some() {
                    order.remove(slot);
                } else {
                    order.insert(slot, SeatSeconds::from_raw(finish), index);
                    finishes[index as usize] = Some(finish);
                }
                prop_assert_eq!(order.earliest(robin).map(|slot| 23 - slot), scan(&finishes, robin));
            }
        }

        /// The depth stays logarithmic when keys come in order.
        #[test]
        fn ascending_keys_do_not_make_a_list(count in 1000_u32..2000) {
            let mut order = FinishOrder::new();
            for slot in 0..count {
                order.insert(slot, SeatSeconds::from_raw(u64::from(slot)), slot);
            }
            let mut depths = alloc::vec![(order.root, 1)];
            let mut deepest = 0;
            while let Some((slot, depth)) = depths.pop() {
                deepest = deepest.max(depth);
                let node = *order.node(slot);
                depths.extend([node.left, node.right].into_iter().filter(|&slot| slot != NONE).map(|slot| (slot, depth + 1)));
            }
            prop_assert!(deepest < 50, "{deepest} deep");
        }
    }
}
