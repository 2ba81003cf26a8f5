//! The pool of buffers that the kernel receives into: lent to it through a ring, lent on to who reads.
//!
//! A buffer is with the kernel until a completion says that it is used up; its parts are then with the readers, as
//! [`Lent`]s, until the last is dropped; then it goes back. With incremental consumption (6.12) the kernel goes on
//! filling a buffer behind what it has given out, so that short requests do not take a buffer each.

use std::cell::Cell;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

use crate::ring::settings::Settings;

/// The one group of buffers of a ring.
pub(super) const GROUP: u16 = 0;
/// `IOU_PBUF_RING_INC` of `<linux/io_uring.h>`.
const INCREMENTAL: u16 = 2;
/// With fewer than this part of the buffers left, what arrives is copied out at once: readers who hold what they got
/// cannot leave the others without.
const SCARCE_PART: u16 = 4;

/// All buffers of a ring. Its memory outlives the ring while chunks of it are held.
pub(super) struct Buffers {
    memory: Mapped,
    ring: Mapped,
    size: u32,
    /// Number of buffers, a power of two.
    count: u16,
    states: Box<[Cell<State>]>,
    /// Of the ring, as far as written; the kernel sees it with [`Buffers::publish`].
    tail: Cell<u16>,
    published: Cell<u16>,
    /// Buffers that the kernel has not used up.
    with_kernel: Cell<u16>,
    incremental: Cell<bool>,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// Bytes of it that the kernel has filled.
    filled: u32,
    /// Parts of it that somebody holds.
    lent: u32,
    with_kernel: bool,
}

/// A part of a buffer.
pub(in crate::ring) struct Lent {
    buffers: Rc<Buffers>,
    start: NonNull<u8>,
    len: usize,
    buffer: u16,
}

/// Memory from the kernel, whole pages.
struct Mapped {
    start: NonNull<u8>,
    len: usize,
}

// === impl Buffers ===

impl Buffers {
    /// A pool, made known to the ring.
    ///
    /// # Errors
    /// No memory, or the kernel knows no rings of buffers (before 5.19).
    pub(super) fn new(submitter: &Submitter<'_>, settings: &Settings) -> io::Result<Rc<Self>> {
        let count = settings.buffers.clamp(2, 1 << 15).next_power_of_two();
        let size = settings.buffer_size.max(1024);
        let buffers = Self {
            memory: Mapped::new(usize::from(count) * size as usize)?,
            ring: Mapped::new(usize::from(count) * size_of::<BufRingEntry>())?,
            size,
            count,
            states: vec![Cell::default(); usize::from(count)].into(),
            tail: Cell::new(0),
            published: Cell::new(0),
            with_kernel: Cell::new(0),
            incremental: Cell::new(true),
        };
        buffers.register(submitter)?;
        for buffer in 0..count {
            buffers.give_back(buffer);
        }
        buffers.publish();
        Ok(Rc::new(buffers))
    }

    fn register(&self, submitter: &Submitter<'_>) -> io::Result<()> {
        let address = self.ring.start.as_ptr() as u64;
        // SAFETY: the ring of buffers and the buffers are mapped until `self` is dropped, which the driver leaves
        // until the kernel uses none of them (see `Uring::shut_down`).
        let register =
            |flags| unsafe { submitter.register_buf_ring_with_flags(address, self.count, GROUP, flags) };
        register(INCREMENTAL).or_else(|_| {
            self.incremental.set(false);
            register(0)
        })
    }

    pub(super) fn is_incremental(&self) -> bool {
        self.incremental.get()
    }

