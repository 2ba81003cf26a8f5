//! A connection's bytes over the ring, plain or under TLS: the same for clients and for apiservers.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsStream;

use crate::ring::Stream;

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
