//! Sockets as a worker sees them, whichever way its I/O is done.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use usher_flowcontrol::units::Nanos;

use super::passage::{Pass, Passage, bound};
use super::{Chunk, epoll, uring};

/// Connections that the kernel holds ready until they are accepted. Linux cuts it to `net.core.somaxconn`;
/// a herd of kubelets that reconnects at once is some thousands.
pub(super) const BACKLOG: i32 = 4096;

/// A connection that has been silent for so long is probed, again and again; nine probes without an answer end it
/// (the kernel's default). A peer that lost its power while a `logs -f` or an `exec` was silent would else keep it
/// for ever. Go's default, and so kube-apiserver's.
const PROBE_AFTER: Duration = Duration::from_secs(15);

/// A listening socket, alone on its address.
///
/// # Errors
/// As the operating system says: in use, not permitted, no such address.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = open(address)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A listening socket for each of so many workers, all on one address: the kernel spreads connections over them. Port 0
/// chooses one for all.
///
/// The first is bound as if it were alone and only then lets others in (Linux asks a socket when another one comes, not
/// when it was bound): a second usher, of the same user, is refused and does not quietly take half of the connections. So does a
/// single one: a program in the kernel that may refuse connections is attached to sockets that let others in.
///
/// # Errors
/// As for [`bind`].
pub fn bind_shared(address: SocketAddr, count: usize) -> io::Result<Vec<std::net::TcpListener>> {
    let first = open(address)?;
    first.bind(&address.into())?;
    first.set_reuse_port(true)?;
    first.listen(BACKLOG)?;
    let mut sockets = vec![first.into()];
    sockets.extend(bind_beside(&sockets[0], count.saturating_sub(1))?);
    Ok(sockets)
}

/// So many more on the address of one that listens already, which lets others in from now on.
///
/// # Errors
/// As for [`bind`]: the one that listens may be another user's.
pub fn bind_beside(first: &std::net::TcpListener, count: usize) -> io::Result<Vec<std::net::TcpListener>> {
    if count > 0 {
        SockRef::from(first).set_reuse_port(true)?;
    }
    let address = first.local_addr()?;
    (0..count)
        .map(|_| {
            let further = open(address)?;
            further.set_reuse_port(true)?;
            further.bind(&address.into())?;
            further.listen(BACKLOG)?;
            Ok(further.into())
        })
        .collect()
}

fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A socket to connect to that address, prepared.
pub(super) fn for_connecting(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    prepare(SockRef::from(&socket))?;
    Ok(socket)
}

/// What every connection is set to. Connections inherit it from the socket that accepts them.
pub(super) fn prepare(socket: SockRef<'_>) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?; // answers are written whole, nothing is gained by waiting for more
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_AFTER))
}

/// Closing it throws away what the peer has not taken.
pub(super) fn abort(socket: SockRef<'_>) {
    let _ = socket.set_linger(Some(Duration::ZERO)); // what is broken already has nothing to throw away
}

/// Opens a connection. No time limit: see [`super::within`].
///
/// # Errors
/// As the operating system says.
pub async fn connect(address: SocketAddr) -> io::Result<Stream> {
    connect_by(address, None).await
}

/// [`connect`], through a passage if it leads there.
///
/// # Errors
/// As there, and as [`super::bound`].
pub async fn connect_by(address: SocketAddr, passage: Option<&Arc<dyn Passage>>) -> io::Result<Stream> {
    let (socket, pass) = match passage.filter(|passage| passage.leads_to(address)) {
        Some(passage) => {
            let (socket, pass) = bound(address, passage)?;
            (Some(socket), Some(Rc::new(pass)))
        }
        None => (None, None),
    };
    let io = match uring::current() {
        Some(driver) => Io::Uring(uring::connect(driver, socket, address).await?),
        None => Io::Epoll(epoll::connect(socket, address).await?),
    };
    Ok(Stream { _pass: pass, io })
}

/// Addresses of a host; asked of the system's resolver in a thread of its own unless it is an address.
///
/// # Errors
/// As the resolver says.
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (answer, asked) = tokio::sync::oneshot::channel();
    let host = host.to_owned();
    std::thread::Builder::new().name("resolver".to_owned()).spawn(move || {
        let addresses = std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), port));
        let _ = answer.send(addresses.map(Iterator::collect)); // who does not wait any more need not know
    })?;
    asked.await.unwrap_or_else(|_| Err(io::Error::other("the resolver gave no answer")))
}

/// Accepts connections in one worker.
pub struct Listener(Io<epoll::Listener, uring::Listener>);

/// One connection. Clones are the same connection: [`Stream::poll_hangup`] can be asked while another clone is read.
#[derive(Clone)]
pub struct Stream {
    /// Above the connection itself: it is dropped before.
    _pass: Option<Rc<Pass>>,
    io: Io<epoll::Stream, uring::Stream>,
}

#[derive(Clone)]
enum Io<E, U> {
    Epoll(E),
    Uring(U),
}

/// Asks whichever it is.
macro_rules! either {
    ($io:expr, $it:ident => $done:expr) => {
        match &$io {
            Io::Epoll($it) => $done,
            Io::Uring($it) => $done,
        }
    };
}

