//! Where workers say how they are: an array of the kernel's, mapped into our memory.
//!
//! Each worker has a line of its own, a cache line long, and is the only one to write to it while it lives; then its crew
//! does. The kernel's program reads, whenever a connection comes.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use usher_ebpf::steer::{self, Load, SLOTS};

/// How a worker stands to new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is none, or none any more.
    Absent,
    /// It takes them.
    Serving,
    /// It takes none any more.
    Draining,
}

/// A worker's line, in the table of each listening address. Clones are the same. Without tables nobody is told.
#[derive(Clone, Debug, Default)]
pub struct Line {
    tables: Arc<[Arc<Table>]>,
    slot: usize,
}

/// While this lives its worker may be there; dropped, however that comes about, it is not.
#[derive(Debug)]
pub(crate) struct Presence(Line);

/// [`SLOTS`] lines.
#[derive(Debug)]
pub(super) struct Table {
    lines: NonNull<[Shown; SLOTS as usize]>,
}

/// A [`Load`] that is written while others read it.
#[derive(Debug)]
#[repr(C, align(64))]
struct Shown {
    state: AtomicU32,
    connections: AtomicU32,
    busy: AtomicU32,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Shown>() == size_of::<Load>() && align_of::<Shown>() == align_of::<Load>());
    assert!(offset_of!(Shown, state) == offset_of!(Load, state));
    assert!(offset_of!(Shown, connections) == offset_of!(Load, connections));
    assert!(offset_of!(Shown, busy) == offset_of!(Load, busy));
};

/// Bytes of a table.
const BYTES: usize = size_of::<Load>() * SLOTS as usize;

// === impl Line ===

impl Line {
    pub(super) fn new(tables: Arc<[Arc<Table>]>, slot: usize) -> Self {
        Self { tables, slot }
    }

    /// The worker's state from now on.
    pub fn is(&self, state: State) {
        self.each(|shown| shown.state.store(state.word(), Ordering::Relaxed));
    }

    /// So many connections are open.
    #[inline]
    pub fn connections(&self, count: u64) {
        self.each(|shown| shown.connections.store(word(count), Ordering::Relaxed));
    }

    /// So many requests run or wait.
    #[inline]
    pub fn busy(&self, count: u64) {
        self.each(|shown| shown.busy.store(word(count), Ordering::Relaxed));
    }

    /// Whether it is there ends with what is returned, also if that is dropped by a panic.
    pub(crate) fn presence(&self) -> Presence {
        Presence(self.clone())
    }

    #[inline]
    fn each(&self, tell: impl Fn(&Shown)) {
        for table in &*self.tables {
            if let Some(shown) = table.line(self.slot) {
                tell(shown);
            }
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let Self(line) = self;
        line.is(State::Absent);
        line.connections(0);
        line.busy(0);
    }
}

/// More than fits is as good as all.
fn word(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl State {
    const fn word(self) -> u32 {
        match self {
            Self::Absent => steer::ABSENT,
            Self::Serving => steer::SERVING,
            Self::Draining => steer::DRAINING,
        }
    }

    /// Of a [`Load`].
    #[must_use]
    pub const fn of(load: &Load) -> Self {
        match load.state {
            steer::SERVING => Self::Serving,
            steer::DRAINING => Self::Draining,
            _ => Self::Absent,
        }
    }

    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Serving => "serving",
            Self::Draining => "draining",
        }
    }
}

// === impl Table ===

impl Table {
    /// The table behind the descriptor of its map.
    pub(super) fn map(map: BorrowedFd<'_>) -> io::Result<Self> {
        Self::mapped(libc::MAP_SHARED, map.as_raw_fd())
    }

    /// One that no kernel reads.
    #[cfg(test)]
    pub(super) fn alone() -> Self {
        Self::mapped(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1).unwrap()
    }

    fn mapped(kind: libc::c_int, file: libc::c_int) -> io::Result<Self> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: new memory, wherever the kernel likes: nothing that is there already changes.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, rights, kind, file, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let lines = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { lines })
    }

    /// A worker's line; `None`: there are not so many.
    #[inline]
    fn line(&self, slot: usize) -> Option<&Shown> {
        // SAFETY: `BYTES` bytes from there on are mapped until this is dropped, on a page, so aligned; any bytes are a value;
        // whoever writes there, the kernel and other processes too, writes whole words.
        unsafe { self.lines.as_ref() }.get(slot)
    }

    pub(super) fn read(&self, slot: usize) -> Option<Load> {
        let shown = self.line(slot)?;
        let load = |word: &AtomicU32| word.load(Ordering::Relaxed);
        let (state, connections, busy) = (load(&shown.state), load(&shown.connections), load(&shown.busy));
        Some(Load { state, connections, busy, ..Load::default() })
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: mapped by `mapped` with that length; lines are borrowed from this, so there are none any more.
        unsafe { libc::munmap(self.lines.as_ptr().cast(), BYTES) };
    }
}

// SAFETY: the memory is the process's, not a thread's, and is written by atomics only.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_writes_its_own_line_in_every_table() {
        let tables: Arc<[Arc<Table>]> = [Arc::new(Table::alone()), Arc::new(Table::alone())].into();
        let line = |slot| Line::new(Arc::clone(&tables), slot);
        let (first, last) = (line(0), line(SLOTS as usize - 1));
        line(SLOTS as usize).busy(9); // nobody's
        Line::default().is(State::Serving);
        let presence = first.presence();
        first.is(State::Serving);
        first.connections(3);
        first.busy(u64::MAX);
        last.is(State::Draining);
        for table in &*tables {
            let serving = Load { state: steer::SERVING, connections: 3, busy: u32::MAX, ..Load::default() };
            assert_eq!(table.read(0), Some(serving));
            assert_eq!(table.read(1), Some(Load::default()));
            assert_eq!(table.read(SLOTS as usize - 1).map(|load| State::of(&load)), Some(State::Draining));
            assert_eq!(table.read(SLOTS as usize), None);
        }
        drop(presence);
        assert!(tables.iter().all(|table| table.read(0) == Some(Load::default())));
    }

    #[test]
    fn who_panics_is_gone() {
        let table = Arc::new(Table::alone());
        let line = Line::new([Arc::clone(&table)].into(), 7);
        let thread = std::thread::spawn(move || {
            let _present = line.presence();
            line.is(State::Serving);
            panic!("as it must");
        });
        assert!(thread.join().is_err());
        assert_eq!(table.read(7), Some(Load::default()));
    }
}
