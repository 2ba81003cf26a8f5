//! A client's connection over HTTP/1.1: heads to requests, answers to bytes, one after the other.
//!
//! It is a state machine that its owner polls; the service's future and the answer's body are polled inside. While
//! a request is answered nothing is read but its body, so a client that sends ahead fills its own socket's buffer.
//! Between requests a connection is this struct and its wire: what a request needs is made for it.

use std::error::Error;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, TRAILER};
use http::{Method, Response, StatusCode, Version};
use http_body::Body;

use super::encode::{self, Encoder};
use super::incoming::{Ended, Inlet};
use super::{Answered, Fault, Framing, Gather, Incoming, Limits, Oddities, RequestHead, head};
use crate::wire::Wire;

/// A connection that serves requests with `S`, which makes a future `F` of the head and the body of each, whose
/// answers have bodies `B`.
pub struct Connection<S, F, B> {
    inlet: Rc<Inlet>,
    limits: Limits,
    service: S,
    phase: Phase<F, B>,
    gather: Gather,
    /// Heads that have begun.
    begun: u64,
    /// No request after the one that is being answered.
    last: bool,
    /// Requests in a row that were there before the answer to the one before.
    pipelined: u32,
    odd: Oddities,
}

/// How a connection ended.
#[derive(Debug)]
pub enum End {
    /// As HTTP has it: the last answer is written, or the client closed between requests.
    Done,
    /// A 101 is written: the wire is the new protocol's.
    Switched,
    /// The client left while a request was read or answered.
    HungUp,
    /// What came is no request, or not to its end. That is answered.
    Refused(Fault),
    /// The answer cannot be completed; that the connection ends is how the client learns it.
    Broken(Cause),
}

/// Why.
pub(super) type Cause = Box<dyn Error + Send + Sync>;

enum Phase<F, B> {
    /// Between requests, or in the head of one.
    Head,
    Answering(Pin<Box<F>>, Asked),
    Sending(Sending<B>),
    /// The answer is written; the rest of the request's body, which nobody wants, is read: so many bytes at most.
    Rest(u64),
    Over,
}

/// What an answer has to know of its request.
#[derive(Clone, Copy, Debug)]
struct Asked {
    is_head: bool,
    is_http10: bool,
    keep_alive: bool,
    takes_trailers: bool,
}

struct Sending<B> {
    body: B,
    encoder: Encoder,
    /// Trailers that were announced.
    trailers: Vec<HeaderName>,
    then: Then,
}

/// What follows an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    NextRequest,
    Close,
    Switch,
}

/// Requests served in one turn before others have theirs.
const REQUESTS_A_TURN: u32 = 16;
/// Requests in a row that may be sent ahead before that counts as odd.
const PIPELINED_FREE: u32 = 16;
/// Bytes of a body nobody wants that are read so that the connection can be used again. kube-apiserver's, that is
/// Go's, limit.
const REST_BYTES_MAX: u64 = 256 * 1024;
/// Pieces of bodies from here on are sent without being copied.
const COPIED_BELOW: usize = 2048;
/// Capacity of the buffer for heads and small pieces that is kept between turns.
const OUT_BYTES_KEPT: usize = 64 * 1024;

thread_local! {
    /// Where heads and small pieces of bodies are written before they are put: one put, one TLS record.
    static OUT: std::cell::Cell<Vec<u8>> = const { std::cell::Cell::new(Vec::new()) };
}

// === impl Connection ===

