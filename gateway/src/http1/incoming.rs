//! A request's body, read straight from its connection by whoever sends it on: no task, no channel, no buffer
//! between them. What nobody asks for stays in the kernel, and so holds the client back.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::{Decoder, Fault, Framing, Oddities};
use crate::ring::Chunk;
use crate::wire::Wire;

/// A request's body. It may be read by another task of the same thread; once its request is answered, or its
/// client gone, it gives an error.
#[derive(Debug)]
pub struct Incoming {
    /// None: there is no body.
    inlet: Option<Rc<Inlet>>,
    /// Its request.
    serial: u64,
}

/// Why a body gives no more.
#[derive(Debug)]
pub enum IncomingFault {
    /// Its request is over, or its connection.
    Over,
    /// It is malformed, or ended too soon.
    Malformed(Fault),
    /// The connection broke.
    Io(io::Error),
}

/// A connection, as who serves it and who reads a body from it share it. Neither keeps it borrowed while it waits.
#[derive(Debug)]
pub(super) struct Inlet(RefCell<State>);

#[derive(Debug)]
pub(super) struct State {
    /// None once the connection is over.
    pub(super) wire: Option<Wire>,
    /// Received, and nobody's yet.
    pub(super) ahead: Chunk,
    /// It is on memory of its own, not lent by the ring.
    owns_ahead: bool,
    /// Of the body that is being read.
    pub(super) decoder: Decoder,
    /// The request whose body that is.
    serial: u64,
    /// The client waits for `100 Continue`.
    pub(super) owes_continue: bool,
    /// Who waits for more of the body.
    reader: Option<Waker>,
    /// The client has closed its side, or its bytes make no sense from here on.
    pub(super) ended: Option<Ended>,
}

/// Why nothing more can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    ByClient,
    Malformed(Fault),
}

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

// === impl Inlet ===

impl Inlet {
    pub(super) fn new(wire: Wire) -> Rc<Self> {
        Rc::new(Self(RefCell::new(State {
            wire: Some(wire),
            ahead: Chunk::default(),
            owns_ahead: false,
            decoder: Decoder::new(Framing::None),
            serial: 0,
            owes_continue: false,
            reader: None,
            ended: None,
        })))
    }

    /// Its state, for a moment.
    pub(super) fn state(&self) -> std::cell::RefMut<'_, State> {
        self.0.borrow_mut()
    }

    /// Makes the body of the request whose head was just read.
    pub(super) fn body(self: &Rc<Self>, framing: Framing, expects_continue: bool) -> Incoming {
        let mut state = self.state();
        state.serial += 1;
        if framing == Framing::None {
            return Incoming { inlet: None, serial: state.serial };
        }
        state.decoder = Decoder::new(framing);
        state.owes_continue = expects_continue;
        Incoming { inlet: Some(Rc::clone(self)), serial: state.serial }
    }
}

// === impl State ===

impl State {
    /// Whoever held the body of the request before holds nothing now.
    pub(super) fn detach(&mut self) {
        self.serial += 1;
        self.owes_continue = false;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Takes what was odd about the body.
    pub(super) fn take_oddities(&mut self) -> Oddities {
        self.decoder.take_oddities()
    }

    /// The next bytes, unless some are at hand.
    pub(super) fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() || self.ended.is_some() {
            return Poll::Ready(Ok(()));
        }
        let Some(wire) = &mut self.wire else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        self.ahead = ready!(wire.poll_recv(cx))?;
        self.owns_ahead = false;
        if self.ahead.is_empty() {
            self.ended = Some(Ended::ByClient);
        }
        Poll::Ready(Ok(()))
    }

    /// What is at hand is kept for longer than a turn: on memory of its own, for what was lent is wanted back.
    pub(super) fn own_ahead(&mut self) {
        if !self.ahead.is_empty() && !self.owns_ahead {
            self.ahead = Chunk::from(self.ahead.to_vec());
            self.owns_ahead = true;
        }
    }

