//! The two queues shared with the kernel: operations go in, completions come out, one system call a turn.

use std::io;
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{CompletionQueue, EnterFlags, IoUring, SubmissionQueue, Submitter, cqueue, squeue};

use super::Features;
use crate::ring::settings::Settings;

/// Completions that the kernel has room for, for each operation that it takes at once: accepting and receiving go
/// on completing without being asked again.
const COMPLETIONS_PER_ENTRY: u32 = 8;
/// The kernel's thread (`--ring-sqpoll`) sleeps after so many milliseconds without work.
const SQPOLL_IDLE_MILLIS: u32 = 50;

/// One ring. Used by the thread that made it.
pub(super) struct Queue {
    // Before `ring`, in which they point: fields are dropped in order.
    submissions: SubmissionQueue<'static>,
    completions: CompletionQueue<'static>,
    submitter: Submitter<'static>,
    /// Operations that the kernel has taken, ever; wraps.
    taken: u32,
    /// A thread of the kernel takes operations, at its own time.
    sqpoll: bool,
    ring: Leaked,
}

/// Where an operation stands among all that were ever queued; wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position(u32);

/// How to wait for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Takes what is there.
    No,
    ForOne,
    /// For `micros` microseconds unless there are `most` before; then for one (6.12).
    ForMany {
        most: u32,
        micros: u32,
    },
}

struct Leaked(*mut IoUring);

// === impl Queue ===

impl Queue {
    /// A ring with the best set-up that this kernel has.
    ///
    /// # Errors
    /// The kernel is too old, or does not permit it.
    pub(super) fn new(settings: &Settings) -> io::Result<(Self, Features)> {
        let (ring, features) = set_up(settings)?;
        let ring = Leaked(Box::into_raw(Box::new(ring)));
        // SAFETY: `ring` owns the allocation and frees it after everything that borrows from it: it is the last
        // field of the struct. Nothing else refers to it.
        let (mut submitter, submissions, completions) = unsafe { &mut *ring.0 }.split();
        let _ = submitter.register_ring_fd(); // saves looking the descriptor up; without it works as well
        let sqpoll = settings.sqpoll.is_some();
        Ok((Self { submissions, completions, submitter, taken: 0, sqpoll, ring }, features))
    }

    /// Queues an operation; enters the kernel only if there is no room for it.
    ///
    /// # Safety
    /// What the operation points to stays valid, and nobody else's, until its completion has been seen (or, for an
    /// operation that completes in silence, until [`Queue::has_taken`] its position).
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) -> Position {
        loop {
            // SAFETY: the caller's promise.
            if unsafe { self.submissions.push(entry) }.is_ok() {
                let queued = u32::try_from(self.submissions.len()).unwrap_or(u32::MAX);
                return Position(self.taken.wrapping_add(queued));
            }
            if let Err(error) = self.make_room() {
                // The kernel cannot be reached at all; there is nothing left to do for anybody.
                panic!("the ring takes no operations: {error}");
            }
        }
    }

    fn make_room(&mut self) -> io::Result<()> {
        let before = self.submissions.len();
        self.submissions.sync();
        if self.sqpoll && !self.submissions.need_wakeup() {
            self.submitter.squeue_wait()?;
            self.note_taken(before);
            return Ok(());
        }
        match self.enter(Wait::No, None) {
            Err(error) if !is_passing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Hands over what is queued; then waits.
    ///
    /// # Errors
    /// The ring cannot be used any more. What passes ([`is_passing`]) is no error of this kind, and may be told too.
    pub(super) fn enter(&mut self, wait: Wait, timeout: Option<Duration>) -> io::Result<()> {
        let before = self.submissions.len();
        self.submissions.sync();
        let mut flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        if self.sqpoll && self.submissions.need_wakeup() {
            flags |= EnterFlags::SQ_WAKEUP;
        }
        let time = timeout.map(Timespec::from);
        let args = SubmitArgs::new();
        let args = match &time {
            Some(time) => args.timespec(time),
            None => args,
        };
        let (want, args) = match wait {
            Wait::No => (0, args),
            Wait::ForOne => (1, args),
            Wait::ForMany { most, micros } => (most, args.min_wait_usec(micros)),
        };
        let queued = u32::try_from(self.submissions.len()).unwrap_or(u32::MAX);
        // SAFETY: `args` and the time in it are alive during the call, and of the type that EXT_ARG says.
        let entered = unsafe { self.submitter.enter(queued, want, flags.bits(), Some(&args)) };
        self.note_taken(before);
        self.completions.sync();
        entered.map(drop)
    }

    fn note_taken(&mut self, before: usize) {
        self.submissions.sync();
        let taken = before - self.submissions.len();
        self.taken = self.taken.wrapping_add(u32::try_from(taken).unwrap_or(0));
    }

    /// The kernel has taken the operation: it has been tried, at least. Not with a thread of the kernel's.
    pub(super) fn has_taken(&self, position: Position) -> bool {
        self.taken.wrapping_sub(position.0).cast_signed() >= 0
    }

    /// Operations complete before [`Queue::enter`] is back, if they complete at once.
    pub(super) fn is_synchronous(&self) -> bool {
        !self.sqpoll
    }

    /// The next completion that is there.
    pub(super) fn completion(&mut self) -> Option<cqueue::Entry> {
        self.completions.next()
    }

    /// There are completions, or the kernel has some to work on (if it was asked to say so: with `--ring-spin`).
    pub(super) fn has_news(&mut self) -> bool {
        self.completions.sync();
        !self.completions.is_empty() || self.submissions.taskrun()
    }

    /// Makes room for completions that the kernel had to put aside. True if it has some.
    pub(super) fn has_overflowed(&mut self) -> bool {
        self.completions.sync();
        self.submissions.cq_overflow()
    }

    /// For everything that is asked of the ring but once.
    pub(super) fn submitter(&self) -> &Submitter<'static> {
        &self.submitter
    }

    /// The ring's descriptor, for messages from other rings.
    pub(super) fn descriptor(&self) -> std::os::fd::RawFd {
        // SAFETY: alive as long as `self`, and only read.
        std::os::fd::AsRawFd::as_raw_fd(unsafe { &*self.ring.0 })
    }
}

