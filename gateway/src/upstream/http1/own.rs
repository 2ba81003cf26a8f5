//! HTTP/1.1 connections of our own: a request and its answer in the task of whoever asked.
//!
//! The request's head and body are put on the wire as there is room for them, the answer is read when somebody asks
//! for more of it. No task, no channel, no wake-up but those of the bytes themselves. When the answer is complete
//! and the request fully sent, the connection goes home; dropped before that, it is closed: that is how an apiserver
//! learns over HTTP/1.1 that its work is not wanted any more.
//!
//! A request counts as not sent, and may be sent again over a fresh connection, if an apiserver closed a connection
//! that had been *used before* without a byte of an answer, and the request is safe (RFC 9110, section 9.2.1) and
//! has no body: then it met a connection that was being closed for want of use. That is Go's rule
//! (net/http, `shouldRetryRequest`) less its `Idempotency-Key`. Anything else may have been done already.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{EXPECT, HeaderMap, HeaderName};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body as _, Frame};

use super::{HEAD_BYTES_MAX, Home};
use crate::http1::encode::{self, Encoder};
use crate::http1::{self, Decoder, Framing, Gather, LeftOut, ResponseHead, head};
use crate::ring::Chunk;
use crate::upstream::fault::Cause;
use crate::upstream::{Attempt, Download, Fault, Parcel, Upload};
use crate::wire::Wire;

/// A connection that does nothing.
#[derive(Debug)]
pub(super) struct Connection {
    wire: Wire,
    home: Home,
    /// It has carried an answer.
    used: bool,
}

/// A connection that is busy with a request.
#[derive(Debug)]
struct Busy {
    wire: Wire,
    home: Home,
    upload: Upgoing,
    /// Bytes that came and were not looked at yet.
    rest: Chunk,
}

/// How far a request's body has gone up.
#[derive(Debug)]
enum Upgoing {
    /// Until the apiserver says `100 Continue`.
    Held(Box<Sending>),
    Sending(Box<Sending>),
    Sent,
    /// The apiserver takes no more. It may have answered all the same.
    Refused,
}

/// A body on its way up.
#[derive(Debug)]
struct Sending {
    upload: Upload,
    encoder: Encoder,
    /// Trailers that its head has announced.
    announced: Vec<HeaderName>,
}

/// An answer's body.
#[derive(Debug)]
pub(in crate::upstream) struct Answer {
    /// The connection; none once it went home or was closed.
    busy: Option<Busy>,
    decoder: Decoder,
    /// So many of the bytes that came are the body's next.
    data: usize,
    trailers: Option<Box<HeaderMap>>,
    fault: Option<http1::Fault>,
    keep_alive: bool,
}

/// Lines of an answer's head. Go's server has no limit of its own; nobody needs more.
const HEAD_LINES_MAX: usize = 256;
/// Pieces of bodies from here on are sent without being copied.
const COPIED_BELOW: usize = 2048;
/// Answers before the answer (1xx). Go's client takes five.
const INFORMATIONAL_MAX: usize = 5;

const LIMITS: http1::Limits = http1::Limits { bytes: HEAD_BYTES_MAX, lines: HEAD_LINES_MAX };

