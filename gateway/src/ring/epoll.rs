//! Sockets by epoll.

use std::cell::Cell;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;
use usher_flowcontrol::units::Nanos;

use super::outgoing::{HIGH_WATER, Outgoing, PIECES_MAX};
use super::{Chunk, clock};

/// Connections that the kernel holds ready until they are accepted. Linux cuts it to `net.core.somaxconn`;
/// a herd of kubelets that reconnects at once is some thousands.
const BACKLOG: i32 = 4096;

/// A connection that has been silent for so long is probed, again and again; nine probes without an answer end it
/// (the kernel's default). A peer that lost its power while a `logs -f` or an `exec` was silent would else keep it
/// for ever. Go's default, and so kube-apiserver's.
const PROBE_AFTER: Duration = Duration::from_secs(15);

/// A listening socket for any number of workers: with `shared`, further sockets may listen on the same address
/// and the kernel spreads connections over them.
///
/// # Errors
/// As the operating system says: in use, not permitted, no such address.
pub fn bind(address: SocketAddr, shared: bool) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Opens a connection. No time limit: see [`super::within`].
///
/// # Errors
/// As the operating system says.
pub async fn connect(address: SocketAddr) -> io::Result<Stream> {
    Stream::new(TcpStream::connect(address).await?)
}

/// Addresses of a host; asked of the system's resolver in a thread of its own unless it is an address.
///
/// # Errors
/// As the resolver says.
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((host, port)).await?.collect())
}

/// Accepts connections in one worker.
#[derive(Debug)]
pub struct Listener(TcpListener);

/// One connection. Clones are the same connection: [`Stream::poll_hangup`] can be asked while another clone is read.
#[derive(Clone, Debug)]
pub struct Stream(Rc<Socketed>);

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

// === impl Listener ===

impl Listener {
    /// Takes a bound socket into this worker's ring.
    ///
    /// # Errors
    /// The ring cannot take another descriptor.
    pub fn new(socket: std::net::TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        TcpListener::from_std(socket).map(Self)
    }

    /// The next connection and where it comes from.
    ///
    /// # Errors
    /// As `accept(2)`: most errors are of that one connection, or pass when descriptors are free again.
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let (tcp, peer) = self.0.accept().await?;
        Ok((Stream::new(tcp)?, peer))
    }
}

// === impl Stream ===

impl Stream {
    fn new(tcp: TcpStream) -> io::Result<Self> {
        tcp.set_nodelay(true)?; // answers are written whole, nothing is gained by waiting for more
        let probes = TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_AFTER);
        SockRef::from(&tcp).set_tcp_keepalive(&probes)?;
        Ok(Self(Rc::new(Socketed {
            tcp: RefCell::new(tcp),
            forgotten: Cell::new(false),
            received: Cell::new(0),
            outgoing: RefCell::default(),
            flushing: Cell::new(false),
            broken: Cell::new(None),
            writer: RefCell::default(),
            flusher: RefCell::default(),
        })))
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
    pub fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<Chunk>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buf = ReadBuf::new(scratch);
            ready!(self.read_on(cx, &mut buf))?;
            let received = buf.filled();
            self.0.received.set(self.0.received.get() + received.len() as u64);
            Poll::Ready(Ok(Chunk::from(received)))
        })
    }

    /// Room to put more: fewer than [`super::HIGH_WATER`] bytes are unsent.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_unsent(cx, HIGH_WATER)
    }

    /// The kernel has taken all that was put.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_unsent(cx, 0)
    }

    /// Our side is closed once everything is sent.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_close(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_sent(cx))?;
        Pin::new(&mut *self.0.tcp.borrow_mut()).poll_shutdown(cx)
    }

    /// Sends these bytes at the end of the turn.
    pub fn put(&self, bytes: &[u8]) {
        self.0.put(|outgoing| outgoing.put(bytes));
    }

    /// Sends these bytes at the end of the turn; does not copy them if they are many.
    pub fn put_bytes(&self, bytes: Bytes) {
        self.0.put(|outgoing| outgoing.put_bytes(bytes));
    }

    /// From now on closing it throws away what the peer has not taken, here and in the kernel, and the peer sees a
    /// reset. (Closed otherwise, it would hold the kernel's memory for as long as the peer keeps its window shut.)
    pub fn abort(&self) {
        // A connection that is broken already has nothing to throw away.
        let _ = SockRef::from(&*self.0.tcp.borrow()).set_linger(Some(Duration::ZERO));
    }

    /// Bytes put that the kernel has not taken.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.0.outgoing.borrow().unsent()
    }

    /// Since when the kernel takes nothing of what is unsent: the peer does not read.
    #[must_use]
    pub fn stalled_since(&self) -> Option<Nanos> {
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

    /// Bytes read so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.0.received.get()
    }

    /// Done when the peer has closed its side or the connection is broken, whether or not there are bytes
    /// before it that nobody has read yet. To be polled by the task that reads.
    pub fn poll_hangup(&self, cx: &mut Context<'_>) -> Poll<()> {
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

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_room(cx))?;
        self.put(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_room(cx))?;
        bufs.iter().for_each(|buf| self.put(buf));
        Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Nothing to do: all is sent at the end of the turn.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.broken.get().map_or(Ok(()), |error| Err(io::Error::from_raw_os_error(error))))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_close(cx)
    }
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
