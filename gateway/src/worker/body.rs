//! An answer's body on its way to the client, and what it holds until it is complete.

use std::error::Error;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};

use super::Worker;
use super::admission::Seat;
use super::connection::{Busy, Client};
use super::flag::Lookout;
use super::host::Host;
use super::inflight;
use super::readers::Reader;
use super::watch::{Beginning, Framing};
use crate::http1::{Answered, Lines};
use crate::observe::hdr::{Measured, Outcome};
use crate::upstream::Download;

/// An answer's body.
#[derive(Debug)]
pub(super) enum Body {
    /// Ours, whole.
    Here(Option<Bytes>),
    /// The apiserver's, as it comes. Pulled by the client's connection: back-pressure reaches the apiserver.
    Relayed(Box<Relayed>),
}

/// The apiserver's answer. Its end, or its being dropped, ends everything it holds.
#[derive(Debug)]
pub(super) struct Relayed {
    download: Download,
    held: Held,
    /// How the client takes it; none once it is over.
    reader: Option<Reader>,
    worker: Rc<Worker>,
    over: bool,
    /// Header lines of the head that are not in its map.
    lines: Option<Lines>,
}

/// A body's next part.
type Part = Option<Result<Frame<Bytes>, Box<dyn Error + Send + Sync>>>;

/// What a request holds while its answer is on its way.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) pass: Option<Pass>,
    /// The task that is ended if the answer overruns.
    pub(super) host: Option<Rc<Host>>,
    /// Its task is this answer's alone (HTTP/2), and may wait for a window that the client never gives: the deadline
    /// stays when the answer is complete.
    pub(super) is_alone: bool,
    pub(super) watch: Option<Box<Watch>>,
    /// The connection is not idle.
    pub(super) busy: Option<Busy>,
}

/// What admission gave.
#[derive(Debug)]
pub(super) enum Pass {
    Seat(Box<Seat>),
    Slot(#[expect(dead_code, reason = "held")] inflight::Slot),
}

/// What a watch holds.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) beginning: Rc<Beginning>,
    pub(super) framing: Framing,
    /// The worker drains: the watch ends at the next border between events.
    pub(super) drain: Lookout,
    /// Counted among the watches that a write wakes.
    #[expect(dead_code, reason = "held")]
    pub(super) registered: Registered,
}

/// A watch in the register of all workers. Dropped, it is struck out.
#[derive(Debug)]
pub(super) struct Registered {
    worker: Rc<Worker>,
    watch: Option<usher_flowcontrol::watches::Watch>,
}

impl Body {
    /// A body of our own.
    pub(super) fn here(bytes: impl Into<Bytes>) -> Self {
        Self::Here(Some(bytes.into()).filter(|bytes: &Bytes| !bytes.is_empty()))
    }

    /// The apiserver's.
    pub(super) fn relayed(mut download: Download, mut held: Held, client: &Client) -> Self {
        let worker = Rc::clone(&client.worker);
        let reader = (!download.is_end_stream()).then(|| {
            let watch = held.watch.as_ref().map(|watch| Rc::clone(&watch.beginning));
            worker.readers.join(held.pass.take(), watch, client.stream.clone())
        });
        let lines = download.take_lines();
        Self::Relayed(Box::new(Relayed { download, held, reader, worker, over: false, lines }))
    }