thread_local! {
    /// What is put between a body's bytes is written here first.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Sends a request over a connection.
pub(super) async fn send(connection: Connection, mut request: Parcel) -> Attempt {
    let may_repeat = connection.used && request.body().is_end_stream() && request.method().is_safe();
    let mut asked = Asked::begin(connection, &mut request);
    match poll_fn(|cx| asked.poll_head(cx, request.method())).await {
        Ok(head) => Attempt::Answered(Box::new(asked.busy.answer(head))),
        Err(cause) if may_repeat && !asked.heard => Attempt::Unsent((request, Fault::Closed(cause))),
        Err(cause) => Attempt::Failed(Fault::Broken(cause)),
    }
}

/// A request whose answer's head has not come yet.
struct Asked {
    busy: Busy,
    gather: Gather,
    informational: usize,
    /// Whoever asked wants the header lines as they come, but for these.
    left_out: Option<LeftOut>,
    /// A byte of the answer has come.
    heard: bool,
}

// === impl Connection ===

impl Connection {
    /// Of a fresh wire.
    pub(super) fn new(wire: Wire, home: Home) -> Self {
        Self { wire, home, used: false }
    }

    /// What is heard of a connection that nobody has asked anything: its end, or (true) bytes that nobody asked for.
    /// Either way it is of no more use.
    pub(super) fn poll_heard(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.wire.poll_recv(cx).map(|heard| heard.is_ok_and(|chunk| !chunk.is_empty()))
    }
}

// === impl Asked ===

impl Asked {
    /// Puts the head, and as much of the body as there is.
    fn begin(connection: Connection, request: &mut Request<Upload>) -> Self {
        let upload = std::mem::replace(request.body_mut(), Upload::empty());
        let left_out = upload.wanted_lines();
        let Connection { mut wire, home, .. } = connection;
        let framing = match (upload.is_end_stream(), upload.size_hint().exact()) {
            (true, _) => Framing::None,
            (false, Some(length)) => Framing::of_length(length),
            (false, None) => Framing::Chunked,
        };
        SCRATCH.with_borrow_mut(|out| {
            out.clear();
            let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
            encode::request_head(out, request.method(), target, request.headers(), framing);
            wire.put(out);
        });
        let upload = Upgoing::new(upload, framing, request.headers());
        let busy = Busy { wire, home, upload, rest: Chunk::default() };
        Self { busy, gather: Gather::default(), informational: 0, left_out, heard: false }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>, method: &Method) -> Poll<Result<ResponseHead, Cause>> {
        self.busy.poll_upload(cx)?;
        loop {
            if self.busy.rest.is_empty() {
                self.busy.rest = ready!(self.busy.wire.poll_recv(cx))?;
                if self.busy.rest.is_empty() {
                    return Poll::Ready(Err(http1::Fault::Truncated.into()));
                }
                self.heard = true;
            }
            let left_out = self.left_out;
            let parse = |bytes: &[u8], limits: &http1::Limits| match left_out {
                Some(left_out) => head::relayed(bytes, limits, method, left_out),
                None => head::response(bytes, limits, method),
            };
            let Some((head, used)) = self.gather.feed(&self.busy.rest, &LIMITS, parse)? else {
                self.busy.rest = Chunk::default();
                continue;
            };
            self.busy.rest.advance(used);
            if !head.status.is_informational() {
                return Poll::Ready(Ok(head));
            }
            self.pass_over(head.status)?;
            self.busy.poll_upload(cx)?;
        }
    }

    /// An answer before the answer.
    fn pass_over(&mut self, status: StatusCode) -> Result<(), Cause> {
        self.informational += 1;
        if status == StatusCode::SWITCHING_PROTOCOLS || self.informational > INFORMATIONAL_MAX {
            return Err(format!("{status}, which nobody asked for").into());
        }
        if status == StatusCode::CONTINUE {
            self.busy.upload.go_on();
        }
        Ok(())
    }
}

// === impl Upgoing ===

impl Upgoing {
    fn new(upload: Upload, framing: Framing, headers: &HeaderMap) -> Self {
        if framing == Framing::None {
            return Self::Sent;
        }
        let announced = if framing == Framing::Chunked { encode::trailer_names(headers) } else { Vec::new() };
        let sending = Box::new(Sending { upload, encoder: Encoder::new(framing), announced });
        if headers.contains_key(EXPECT) { Self::Held(sending) } else { Self::Sending(sending) }
    }

    fn go_on(&mut self) {
        *self = match std::mem::replace(self, Self::Sent) {
            Self::Held(sending) => Self::Sending(sending),
            other => other,
        }
    }
}

// === impl Sending ===

impl Sending {
    /// Puts a part of the body, or its end: then it is true. What is small goes together with what frames it: one put
    /// is one TLS record.
    fn put(&mut self, wire: &mut Wire, frame: Option<Frame<Bytes>>) -> Result<bool, Cause> {
        SCRATCH.with_borrow_mut(|out| {
            out.clear();
            let over = match frame.map(Frame::into_data) {
                Some(Ok(data)) => self.write(wire, data, out)?,
                Some(Err(trailers)) => self.end(out, trailers.trailers_ref())?,
                None => self.end(out, None)?,
            };
            if !out.is_empty() {
                wire.put(out);
            }
            Ok(over)
        })
    }

    /// A piece of the body, which may be the last.
    fn write(&mut self, wire: &mut Wire, data: Bytes, out: &mut Vec<u8>) -> Result<bool, Cause> {
        let count = data.len();
        if self.encoder.before(out, count) < count {
            return Err("a body longer than its Content-Length".into());
        }
        if count < COPIED_BELOW {
            out.extend_from_slice(&data);
        } else {
            wire.put(out);
            wire.put_bytes(data);
            out.clear();
        }
        self.encoder.after(out, count);
        if self.upload.is_end_stream() { self.end(out, None) } else { Ok(false) }
    }

    fn end(&self, out: &mut Vec<u8>, trailers: Option<&HeaderMap>) -> Result<bool, Cause> {
        let trailers = trailers.map(|trailers| encode::announced(trailers, &self.announced));
        if self.encoder.end(out, trailers.as_ref()) {
            Ok(true)
        } else {
            Err("a body shorter than its Content-Length".into())
        }
    }
}

// === impl Busy ===

impl Busy {
    /// Puts what there is of the body, as far as there is room. An error is the client's.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), Cause> {
        while let Upgoing::Sending(sending) = &mut self.upload {
            match self.wire.poll_room(cx) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => {
                    self.upload = Upgoing::Refused;
                    break;
                }
            }
            let Poll::Ready(frame) = Pin::new(&mut sending.upload).poll_frame(cx) else { break };
            if sending.put(&mut self.wire, frame.transpose()?)? {
                self.upload = Upgoing::Sent;
            }
        }
        Ok(())
    }

    /// The head has come; the body may have begun.
    fn answer(self, head: ResponseHead) -> Response<Download> {
        let mut answer = Answer {
            busy: Some(self),
            decoder: Decoder::new(head.framing),
            data: 0,
            trailers: None,
            fault: None,
            keep_alive: head.keep_alive,
        };
        answer.look_on();
        let mut response = Response::new(Download::own(answer, head.lines));
        *response.status_mut() = head.status;
        *response.version_mut() = head.version;
        *response.headers_mut() = head.headers;
        response
    }

    /// The answer is complete. The connection is good for another request only if this one was sent to its end, too,
    /// and nothing came behind its answer.
    fn go_home(self) {
        let Self { wire, home, upload: Upgoing::Sent, rest } = self else { return };
        let Some(pool) = home.pool.upgrade() else { return };
        if rest.is_empty() {
            let lane = home.lane;
            pool.take_back(lane, super::Connection::Own(Connection { wire, home, used: true }));
        } else {
            pool.note_unasked();
        }
    }
}

