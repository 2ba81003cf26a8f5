//! A connection's bytes over the ring, plain or under TLS: the same for clients and for apiservers.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use usher_flowcontrol::units::Nanos;

use crate::ring::{Chunk, HIGH_WATER, Stream};
use crate::tls;

/// A connection's bytes.
#[derive(Debug)]
pub struct Wire {
    transport: Transport,
    /// Bytes that were received and are to be read.
    early: Chunk,
}

#[derive(Debug)]
enum Transport {
    Plain(Stream),
    /// Handshake done.
    Tls(Box<tls::Stream>),
}

impl Wire {
    /// Bytes as they are.
    #[must_use]
    pub fn plain(stream: Stream) -> Self {
        Self { transport: Transport::Plain(stream), early: Chunk::default() }
    }

    /// Under TLS, handshake done.
    #[must_use]
    pub fn tls(stream: tls::Stream) -> Self {
        Self { transport: Transport::Tls(Box::new(stream)), early: Chunk::default() }
    }

    /// The next reads give these bytes (which somebody read too early) before any others.
    #[must_use]
    pub fn unread(mut self, early: Bytes) -> Self {
        debug_assert!(self.early.is_empty(), "read ahead once");
        self.early = Chunk::from(Vec::from(early));
        self
    }

    /// The connection underneath.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        match &self.transport {
            Transport::Plain(stream) => stream,
            Transport::Tls(tls) => tls.below(),
        }
    }

    /// What ALPN agreed on.
    #[must_use]
    pub fn protocol(&self) -> Option<&[u8]> {
        match &self.transport {
            Transport::Plain(_) => None,
            Transport::Tls(tls) => tls.protocol(),
        }
    }

    /// The peer's certificate chain as sent, end entity first; empty if it sent none.
    #[must_use]
    pub fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        match &self.transport {
            Transport::Plain(_) => &[],
            Transport::Tls(tls) => tls.peer_certificates(),
        }
    }
}

impl Wire {
    /// The peer's certificate chain is needed no more.
    pub fn forget_peer_certificates(&mut self) {
        if let Transport::Tls(tls) = &mut self.transport {
            tls.forget_peer_certificates();
        }
    }

    /// The next bytes; an empty chunk is the peer's end. Nothing is held while nothing is there.
    ///
    /// # Errors
    /// The connection is broken, or what came is not TLS; `UnexpectedEof` if a peer under TLS ended without saying so.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Chunk>> {
        if !self.early.is_empty() {
            return Poll::Ready(Ok(std::mem::take(&mut self.early)));
        }
        match &mut self.transport {
            Transport::Plain(stream) => stream.poll_recv(cx),
            Transport::Tls(tls) => tls.poll_recv(cx),
        }
    }

    /// Room to put more.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.transport {
            Transport::Plain(stream) => stream.poll_room(cx),
            Transport::Tls(tls) => tls.poll_room(cx),
        }
    }

    /// The kernel has taken all that was put.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.transport {
            Transport::Plain(stream) => stream.poll_sent(cx),
            Transport::Tls(tls) => tls.poll_sent(cx),
        }
    }

    /// Our side is closed once everything is sent.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => stream.poll_close(cx),
            Transport::Tls(tls) => tls.poll_close(cx),
        }
    }

    /// Sends these bytes at the end of the turn.
    pub fn put(&mut self, bytes: &[u8]) {
        match &mut self.transport {
            Transport::Plain(stream) => stream.put(bytes),
            Transport::Tls(tls) => tls.put(bytes),
        }
    }

    /// Sends these bytes at the end of the turn; many are not copied if they travel in the clear.
    pub fn put_bytes(&mut self, bytes: Bytes) {
        match &mut self.transport {
            Transport::Plain(stream) => stream.put_bytes(bytes),
            Transport::Tls(tls) => tls.put_bytes(&bytes),
        }
    }

    /// Bytes put that the kernel has not taken, as they travel.
    #[must_use]
    pub fn unsent(&self) -> usize {
        match &self.transport {
            Transport::Plain(stream) => stream.unsent(),
            Transport::Tls(tls) => tls.unsent(),
        }
    }

    /// Since when the kernel takes nothing of what is unsent: the peer does not read.
    #[must_use]
    pub fn stalled_since(&self) -> Option<Nanos> {
        self.stream().stalled_since()
    }
}

/// Bytes taken of a write at once: a client that does not read must not make us hold all that hyper has.
const TAKEN_MAX: usize = HIGH_WATER;

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let wire = self.get_mut();
        if wire.early.is_empty() {
            match &mut wire.transport {
                Transport::Plain(stream) => return Pin::new(stream).poll_read(cx, buf),
                Transport::Tls(tls) => wire.early = ready!(tls.poll_recv(cx))?,
            }
        }
        let now = wire.early.len().min(buf.remaining());
        buf.put_slice(&wire.early[..now]);
        wire.early.advance(now);
        if wire.early.is_empty() {
            wire.early = Chunk::default(); // an idle connection holds nothing
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let wire = self.get_mut();
        ready!(wire.poll_room(cx))?;
        let taken = buf.len().min(TAKEN_MAX);
        wire.put(&buf[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wire = self.get_mut();
        ready!(wire.poll_room(cx))?;
        let mut taken = 0;
        for buf in bufs {
            let now = buf.len().min(TAKEN_MAX - taken);
            wire.put(&buf[..now]);
            taken += now;
        }
        Poll::Ready(Ok(taken))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Nothing to do: all is sent at the end of the turn.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().transport {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_close(cx)
    }
}
