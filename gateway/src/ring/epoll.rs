//! Sockets by epoll.

use std::cell::Cell;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use socket2::{SockRef, Socket};
use tokio::io::{AsyncRead, AsyncWrite as _, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::LocalSet;
use usher_flowcontrol::units::Nanos;

use super::outgoing::{HIGH_WATER, Outgoing, PIECES_MAX};
use super::socket::{abort, prepare};
use super::{Chunk, clock, ending, timer};

/// See [`super::run`].
pub(super) fn run<T>(future: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = LocalSet::new();
    let done = runtime.block_on(async {
        let mut turns = pin!(tasks.run_until(future));
        let mut alarm = Alarm::default();
        poll_fn(|cx| {
            clock::turn();
            timer::fire();
            let turned = turns.as_mut().poll(cx);
            if let Err(died) = ending::survived() {
                return Poll::Ready(Err(died));
            }
            flush(&tasks);
            if turned.is_pending() {
                alarm.set(cx);
            }
            turned.map(Ok)
        })
        .await
    });
    drop(tasks);
    ending::forget();
    done
}

/// Wakes the runtime when the next timer is due.
#[derive(Default)]
struct Alarm {
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
    at: Option<Nanos>,
}

/// See [`super::connect`]. From that socket, or a new one.
pub(super) async fn connect(socket: Option<Socket>, address: SocketAddr) -> io::Result<Stream> {
    let Some(socket) = socket else { return Stream::new(TcpStream::connect(address).await?) };
    socket.set_nonblocking(true)?;
    Ok(Stream::of(TcpSocket::from_std_stream(socket.into()).connect(address).await?))
}

/// Accepts connections in one worker.
#[derive(Debug)]
pub(super) struct Listener(TcpListener);

/// One connection: see [`super::Stream`].
#[derive(Clone, Debug)]
pub(super) struct Stream(Rc<Socketed>);

#[derive(Debug)]
struct Socketed {
    tcp: RefCell<TcpStream>,
    /// The reactor was told to forget that bytes are there, so that it reports the next event (see `hangup`):
    /// the next read asks the kernel itself.
    forgotten: Cell<bool>,
    received: Cell<u64>,
    outgoing: RefCell<Outgoing>,
    /// It waits in [`DIRTY`] for the end of the turn, or its flusher runs.
    flushing: Cell<bool>,
    /// Sending failed so.
    broken: Cell<Option<i32>>,
    /// Who waits for room, or for everything to be sent.
    writer: RefCell<Option<Waker>>,
    /// Sends on when the kernel takes bytes again.
    flusher: RefCell<Option<Waker>>,
}

thread_local! {
    /// Connections with something to send at the end of this turn.
    static DIRTY: RefCell<Vec<Rc<Socketed>>> = const { RefCell::new(Vec::new()) };
    /// Where bytes are received before their number is known.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; SCRATCH_BYTES]);
}

/// Bytes received at once.
const SCRATCH_BYTES: usize = 64 * 1024;

/// The end of a turn: what its tasks have put goes out.
pub(super) fn flush(tasks: &LocalSet) {
    ending::call();
    let dirty = DIRTY.take();
    for socketed in dirty {
        let mut cx = Context::from_waker(Waker::noop());
        if socketed.poll_send(&mut cx).is_ready() {
            socketed.flushing.set(false);
        } else {
            tasks.spawn_local(send_on(Rc::downgrade(&socketed)));
        }
    }
}

/// Sends the rest when the kernel takes it, for as long as the connection is held.
async fn send_on(socketed: Weak<Socketed>) {
    poll_fn(|cx| {
        let Some(socketed) = socketed.upgrade() else { return Poll::Ready(()) };
        socketed.flusher.replace(Some(cx.waker().clone()));
        ready!(socketed.poll_send(cx));
        socketed.flusher.take();
        socketed.flushing.set(false);
        Poll::Ready(())
    })
    .await;
}

// === impl Alarm ===

impl Alarm {
    /// The task of `cx` is woken when a timer is due.
    fn set(&mut self, cx: &mut Context<'_>) {
        let next = timer::next_at();
        if self.at != next {
            self.at = next;
            match (next.map(|at| clock::instant(at).into()), &mut self.sleep) {
                (Some(at), Some(sleep)) => sleep.as_mut().reset(at),
                (Some(at), none) => *none = Some(Box::pin(tokio::time::sleep_until(at))),
                (None, _) => self.sleep = None,
            }
        }
        if let Some(sleep) = &mut self.sleep
            && sleep.as_mut().poll(cx).is_ready()
        {
            self.at = None;
            cx.waker().wake_by_ref();
        }
    }
}

// === impl Listener ===

impl Listener {
    /// Takes a bound socket into this worker's ring.
    ///
    /// # Errors
    /// The ring cannot take another descriptor.
    pub(super) fn new(socket: std::net::TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        TcpListener::from_std(socket).map(Self)
    }

    /// The next connection and where it comes from.
    ///
    /// # Errors
    /// As `accept(2)`: most errors are of that one connection, or pass when descriptors are free again.
    pub(super) async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let (tcp, peer) = self.0.accept().await?;
        Ok((Stream::new(tcp)?, peer))
    }
}

