//! The bell: how other threads wake this one.
//!
//! A thread with a ring of its own sends a message from ring to ring, with its turn's other operations; any other
//! thread writes to an event descriptor, which the ring polls.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use io_uring::opcode;
use io_uring::types::Fd;

use super::table::{Key, Kind, Token};
use super::{Uring, current};
use crate::ring::tasks::Unpark;

/// Wakes a thread that waits in its ring.
pub(super) struct Bell {
    event: OwnedFd,
    /// A descriptor of the ring that stays ours, so that a message never reaches what has taken the number over.
    ring: OwnedFd,
}

// === impl Bell ===

impl Bell {
    pub(super) fn new(ring: RawFd) -> io::Result<Self> {
        // SAFETY: makes a descriptor, which nobody else owns if it is one.
        let event = unsafe {
            match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) {
                -1 => return Err(io::Error::last_os_error()),
                event => OwnedFd::from_raw_fd(event),
            }
        };
        // SAFETY: the driver that calls owns the ring and keeps it open for the call.
        let ring = unsafe { BorrowedFd::borrow_raw(ring) }.try_clone_to_owned()?;
        Ok(Self { event, ring })
    }

    /// What the ring polls. It is never read: every write makes it report again.
    pub(super) fn descriptor(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    pub(super) fn ring_by_descriptor(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: `one` is 8 bytes, as asked for. It fails only when 2^64 rings were never read.
        unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

impl Unpark for Arc<Bell> {
    fn unpark(&self) {
        match current() {
            Some(driver) if driver.send_message(self) => {}
            _ => self.ring_by_descriptor(),
        }
    }
}

impl Uring {
    /// Wakes another ring with the operations of this turn. False if that is not possible just now.
    fn send_message(&self, bell: &Arc<Bell>) -> bool {
        let (Ok(mut turn), Ok(_)) = (self.turn.try_borrow_mut(), self.queue.try_borrow_mut()) else {
            return false;
        };
        let number = Key::numbered(turn.called.len());
        turn.called.push(Arc::clone(bell));
        drop(turn);
        let arrives = Token::new(Kind::Ignored, Key::NONE).into();
        let message = opcode::MsgRingData::new(Fd(bell.ring.as_raw_fd()), 0, arrives, None).build();
        // SAFETY: points to no memory. `called` keeps the descriptor open until the operation was tried.
        unsafe { self.push_silent(message, Token::new(Kind::Message, number)) };
        self.counted.messages.add(1);
        true
    }
}
