//! Connections: what each has received and has to send, and the operations for it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use io_uring::types::Fd;
use io_uring::{cqueue, opcode};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket as NewSocket, Type};
use usher_flowcontrol::units::Nanos;

use super::buffers::GROUP;
use super::table::{Key, Kind, Place, Token};
use super::{Uring, queue};
use crate::ring::outgoing::{HIGH_WATER, Loan, Outgoing, PIECES_MAX};
use crate::ring::socket::{abort, prepare};
use crate::ring::{Chunk, clock};

/// Bytes received that a connection's reader may leave lying about; with more, receiving pauses until they are read,
/// and TCP's window tells the peer. As much as a connection may have unsent: a relay holds no more of one side than
/// of the other. Kernels before 6.17 cannot be told beforehand: what one turn brings may exceed it there.
const RECEIVED_AHEAD_MAX: usize = HIGH_WATER;

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
    descriptor: RefCell<Option<OwnedFd>>,
    key: Key,
    /// Operations that will complete.
    in_flight: Cell<u32>,
    /// No handle is left.
    abandoned: Cell<bool>,
    connecting: RefCell<Connecting>,
    receiving: RefCell<Receiving>,
    sending: RefCell<Sending>,
}

#[derive(Default)]
struct Connecting {
    /// The kernel reads it.
    address: Option<Box<SockAddr>>,
    result: Option<i32>,
    waiter: Option<Waker>,
}