// === impl Stream ===

impl Stream {
    fn new(tcp: TcpStream) -> io::Result<Self> {
        prepare(SockRef::from(&tcp))?;
        Ok(Self::of(tcp))
    }

    fn of(tcp: TcpStream) -> Self {
        Self(Rc::new(Socketed {
            tcp: RefCell::new(tcp),
            forgotten: Cell::new(false),
            received: Cell::new(0),
            outgoing: RefCell::default(),
            flushing: Cell::new(false),
            broken: Cell::new(None),
            writer: RefCell::default(),
            flusher: RefCell::default(),
        }))
    }

    fn read_on(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut tcp = self.0.tcp.borrow_mut();
        if self.0.forgotten.get() {
            match read_now(&tcp, buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.0.forgotten.set(false),
                done => return Poll::Ready(done),
            }
        }
        Pin::new(&mut *tcp).poll_read(cx, buf)
    }

    /// The next bytes; an empty chunk is the peer's end. Nothing is held while nothing is there.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<Chunk>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buf = ReadBuf::new(scratch);
            ready!(self.read_on(cx, &mut buf))?;
            let received = buf.filled();
            self.0.received.set(self.0.received.get() + received.len() as u64);
            Poll::Ready(Ok(Chunk::from(received)))
        })
    }

    /// Room to put more: fewer than [`HIGH_WATER`] bytes are unsent.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_unsent(cx, HIGH_WATER)
    }

    /// The kernel has taken all that was put.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_unsent(cx, 0)
    }

    /// Our side is closed once everything is sent.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn poll_close(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_sent(cx))?;
        Pin::new(&mut *self.0.tcp.borrow_mut()).poll_shutdown(cx)
    }

    /// Sends these bytes at the end of the turn.
    pub(super) fn put(&self, bytes: &[u8]) {
        self.0.put(|outgoing| outgoing.put(bytes));
    }

    /// Sends these bytes at the end of the turn; does not copy them if they are many.
    pub(super) fn put_bytes(&self, bytes: Bytes) {
        self.0.put(|outgoing| outgoing.put_bytes(bytes));
    }

    pub(super) fn put_with(&self, count: usize, fill: impl FnOnce(&mut [u8])) {
        self.0.put(|outgoing| outgoing.put_with(count, fill));
    }

    pub(super) fn abort(&self) {
        abort(SockRef::from(&*self.0.tcp.borrow()));
    }

    /// Bytes put that the kernel has not taken.
    pub(super) fn unsent(&self) -> usize {
        self.0.outgoing.borrow().unsent()
    }

    /// Since when the kernel takes nothing of what is unsent: the peer does not read.
    pub(super) fn stalled_since(&self) -> Option<Nanos> {
        self.0.outgoing.borrow().stalled_since()
    }

    fn poll_unsent(&self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<()>> {
        let socketed = &self.0;
        if socketed.outgoing.borrow().unsent() > most && socketed.flusher.borrow().is_none() {
            let _ = socketed.poll_send(&mut Context::from_waker(Waker::noop())); // a flusher waits, if need be
        }
        if let Some(error) = socketed.broken.get() {
            return Poll::Ready(Err(io::Error::from_raw_os_error(error)));
        }
        if socketed.outgoing.borrow().unsent() <= most {
            return Poll::Ready(Ok(()));
        }
        socketed.writer.replace(Some(cx.waker().clone()));
        Poll::Pending
    }

    /// Sending failed so.
    pub(super) fn broken(&self) -> Option<i32> {
        self.0.broken.get()
    }

    /// Bytes read so far.
    pub(super) fn received(&self) -> u64 {
        self.0.received.get()
    }

    /// Done when the peer has closed its side or the connection is broken, whether or not there are bytes
    /// before it that nobody has read yet. To be polled by the task that reads.
    pub(super) fn poll_hangup(&self, cx: &mut Context<'_>) -> Poll<()> {
        let tcp = self.0.tcp.borrow();
        loop {
            if ready!(tcp.poll_read_ready(cx)).is_err() || hung_up(&tcp) {
                return Poll::Ready(());
            }
            // Bytes are there that nobody reads now. Readiness is edge-triggered: forget it, and whatever
            // comes next, bytes or the end, wakes this task again.
            self.0.forgotten.set(true);
            let forget = tcp
                .try_io(Interest::READABLE, || -> io::Result<()> { Err(io::ErrorKind::WouldBlock.into()) });
            debug_assert!(forget.is_err());
        }
    }
}

