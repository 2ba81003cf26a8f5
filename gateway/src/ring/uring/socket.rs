//! Connections: who holds them, how they open and how they close. What they do in between: [`super::receiving`],
//! [`super::sending`].

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use io_uring::{cqueue, opcode};
use socket2::{SockAddr, SockRef, Socket as NewSocket};
use usher_flowcontrol::units::Nanos;

use super::Uring;
use super::descriptor::{Descriptor, Name};
use super::receiving::Receiving;
use super::sending::Sending;
use super::table::{Key, Kind, Place, Token};
use crate::ring::Chunk;
use crate::ring::outgoing::HIGH_WATER;
use crate::ring::socket::for_connecting;

/// One connection. Clones are the same.
#[derive(Clone)]
pub(in crate::ring) struct Stream(Rc<Handle>);

/// Who is interested in a connection; the last one to go closes it.
struct Handle {
    socket: Rc<Socket>,
    driver: Rc<Uring>,
}

/// A connection; the driver's until its last operation has completed.
pub(super) struct Socket {
    /// Ours until the closing operation is queued.
    descriptor: RefCell<Option<Descriptor>>,
    /// Invariant: of `descriptor`.
    name: Cell<Name>,
    key: Key,
    /// Operations that will complete.
    pub(super) in_flight: Cell<u32>,
    /// No handle is left.
    pub(super) abandoned: Cell<bool>,
    shutting: Cell<Shutting>,
    connecting: RefCell<Connecting>,
    pub(super) receiving: RefCell<Receiving>,
    pub(super) sending: RefCell<Sending>,
}

/// A thread of the kernel's closes our side.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Shutting {
    #[default]
    No,
    Failed(i32),
    UnderWay,
    /// Then the connection is to be closed. Not before: that thread looks the slot up when it gets to it, and would
    /// find who has it next.
    ThenClose,
}

#[derive(Default)]
struct Connecting {
    /// The kernel reads it.
    address: Option<Box<SockAddr>>,
    result: Option<i32>,
    waiter: Option<Waker>,
}

/// Opens a connection, from that socket or a new one.
pub(in crate::ring) async fn connect(
    driver: Rc<Uring>,
    socket: Option<NewSocket>,
    address: SocketAddr,
) -> io::Result<Stream> {
    let socket = socket.map_or_else(|| for_connecting(address), Ok)?;
    let stream = Stream::new(&driver, Descriptor::Open(socket.into()));
    stream.0.socket.start_connecting(&driver, address);
    poll_fn(|cx| stream.0.socket.poll_connected(cx)).await?;
    Ok(stream)
}

// === impl Stream ===

impl Stream {
    pub(super) fn new(driver: &Rc<Uring>, descriptor: Descriptor) -> Self {
        let mut socket = None;
        driver.table.borrow_mut().insert(|key| {
            let new = Rc::new(Socket {
                name: Cell::new(descriptor.name()),
                descriptor: RefCell::new(Some(descriptor)),
                key,
                in_flight: Cell::new(0),
                abandoned: Cell::new(false),
                shutting: Cell::default(),
                connecting: RefCell::default(),
                receiving: RefCell::default(),
                sending: RefCell::default(),
            });
            socket = Some(Rc::clone(&new));
            Place::Socket(new)
        });
        let socket = socket.expect("the table has just asked for it");
        Self(Rc::new(Handle { socket, driver: Rc::clone(driver) }))
    }

    pub(in crate::ring) fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<Chunk>> {
        self.0.socket.poll_recv(&self.0.driver, cx)
    }

    /// Puts the rest of a chunk back, to be received again.
    pub(in crate::ring) fn unread(&self, chunk: Chunk) {
        self.0.socket.receiving.borrow_mut().unread(chunk);
    }