impl<S, F, B> Connection<S, F, B>
where
    S: Fn(RequestHead, Incoming) -> F,
    F: Future<Output = Box<Response<B>>>,
    B: Answered + Unpin,
    B::Error: Into<Cause>,
{
    /// Serves what comes over `wire`.
    pub fn new(wire: Wire, limits: Limits, service: S) -> Self {
        Self {
            inlet: Inlet::new(wire),
            limits,
            service,
            phase: Phase::Head,
            gather: Gather::default(),
            begun: 0,
            last: false,
            pipelined: 0,
            odd: Oddities::default(),
        }
    }

    /// Serves until the connection is at its end. What it puts on the wire then may not be sent yet.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let mut out = OUT.take();
        let mut requests = 0;
        let polled = loop {
            let stepped = self.step(cx, &mut out);
            let Poll::Ready(None) = stepped else { break stepped };
            if matches!(self.phase, Phase::Head) {
                requests += 1;
                if requests >= REQUESTS_A_TURN {
                    cx.waker().wake_by_ref();
                    break Poll::Pending;
                }
            }
        };
        self.put(&mut out);
        if out.capacity() <= OUT_BYTES_KEPT {
            OUT.set(out);
        }
        if let Poll::Ready(Some(end)) = polled {
            self.phase = Phase::Over;
            return Poll::Ready(end);
        }
        if self.is_answering() && self.inlet.state().poll_hangup(cx).is_ready() {
            self.phase = Phase::Over;
            return Poll::Ready(End::HungUp);
        }
        self.inlet.state().own_ahead();
        Poll::Pending
    }

    /// How many heads have begun so far.
    pub fn heads_begun(&self) -> u64 {
        self.begun
    }

    /// No more requests: the connection ends now, or with the answer that it is at.
    pub fn graceful_shutdown(&mut self) {
        self.last = true;
        if matches!(self.phase, Phase::Head | Phase::Rest(_)) {
            self.phase = Phase::Over;
        }
    }

    /// What was odd since this was last asked.
    pub fn take_oddities(&mut self) -> Oddities {
        let mut odd = mem::take(&mut self.odd);
        let of_body = self.inlet.state().take_oddities();
        odd.extensions += of_body.extensions;
        odd.trailers += of_body.trailers;
        odd.tiny_chunks += of_body.tiny_chunks;
        odd
    }

    /// The wire, and what was received and belongs to nobody yet. Bodies and answers are over with that.
    pub fn into_wire(self) -> Option<(Wire, Bytes)> {
        let mut state = self.inlet.state();
        state.detach();
        let ahead = mem::take(&mut state.ahead).into_bytes();
        Some((state.wire.take()?, ahead))
    }

    fn is_answering(&self) -> bool {
        matches!(self.phase, Phase::Answering(..) | Phase::Sending(_))
    }

    /// One phase further; `Some` at the end.
    fn step(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Option<End>> {
        match &mut self.phase {
            Phase::Head => self.poll_head(cx, out),
            Phase::Answering(answer, asked) => {
                let asked = *asked;
                let answer = ready!(answer.as_mut().poll(cx));
                self.answer(answer, asked, out);
                Poll::Ready(None)
            }
            Phase::Sending(_) => self.poll_sending(cx, out),
            Phase::Rest(left) => {
                let left = *left;
                self.poll_rest(left, cx)
            }
            Phase::Over => Poll::Ready(Some(End::Done)),
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Option<End>> {
        if !out.is_empty() {
            self.put(out); // before the service may put `100 Continue`
        }
        loop {
            let mut state = self.inlet.state();
            let Some(wire) = &mut state.wire else { return Poll::Ready(Some(End::Done)) };
            if let Err(error) = ready!(wire.poll_room(cx)) {
                return Poll::Ready(Some(End::Broken(error.into())));
            }
            let was_ahead = !state.ahead.is_empty();
            if let Err(error) = ready!(state.poll_ahead(cx)) {
                return Poll::Ready(Some(End::Broken(error.into())));
            }
            if state.ahead.is_empty() {
                let midway = self.gather.has_begun();
                return Poll::Ready(Some(if midway { End::HungUp } else { End::Done }));
            }
            self.begun += u64::from(!self.gather.has_begun());
            match self.gather.feed(&state.ahead, &self.limits, head::request) {
                Ok(None) => state.ahead = Default::default(),
                Ok(Some((head, used))) => {
                    state.ahead.advance(used);
                    if state.ahead.is_empty() {
                        state.ahead = Default::default();
                    }
                    drop(state);
                    self.pipelined = if was_ahead { self.pipelined + 1 } else { 0 };
                    self.odd.pipelined += u32::from(self.pipelined > PIPELINED_FREE);
                    self.begin(head);
                    return Poll::Ready(None);
                }
                Err(fault) => {
                    drop(state);
                    refuse(fault, out);
                    return Poll::Ready(Some(End::Refused(fault)));
                }
            }
        }
    }

    /// A head is there: its request begins.
    fn begin(&mut self, head: RequestHead) {
        let asked = Asked {
            is_head: head.method == Method::HEAD,
            is_http10: head.version == Version::HTTP_10,
            keep_alive: head.keep_alive,
            takes_trailers: head.takes_trailers,
        };
        let body = self.inlet.body(head.framing, head.expects_continue);
        self.phase = Phase::Answering(Box::pin((self.service)(head, body)), asked);
    }

    /// The service has answered: its head is written.
    #[expect(clippy::boxed_local, reason = "taken out of its box it would be copied")]
    fn answer(&mut self, mut answer: Box<Response<B>>, asked: Asked, out: &mut Vec<u8>) {
        let mut status = answer.status();
        if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
            status = StatusCode::INTERNAL_SERVER_ERROR; // no answer at all, and never the last
        }
        let (framing, length) = framing(status, answer.headers(), answer.body(), asked);
        if framing == Framing::None || asked.is_http10 {
            answer.headers_mut().remove(TRAILER); // there will be none
        }
        let has_close = has_close(answer.headers());
        let then = if status == StatusCode::SWITCHING_PROTOCOLS {
            Then::Switch
        } else if self.last
            || !asked.keep_alive
            || framing == Framing::UntilClose
            || has_close
            || !self.rest_is_worth_reading()
        {
            Then::Close
        } else {
            Then::NextRequest
        };
        let version = if asked.is_http10 { Version::HTTP_10 } else { Version::HTTP_11 };
        encode::response_head(out, version, status, answer.headers());
        if let Some(lines) = answer.body_mut().take_lines() {
            out.extend_from_slice(lines.as_bytes());
        }
        if then == Then::Close && !asked.is_http10 && !has_close {
            out.extend_from_slice(b"Connection: close\r\n");
        } else if then == Then::NextRequest && asked.is_http10 {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
        match length {
            Some(length) => encode::content_length(out, length),
            None => encode::framing_line(out, framing),
        }
        out.extend_from_slice(b"\r\n");
        self.inlet.state().owes_continue = false;
        let trailers = if asked.takes_trailers && framing == Framing::Chunked {
            encode::trailer_names(answer.headers())
        } else {
            Vec::new()
        };
        let body = answer.into_body();
        self.phase = Phase::Sending(Sending { body, encoder: Encoder::new(framing), trailers, then });
    }

    /// Whether the rest of the request's body may be short enough to be read for the sake of the connection.
    fn rest_is_worth_reading(&self) -> bool {
        let state = self.inlet.state();
        let is_short = state.decoder.left().is_none_or(|left| left <= REST_BYTES_MAX);
        // A client that waits for 100 may send the body after all, or not: nobody knows what comes next.
        is_short && !state.owes_continue && state.ended.is_none()
    }

    fn poll_sending(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Option<End>> {
        let Phase::Sending(sending) = &mut self.phase else { return Poll::Ready(None) };
        let mut trailers = None;
        while sending.encoder.takes_more() && !(sending.body.is_end_stream()) {
            if let Err(error) = ready!(poll_room(&self.inlet, cx)) {
                return Poll::Ready(Some(End::Broken(error)));
            }
            let frame = match ready!(Pin::new(&mut sending.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(End::Broken(error.into()))),
                None => break,
            };
            match frame.into_data() {
                Ok(data) => write_piece(&self.inlet, &mut sending.encoder, data, out),
                Err(frame) => {
                    trailers = frame.into_trailers().ok();
                    break;
                }
            }
        }
        if !sending.body.is_end_stream() {
            let _ = Pin::new(&mut sending.body).poll_frame(cx); // it may not know yet that it is over
        }
        let trailers = trailers.map(|trailers| encode::announced(&trailers, &sending.trailers));
        if !sending.encoder.end(out, trailers.as_ref()) {
            return Poll::Ready(Some(End::Broken("the answer is shorter than its head says".into())));
        }
        let then = sending.then;
        self.finish(then)
    }

    /// The answer is written.
    fn finish(&mut self, then: Then) -> Poll<Option<End>> {
        let mut state = self.inlet.state();
        state.detach();
        let is_read = state.decoder.is_complete();
        let ended = state.ended;
        drop(state);
        self.odd.unfinished += u32::from(!is_read);
        if let Some(Ended::Malformed(fault)) = ended {
            return Poll::Ready(Some(End::Refused(fault)));
        }
        match then {
            Then::Switch => return Poll::Ready(Some(End::Switched)),
            Then::Close => return Poll::Ready(Some(End::Done)),
            Then::NextRequest if self.last || ended.is_some() => return Poll::Ready(Some(End::Done)),
            Then::NextRequest => {}
        }
        self.phase = if is_read { Phase::Head } else { Phase::Rest(REST_BYTES_MAX) };
        Poll::Ready(None)
    }

    /// Reads on to the next request.
    fn poll_rest(&mut self, mut left: u64, cx: &mut Context<'_>) -> Poll<Option<End>> {
        loop {
            let mut state = self.inlet.state();
            match state.next_piece() {
                Ok(Some(piece)) => left = left.saturating_sub(piece.len() as u64),
                Ok(None) if state.decoder.is_complete() => {
                    state.decoder.take_trailers();
                    drop(state);
                    self.phase = Phase::Head;
                    return Poll::Ready(None);
                }
                Ok(None) => match state.poll_ahead(cx) {
                    Poll::Ready(Ok(())) if state.ended == Some(Ended::ByClient) => {
                        return Poll::Ready(Some(End::Done));
                    }
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Some(End::Broken(error.into()))),
                    Poll::Pending => {
                        drop(state);
                        self.phase = Phase::Rest(left);
                        return Poll::Pending;
                    }
                },
                Err(fault) => return Poll::Ready(Some(End::Refused(fault))),
            }
            if left == 0 {
                return Poll::Ready(Some(End::Done));
            }
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        put(&self.inlet, out);
    }
}

impl<S, F, B> Drop for Connection<S, F, B> {
    /// Nothing of it is left to whoever still holds a body.
    fn drop(&mut self) {
        let mut state = self.inlet.state();
        state.detach();
        state.wire = None;
    }
}

/// Puts what is written.
fn put(inlet: &Inlet, out: &mut Vec<u8>) {
    if let Some(wire) = &mut inlet.state().wire
        && !out.is_empty()
    {
        wire.put(out);
    }
    out.clear();
}

fn poll_room(inlet: &Inlet, cx: &mut Context<'_>) -> Poll<Result<(), Cause>> {
    match &mut inlet.state().wire {
        Some(wire) => wire.poll_room(cx).map_err(Cause::from),
        None => Poll::Ready(Err("the connection is over".into())),
    }
}

/// A piece of the answer's body: small ones behind the head, big ones by themselves.
fn write_piece(inlet: &Inlet, encoder: &mut Encoder, mut data: Bytes, out: &mut Vec<u8>) {
    let count = encoder.before(out, data.len());
    data.truncate(count);
    if count < COPIED_BELOW {
        out.extend_from_slice(&data);
    } else {
        put(inlet, out);
        if let Some(wire) = &mut inlet.state().wire {
            wire.put_bytes(data);
        }
    }
    encoder.after(out, count);
}

/// How an answer's body is delimited; and the length to be told, where that is not the same (RFC 9110, section 8.6).
fn framing<B: Body>(
    status: StatusCode,
    headers: &HeaderMap,
    body: &B,
    asked: Asked,
) -> (Framing, Option<u64>) {
    if status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return (Framing::None, None);
    }
    let exact = if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
    let told = || headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if asked.is_head {
        return (Framing::None, told().or(exact.filter(|length| *length > 0)));
    }
    match exact.or_else(told) {
        Some(length) => (Framing::of_length(length), Some(length)),
        None if asked.is_http10 => (Framing::UntilClose, None),
        None => (Framing::Chunked, None),
    }
}

/// Whether the service wants the connection closed.
fn has_close(headers: &HeaderMap) -> bool {
    headers.get_all(CONNECTION).iter().any(|value| {
        value
            .as_bytes()
            .split(|byte| *byte == b',')
            .any(|token| token.trim_ascii().eq_ignore_ascii_case(b"close"))
    })
}

/// The answer to what is no request.
fn refuse(fault: Fault, out: &mut Vec<u8>) {
    encode::response_head(out, Version::HTTP_11, fault.status(), &HeaderMap::new());
    out.extend_from_slice(b"Connection: close\r\nContent-Length: 0\r\n\r\n");
}