    /// What a completion says has been received: the next `len` bytes of a buffer, which the kernel goes on filling
    /// (`more`) or is done with. `None` if nothing was.
    pub(super) fn received(self: &Rc<Self>, buffer: u16, len: usize, more: bool) -> Option<Lent> {
        let mut state = self.states.get(usize::from(buffer))?.get();
        debug_assert!(state.with_kernel, "a buffer that is not lent to the kernel");
        let begin = state.filled as usize;
        let len = len.min(self.size as usize - begin); // never more, or the kernel is broken
        state.filled += u32::try_from(len).unwrap_or(0);
        state.lent += 1;
        if !more {
            state.with_kernel = false;
            self.with_kernel.set(self.with_kernel.get() - 1);
        }
        self.states[usize::from(buffer)].set(state);
        let offset = usize::from(buffer) * self.size as usize + begin;
        // SAFETY: the offset is within `memory`: `begin` is at most the size of a buffer, as asserted by `min`.
        let start = unsafe { self.memory.start.add(offset) };
        let lent = Lent { buffers: Rc::clone(self), start, len, buffer };
        (len > 0).then_some(lent)
    }

    /// Few are left for the kernel.
    pub(super) fn are_scarce(&self) -> bool {
        self.with_kernel.get() < self.count / SCARCE_PART
    }

    /// The kernel has some.
    pub(super) fn are_there(&self) -> bool {
        self.with_kernel.get() > 0
    }

    /// The kernel sees what has been given back since the last time.
    pub(super) fn publish(&self) {
        let tail = self.tail.get();
        if self.published.replace(tail) == tail {
            return;
        }
        // SAFETY: the ring's first entry is within the mapping and aligned to a page. Its tail is the one word of it
        // that the kernel reads while we write, so it is written as an atomic.
        let shared = unsafe {
            let tail = BufRingEntry::tail(self.ring.start.as_ptr().cast());
            AtomicU16::from_ptr(tail.cast_mut())
        };
        shared.store(tail, Ordering::Release);
    }

    /// Lends a buffer to the kernel.
    fn give_back(&self, buffer: u16) {
        let tail = self.tail.get();
        let place = usize::from(tail & (self.count - 1));
        // SAFETY: `place` is less than the number of entries mapped. The kernel does not look at entries beyond the
        // published tail; the ring has room for every buffer there is.
        let entry = unsafe { &mut *self.ring.start.as_ptr().cast::<BufRingEntry>().add(place) };
        let offset = usize::from(buffer) * self.size as usize;
        entry.set_addr(self.memory.start.as_ptr() as u64 + offset as u64);
        entry.set_len(self.size);
        entry.set_bid(buffer);
        self.tail.set(tail.wrapping_add(1));
        self.states[usize::from(buffer)].set(State { with_kernel: true, ..State::default() });
        self.with_kernel.set(self.with_kernel.get() + 1);
    }

    fn unlend(&self, buffer: u16) {
        let cell = &self.states[usize::from(buffer)];
        let mut state = cell.get();
        state.lent -= 1;
        cell.set(state);
        if state.lent == 0 && !state.with_kernel {
            self.give_back(buffer);
        }
    }
}

// === impl Lent ===

impl Lent {
    pub(in crate::ring) fn advance(&mut self, count: usize) {
        assert!(count <= self.len, "{count} of {} bytes", self.len);
        // SAFETY: still within the part that is lent.
        self.start = unsafe { self.start.add(count) };
        self.len -= count;
    }

    pub(in crate::ring) fn truncate(&mut self, count: usize) {
        self.len = self.len.min(count);
    }

    pub(in crate::ring) fn split_to(&mut self, count: usize) -> Self {
        let (start, buffer) = (self.start, self.buffer);
        self.advance(count);
        let cell = &self.buffers.states[usize::from(buffer)];
        let state = cell.get();
        cell.set(State { lent: state.lent + 1, ..state });
        Self { buffers: Rc::clone(&self.buffers), start, len: count, buffer }
    }
}

impl Deref for Lent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the kernel has filled these bytes and writes only behind them; `buffers` keeps them mapped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; no two `Lent`s overlap, so they are nobody else's.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.buffers.unlend(self.buffer);
    }
}

// === impl Mapped ===

impl Mapped {
    /// Zeroed, and without memory until it is written.
    fn new(len: usize) -> io::Result<Self> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping of anonymous memory, which touches nothing that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0) };
        match NonNull::new(start.cast::<u8>()) {
            Some(address) if start != libc::MAP_FAILED => Ok(Self { start: address, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; who borrows from it owns a part of what owns `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