    pub(in crate::ring) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.socket.poll_unsent(cx, HIGH_WATER)
    }

    pub(in crate::ring) fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.socket.poll_unsent(cx, 0)
    }

    pub(in crate::ring) fn poll_close(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_sent(cx))?;
        let socket = &self.0.socket;
        if !std::mem::replace(&mut socket.sending.borrow_mut().is_shut, true) {
            socket.shut(&self.0.driver)?;
        }
        socket.poll_shut(cx)
    }

    pub(in crate::ring) fn put(&self, bytes: &[u8]) {
        self.0.socket.put(&self.0.driver, |outgoing| outgoing.put(bytes));
    }

    pub(in crate::ring) fn put_bytes(&self, bytes: Bytes) {
        self.0.socket.put(&self.0.driver, |outgoing| outgoing.put_bytes(bytes));
    }

    pub(in crate::ring) fn put_with(&self, count: usize, fill: impl FnOnce(&mut [u8])) {
        self.0.socket.put(&self.0.driver, |outgoing| outgoing.put_with(count, fill));
    }

    pub(in crate::ring) fn abort(&self) {
        if let Some(descriptor) = &*self.0.socket.descriptor.borrow() {
            descriptor.abort(&self.0.driver);
        }
    }

    pub(in crate::ring) fn unsent(&self) -> usize {
        self.0.socket.sending.borrow().outgoing.unsent()
    }

    pub(in crate::ring) fn stalled_since(&self) -> Option<Nanos> {
        self.0.socket.sending.borrow().outgoing.stalled_since()
    }

    /// Sending failed so.
    pub(in crate::ring) fn broken(&self) -> Option<i32> {
        self.0.socket.sending.borrow().broken
    }

    pub(in crate::ring) fn received(&self) -> u64 {
        self.0.socket.receiving.borrow().taken()
    }

    pub(in crate::ring) fn poll_hangup(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.socket.poll_hangup(&self.0.driver, cx)
    }
}

/// The task is woken when there is news.
pub(super) fn keep(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(cx.waker()),
        none => *none = Some(cx.waker().clone()),
    }
}

/// Whoever waits.
pub(super) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

// === impl Handle ===

impl Drop for Handle {
    fn drop(&mut self) {
        self.socket.abandoned.set(true);
        self.socket.receiving.borrow_mut().abandon();
        self.socket.sending.borrow_mut().abandon();
        self.driver.turn.borrow_mut().abandoned.push(Rc::clone(&self.socket));
    }
}

// === impl Socket ===

impl Socket {
    pub(super) fn token(&self, kind: Kind) -> Token {
        Token::new(kind, self.key)
    }

    /// What its operations call it.
    pub(super) fn name(&self) -> Name {
        self.name.get()
    }

    /// Queues an operation that completes, once or more.
    ///
    /// # Safety
    /// What it points to lives in `self`, unchanged, until it has completed.
    pub(super) unsafe fn push(&self, driver: &Uring, entry: io_uring::squeue::Entry, kind: Kind) {
        self.in_flight.set(self.in_flight.get() + 1);
        // SAFETY: the caller's promise; the table keeps `self` until `in_flight` is 0.
        unsafe { driver.push(entry.flags(self.name().kind()), self.token(kind)) };
    }

    /// An operation of this connection has completed, or has got somewhere.
    pub(super) fn completed(self: &Rc<Self>, driver: &Rc<Uring>, kind: Kind, result: i32, flags: u32) {
        if kind.completes() && !cqueue::more(flags) {
            self.in_flight.set(self.in_flight.get() - 1);
        }
        match kind {
            Kind::Receive => self.received(driver, result, flags),
            Kind::Send | Kind::SilentSend => self.sent(driver, result),
            Kind::Connect => self.connected(result),
            Kind::Hangup => self.hung_up(result),
            Kind::Shutdown => self.is_shut(driver, result),
            _ => {}
        }
        self.vacate(driver);
    }

