//! A request over HTTP/2 and its answer: a stream of a client's connection, in a task of its own.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::FutureExt as _;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Request, Response};
use http_body::{Body as _, Frame};

use super::Client;
use crate::ring;
use crate::upstream::Upload;
use crate::worker::body::Body;
use crate::worker::host::Hosted;
use crate::worker::request::{self, Answer};

/// A stream. Done when the answer is sent, or its client wants no more of it.
enum Stream<F> {
    /// Boxed: what a request needs until the head of its answer is not kept while its answer goes on.
    Serving(Pin<Box<F>>, SendResponse<Bytes>),
    Sending(Sending),
}

/// An answer on its way.
struct Sending {
    body: Body,
    stream: SendStream<Bytes>,
    /// What is to be sent next, and whether it is the last part. A part is at hand before the client's window is
    /// claimed for it: a claim for what may never come would be at the expense of other streams.
    part: Option<(Bytes, bool)>,
}

/// Answers a request that has arrived.
pub(super) fn begin(client: &Rc<Client>, request: Request<RecvStream>, reply: SendResponse<Bytes>) {
    let request = if request.body().is_end_stream() {
        Box::new(request.map(|_| Upload::empty()))
    } else {
        let length = Upload::length(request.headers());
        Box::new(request.map(|body| Upload::http2(body, length)))
    };
    let serving = Box::pin(request::serve(Rc::clone(client), request));
    let worker = Rc::clone(&client.worker);
    let overrun = Rc::clone(&worker);
    let overrun = move || overrun.counters.timed_out_answering.add();
    let hosted = Hosted::new(Stream::Serving(serving, reply), overrun);
    ring::spawn(AssertUnwindSafe(hosted).catch_unwind().map(move |ended| {
        if ended.is_err() {
            worker.counters.panics_requests.add(); // in the midst of its answer: the stream is reset
        }
    }));
}

impl<F: Future<Output = Answer>> Future for Stream<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if let Self::Serving(serving, reply) = this {
            let Poll::Ready(answer) = serving.as_mut().poll(cx) else {
                return reply.poll_reset(cx).map(drop);
            };
            let Some(sending) = Sending::begin(*answer, reply) else { return Poll::Ready(()) };
            *this = Self::Sending(sending);
        }
        let Self::Sending(sending) = this else { return Poll::Ready(()) };
        sending.poll(cx)
    }
}

impl Sending {
    /// Sends the head; `None` if there is nothing else to send.
    fn begin(answer: Response<Body>, reply: &mut SendResponse<Bytes>) -> Option<Self> {
        let (head, body) = answer.into_parts();
        let mut head = Response::from_parts(head, ());
        let is_over = body.is_end_stream();
        if let (Body::Here(_), false, Some(length)) = (&body, is_over, body.size_hint().exact()) {
            head.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
        }
        match reply.send_response(head, is_over) {
            Ok(stream) => (!is_over).then_some(Self { body, stream, part: None }),
            Err(error) => {
                tracing::debug!(%error, "the head of an answer that HTTP/2 cannot carry");
                reply.send_reset(Reason::INTERNAL_ERROR);
                None
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.part.is_some() {
                let has_room = ready!(self.poll_room(cx));
                let Some((data, is_last)) = self.part.take() else { continue };
                if !has_room || self.stream.send_data(data, is_last).is_err() || is_last {
                    return Poll::Ready(());
                }
            }
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                return self.stream.poll_reset(cx).map(drop);
            };
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => {
                    if !data.is_empty() {
                        self.stream.reserve_capacity(1); // h2 asks for the rest
                    }
                    self.part = Some((data, self.body.is_end_stream()));
                    continue;
                }
                Some(Ok(Err(frame))) => {
                    self.stream.reserve_capacity(0);
                    if let Ok(trailers) = frame.into_trailers() {
                        let _ = self.stream.send_trailers(trailers); // or the client has left
                    }
                }
                Some(Err(_)) => self.stream.send_reset(Reason::INTERNAL_ERROR),
                None => drop(self.stream.send_data(Bytes::new(), true)),
            }
            return Poll::Ready(());
        }
    }

    /// Waits until the client takes some of the part. False: it takes nothing any more.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let is_empty = self.part.as_ref().is_none_or(|(data, _)| data.is_empty());
        while !is_empty && self.stream.capacity() == 0 {
            if !matches!(ready!(self.stream.poll_capacity(cx)), Some(Ok(_))) {
                return Poll::Ready(false);
            }
        }
        Poll::Ready(true)
    }
}