impl Drop for Leaked {
    fn drop(&mut self) {
        // SAFETY: made from a box in `Queue::new`; what borrowed from it has been dropped before (field order).
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// Lets receiving end by itself after so many bytes in all (6.17; before, the kernel refuses with `EINVAL`).
pub(super) fn limit_receiving(receive: &mut squeue::Entry, bytes: usize) {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    write::<11>(receive, bytes); // `optlen`, which the crate does not know for this operation
}

/// Turns setting a socket's option into asking for it (6.7), which the crate does not know.
pub(super) fn get_instead_of_set(option: &mut squeue::Entry) {
    /// Of `<linux/io_uring.h>`.
    const SOCKET_URING_OP_GETSOCKOPT: u32 = 2;
    write::<2>(option, SOCKET_URING_OP_GETSOCKOPT); // `cmd_op`
}

/// Writes one of an operation's 16 words.
fn write<const WORD: usize>(entry: &mut squeue::Entry, value: u32) {
    const { assert!(size_of::<squeue::Entry>() == 64 && WORD < 16) };
    // SAFETY: an entry is the kernel's `io_uring_sqe` of 64 bytes, aligned to 8, without invalid values.
    unsafe { std::ptr::from_mut(entry).cast::<u32>().add(WORD).write(value) };
}

/// Errors of entering that say "later", or "time is up".
pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

/// From the best to the oldest set-up that carries receiving more than once.
fn set_up(settings: &Settings) -> io::Result<(IoUring, Features)> {
    let completions = settings.entries.saturating_mul(COMPLETIONS_PER_ENTRY);
    let mut builder = IoUring::builder();
    builder.setup_clamp().setup_cqsize(completions).setup_submit_all().setup_single_issuer().dontfork();
    if let Some(core) = settings.sqpoll {
        builder.setup_sqpoll(SQPOLL_IDLE_MILLIS).setup_sqpoll_cpu(core);
        return Ok((builder.build(settings.entries)?, Features::default()));
    }
    let mut deferred = builder.clone();
    deferred.setup_defer_taskrun();
    if settings.spin > 0 {
        deferred.setup_taskrun_flag();
    }
    match deferred.build(settings.entries) {
        Ok(ring) => {
            let min_wait = ring.params().is_feature_min_timeout();
            Ok((ring, Features { deferred: true, min_wait, ..Features::default() }))
        }
        // Before 6.1 the kernel does not know the flag.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            builder.setup_coop_taskrun();
            Ok((builder.build(settings.entries)?, Features::default()))
        }
        Err(error) => Err(error),
    }
}