    /// The next piece of the body at hand; none if there is none at hand, or the body is over.
    pub(super) fn next_piece(&mut self) -> Result<Option<Chunk>, Fault> {
        while !self.decoder.is_complete() && !self.ahead.is_empty() {
            let part = self.decoder.next(&self.ahead).inspect_err(|fault| {
                self.ended = Some(Ended::Malformed(*fault));
            })?;
            self.ahead.advance(part.framing);
            let piece = (part.data > 0).then(|| self.ahead.split_to(part.data));
            if self.ahead.is_empty() {
                self.ahead = Chunk::default();
            }
            if piece.is_some() {
                return Ok(piece);
            }
        }
        Ok(None)
    }

    /// Done when the client has left. To be polled while its request is answered. If somebody waits for the body,
    /// what comes is received for them: they may be another task, and a connection wakes one only.
    pub(super) fn poll_hangup(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.reader.is_some() {
            if ready!(self.poll_ahead(cx)).is_err() {
                return Poll::Ready(());
            }
            if let Some(reader) = self.reader.take() {
                reader.wake();
            }
        }
        match &self.wire {
            Some(wire) if self.ended != Some(Ended::ByClient) => wire.stream().poll_hangup(cx),
            _ => Poll::Ready(()),
        }
    }

    fn poll_body(
        &mut self,
        serial: u64,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, IncomingFault>>> {
        if self.serial != serial || self.wire.is_none() {
            return Poll::Ready(Some(Err(IncomingFault::Over)));
        }
        if std::mem::take(&mut self.owes_continue)
            && let Some(wire) = &mut self.wire
        {
            wire.put(CONTINUE);
        }
        loop {
            if let Some(piece) = self.next_piece().map_err(IncomingFault::Malformed).transpose() {
                return Poll::Ready(Some(piece.map(|piece| Frame::data(piece.into_bytes()))));
            }
            if self.decoder.is_complete() {
                return Poll::Ready(self.decoder.take_trailers().map(Frame::trailers).map(Ok));
            }
            match self.poll_ahead(cx) {
                Poll::Pending => {
                    self.reader = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(IncomingFault::Io(error)))),
                Poll::Ready(Ok(())) => self.reader = None,
            }
            match self.ended {
                Some(Ended::ByClient) => {
                    return Poll::Ready(Some(Err(IncomingFault::Malformed(Fault::Truncated))));
                }
                Some(Ended::Malformed(fault)) => {
                    return Poll::Ready(Some(Err(IncomingFault::Malformed(fault))));
                }
                None => {}
            }
        }
    }
}

// === impl Incoming ===

impl Incoming {
    /// No body.
    #[must_use]
    pub fn empty() -> Self {
        Self { inlet: None, serial: 0 }
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = IncomingFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, IncomingFault>>> {
        match &self.inlet {
            Some(inlet) => inlet.state().poll_body(self.serial, cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inlet.as_ref().is_none_or(|inlet| {
            let state = inlet.state();
            state.serial == self.serial && state.decoder.left() == Some(0) && !state.decoder.has_trailers()
        })
    }

    fn size_hint(&self) -> SizeHint {
        let Some(inlet) = &self.inlet else { return SizeHint::with_exact(0) };
        let state = inlet.state();
        let left = state.decoder.left().filter(|_| state.serial == self.serial);
        left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(inlet) = &self.inlet {
            let mut state = inlet.state();
            if state.serial == self.serial {
                state.reader = None;
            }
        }
    }
}

// === impl IncomingFault ===

impl fmt::Display for IncomingFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Over => formatter.write_str("the request is over"),
            Self::Malformed(fault) => fault.fmt(formatter),
            Self::Io(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for IncomingFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Over => None,
            Self::Malformed(fault) => Some(fault),
            Self::Io(error) => Some(error),
        }
    }
}
