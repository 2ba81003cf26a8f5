//! An answer's body on its way down, and what it keeps busy meanwhile.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{http1, http2};

/// An answer's body. Read to its end, it gives the connection back; dropped before, it ends the work there.
#[derive(Debug)]
pub struct Download {
    body: Incoming,
    lease: Lease,
}

/// What a request keeps busy until its answer is complete.
#[derive(Debug)]
pub(super) enum Lease {
    /// A whole connection.
    Http1(http1::Lease),
    /// A stream of one. Dropping the body resets it.
    Http2(#[expect(dead_code, reason = "held to count the stream")] http2::Lease),
}

impl Download {
    pub(super) fn new(body: Incoming, lease: Lease) -> Self {
        let mut download = Self { body, lease };
        download.note_end();
        download
    }

    fn note_end(&mut self) {
        if let (true, Lease::Http1(lease)) = (self.body.is_end_stream(), &mut self.lease) {
            lease.complete();
        }
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match (&frame, &mut self.lease) {
            (None, Lease::Http1(lease)) => lease.complete(),
            _ => self.note_end(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The request of an answer, as far as the connection is concerned.
pub(super) fn http1(connection: &Rc<http1::Driver>, uploaded: Rc<std::cell::Cell<bool>>) -> Lease {
    Lease::Http1(http1::Lease::new(connection, uploaded))
}
