//! Receiving: asked for once, bytes come into the ring's buffers until the peer ends or its reader falls behind.
//!
//! Asking anew for each time took 1.16 of the CPU (answers of 1 KiB) and 1.09 (over TLS HTTP/2). Asking to wait before the first
//! look (`IORING_RECVSEND_POLL_FIRST`) took 0.95 to 0.99 of it in four runs whose noise was as large; one asking serves
//! many requests, so there is little to save, and it is left out.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use io_uring::{cqueue, opcode};

use super::buffers::GROUP;
use super::socket::{Socket, keep, wake};
use super::table::Kind;
use super::{Uring, queue};
use crate::ring::Chunk;
use crate::ring::outgoing::HIGH_WATER;

/// Bytes received that a connection's reader may leave lying about; with more, receiving pauses until they are read,
/// and TCP's window tells the peer. As much as a connection may have unsent: a relay holds no more of one side than
/// of the other. Kernels before 6.17 cannot be told beforehand: what one turn brings may exceed it there.
const RECEIVED_AHEAD_MAX: usize = HIGH_WATER;

/// What a connection has received.
#[derive(Default)]
pub(super) struct Receiving {
    state: State,
    /// The kernel was told to stop by itself.
    is_limited: bool,
    chunks: VecDeque<Chunk>,
    /// Invariant: the bytes of `chunks`.
    ahead: usize,
    /// Bytes that the reader took.
    taken: u64,
    end: Option<End>,
    reader: Option<Waker>,
    /// Who wants to hear of the end before it is read.
    watcher: Option<Waker>,
    /// The kernel is asked for the end alone.
    is_end_polled: bool,
    hung_up: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    /// The kernel puts what arrives into buffers.
    Armed,
    /// It has been told to stop.
    Stopping,
    /// It had no buffer.
    Starved,
}

#[derive(Clone, Copy)]
enum End {
    Peer,
    Error(i32),
}

// === impl Receiving ===

impl Receiving {
    /// Bytes that the reader took.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// The kernel may put what arrives into buffers.
    pub(super) fn is_armed(&self) -> bool {
        self.state == State::Armed
    }

    /// The kernel is asked for the end alone.
    pub(super) fn is_end_polled(&self) -> bool {
        self.is_end_polled
    }

    /// Puts the rest of a chunk back, to be received again.
    pub(super) fn unread(&mut self, chunk: Chunk) {
        self.ahead += chunk.len();
        self.taken -= chunk.len() as u64;
        self.chunks.push_front(chunk);
    }

    /// Nobody will read what is there.
    pub(super) fn abandon(&mut self) {
        self.chunks.clear();
        self.ahead = 0;
        (self.reader, self.watcher) = (None, None);
    }

    /// Its reader shall read first.
    fn has_enough(&self) -> bool {
        self.ahead >= RECEIVED_AHEAD_MAX
    }
}

// === impl Socket ===

impl Socket {
    pub(super) fn poll_recv(&self, driver: &Uring, cx: &mut Context<'_>) -> Poll<io::Result<Chunk>> {
        let mut receiving = self.receiving.borrow_mut();
        if let Some(chunk) = receiving.chunks.pop_front() {
            receiving.ahead -= chunk.len();
            receiving.taken += chunk.len() as u64;
            return Poll::Ready(Ok(chunk));
        }
        match receiving.end {
            Some(End::Peer) => return Poll::Ready(Ok(Chunk::default())),
            Some(End::Error(error)) => return Poll::Ready(Err(io::Error::from_raw_os_error(error))),
            None => {}
        }
        keep(&mut receiving.reader, cx);
        drop(receiving);
        self.receive(driver);
        Poll::Pending
    }

    pub(super) fn poll_hangup(&self, driver: &Uring, cx: &mut Context<'_>) -> Poll<()> {
        let mut receiving = self.receiving.borrow_mut();
        if receiving.end.is_some() || receiving.hung_up {
            return Poll::Ready(());
        }
        keep(&mut receiving.watcher, cx);
        drop(receiving);
        self.watch(driver);
        Poll::Pending
    }

