//! A connection's bytes over the ring, plain or under TLS: the same for clients and for apiservers.

use std::io::{self, Write as _};
use std::ops::DerefMut;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rustls::{ConnectionCommon, SideData};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsStream;
use usher_flowcontrol::units::Nanos;

use crate::ring::{Chunk, Stream};

/// A connection's bytes.
#[derive(Debug)]
pub struct Wire {
    transport: Transport,
    /// Bytes that were read ahead and are to be read again.
    early: Bytes,
}

#[derive(Debug)]
enum Transport {
    Plain(Stream),
    /// Handshake done.
    Tls(Box<TlsStream<Stream>>),
}

impl Wire {
    /// Bytes as they are.
    #[must_use]
    pub fn plain(stream: Stream) -> Self {
        Self { transport: Transport::Plain(stream), early: Bytes::new() }
    }

    /// Under TLS, handshake done.
    #[must_use]
    pub fn tls(stream: TlsStream<Stream>) -> Self {
        Self { transport: Transport::Tls(Box::new(stream)), early: Bytes::new() }
    }

    /// The next reads give these bytes (which somebody read too early) before any others.
    #[must_use]
    pub fn unread(mut self, early: Bytes) -> Self {
        debug_assert!(self.early.is_empty(), "read ahead once");
        self.early = early;
        self
    }

    /// The connection underneath.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        match &self.transport {
            Transport::Plain(stream) => stream,
            Transport::Tls(tls) => tls.get_ref().0,
        }
    }

    /// What ALPN agreed on.
    #[must_use]
    pub fn protocol(&self) -> Option<&[u8]> {
        match &self.transport {
            Transport::Plain(_) => None,
            Transport::Tls(tls) => tls.get_ref().1.alpn_protocol(),
        }
    }

    /// The peer's certificate chain as sent, end entity first; empty if it sent none.
    #[must_use]
    pub fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        match &self.transport {
            Transport::Plain(_) => &[],
            Transport::Tls(tls) => tls.get_ref().1.peer_certificates().unwrap_or_default(),
        }
    }
}

impl Wire {
    /// The next bytes; an empty chunk is the peer's end. Nothing is held while nothing is there.
    ///
    /// # Errors
    /// The connection is broken, or what came is not TLS.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Chunk>> {
        if !self.early.is_empty() {
            return Poll::Ready(Ok(Chunk::from(&std::mem::take(&mut self.early)[..])));
        }
        match &mut self.transport {
            Transport::Plain(stream) => stream.poll_recv(cx),
            Transport::Tls(tls) => {
                let mut record = [0; RECORD_BYTES];
                let mut buf = ReadBuf::new(&mut record);
                ready!(Pin::new(tls).poll_read(cx, &mut buf))?;
                Poll::Ready(Ok(Chunk::from(buf.filled())))
            }
        }
    }

    /// Room to put more.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_room(cx)
    }

    /// The kernel has taken all that was put.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_sent(cx)
    }

    /// Our side is closed once everything is sent.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => stream.poll_close(cx),
            Transport::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }

    /// Sends these bytes at the end of the turn.
    pub fn put(&mut self, bytes: &[u8]) {
        match &mut self.transport {
            Transport::Plain(stream) => stream.put(bytes),
            Transport::Tls(tls) => seal(tls, bytes),
        }
    }

    /// Sends these bytes at the end of the turn; many are not copied if they travel in the clear.
    pub fn put_bytes(&mut self, bytes: Bytes) {
        match &mut self.transport {
            Transport::Plain(stream) => stream.put_bytes(bytes),
            Transport::Tls(tls) => seal(tls, &bytes),
        }
    }

    /// Bytes put that the kernel has not taken, as they travel.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.stream().unsent()
    }

    /// Since when the kernel takes nothing of what is unsent: the peer does not read.
    #[must_use]
    pub fn stalled_since(&self) -> Option<Nanos> {
        self.stream().stalled_since()
    }
}

/// Most bytes of a TLS record in the clear (RFC 8446 §5.1).
const RECORD_BYTES: usize = 16 * 1024;

/// Puts bytes under TLS.
fn seal(tls: &mut TlsStream<Stream>, bytes: &[u8]) {
    match tls {
        TlsStream::Client(tls) => seal_on(tls.get_mut(), bytes),
        TlsStream::Server(tls) => seal_on(tls.get_mut(), bytes),
    }
}

fn seal_on<Session, Side>((stream, session): (&mut Stream, &mut Session), mut bytes: &[u8])
where
    Session: DerefMut<Target = ConnectionCommon<Side>>,
    Side: SideData,
{
    // Neither fails: one writes to memory, the other puts. A session that takes nothing is broken.
    while !bytes.is_empty()
        && let Ok(sealed @ 1..) = session.writer().write(bytes)
    {
        bytes = &bytes[sealed..];
        while session.wants_write() && session.write_tls(&mut Put(stream)).is_ok_and(|put| put > 0) {}
    }
}

/// Sealed bytes to a connection.
struct Put<'a>(&'a Stream);

impl io::Write for Put<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.put(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let wire = self.get_mut();
        if !wire.early.is_empty() {
            let now = wire.early.split_to(wire.early.len().min(buf.remaining()));
            buf.put_slice(&now);
            return Poll::Ready(Ok(()));
        }
        match &mut wire.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Transport::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Transport::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Transport::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().transport {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().transport {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
