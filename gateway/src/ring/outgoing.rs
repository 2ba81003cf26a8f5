//! Bytes on their way out of one connection: queued by the turn's tasks, sent together at the end of the turn.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Bytes, BytesMut};
use usher_flowcontrol::units::Nanos;

use super::spare;

/// Unsent bytes of a connection beyond which there is no room for more. Enough to keep a fast client's socket
/// busy for a turn; little enough that a thousand clients who read nothing hold 64 MB.
pub const HIGH_WATER: usize = 64 * 1024;
/// Pieces smaller than that are copied together: a copy is cheaper than one more entry of a vectored write.
const COPIED_BELOW: usize = 2048;
/// Pieces handed to the kernel at once.
pub(super) const PIECES_MAX: usize = 16;

/// A connection's unsent bytes, in order.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pieces: VecDeque<Bytes>,
    /// Behind the pieces: small ones copied together.
    tail: BytesMut,
    /// Invariant: the bytes of `pieces` and `tail`.
    unsent: usize,
    stalled_since: Option<Nanos>,
}

/// Bytes taken out of the queue while the kernel looks at them; they count as unsent until it has told how many it took.
#[derive(Clone, Debug, Default)]
pub(super) struct Loan {
    first: Bytes,
    rest: Vec<Bytes>,
    len: usize,
}

// === impl Outgoing ===

impl Outgoing {
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.unsent += bytes.len();
    }

    pub(super) fn put_bytes(&mut self, bytes: Bytes) {
        if bytes.len() < COPIED_BELOW {
            return self.put(&bytes);
        }
        self.unsent += bytes.len();
        if !self.tail.is_empty() {
            self.pieces.push_back(std::mem::take(&mut self.tail).freeze());
        }
        self.pieces.push_back(bytes);
    }

    /// `count` bytes that `fill` writes in place.
    pub(super) fn put_with(&mut self, count: usize, fill: impl FnOnce(&mut [u8])) {
        self.unsent += count;
        if count < COPIED_BELOW {
            let start = self.tail.len();
            self.tail.resize(start + count, 0);
            return fill(&mut self.tail[start..]);
        }
        if !self.tail.is_empty() {
            self.pieces.push_back(std::mem::take(&mut self.tail).freeze());
        }
        self.pieces.push_back(spare::filled(count, fill));
    }

    /// Bytes that the kernel has not taken.
    pub(super) fn unsent(&self) -> usize {
        self.unsent
    }

    /// Since when the kernel takes nothing; `None` while it takes all.
    pub(super) fn stalled_since(&self) -> Option<Nanos> {
        self.stalled_since
    }

    /// The first unsent pieces; how many are filled in.
    pub(super) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; PIECES_MAX]) -> usize {
        let tail = Some(&self.tail[..]).filter(|tail| !tail.is_empty());
        let pieces = self.pieces.iter().map(|piece| &piece[..]).chain(tail);
        slices.iter_mut().zip(pieces).map(|(slice, piece)| *slice = IoSlice::new(piece)).count()
    }

    /// The kernel took so many.
    pub(super) fn taken(&mut self, mut count: usize) {
        self.unsent -= count;
        self.stalled_since = None;
        while let Some(first) = self.pieces.front_mut() {
            if count < first.len() {
                bytes::Buf::advance(first, count);
                return;
            }
            count -= first.len();
            self.pieces.pop_front();
        }
        bytes::Buf::advance(&mut self.tail, count);
        if self.tail.is_empty() {
            self.tail = BytesMut::new(); // an idle connection holds nothing
        }
    }

    /// Lends the first unsent pieces to the kernel. They do not move while they are lent.
    pub(super) fn lend(&mut self) -> Loan {
        if !self.tail.is_empty() && self.pieces.len() < PIECES_MAX {
            self.pieces.push_back(std::mem::take(&mut self.tail).freeze());
        }
        let Some(first) = self.pieces.pop_front() else { return Loan::default() };
        let rest: Vec<_> = self.pieces.drain(..self.pieces.len().min(PIECES_MAX - 1)).collect();
        let len = first.len() + rest.iter().map(Bytes::len).sum::<usize>();
        Loan { first, rest, len }
    }

    /// The kernel took so many bytes of a loan; the others are the first in the queue again.
    pub(super) fn settle(&mut self, loan: Loan, count: usize) {
        if count < loan.len {
            for piece in loan.rest.into_iter().rev().chain([loan.first]) {
                self.pieces.push_front(piece);
            }
        } else {
            self.unsent -= loan.len;
            self.stalled_since = None;
            return;
        }
        if count > 0 {
            self.taken(count);
        }
    }

    /// The kernel took nothing.
    pub(super) fn stalled(&mut self, now: Nanos) {
        self.stalled_since.get_or_insert(now);
    }

    /// Nothing of it will ever be sent.
    pub(super) fn give_up(&mut self) {
        *self = Self::default();
    }
}

