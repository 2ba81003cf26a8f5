//! A ring of small messages from one thread to one other, of fixed size.
//!
//! One producer and one consumer at a time; for an operation ring the consumer is the holder of the role, for
//! a ring of notices the producer is. If somebody breaks that rule messages are lost, not memory.

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, Data, Ordering};

/// The ring.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Messages ever put in; written by the producer.
    tail: CachePadded<AtomicU64>,
    /// Messages ever taken out; written by the consumer.
    head: CachePadded<AtomicU64>,
    cells: Box<[Cell]>,
}

/// A message: a code, and the time that goes with it.
#[derive(Debug)]
struct Cell {
    code: AtomicU64,
    /// Published by `tail`, as `code` is; watching one of the two is enough for loom.
    at: Data,
}

impl Ring {
    /// A ring for at least so many messages.
    pub(crate) fn new(capacity: usize) -> Self {
        let cell = |_| Cell { code: AtomicU64::new(0), at: Data::new(0) };
        Self {
            tail: CachePadded::new(AtomicU64::new(0)),
            head: CachePadded::new(AtomicU64::new(0)),
            cells: (0..capacity.next_power_of_two()).map(cell).collect(),
        }
    }

    /// The producer puts in a message; `false` if the ring is full.
    #[inline]
    pub(crate) fn push(&self, code: u64, at: u64) -> bool {
        let tail = self.tail.load(Ordering::Relaxed);
        if tail.wrapping_sub(self.head.load(Ordering::Acquire)) >= self.cells.len() as u64 {
            return false;
        }
        let cell = self.cell(tail);
        cell.code.store(code, Ordering::Relaxed);
        cell.at.store(at, Ordering::Relaxed);
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        true
    }

    /// The consumer takes out the oldest message.
    #[inline]
    pub(crate) fn pop(&self) -> Option<(u64, u64)> {
        let head = self.head.load(Ordering::Relaxed);
        if head == self.tail.load(Ordering::Acquire) {
            return None;
        }
        let cell = self.cell(head);
        let message = (cell.code.load(Ordering::Relaxed), cell.at.load(Ordering::Relaxed));
        self.head.store(head.wrapping_add(1), Ordering::Release);
        Some(message)
    }

    #[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
    fn cell(&self, position: u64) -> &Cell {
        &self.cells[position as usize & (self.cells.len() - 1)]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn first_in_first_out_and_never_more_than_fit() {
        let ring = Ring::new(3);
        for round in 0..5 {
            assert!((0..4).all(|n| ring.push(round, n)), "rounded up to four");
            assert!(!ring.push(9, 9));
            assert!((0..4).all(|n| ring.pop() == Some((round, n))));
            assert_eq!(ring.pop(), None);
        }
    }
}