// === impl Answer ===

impl Answer {
    pub(in crate::upstream) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        loop {
            if let Some(fault) = self.fault.take() {
                self.busy = None;
                return Poll::Ready(Some(Err(fault.into())));
            }
            if let Some(trailers) = self.trailers.take() {
                return Poll::Ready(Some(Ok(Frame::trailers(*trailers))));
            }
            let Some(busy) = &mut self.busy else { return Poll::Ready(None) };
            busy.poll_upload(cx)?;
            if self.data > 0 {
                let data = busy.rest.split_to(self.data).into_bytes();
                self.data = 0;
                self.look_on();
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            busy.rest = ready!(busy.wire.poll_recv(cx))?;
            if busy.rest.is_empty() {
                self.fault = self.decoder.end().err();
                if self.fault.is_none() {
                    self.busy = None;
                }
            }
            self.look_on();
        }
    }

    /// Finds the body's next bytes, or its end, among those that came.
    fn look_on(&mut self) {
        let Some(busy) = &mut self.busy else { return };
        while !self.decoder.is_complete() && !busy.rest.is_empty() {
            match self.decoder.next(&busy.rest) {
                Ok(part) => {
                    busy.rest.advance(part.framing);
                    self.data = part.data;
                }
                Err(fault) => {
                    self.fault = Some(fault);
                    return;
                }
            }
            if self.data > 0 {
                return;
            }
        }
        if self.decoder.is_complete() {
            self.trailers = self.decoder.take_trailers().map(Box::new);
            if let Some(busy) = self.busy.take_if(|_| self.data == 0)
                && self.keep_alive
            {
                busy.go_home();
            }
        }
    }

    /// Whether nothing more comes.
    pub(in crate::upstream) fn is_complete(&self) -> bool {
        self.busy.is_none() && self.trailers.is_none() && self.fault.is_none()
    }

    /// Bytes still to come, where that is known.
    pub(in crate::upstream) fn left(&self) -> Option<u64> {
        self.decoder.left().map(|left| left + self.data as u64)
    }
}
