//! Accepting: asked for once, connections come until it is called off; one by one where there is room for few.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use io_uring::types::{DestinationSlot, Fd};
use io_uring::{cqueue, opcode};
use socket2::SockRef;

use super::descriptor::Descriptor;
use super::socket::Stream;
use super::table::{Key, Kind, Place, Token};
use super::{Uring, naming};
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
    accepted: RefCell<VecDeque<(Descriptor, SocketAddr)>>,
    /// Connections whose peers are being asked for.
    naming: Cell<usize>,
    /// Bytes of a peer's address.
    name_len: u32,
    failed: Cell<Option<i32>>,
    accepting: Cell<Accepting>,
    waiter: RefCell<Option<Waker>>,
    /// Connections that there was room for when somebody last asked.
    room: Cell<usize>,
    /// No more are wanted than the kernel has accepted already.
    ending: Cell<bool>,
    /// What the kernel had ready then was taken, too.
    swept: Cell<bool>,
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
        let name_len = match socket.local_addr()? {
            SocketAddr::V4(_) => size_of::<libc::sockaddr_in>(),
            SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
        };
        let mut listening = None;
        driver.table.borrow_mut().insert(|key| {
            let new = Rc::new(Listening {
                socket,
                key,
                accepted: RefCell::default(),
                naming: Cell::new(0),
                name_len: u32::try_from(name_len).unwrap_or(0),
                failed: Cell::new(None),
                accepting: Cell::new(Accepting::No),
                waiter: RefCell::default(),
                room: Cell::new(0),
                ending: Cell::new(false),
                swept: Cell::new(false),
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
        let (descriptor, peer) = poll_fn(|cx| self.listening.poll_accept(&self.driver, cx)).await?;
        Ok((Stream::new(&self.driver, descriptor), peer))
    }

    /// See [`crate::ring::Listener::rest`].
    pub(in crate::ring) async fn rest(&self) -> Option<(Stream, SocketAddr)> {
        if !self.listening.ending.replace(true) {
            match self.listening.accepting.get() {
                Accepting::One => self.driver.cancel(self.listening.token()),
                Accepting::All => self.listening.stop(&self.driver),
                Accepting::No | Accepting::Stopping => {}
            }
        }
        let (descriptor, peer) = poll_fn(|cx| self.listening.poll_rest(cx)).await?;
        Some((Stream::new(&self.driver, descriptor), peer))
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

    /// Bytes of a peer's address.
    pub(super) fn name_len(&self) -> u32 {
        self.name_len
    }

    fn poll_accept(
        &self,
        driver: &Uring,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(Descriptor, SocketAddr)>> {
        if let Some(accepted) = self.accepted.borrow_mut().pop_front() {
            return Poll::Ready(Ok(accepted));
        }
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(io::Error::from_raw_os_error(error)));
        }
        self.waiter.replace(Some(cx.waker().clone()));
        match self.accepting.get() {
            Accepting::No => self.start(driver),
            Accepting::All if !self.has_room_for_all(driver) => self.stop(driver), // and go on one by one
            _ => {}
        }
        Poll::Pending
    }

    fn poll_rest(&self, cx: &mut Context<'_>) -> Poll<Option<(Descriptor, SocketAddr)>> {
        if let Some(accepted) = self.accepted.borrow_mut().pop_front() {
            return Poll::Ready(Some(accepted));
        }
        if self.accepting.get() == Accepting::No && self.naming.get() == 0 {
            if !self.swept.replace(true) {
                self.sweep();
            }
            return Poll::Ready(self.accepted.borrow_mut().pop_front());
        }
        self.waiter.replace(Some(cx.waker().clone()));
        Poll::Pending
    }

    /// Takes what the kernel has ready. It wakes one ring for each connection, of all that wait at a socket: if it was this one,
    /// and what it asked for was called off before it looked, nobody else knows of the connection until another comes.
    fn sweep(&self) {
        if self.socket.set_nonblocking(true).is_err() {
            return;
        }
        let there = std::iter::from_fn(|| self.socket.accept().ok()).take(BURST_MAX);
        let there = there.map(|(stream, peer)| (Descriptor::Open(OwnedFd::from(stream)), peer));
        self.accepted.borrow_mut().extend(there);
    }

    /// Connections that may still come before whoever asked has no room for them.
    fn room(&self) -> usize {
        self.room.get().saturating_sub(self.naming.get() + self.accepted.borrow().len())
    }

    fn has_room_for_all(&self, driver: &Uring) -> bool {
        let slots = driver.slots.as_ref().map_or(usize::MAX, |slots| slots.free());
        self.room().min(slots) >= BURST_MAX
    }

    fn start(&self, driver: &Uring) {
        let socket = Fd(self.socket.as_raw_fd());
        let slots = driver.slots.as_ref();
        // A slot is never passed on to a program that is started; a descriptor must be told so.
        let flags = if slots.is_some() { 0 } else { libc::SOCK_CLOEXEC };
        let accept = if self.has_room_for_all(driver) {
            self.accepting.set(Accepting::All);
            opcode::AcceptMulti::new(socket).allocate_file_index(slots.is_some()).flags(flags).build()
        } else {
            if self.room() == 0 {
                return; // those that are being named are enough
            }
            if let Some(slots) = slots
                && !slots.promise()
            {
                return self.waiter.borrow().iter().for_each(|waiter| slots.wait(waiter.clone()));
            }
            self.accepting.set(Accepting::One);
            let nowhere = std::ptr::null_mut();
            let slot = slots.map(|_| DestinationSlot::auto_target());
            opcode::Accept::new(socket, nowhere, nowhere.cast()).file_index(slot).flags(flags).build()
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
            let was = self.accepting.replace(Accepting::No);
            if let Some(slots) = driver.slots.as_ref().filter(|_| was == Accepting::One) {
                slots.take_back();
            }
        }
        match adopt(driver, result) {
            Some(_) if self.abandoned.get() => {} // closed
            Some(Descriptor::Slot(slot)) => {
                self.naming.set(self.naming.get() + 1);
                naming::ask(driver, slot, Rc::clone(self));
            }
            Some(Descriptor::Open(descriptor)) => {
                let peer = SockRef::from(&descriptor).peer_addr().ok().and_then(|peer| peer.as_socket());
                // Without a peer it was over before anybody looked.
                let accepted = peer.map(|peer| (Descriptor::Open(descriptor), peer));
                self.hand_over(driver, accepted.ok_or(libc::ECONNABORTED));
            }
            None if result == -libc::ECANCELED || self.abandoned.get() => {}
            // Another process, which has the socket too, has set it not to wait.
            None if result == -libc::EAGAIN && self.socket.set_nonblocking(false).is_ok() => {}
            None => self.failed.set(Some(-result)),
        }
        if self.accepting.get() == Accepting::All && !self.has_room_for_all(driver) {
            self.stop(driver);
        }
        self.go_on(driver);
    }

    /// The peer of a connection that was accepted is known now, or is gone.
    pub(super) fn named(self: &Rc<Self>, driver: &Uring, accepted: Result<(Descriptor, SocketAddr), i32>) {
        self.naming.set(self.naming.get() - 1);
        if !self.abandoned.get() {
            self.hand_over(driver, accepted);
            self.go_on(driver);
        }
    }

    fn hand_over(self: &Rc<Self>, driver: &Uring, accepted: Result<(Descriptor, SocketAddr), i32>) {
        match accepted {
            Ok(accepted) => {
                self.accepted.borrow_mut().push_back(accepted);
                driver.turn.borrow_mut().crowded.push(Rc::clone(self));
            }
            Err(error) => self.failed.set(Some(error)),
        }
    }

    /// After something has come, or the kernel has stopped accepting.
    fn go_on(&self, driver: &Uring) {
        let has_news = !self.accepted.borrow().is_empty() || self.failed.get().is_some();
        let over = self.ending.get() && self.accepting.get() == Accepting::No;
        if self.accepting.get() == Accepting::No {
            if self.abandoned.get() {
                driver.table.borrow_mut().remove(self.key);
                return;
            }
            if !over && self.waiter.borrow().is_some() && !has_news {
                self.start(driver); // somebody waits already
            }
        }
        if (has_news || over)
            && let Some(waiter) = self.waiter.take()
        {
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

/// A connection that the kernel has accepted for us, if it has.
pub(super) fn adopt(driver: &Uring, result: i32) -> Option<Descriptor> {
    let number = u32::try_from(result).ok()?;
    Some(match &driver.slots {
        Some(slots) => Descriptor::Slot(slots.filled(number)),
        // SAFETY: the kernel has just made this descriptor for us, and tells nobody else.
        None => Descriptor::Open(unsafe { OwnedFd::from_raw_fd(result) }),
    })
}

#[cfg(test)]
mod tests;