// === impl Listener ===

impl Listener {
    /// Takes a bound socket into this worker's ring.
    ///
    /// # Errors
    /// The ring cannot take another descriptor.
    pub fn new(socket: std::net::TcpListener) -> io::Result<Self> {
        Ok(Self(match uring::current() {
            Some(driver) => Io::Uring(uring::Listener::new(driver, socket)?),
            None => Io::Epoll(epoll::Listener::new(socket)?),
        }))
    }

    /// The next connection and where it comes from.
    ///
    /// # Errors
    /// As `accept(2)`: most errors are of that one connection, or pass when descriptors are free again.
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        self.accept_into(usize::MAX).await
    }

    /// [`Listener::accept`] with room for so many: no more are taken out of the kernel's backlog, where several could be
    /// had at once.
    ///
    /// # Errors
    /// As there.
    pub async fn accept_into(&self, room: usize) -> io::Result<(Stream, SocketAddr)> {
        match &self.0 {
            Io::Epoll(listener) => {
                listener.accept().await.map(|(stream, peer)| (Stream::from(Io::Epoll(stream)), peer))
            }
            Io::Uring(listener) => {
                listener.accept(room).await.map(|(stream, peer)| (Stream::from(Io::Uring(stream)), peer))
            }
        }
    }

    /// Accepts no more. What the kernel has accepted for us by then, or has ready, comes out, one by one, until there is no
    /// more; what comes later stays with it, for whoever else has the socket.
    pub async fn rest(&self) -> Option<(Stream, SocketAddr)> {
        match &self.0 {
            Io::Epoll(_) => None, // it takes one connection when it hands one out
            Io::Uring(listener) => {
                listener.rest().await.map(|(stream, peer)| (Stream::from(Io::Uring(stream)), peer))
            }
        }
    }
}

// === impl Stream ===

impl Stream {
    /// The next bytes; an empty chunk is the peer's end. Nothing is held while nothing is there.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<Chunk>> {
        either!(self.io, stream => stream.poll_recv(cx))
    }

    /// Room to put more: at most [`super::HIGH_WATER`] bytes are unsent.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.io, stream => stream.poll_room(cx))
    }

    /// The kernel has taken all that was put.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.io, stream => stream.poll_sent(cx))
    }

    /// Our side is closed once everything is sent.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_close(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.io, stream => stream.poll_close(cx))
    }

    /// Sends these bytes at the end of the turn.
    pub fn put(&self, bytes: &[u8]) {
        either!(self.io, stream => stream.put(bytes));
    }

    /// Sends these bytes at the end of the turn; does not copy them if they are many.
    pub fn put_bytes(&self, bytes: Bytes) {
        either!(self.io, stream => stream.put_bytes(bytes));
    }

    /// Sends `count` bytes at the end of the turn, written by `fill` where they will be sent from.
    pub fn put_with(&self, count: usize, fill: impl FnOnce(&mut [u8])) {
        either!(self.io, stream => stream.put_with(count, fill));
    }

    /// From now on closing it throws away what the peer has not taken, here and in the kernel, and the peer sees a
    /// reset. (Closed otherwise, it would hold the kernel's memory for as long as the peer keeps its window shut.)
    pub fn abort(&self) {
        either!(self.io, stream => stream.abort());
    }

    /// Bytes put that the kernel has not taken.
    #[must_use]
    pub fn unsent(&self) -> usize {
        either!(self.io, stream => stream.unsent())
    }

    /// Since when the kernel takes nothing of what is unsent: the peer does not read.
    #[must_use]
    pub fn stalled_since(&self) -> Option<Nanos> {
        either!(self.io, stream => stream.stalled_since())
    }

    /// Bytes read so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        either!(self.io, stream => stream.received())
    }

    /// Done when the peer has closed its side or the connection is broken, whether or not there are bytes
    /// before it that nobody has read yet. To be polled by the task that reads.
    pub fn poll_hangup(&self, cx: &mut Context<'_>) -> Poll<()> {
        either!(self.io, stream => stream.poll_hangup(cx))
    }
}

impl From<Io<epoll::Stream, uring::Stream>> for Stream {
    fn from(io: Io<epoll::Stream, uring::Stream>) -> Self {
        Self { _pass: None, io }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Stream({} received, {} unsent)", self.received(), self.unsent())
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Listener")
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = match &mut self.io {
            Io::Epoll(stream) => return Pin::new(stream).poll_read(cx, buf),
            Io::Uring(stream) => stream,
        };
        let mut chunk = ready!(stream.poll_recv(cx))?;
        let now = chunk.len().min(buf.remaining());
        buf.put_slice(&chunk[..now]);
        if now < chunk.len() {
            chunk.advance(now);
            stream.unread(chunk);
        }
        Poll::Ready(Ok(()))
    }
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
        let broken = either!(self.io, stream => stream.broken());
        Poll::Ready(broken.map_or(Ok(()), |error| Err(io::Error::from_raw_os_error(error))))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_close(cx)
    }
}
