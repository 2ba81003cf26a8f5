//! A request's body on its way up.

mod http2;

use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use h2::RecvStream;
use http::header::{CONTENT_LENGTH, HeaderMap};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::fault::Cause;
use super::pace::Pace;
use crate::http1::{self, LeftOut};
use http2::Streamed;

/// A body as it comes. Pulled by the connection to the apiserver: back-pressure reaches the client, and of a
/// request that waits nothing is read.
#[derive(Debug)]
pub struct Upload {
    source: Source,
    gate: Option<Arc<Gate>>,
    /// Whether all of it has gone up, if anybody asked.
    done: Option<Rc<Cell<bool>>>,
    /// How fast it comes; none if nothing comes.
    pace: Option<Rc<Pace>>,
    /// The answer's header lines are wanted as they come, but for these.
    lines: Option<LeftOut>,
}

/// Whose body it is.
#[derive(Debug)]
enum Source {
    /// There is none.
    Nothing,
    /// That of a client whose connection hyper drives.
    Hyper(Incoming),
    /// That of a client over our own HTTP/1.1.
    Own(http1::Incoming),
    /// That of a client over HTTP/2.
    Http2(Streamed),
}

/// A body failed on the client's side.
#[derive(Debug)]
pub struct UploadFault(Cause);

/// Holds a body back until the apiserver asks for it (`100 Continue`).
#[derive(Debug, Default)]
pub(super) struct Gate {
    open: AtomicBool,
    waker: AtomicWaker,
}

// === impl Upload ===

impl Upload {
    /// No body.
    #[must_use]
    pub fn empty() -> Self {
        Self::of(Source::Nothing, None)
    }

    /// A client's body.
    #[must_use]
    pub fn new(body: Incoming) -> Self {
        let pace = (!body.is_end_stream()).then(Rc::default);
        Self::of(Source::Hyper(body), pace)
    }

    /// The body of a client over our own HTTP/1.1.
    #[must_use]
    pub fn own(body: http1::Incoming) -> Self {
        let pace = (!body.is_end_stream()).then(Rc::default);
        Self::of(Source::Own(body), pace)
    }

    fn of(source: Source, pace: Option<Rc<Pace>>) -> Self {
        Self { source, gate: None, done: None, pace, lines: None }
    }

    /// The answer's header lines are wanted as they come, without those named; a client that cannot be told them so
    /// gets them in a map all the same.
    pub fn want_lines(&mut self, left_out: LeftOut) {
        if matches!(self.source, Source::Own(_)) {
            self.lines = Some(left_out);
        }
    }

    /// Which lines are left out, if they are wanted as they come.
    pub(super) fn wanted_lines(&self) -> Option<LeftOut> {
        self.lines
    }

    /// The body of a client over HTTP/2, which is not empty; of that length, if it was told.
    #[must_use]
    pub fn http2(body: RecvStream, length: Option<u64>) -> Self {
        let source = Source::Http2(Streamed::new(body, length));
        Self::of(source, Some(Rc::default()))
    }

    /// The length that all lines agree on.
    #[must_use]
    pub fn length(headers: &HeaderMap) -> Option<u64> {
        let lines = headers.get_all(CONTENT_LENGTH).iter();
        let mut lengths = lines.map(|value| value.to_str().ok()?.parse().ok());
        let first = lengths.next()??;
        lengths.all(|other| other == Some(first)).then_some(first)
    }

    /// Whether all of it has gone up, to be asked while somebody else sends it.
    pub(super) fn progress(&mut self) -> Rc<Cell<bool>> {
        let done = Rc::new(Cell::new(self.is_end_stream()));
        self.done = Some(Rc::clone(&done));
        done
    }

    /// How fast it comes; `None` if there is none to come.
    #[must_use]
    pub fn pace(&self) -> Option<Rc<Pace>> {
        self.pace.clone()
    }

    /// Holds it back until the returned gate opens.
    pub(super) fn hold(&mut self) -> Arc<Gate> {
        Arc::clone(self.gate.get_or_insert_default())
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = UploadFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadFault>>> {
        if let Some(gate) = &self.gate {
            ready!(gate.poll_open(cx));
        }
        let frame = match &mut self.source {
            Source::Nothing => Poll::Ready(None),
            Source::Hyper(body) => {
                Pin::new(body).poll_frame(cx).map_err(|error| UploadFault::new(error.into()))
            }
            Source::Own(body) => {
                Pin::new(body).poll_frame(cx).map_err(|error| UploadFault::new(error.into()))
            }
            Source::Http2(body) => body.poll_frame(cx).map_err(|error| UploadFault::new(error.into())),
        };
        let Poll::Ready(frame) = frame else {
            self.pace.iter().for_each(|pace| pace.waits());
            return Poll::Pending;
        };
        let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
        self.pace.iter().for_each(|pace| pace.has_come(data.map_or(0, Bytes::len)));
        if frame.is_none() || self.is_end_stream() {
            self.done.iter().for_each(|done| done.set(true));
            self.pace.iter().for_each(|pace| pace.is_over());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Nothing => true,
            Source::Hyper(body) => body.is_end_stream(),
            Source::Own(body) => body.is_end_stream(),
            Source::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Nothing => SizeHint::with_exact(0),
            Source::Hyper(body) => body.size_hint(),
            Source::Own(body) => body.size_hint(),
            Source::Http2(body) => body.left().map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

// === impl Gate ===

impl Gate {
    /// Lets the body pass.
    pub(super) fn open(&self) {
        self.open.store(true, Ordering::Release);
        self.waker.wake();
    }

    fn poll_open(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.open.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        self.waker.register(cx.waker());
        if self.open.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

// === impl UploadFault ===

impl UploadFault {
    /// Failed for that.
    pub(crate) fn new(cause: Cause) -> Self {
        Self(cause)
    }
}

impl fmt::Display for UploadFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the client's body failed: {}", self.0)
    }
}

impl std::error::Error for UploadFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}