// === impl Loan ===

impl Loan {
    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// In order.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_leave_in_order_however_they_are_taken() {
        let big = Bytes::from(vec![7; COPIED_BELOW]);
        for step in [1, 3, 1000, 5000] {
            let mut outgoing = Outgoing::default();
            outgoing.put(b"head");
            outgoing.put_bytes(big.clone());
            outgoing.put_bytes(Bytes::from_static(b"small"));
            outgoing.put(b"end");
            outgoing.put_with(6, |bytes| bytes.copy_from_slice(b"filled"));
            outgoing.put_with(big.len(), |bytes| bytes.fill(9));
            let nines = vec![9; big.len()];
            let expected = [b"head", &big[..], b"small", b"end", b"filled", &nines].concat();
            assert_eq!(outgoing.unsent(), expected.len());
            let mut sent = Vec::new();
            while outgoing.unsent() > 0 {
                let mut slices = [IoSlice::new(&[]); PIECES_MAX];
                let filled = outgoing.slices(&mut slices);
                let mut taken: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
                taken.truncate(step);
                sent.extend_from_slice(&taken);
                outgoing.taken(taken.len());
            }
            assert_eq!(sent, expected);
            assert!(outgoing.pieces.is_empty() && outgoing.tail.capacity() == 0);
        }
    }

    #[test]
    fn what_is_lent_comes_back_in_order_before_what_was_put_meanwhile() {
        for step in [0, 1, 5, 3000, usize::MAX] {
            let mut outgoing = Outgoing::default();
            outgoing.put(b"head");
            outgoing.put_bytes(Bytes::from(vec![7; COPIED_BELOW]));
            outgoing.put(b"end");
            let mut expected = [b"head", &vec![7; COPIED_BELOW][..], b"end"].concat();
            let mut sent = Vec::new();
            for meanwhile in 0_u8.. {
                let loan = outgoing.lend();
                if meanwhile < 5 {
                    outgoing.put(&[meanwhile; 9]);
                    expected.extend([meanwhile; 9]);
                }
                assert_eq!(outgoing.unsent(), expected.len() - sent.len(), "what is lent is not sent");
                let count = loan.len().min(step.max(usize::from(meanwhile)));
                sent.extend(loan.pieces().flatten().take(count).copied().collect::<Vec<_>>());
                outgoing.settle(loan, count);
                if outgoing.unsent() == 0 || meanwhile == u8::MAX {
                    break;
                }
            }
            assert_eq!(sent, expected[..sent.len()]);
            assert!(step == 1 || step == 5 || outgoing.unsent() == 0);
        }
    }

    #[test]
    fn a_stall_begins_once_and_ends_with_progress() {
        let mut outgoing = Outgoing::default();
        outgoing.put(b"ab");
        outgoing.stalled(Nanos(5));
        outgoing.stalled(Nanos(9));
        assert_eq!(outgoing.stalled_since(), Some(Nanos(5)));
        outgoing.taken(1);
        assert_eq!(outgoing.stalled_since(), None);
    }
}