#[derive(Default)]
struct Receiving {
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

#[derive(Default)]
struct Sending {
    outgoing: Outgoing,
    flight: Flight,
    /// It is in the turn's list.
    is_dirty: bool,
    broken: Option<i32>,
    /// Who waits for room, or for everything to be sent.
    writer: Option<Waker>,
    is_shut: bool,
}

/// What the kernel is sending just now.
#[derive(Default)]
enum Flight {
    #[default]
    None,
    /// Taken whole, unless a completion says otherwise.
    Silent(Message),
    /// Completes when the kernel has taken some.
    Waiting(Message),
    /// Some pages are lent to the network as well: [`ZeroCopy`].
    ZeroCopy(Loan, Key),
}

/// Bytes for one send. The kernel reads them, and the parts that point to them, until the send completes.
struct Message {
    loan: Loan,
    /// Only with several pieces.
    parts: Option<Box<Parts>>,
}

struct Parts {
    header: libc::msghdr,
    vectors: [libc::iovec; PIECES_MAX],
}

/// Bytes that the network reads where they lie, until it has been told twice: taken, and done with.
pub(super) struct ZeroCopy {
    socket: Rc<Socket>,
    #[expect(dead_code, reason = "kept for the kernel, which reads it")]
    message: Message,
}

/// Opens a connection.
pub(in crate::ring) async fn connect(driver: Rc<Uring>, address: SocketAddr) -> io::Result<Stream> {
    let socket = NewSocket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    prepare(SockRef::from(&socket))?;
    let stream = Stream::new(&driver, socket.into());
    stream.0.socket.start_connecting(&driver, address);
    poll_fn(|cx| stream.0.socket.poll_connected(cx)).await?;
    Ok(stream)
}

// === impl Stream ===

impl Stream {
    pub(super) fn new(driver: &Rc<Uring>, descriptor: OwnedFd) -> Self {
        let mut socket = None;
        driver.table.borrow_mut().insert(|key| {
            let new = Rc::new(Socket {
                descriptor: RefCell::new(Some(descriptor)),
                key,
                in_flight: Cell::new(0),
                abandoned: Cell::new(false),
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
        let mut receiving = self.0.socket.receiving.borrow_mut();
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
        self.0.socket.receive(&self.0.driver);
        Poll::Pending
    }

    /// Puts the rest of a chunk back, to be received again.
    pub(in crate::ring) fn unread(&self, chunk: Chunk) {
        let mut receiving = self.0.socket.receiving.borrow_mut();
        receiving.ahead += chunk.len();
        receiving.taken -= chunk.len() as u64;
        receiving.chunks.push_front(chunk);
    }

    pub(in crate::ring) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_unsent(cx, HIGH_WATER)
    }

    pub(in crate::ring) fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_unsent(cx, 0)
    }

    fn poll_unsent(&self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<()>> {
        let mut sending = self.0.socket.sending.borrow_mut();
        if let Some(error) = sending.broken {
            return Poll::Ready(Err(io::Error::from_raw_os_error(error)));
        }
        if sending.outgoing.unsent() <= most {
            return Poll::Ready(Ok(()));
        }
        keep(&mut sending.writer, cx);
        Poll::Pending
    }

    pub(in crate::ring) fn poll_close(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_sent(cx))?;
        let socket = &self.0.socket;
        if !std::mem::replace(&mut socket.sending.borrow_mut().is_shut, true)
            && let Some(descriptor) = &*socket.descriptor.borrow()
        {
            match SockRef::from(descriptor).shutdown(std::net::Shutdown::Write) {
                Err(error) if error.kind() != io::ErrorKind::NotConnected => return Poll::Ready(Err(error)),
                _ => {}
            }
        }
        Poll::Ready(Ok(()))
    }

    pub(in crate::ring) fn put(&self, bytes: &[u8]) {
        self.0.put(|outgoing| outgoing.put(bytes));
    }

    pub(in crate::ring) fn put_bytes(&self, bytes: Bytes) {
        self.0.put(|outgoing| outgoing.put_bytes(bytes));
    }

    pub(in crate::ring) fn put_with(&self, count: usize, fill: impl FnOnce(&mut [u8])) {
        self.0.put(|outgoing| outgoing.put_with(count, fill));
    }

    pub(in crate::ring) fn abort(&self) {
        if let Some(descriptor) = &*self.0.socket.descriptor.borrow() {
            abort(SockRef::from(descriptor));
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
        self.0.socket.receiving.borrow().taken
    }

    pub(in crate::ring) fn poll_hangup(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut receiving = self.0.socket.receiving.borrow_mut();
        if receiving.end.is_some() || receiving.hung_up {
            return Poll::Ready(());
        }
        keep(&mut receiving.watcher, cx);
        drop(receiving);
        self.0.socket.watch(&self.0.driver);
        Poll::Pending
    }
}

fn keep(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(cx.waker()),
        none => *none = Some(cx.waker().clone()),
    }
}

// === impl Receiving ===

impl Receiving {
    /// Its reader shall read first.
    fn has_enough(&self) -> bool {
        self.ahead >= RECEIVED_AHEAD_MAX
    }
}

// === impl Handle ===

impl Handle {
    fn put(&self, put: impl FnOnce(&mut Outgoing)) {
        let mut sending = self.socket.sending.borrow_mut();
        if sending.broken.is_some() {
            return; // who puts hears of it from `poll_room`
        }
        put(&mut sending.outgoing);
        if !std::mem::replace(&mut sending.is_dirty, true) {
            self.driver.turn.borrow_mut().dirty.push(Rc::clone(&self.socket));
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.socket.abandoned.set(true);
        let mut receiving = self.socket.receiving.borrow_mut();
        receiving.chunks.clear();
        receiving.ahead = 0;
        (receiving.reader, receiving.watcher) = (None, None);
        drop(receiving);
        self.socket.sending.borrow_mut().writer = None;
        self.driver.turn.borrow_mut().abandoned.push(Rc::clone(&self.socket));
    }
}

// === impl Socket ===

impl Socket {
    fn token(&self, kind: Kind) -> Token {
        Token::new(kind, self.key)
    }

    fn raw(&self) -> RawFd {
        self.descriptor.borrow().as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Queues an operation that completes, once or more.
    ///
    /// # Safety
    /// What it points to lives in `self`, unchanged, until it has completed.
    unsafe fn push(&self, driver: &Uring, entry: io_uring::squeue::Entry, kind: Kind) {
        self.in_flight.set(self.in_flight.get() + 1);
        // SAFETY: the caller's promise; the table keeps `self` until `in_flight` is 0.
        unsafe { driver.push(entry, self.token(kind)) };
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
            _ => {}
        }
        self.vacate(driver);
    }

    /// Leaves the table if nobody needs it any more.
    fn vacate(&self, driver: &Uring) {
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
            (self.receiving.borrow().state == State::Armed, Kind::Receive),
            (self.receiving.borrow().is_end_polled, Kind::Hangup),
            (matches!(self.sending.borrow().flight, Flight::Waiting(_)), Kind::Send),
        ] {
            if is_on {
                driver.cancel(self.token(kind));
            }
        }
        if let Flight::ZeroCopy(_, key) = self.sending.borrow().flight {
            driver.cancel(Token::new(Kind::ZeroCopy, key));
        }
        if let Some(descriptor) = self.descriptor.borrow_mut().take() {
            let close = opcode::Close::new(Fd(descriptor.into_raw_fd())).build();
            // SAFETY: points to no memory. The descriptor's number is nobody else's until the kernel closes it.
            unsafe { driver.push_silent(close, Token::IGNORED) };
        }
        self.vacate(driver);
    }

    // --- connecting

    fn start_connecting(&self, driver: &Uring, address: SocketAddr) {
        let mut connecting = self.connecting.borrow_mut();
        let address = connecting.address.insert(Box::new(address.into()));
        let connect = opcode::Connect::new(Fd(self.raw()), address.as_ptr().cast(), address.len()).build();
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

    // --- receiving

    /// Whatever arrives is wanted.
    fn receive(&self, driver: &Uring) {
        let mut receiving = self.receiving.borrow_mut();
        if receiving.state != State::Idle || receiving.end.is_some() || self.abandoned.get() {
            return;
        }
        receiving.state = State::Armed;
        let mut receive = opcode::RecvMulti::new(Fd(self.raw()), GROUP).build();
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
            let poll =
                opcode::PollAdd::new(Fd(self.raw()), u32::from(libc::POLLRDHUP.cast_unsigned())).build();
            // SAFETY: points to no memory.
            unsafe { self.push(driver, poll, Kind::Hangup) };
        }
    }

    fn received(self: &Rc<Self>, driver: &Rc<Uring>, result: i32, flags: u32) {
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

    fn hung_up(&self, result: i32) {
        let mut receiving = self.receiving.borrow_mut();
        receiving.is_end_polled = false;
        if result > 0 {
            receiving.hung_up = true;
            wake(receiving.watcher.take());
        }
    }

    // --- sending

    /// At the end of a turn: what was put goes out, unless something is on its way still.
    pub(super) fn start_sending(self: &Rc<Self>, driver: &Rc<Uring>) {
        let mut sending = self.sending.borrow_mut();
        sending.is_dirty = false;
        let is_idle = matches!(sending.flight, Flight::None) && sending.broken.is_none();
        if !is_idle || sending.outgoing.unsent() == 0 {
            return;
        }
        driver.counted.sends.add(1);
        let is_stalled = sending.outgoing.stalled_since().is_some();
        let message = Message::new(sending.outgoing.lend());
        let zero_copy = driver.settings.zero_copy_from.is_some_and(|from| message.loan.len() >= from);
        if zero_copy && !is_stalled && !self.abandoned.get() {
            return self.send_zero_copy(driver, &mut sending, message);
        }
        // Who waits for it must hear of it.
        let is_silent = !is_stalled && sending.writer.is_none() && driver.queue.borrow().is_synchronous();
        let descriptor = Fd(self.raw());
        let mut flags = libc::MSG_NOSIGNAL;
        if !is_stalled {
            // As much as the kernel takes at once; less than all counts as failing, and so is heard of.
            flags |= libc::MSG_WAITALL | libc::MSG_DONTWAIT;
        }
        let entry = message.entry(descriptor, flags);
        if is_silent {
            sending.flight = Flight::Silent(message);
            // SAFETY: the message's memory does not move with it, and stays in `flight` until `end_silence` has seen
            // that the send was tried, or a completion has told how much was taken.
            let position = unsafe { driver.push_silent(entry, self.token(Kind::SilentSend)) };
            driver.turn.borrow_mut().silent.push((Rc::clone(self), position));
        } else {
            sending.flight = Flight::Waiting(message);
            // SAFETY: the message's memory does not move with it, and stays in `flight` until the send completes.
            unsafe { self.push(driver, entry, Kind::Send) };
        }
    }

    fn send_zero_copy(self: &Rc<Self>, driver: &Uring, sending: &mut Sending, message: Message) {
        driver.counted.sends_zero_copy.add(1);
        let loan = message.loan.clone();
        let entry = message.entry_zero_copy(Fd(self.raw()));
        let kept = Rc::new(ZeroCopy { socket: Rc::clone(self), message });
        let key = driver.table.borrow_mut().insert(|_| Place::ZeroCopy(kept));
        sending.flight = Flight::ZeroCopy(loan, key);
        self.in_flight.set(self.in_flight.get() + 1);
        // SAFETY: the message's memory stays in the table until the kernel has said that it is done with it.
        unsafe { driver.push(entry, Token::new(Kind::ZeroCopy, key)) };
    }

    /// The kernel was entered and nothing was heard: it has taken everything.
    pub(super) fn sent_in_silence(self: &Rc<Self>, driver: &Rc<Uring>) {
        let mut sending = self.sending.borrow_mut();
        if !matches!(sending.flight, Flight::Silent(_)) {
            return; // something was heard
        }
        if let Flight::Silent(message) = std::mem::take(&mut sending.flight) {
            let count = message.loan.len();
            sending.outgoing.settle(message.loan, count);
        }
        drop(sending);
        self.go_on(driver);
    }

    /// A send has completed: the kernel took so much, or failed.
    fn sent(self: &Rc<Self>, driver: &Rc<Uring>, result: i32) {
        let mut sending = self.sending.borrow_mut();
        let loan = match std::mem::take(&mut sending.flight) {
            Flight::Silent(message) | Flight::Waiting(message) => message.loan,
            Flight::ZeroCopy(loan, _) => loan,
            Flight::None => return,
        };
        let count = usize::try_from(result).unwrap_or(0);
        if count < loan.len() {
            driver.counted.sends_short.add(1);
        }
        let is_whole = count == loan.len();
        sending.outgoing.settle(loan, count);
        if result < 0 && !matches!(-result, libc::EAGAIN | libc::EINTR | libc::ECANCELED) {
            sending.broken = Some(-result);
            sending.outgoing.give_up();
        } else if !is_whole {
            sending.outgoing.stalled(clock::now());
        }
        drop(sending);
        self.go_on(driver);
    }

    /// A send is over: the next one may begin, and there may be room.
    fn go_on(self: &Rc<Self>, driver: &Rc<Uring>) {
        let mut sending = self.sending.borrow_mut();
        if self.abandoned.get() {
            sending.outgoing.give_up();
            return;
        }
        if sending.outgoing.unsent() > 0 && !std::mem::replace(&mut sending.is_dirty, true) {
            driver.turn.borrow_mut().dirty.push(Rc::clone(self));
        }
        wake(sending.writer.take()); // it looks for itself whether that is enough
    }
}

/// A zero-copy send has got somewhere: first taken, then done with.
pub(super) fn zero_copy_completed(driver: &Rc<Uring>, key: Key, result: i32, flags: u32) {
    let Some(Place::ZeroCopy(kept)) = driver.table.borrow().get(key) else { return };
    if !cqueue::notif(flags) {
        kept.socket.sent(driver, result);
    }
    if !cqueue::more(flags) {
        kept.socket.in_flight.set(kept.socket.in_flight.get() - 1);
        let place = driver.table.borrow_mut().remove(key);
        drop(place);
        kept.socket.vacate(driver);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

// === impl Message ===

impl Message {
    fn new(loan: Loan) -> Self {
        let parts = (loan.pieces().count() > 1).then(|| Parts::new(&loan));
        Self { loan, parts }
    }

    /// The first piece.
    fn piece(&self) -> (*const u8, u32) {
        let piece: &[u8] = self.loan.pieces().next().map_or(&[], |piece| piece);
        (piece.as_ptr(), u32::try_from(piece.len()).unwrap_or(u32::MAX))
    }

    fn entry(&self, descriptor: Fd, flags: i32) -> io_uring::squeue::Entry {
        match &self.parts {
            Some(parts) => {
                opcode::SendMsg::new(descriptor, &raw const parts.header).flags(flags.cast_unsigned()).build()
            }
            None => {
                let (start, len) = self.piece();
                opcode::Send::new(descriptor, start, len).flags(flags).build()
            }
        }
    }

    fn entry_zero_copy(&self, descriptor: Fd) -> io_uring::squeue::Entry {
        match &self.parts {
            Some(parts) => opcode::SendMsgZc::new(descriptor, &raw const parts.header)
                .flags(libc::MSG_NOSIGNAL.cast_unsigned())
                .build(),
            None => {
                let (start, len) = self.piece();
                opcode::SendZc::new(descriptor, start, len).flags(libc::MSG_NOSIGNAL).build()
            }
        }
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
