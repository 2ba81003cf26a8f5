//! A wire whose HTTP/2 frames are watched, between the connection and who serves it.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::judge::Judge;
use super::{Glitch, Glitches};
use crate::wire::Wire;

/// The wire. Clones are the same.
#[derive(Clone, Debug)]
pub(in super::super) struct Watched(Rc<RefCell<Inner>>);

#[derive(Debug)]
struct Inner {
    /// `None`: taken away from whom it served.
    wire: Option<Wire>,
    judge: Judge,
    glitches: Rc<Glitches>,
}

impl Watched {
    /// Watches a connection from its first byte on, whose requests may have so many header lines.
    pub(in super::super) fn new(wire: Wire, header_lines: usize, glitches: &Rc<Glitches>) -> Self {
        let judge = Judge::new(header_lines);
        let inner = Inner { wire: Some(wire), judge, glitches: Rc::clone(glitches) };
        Self(Rc::new(RefCell::new(inner)))
    }

    /// Takes the wire away from whom it serves and says GOAWAY on it, unless that would come in the middle of
    /// something else. It is to be closed.
    pub(in super::super) fn cut(&self) -> Option<Wire> {
        let mut inner = self.0.borrow_mut();
        let mut wire = inner.wire.take()?;
        if let Some(farewell) = inner.judge.farewell() {
            wire.put(&farewell);
        }
        Some(wire)
    }

    /// Takes the wire away from whom it serves.
    pub(in super::super) fn take(&self) -> Option<Wire> {
        self.0.borrow_mut().wire.take()
    }

    /// Does something with the wire, if it is still there.
    fn on<T>(
        &self,
        act: impl FnOnce(Pin<&mut Wire>) -> Poll<io::Result<T>>,
        judge: impl FnOnce(&mut Inner, &T),
    ) -> Poll<io::Result<T>> {
        let mut inner = self.0.borrow_mut();
        let Some(wire) = &mut inner.wire else { return Poll::Ready(Err(gone())) };
        let done = ready!(act(Pin::new(wire)))?;
        judge(&mut inner, &done);
        Poll::Ready(Ok(done))
    }
}

impl Inner {
    fn arrived(&mut self, mut bytes: &[u8]) {
        while let Some(glitch) = self.judge.arrive(&mut bytes) {
            self.glitches.note(glitch);
        }
    }

    fn left(&mut self, mut bytes: &[u8]) {
        while let Some(glitch) = self.judge.leave(&mut bytes) {
            match glitch {
                Glitch::LibraryLimit => self.glitches.note_last(glitch),
                glitch => self.glitches.note(glitch),
            }
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.borrow_mut();
        let Some(wire) = &mut inner.wire else { return Poll::Ready(Err(gone())) };
        let before = buf.filled().len();
        ready!(Pin::new(wire).poll_read(cx, buf))?;
        inner.arrived(&buf.filled()[before..]);
        // What has come is not worth reading, and there may be no end of it.
        if inner.glitches.is_over() { Poll::Ready(Err(gone())) } else { Poll::Ready(Ok(())) }
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.on(|wire| wire.poll_write(cx, buf), |inner, written| inner.left(&buf[..*written]))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.on(
            |wire| wire.poll_write_vectored(cx, bufs),
            |inner, written| {
                let mut written = *written;
                for buf in bufs {
                    let now = written.min(buf.len());
                    inner.left(&buf[..now]);
                    written -= now;
                }
            },
        )
    }

    fn is_write_vectored(&self) -> bool {
        self.0.borrow().wire.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.on(|wire| wire.poll_flush(cx), |_, ()| {})
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.on(|wire| wire.poll_shutdown(cx), |_, ()| {})
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "cut for its glitches")
}
