//! Sockets by epoll.

use std::cell::Cell;
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

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
        Pin::new(&mut *self.0.tcp.borrow_mut()).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.tcp.borrow_mut()).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.tcp.borrow_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.tcp.borrow_mut()).poll_shutdown(cx)
    }
}
