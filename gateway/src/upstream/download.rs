//! An answer's body on its way down, and what it keeps busy meanwhile.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::fault::Cause;
use super::{http1, http2};
use crate::http1::Lines;

/// An answer's body. Read to its end, it gives the connection back; dropped before, it ends the work there.
#[derive(Debug)]
pub struct Download {
    source: Source,
    /// Those of the head, if they are not in a map.
    lines: Option<Lines>,
}

/// Whose body it is, and what it keeps busy until it is complete.
#[derive(Debug)]
enum Source {
    /// A stream of an HTTP/2 connection. Dropping the body resets it.
    Http2(Incoming, #[expect(dead_code, reason = "held to count the stream")] http2::Lease),
    /// A whole connection of our own.
    Own(http1::own::Answer),
    /// A whole connection that hyper drives.
    Hyper(Incoming, http1::hyper::Lease),
}

impl Download {
    /// A stream's.
    pub(super) fn http2(body: Incoming, lease: http2::Lease) -> Self {
        Self { source: Source::Http2(body, lease), lines: None }
    }

    /// That of a connection of our own.
    pub(super) fn own(answer: http1::own::Answer, lines: Option<Lines>) -> Self {
        Self { source: Source::Own(answer), lines }
    }

    /// That of a connection which hyper drives.
    pub(super) fn hyper(body: Incoming, mut lease: http1::hyper::Lease) -> Self {
        if body.is_end_stream() {
            lease.complete();
        }
        Self { source: Source::Hyper(body, lease), lines: None }
    }

    /// Takes the header lines that came with it, if they are not in the answer's map ([`Upload::want_lines`]).
    ///
    /// [`Upload::want_lines`]: super::Upload::want_lines
    pub fn take_lines(&mut self) -> Option<Lines> {
        self.lines.take()
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = Cause;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        let frame = match &mut self.source {
            Source::Own(answer) => return answer.poll_frame(cx),
            Source::Http2(body, _) => ready!(Pin::new(body).poll_frame(cx)),
            Source::Hyper(body, lease) => {
                let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
                if frame.is_none() || body.is_end_stream() {
                    lease.complete();
                }
                frame
            }
        };
        Poll::Ready(frame.map(|frame| frame.map_err(Cause::from)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Own(answer) => answer.is_complete(),
            Source::Http2(body, _) | Source::Hyper(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Own(answer) => answer.left().map_or_else(SizeHint::default, SizeHint::with_exact),
            Source::Http2(body, _) | Source::Hyper(body, _) => body.size_hint(),
        }
    }
}
