//! Accepting: asked for once, connections come until it is called off; one by one where there is room for few.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use io_uring::types::Fd;
use io_uring::{cqueue, opcode};
use socket2::SockRef;

use super::Uring;
use super::socket::Stream;
use super::table::{Key, Kind, Place, Token};
use crate::ring::socket::{BACKLOG, prepare};

/// Accepts connections in one worker.
pub(in crate::ring) struct Listener {
    listening: Rc<Listening>,
    driver: Rc<Uring>,
}

/// A socket that listens; the driver's as long as the kernel may accept on it.
pub(super) struct Listening {
    socket: std::net::TcpListener,
    key: Key,
    accepted: RefCell<VecDeque<OwnedFd>>,
    failed: Cell<Option<i32>>,
    accepting: Cell<Accepting>,
    waiter: RefCell<Option<Waker>>,
    /// Connections that there was room for when somebody last asked.
    room: Cell<usize>,
    abandoned: Cell<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Accepting {
    No,
    /// One connection.
    One,
    /// Whatever comes.
    All,
    Stopping,
}

/// Connections that one turn may bring when all are asked for: what the kernel holds ready, on two listeners.
const BURST_MAX: usize = 2 * BACKLOG as usize;

// === impl Listener ===

impl Listener {
    /// Takes a bound socket into the thread's ring.
    ///
    /// # Errors
    /// The socket cannot be prepared.
    pub(in crate::ring) fn new(driver: Rc<Uring>, socket: std::net::TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(false)?; // the ring waits; a socket that does not would end each wait at once
        prepare(SockRef::from(&socket))?; // what is accepted inherits it
        let mut listening = None;
        driver.table.borrow_mut().insert(|key| {
            let new = Rc::new(Listening {
                socket,
                key,
                accepted: RefCell::default(),
                failed: Cell::new(None),
                accepting: Cell::new(Accepting::No),
                waiter: RefCell::default(),
                room: Cell::new(0),
                abandoned: Cell::new(false),
            });
            listening = Some(Rc::clone(&new));
            Place::Listening(new)
        });
        let listening = listening.expect("the table has just asked for it");
        Ok(Self { listening, driver })
    }

    /// See [`crate::ring::Listener::accept`].
    pub(in crate::ring) async fn accept(&self, room: usize) -> io::Result<(Stream, SocketAddr)> {
        self.listening.room.set(room);
        let descriptor = poll_fn(|cx| self.listening.poll_accept(&self.driver, cx)).await?;
        let peer = SockRef::from(&descriptor).peer_addr().ok().and_then(|peer| peer.as_socket());
        // Without a peer it was over before anybody looked.
        let peer = peer.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionAborted))?;
        Ok((Stream::new(&self.driver, descriptor), peer))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.listening.abandon(&self.driver);
    }
}

// === impl Listening ===

impl Listening {
    fn token(&self) -> Token {
        Token::new(Kind::Accept, self.key)
    }

    fn poll_accept(&self, driver: &Uring, cx: &mut Context<'_>) -> Poll<io::Result<OwnedFd>> {
        if let Some(descriptor) = self.accepted.borrow_mut().pop_front() {
            return Poll::Ready(Ok(descriptor));
        }
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(io::Error::from_raw_os_error(error)));
        }
        self.waiter.replace(Some(cx.waker().clone()));
        match self.accepting.get() {
            Accepting::No => self.start(driver),
            Accepting::All if self.room.get() < BURST_MAX => self.stop(driver), // and go on one by one
            _ => {}
        }
        Poll::Pending
    }

    fn start(&self, driver: &Uring) {
        let socket = Fd(self.socket.as_raw_fd());
        let accept = if self.room.get() < BURST_MAX {
            self.accepting.set(Accepting::One);
            let nowhere = std::ptr::null_mut();
            opcode::Accept::new(socket, nowhere, nowhere.cast()).flags(libc::SOCK_CLOEXEC).build()
        } else {
            self.accepting.set(Accepting::All);
            opcode::AcceptMulti::new(socket).flags(libc::SOCK_CLOEXEC).build()
        };
        // SAFETY: points to no memory; the table keeps the socket open until the last completion.
        unsafe { driver.push(accept, self.token()) };
    }

    fn stop(&self, driver: &Uring) {
        self.accepting.set(Accepting::Stopping);
        driver.cancel(self.token());
    }

    /// At the end of a turn: nobody took what is there, so further connections stay with the kernel.
    pub(super) fn pause(&self, driver: &Uring) {
        if self.accepting.get() == Accepting::All && !self.accepted.borrow().is_empty() {
            self.stop(driver);
        }
    }

    pub(super) fn completed(self: &Rc<Self>, driver: &Uring, result: i32, flags: u32) {
        if !cqueue::more(flags) {
            self.accepting.set(Accepting::No);
        }
        match result {
            0.. if self.abandoned.get() => refuse(result),
            0.. => {
                // SAFETY: the kernel has just made this descriptor for us, and tells nobody else.
                let descriptor = unsafe { OwnedFd::from_raw_fd(result) };
                self.accepted.borrow_mut().push_back(descriptor);
                driver.turn.borrow_mut().crowded.push(Rc::clone(self));
            }
            _ if result == -libc::ECANCELED || self.abandoned.get() => {}
            _ => self.failed.set(Some(-result)),
        }
        if self.accepting.get() == Accepting::No {
            if self.abandoned.get() {
                driver.table.borrow_mut().remove(self.key);
                return;
            }
            if self.waiter.borrow().is_some()
                && self.accepted.borrow().is_empty()
                && self.failed.get().is_none()
            {
                self.start(driver); // somebody waits already
            }
        }
        let has_news = !self.accepted.borrow().is_empty() || self.failed.get().is_some();
        if has_news && let Some(waiter) = self.waiter.take() {
            waiter.wake();
        }
    }

    fn abandon(&self, driver: &Uring) {
        self.abandoned.set(true);
        self.accepted.take(); // closed
        self.waiter.take();
        match self.accepting.get() {
            Accepting::No => drop(driver.table.borrow_mut().remove(self.key)),
            Accepting::One | Accepting::All => driver.cancel(self.token()),
            Accepting::Stopping => {}
        }
    }
}

/// Closes a connection that was accepted for nobody.
pub(super) fn refuse(result: i32) {
    if result >= 0 {
        // SAFETY: the kernel has just made this descriptor for us, and tells nobody else.
        drop(unsafe { OwnedFd::from_raw_fd(result) });
    }
}
