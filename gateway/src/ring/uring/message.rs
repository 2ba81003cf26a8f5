//! Bytes for one send, in the shape in which the kernel reads them.

use io_uring::{opcode, squeue};

use super::descriptor::Name;
use crate::ring::outgoing::{Loan, PIECES_MAX};

/// Bytes for one send. The kernel reads them, and the parts that point to them, until the send completes.
pub(super) struct Message {
    loan: Loan,
    /// Only with several pieces.
    parts: Option<Box<Parts>>,
}

struct Parts {
    header: libc::msghdr,
    vectors: [libc::iovec; PIECES_MAX],
}

// === impl Message ===

impl Message {
    pub(super) fn new(loan: Loan) -> Self {
        let parts = (loan.pieces().count() > 1).then(|| Parts::new(&loan));
        Self { loan, parts }
    }

    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.loan.len()
    }

    pub(super) fn loan(&self) -> &Loan {
        &self.loan
    }

    /// Back from the kernel.
    pub(super) fn into_loan(self) -> Loan {
        self.loan
    }

    /// The first piece.
    fn piece(&self) -> (*const u8, u32) {
        let piece: &[u8] = self.loan.pieces().next().map_or(&[], |piece| piece);
        (piece.as_ptr(), u32::try_from(piece.len()).unwrap_or(u32::MAX))
    }

    pub(super) fn entry(&self, name: Name, flags: i32) -> squeue::Entry {
        let descriptor = name.number();
        let entry = match &self.parts {
            Some(parts) => {
                opcode::SendMsg::new(descriptor, &raw const parts.header).flags(flags.cast_unsigned()).build()
            }
            None => {
                let (start, len) = self.piece();
                opcode::Send::new(descriptor, start, len).flags(flags).build()
            }
        };
        entry.flags(name.kind())
    }

    pub(super) fn entry_zero_copy(&self, name: Name) -> squeue::Entry {
        let descriptor = name.number();
        let entry = match &self.parts {
            Some(parts) => opcode::SendMsgZc::new(descriptor, &raw const parts.header)
                .flags(libc::MSG_NOSIGNAL.cast_unsigned())
                .build(),
            None => {
                let (start, len) = self.piece();
                opcode::SendZc::new(descriptor, start, len).flags(libc::MSG_NOSIGNAL).build()
            }
        };
        entry.flags(name.kind())
    }
}

// === impl Parts ===

impl Parts {
    fn new(loan: &Loan) -> Box<Self> {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: a `msghdr` is integers and pointers, of which zeros are valid: no name, no parts, no control data.
        let header = unsafe { std::mem::zeroed() };
        let mut parts = Box::new(Self { header, vectors: [nothing; PIECES_MAX] });
        let mut filled = 0;
        for (vector, piece) in parts.vectors.iter_mut().zip(loan.pieces()) {
            *vector = libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() };
            filled += 1;
        }
        parts.header.msg_iov = parts.vectors.as_mut_ptr();
        parts.header.msg_iovlen = filled;
        parts
    }
}
