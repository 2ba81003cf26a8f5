//! What a connection is to the kernel: a descriptor of the process, or a slot in the ring's own table of files.
//!
//! Slots are for accepted connections, with `--ring-registered-files`. Operations on a slot need no look-up in the
//! process's table; system calls know nothing of it, so what else is done with a connection is an operation, too.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::Waker;

use io_uring::types::{Fd, Fixed};
use io_uring::{Submitter, opcode, squeue};
use socket2::SockRef;

use super::Uring;
use super::table::Token;
use crate::ring::socket::abort;

/// Of so many connections' slots there is one more. They are for connections that are over, and wait for the kernel to
/// close one direction. (The worker asks for three quarters of the process's descriptors at most, which is how many
/// slots the kernel permits: all of them.)
const SPARE_PART: u32 = 4;
/// And so many at least.
const SPARE_LEAST: u32 = 16;

/// The ring's table of files. The kernel chooses a slot for each connection it accepts, and loses the connection if
/// there is none: so slots are counted here, and no more are accepted than there are.
pub(super) struct Slots {
    size: u32,
    /// Invariant: slots that are not closed, and those promised to an accept that is under way.
    used: Cell<u32>,
    /// Nobody's any more: closed at the end of the turn.
    left: RefCell<Vec<u32>>,
    /// Who waits for a free one.
    waiting: RefCell<Vec<Waker>>,
}

/// A connection in a slot; dropped, it is closed at the end of the turn.
pub(super) struct Slot {
    index: u32,
    slots: Rc<Slots>,
}

/// Either.
pub(super) enum Descriptor {
    Open(OwnedFd),
    Slot(Slot),
}

/// What operations call it.
#[derive(Clone, Copy)]
pub(super) struct Name {
    number: RawFd,
    flags: squeue::Flags,
}

// === impl Slots ===

impl Slots {
    /// A table with room for so many connections, made known to the ring.
    ///
    /// # Errors
    /// No memory, the kernel is too old, or the process may not have so many descriptors (2^20 at most).
    pub(super) fn new(submitter: &Submitter<'_>, connections: u32) -> std::io::Result<Rc<Self>> {
        let size = connections.saturating_add(connections / SPARE_PART).saturating_add(SPARE_LEAST);
        submitter.register_files_sparse(size)?;
        Ok(Rc::new(Self { size, used: Cell::new(0), left: RefCell::default(), waiting: RefCell::default() }))
    }

    /// Slots that nobody has and nobody was promised.
    pub(super) fn free(&self) -> usize {
        self.size.saturating_sub(self.used.get()) as usize
    }

    /// The others.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        self.used.get() as usize
    }

    /// Promises one. False if there is none.
    pub(super) fn promise(&self) -> bool {
        let is_free = self.free() > 0;
        if is_free {
            self.used.set(self.used.get() + 1);
        }
        is_free
    }

    /// The one promised is not needed, or has been filled.
    pub(super) fn take_back(&self) {
        self.used.set(self.used.get() - 1);
    }

    /// The kernel has filled a slot.
    pub(super) fn filled(self: &Rc<Self>, index: u32) -> Slot {
        self.used.set(self.used.get() + 1);
        Slot { index, slots: Rc::clone(self) }
    }

    /// Woken when slots are free again.
    pub(super) fn wait(&self, waker: Waker) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waits| waits.will_wake(&waker)) {
            waiting.push(waker);
        }
    }

    /// At the end of a turn: closes the slots that were dropped. What accepts next, accepts after that.
    pub(super) fn close(&self, driver: &Uring) {
        let mut left = self.left.borrow_mut();
        if left.is_empty() {
            return;
        }
        for index in left.drain(..) {
            let close = opcode::Close::new(Fixed(index)).build();
            // SAFETY: points to no memory.
            unsafe { driver.push_silent(close, Token::IGNORED) };
            self.used.set(self.used.get() - 1);
        }
        self.waiting.take().into_iter().for_each(Waker::wake);
    }
}

// === impl Slot ===

impl Slot {
    pub(super) fn fixed(&self) -> Fixed {
        Fixed(self.index)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Its ring may be gone; then this is a list that nobody reads, and the connection went with the ring.
        self.slots.left.borrow_mut().push(self.index);
    }
}

// === impl Descriptor ===

impl Descriptor {
    pub(super) fn name(&self) -> Name {
        match self {
            Self::Open(descriptor) => Name { number: descriptor.as_raw_fd(), flags: squeue::Flags::empty() },
            Self::Slot(slot) => {
                let number = RawFd::try_from(slot.index).unwrap_or(-1); // the kernel has 2^20 at most
                Name { number, flags: squeue::Flags::FIXED_FILE }
            }
        }
    }

    /// Closes it after the operations of this turn.
    pub(super) fn close(self, driver: &Uring) {
        if let Self::Open(descriptor) = self {
            let close = opcode::Close::new(Fd(descriptor.into_raw_fd())).build();
            // SAFETY: points to no memory. The descriptor's number is nobody else's until the kernel closes it.
            unsafe { driver.push_silent(close, Token::IGNORED) };
        }
    }

    /// Closing it throws away what the peer has not taken.
    pub(super) fn abort(&self, driver: &Uring) {
        /// See [`abort`].
        static NO_LINGER: libc::linger = libc::linger { l_onoff: 1, l_linger: 0 };
        match self {
            Self::Open(descriptor) => abort(SockRef::from(descriptor)),
            Self::Slot(slot) => {
                let set = opcode::SetSockOpt::new(
                    slot.fixed(),
                    libc::SOL_SOCKET.cast_unsigned(),
                    libc::SO_LINGER.cast_unsigned(),
                    (&raw const NO_LINGER).cast(),
                    u32::try_from(size_of::<libc::linger>()).unwrap_or(0),
                );
                // SAFETY: what it points to is static, and only read.
                unsafe { driver.push_silent(set.build(), Token::IGNORED) };
            }
        }
    }
}

// === impl Name ===

impl Name {
    /// Nothing has this name: operations on it fail.
    pub(super) const NOTHING: Self = Self { number: -1, flags: squeue::Flags::empty() };

    /// For an operation that is told of [`Name::kind`] as well.
    pub(super) fn number(self) -> Fd {
        Fd(self.number)
    }

    /// Says to an operation what kind of number it was given.
    pub(super) fn kind(self) -> squeue::Flags {
        self.flags
    }
}