    /// Whatever arrives is wanted.
    fn receive(&self, driver: &Uring) {
        let mut receiving = self.receiving.borrow_mut();
        if receiving.state != State::Idle || receiving.end.is_some() || self.abandoned.get() {
            return;
        }
        receiving.state = State::Armed;
        let mut receive = opcode::RecvMulti::new(self.name().number(), GROUP).build();
        receiving.is_limited = driver.limits_receiving.get();
        if receiving.is_limited {
            queue::limit_receiving(&mut receive, RECEIVED_AHEAD_MAX);
        }
        // SAFETY: points to no memory; the buffers that the kernel chooses are the driver's.
        unsafe { self.push(driver, receive, Kind::Receive) };
    }

    /// The peer's end is wanted, whether or not there are bytes before it that nobody reads now.
    fn watch(&self, driver: &Uring) {
        let mut receiving = self.receiving.borrow_mut();
        if receiving.state != State::Idle || receiving.end.is_some() || self.abandoned.get() {
            return; // receiving brings it
        }
        if !receiving.has_enough() {
            drop(receiving);
            return self.receive(driver);
        }
        if !std::mem::replace(&mut receiving.is_end_polled, true) {
            let events = u32::from(libc::POLLRDHUP.cast_unsigned());
            let poll = opcode::PollAdd::new(self.name().number(), events).build();
            // SAFETY: points to no memory.
            unsafe { self.push(driver, poll, Kind::Hangup) };
        }
    }

    pub(super) fn received(self: &Rc<Self>, driver: &Rc<Uring>, result: i32, flags: u32) {
        let len = usize::try_from(result).unwrap_or(0);
        let lent = cqueue::buffer_select(flags)
            .and_then(|buffer| driver.buffers.received(buffer, len, cqueue::buffer_more(flags)));
        let mut receiving = self.receiving.borrow_mut();
        if !cqueue::more(flags) {
            receiving.state = State::Idle;
        }
        if self.abandoned.get() {
            return;
        }
        match (result, lent) {
            (1.., Some(lent)) => {
                let chunk = if driver.buffers.are_scarce() {
                    driver.counted.chunks_copied.add(1);
                    Chunk::from(&lent[..])
                } else {
                    Chunk::lent(lent)
                };
                let had_enough = receiving.has_enough();
                receiving.ahead += chunk.len();
                receiving.chunks.push_back(chunk);
                if receiving.has_enough() && !had_enough {
                    driver.turn.borrow_mut().ahead.push(Rc::clone(self));
                }
            }
            (0, _) => receiving.end = Some(End::Peer),
            _ if result == -libc::ENOBUFS => {
                driver.counted.buffers_exhausted.add(1);
                receiving.state = State::Starved;
                driver.turn.borrow_mut().starved.push(Rc::clone(self));
            }
            _ if result == -libc::EINVAL && receiving.is_limited => {
                driver.limits_receiving.set(false);
                drop(receiving);
                return self.receive(driver); // before 6.17: without a limit
            }
            _ if matches!(-result, libc::ECANCELED | libc::EAGAIN | libc::EINTR) => {}
            _ => receiving.end = Some(End::Error(-result)),
        }
        let has_end = receiving.end.is_some();
        let has_news = has_end || !receiving.chunks.is_empty();
        let reader = if has_news { receiving.reader.take() } else { None };
        let watcher = if has_end { receiving.watcher.take() } else { None };
        let (wants, watches) = (receiving.reader.is_some(), receiving.watcher.is_some());
        drop(receiving);
        wake(reader);
        wake(watcher);
        if wants {
            self.receive(driver);
        } else if watches {
            self.watch(driver);
        }
    }

    /// At the end of a turn: its reader has had time to read.
    pub(super) fn pause(&self, driver: &Uring) {
        let mut receiving = self.receiving.borrow_mut();
        if receiving.has_enough() && receiving.state == State::Armed {
            receiving.state = State::Stopping;
            driver.counted.receives_paused.add(1);
            driver.cancel(self.token(Kind::Receive));
        }
    }

    /// There are buffers again. For whoever has enough lying about they are not: its next read asks for more.
    pub(super) fn receive_again(&self, driver: &Uring) {
        let mut receiving = self.receiving.borrow_mut();
        receiving.state = State::Idle;
        let (has_enough, watches) = (receiving.has_enough(), receiving.watcher.is_some());
        drop(receiving);
        if !has_enough {
            self.receive(driver);
        } else if watches {
            self.watch(driver);
        }
    }

    pub(super) fn hung_up(&self, result: i32) {
        let mut receiving = self.receiving.borrow_mut();
        receiving.is_end_polled = false;
        if result > 0 {
            receiving.hung_up = true;
            wake(receiving.watcher.take());
        }
    }
}