/// Whether the kernel has seen the peer's end or an error.
fn hung_up(tcp: &TcpStream) -> bool {
    let mut asked = libc::pollfd { fd: tcp.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: `asked` is one valid pollfd for the length of the call; the time-out of 0 returns at once.
    let answered = unsafe { libc::poll(&raw mut asked, 1, 0) };
    answered == 1 && asked.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let done = self.read_on(cx, buf);
        self.0.received.set(self.0.received.get() + (buf.filled().len() - before) as u64);
        done
    }
}

/// Reads without asking the reactor.
fn read_now(tcp: &TcpStream, buf: &mut ReadBuf<'_>) -> io::Result<()> {
    let unfilled = buf.initialize_unfilled();
    let read = io::Read::read(&mut &*SockRef::from(tcp), unfilled)?;
    buf.advance(read);
    Ok(())
}

// === impl Socketed ===

impl Socketed {
    fn put(self: &Rc<Self>, put: impl FnOnce(&mut Outgoing)) {
        if self.broken.get().is_some() {
            return; // who puts hears of it from `poll_room`
        }
        put(&mut self.outgoing.borrow_mut());
        if !self.flushing.replace(true) {
            DIRTY.with_borrow_mut(|dirty| dirty.push(Rc::clone(self)));
        }
    }

    /// Sends what is unsent. Done when there is nothing more to send, or never will be.
    fn poll_send(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut outgoing = self.outgoing.borrow_mut();
        let done = loop {
            if outgoing.unsent() == 0 {
                break Poll::Ready(());
            }
            let mut slices = [IoSlice::new(&[]); PIECES_MAX];
            let filled = outgoing.slices(&mut slices);
            let sent = Pin::new(&mut *self.tcp.borrow_mut()).poll_write_vectored(cx, &slices[..filled]);
            match sent {
                Poll::Ready(Ok(count)) => outgoing.taken(count),
                Poll::Ready(Err(error)) => {
                    self.broken.set(Some(error.raw_os_error().unwrap_or(libc::EPIPE)));
                    outgoing.give_up();
                }
                Poll::Pending => {
                    outgoing.stalled(clock::now());
                    break Poll::Pending;
                }
            }
        };
        if let Some(writer) = self.writer.take() {
            writer.wake(); // it looks for itself whether that is enough
        }
        done
    }
}

impl Drop for Socketed {
    fn drop(&mut self) {
        if let Some(flusher) = self.flusher.take() {
            flusher.wake(); // to its end
        }
    }
}