    /// Header lines of its head that are not in the map, if that is how they go to the client.
    pub(super) fn lines(&mut self) -> Option<&mut Lines> {
        match self {
            Self::Here(_) => None,
            Self::Relayed(relayed) => relayed.lines.as_mut(),
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Here(bytes) => Poll::Ready(bytes.take().map(Frame::data).map(Ok)),
            Self::Relayed(relayed) => relayed.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Here(bytes) => bytes.is_none(),
            Self::Relayed(relayed) => relayed.over || relayed.download.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Here(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Relayed(relayed) => relayed.download.size_hint(),
        }
    }
}

impl Answered for Body {
    fn take_lines(&mut self) -> Option<Lines> {
        match self {
            Self::Here(_) => None,
            Self::Relayed(relayed) => relayed.lines.take(),
        }
    }
}

/// An apiserver's answer that broke off. Its cause is not among its sources: hyper would hand an apiserver's error
/// code on as ours, as if the client had made a mistake.
#[derive(Debug, thiserror::Error)]
#[error("the apiserver's answer broke off: {0}")]
struct Broken<E>(E);

// === impl Relayed ===

impl Relayed {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Part> {
        if let Some(reader) = &self.reader {
            reader.asks();
        }
        let draining = self.is_draining(cx);
        if self.over || draining && self.is_between_events() {
            self.complete();
            return Poll::Ready(None);
        }
        let mut frame = match ready!(Pin::new(&mut self.download).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                self.worker.counters.upstream_broken_answering.add();
                self.complete();
                return Poll::Ready(Some(Err(Box::new(Broken(error)))));
            }
            None => {
                self.end_well();
                return Poll::Ready(None);
            }
        };
        if let (Some(watch), Some(data)) = (&mut self.held.watch, frame.data_ref()) {
            let border = watch.framing.pass(data);
            watch.beginning.hear(data, &self.worker);
            if let (true, Some(border)) = (draining, border) {
                frame = Frame::data(data.slice(..border)); // what follows is half an event
                self.complete();
            }
        }
        if self.download.is_end_stream() {
            self.end_well();
        }
        if let Some(reader) = &self.reader {
            frame = frame.map_data(|data| reader.gets(data));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    /// A watch of a worker that drains is ended as if the apiserver had ended it, between two events.
    fn is_draining(&self, cx: &mut Context<'_>) -> bool {
        self.held.watch.as_ref().is_some_and(|watch| watch.drain.poll(cx).is_ready())
    }

    fn is_between_events(&self) -> bool {
        self.held.watch.as_ref().is_some_and(|watch| watch.framing.is_between_events())
    }

    /// The answer is complete.
    fn end_well(&mut self) {
        if let Some(reader) = &self.reader {
            reader.measured(|measured| measured.ends(Outcome::Executed));
        }
        self.held.measured(|measured| measured.ends(Outcome::Executed));
        self.complete();
    }

    /// Nothing more comes: seats and deadline end with the last byte, not with the client's reading of it.
    fn complete(&mut self) {
        self.over = true;
        self.reader = None;
        self.held.release();
    }
}

impl Drop for Relayed {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if self.download.is_end_stream() {
            self.end_well(); // nobody asks for a body that is empty
        } else if !self.reader.as_ref().is_some_and(Reader::is_cut) {
            self.worker.counters.clients_gone.add();
        }
    }
}

// === impl Held ===

impl Held {
    /// Tells what is measured of the request, while it holds its seats.
    pub(super) fn measured(&mut self, tell: fn(&mut Measured)) {
        if let Some(Pass::Seat(seat)) = &mut self.pass {
            tell(seat.measured());
        } else if let Some(watch) = &self.watch {
            watch.beginning.measured(tell);
        }
    }

    fn release(&mut self) {
        self.pass = None;
        self.watch = None;
        self.busy = None;
        if let Some(host) = self.host.take().filter(|_| !self.is_alone) {
            host.end_at(None);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
    }
}

// === impl Watch ===

impl Watch {
    /// A watch that has been seated; its framing is known with the head of its answer.
    pub(super) fn new(worker: &Worker, beginning: Rc<Beginning>, registered: Registered) -> Self {
        Self { beginning, framing: Framing::Whole, drain: worker.drain.lookout(), registered }
    }
}

// === impl Registered ===

impl Registered {
    pub(super) fn new(worker: &Rc<Worker>, info: &usher_flowcontrol::request_info::RequestInfo<'_>) -> Self {
        worker.counters.watches_open.add();
        Self { worker: Rc::clone(worker), watch: worker.settings.common.audience.join(info) }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.worker.counters.watches_open.remove();
        if let Some(watch) = &self.watch {
            self.worker.settings.common.audience.leave(watch);
        }
    }
}