    /// Leaves the table if nobody needs it any more.
    pub(super) fn vacate(&self, driver: &Uring) {
        let is_over = self.abandoned.get() && self.in_flight.get() == 0 && self.descriptor.borrow().is_none();
        if is_over {
            let place = driver.table.borrow_mut().remove(self.key);
            drop(place);
        }
    }

    /// At the end of a turn: no handle is left. What was put in this turn is on its way before.
    pub(super) fn close(&self, driver: &Uring) {
        for (is_on, kind) in [
            (self.connecting.borrow().address.is_some(), Kind::Connect),
            (self.receiving.borrow().is_armed(), Kind::Receive),
            (self.receiving.borrow().is_end_polled(), Kind::Hangup),
            (self.sending.borrow().is_waiting(), Kind::Send),
        ] {
            if is_on {
                driver.cancel(self.token(kind));
            }
        }
        if let Some(key) = self.sending.borrow().zero_copy() {
            driver.cancel(Token::new(Kind::ZeroCopy, key));
        }
        match self.shutting.get() {
            Shutting::No | Shutting::Failed(_) => self.let_go(driver),
            Shutting::UnderWay | Shutting::ThenClose => self.shutting.set(Shutting::ThenClose),
        }
    }

    /// The descriptor goes; operations that are under way have it still.
    fn let_go(&self, driver: &Uring) {
        self.name.set(Name::NOTHING);
        if let Some(descriptor) = self.descriptor.borrow_mut().take() {
            descriptor.close(driver);
        }
        self.vacate(driver);
    }

    // --- closing our side

    fn shut(&self, driver: &Uring) -> io::Result<()> {
        match &*self.descriptor.borrow() {
            Some(Descriptor::Open(descriptor)) => {
                match SockRef::from(descriptor).shutdown(std::net::Shutdown::Write) {
                    Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(error),
                    _ => Ok(()),
                }
            }
            Some(Descriptor::Slot(slot)) => {
                self.shutting.set(Shutting::UnderWay);
                let shut = opcode::Shutdown::new(slot.fixed(), libc::SHUT_WR).build();
                // SAFETY: points to no memory.
                unsafe { self.push(driver, shut, Kind::Shutdown) };
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn poll_shut(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        match self.shutting.get() {
            Shutting::No => Poll::Ready(Ok(())),
            Shutting::Failed(error) => Poll::Ready(Err(io::Error::from_raw_os_error(error))),
            Shutting::UnderWay | Shutting::ThenClose => {
                keep(&mut self.sending.borrow_mut().writer, cx);
                Poll::Pending
            }
        }
    }

    fn is_shut(&self, driver: &Uring, result: i32) {
        let is_well = result >= 0 || result == -libc::ENOTCONN;
        let next = if is_well { Shutting::No } else { Shutting::Failed(-result) };
        if self.shutting.replace(next) == Shutting::ThenClose {
            self.let_go(driver);
        }
        wake(self.sending.borrow_mut().writer.take());
    }

    // --- connecting

    fn start_connecting(&self, driver: &Uring, address: SocketAddr) {
        let mut connecting = self.connecting.borrow_mut();
        let address = connecting.address.insert(Box::new(address.into()));
        let connect =
            opcode::Connect::new(self.name().number(), address.as_ptr().cast(), address.len()).build();
        // SAFETY: the address stays in its box until `connected`.
        unsafe { self.push(driver, connect, Kind::Connect) };
    }

    fn poll_connected(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut connecting = self.connecting.borrow_mut();
        match connecting.result {
            Some(0) => Poll::Ready(Ok(())),
            Some(error) => Poll::Ready(Err(io::Error::from_raw_os_error(-error))),
            None => {
                keep(&mut connecting.waiter, cx);
                Poll::Pending
            }
        }
    }

    fn connected(&self, result: i32) {
        let mut connecting = self.connecting.borrow_mut();
        connecting.address = None;
        connecting.result = Some(result);
        wake(connecting.waiter.take());
    }
}
