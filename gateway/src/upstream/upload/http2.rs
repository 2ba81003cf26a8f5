//! The body of a request over HTTP/2, as h2 gives it.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http_body::Frame;

/// A client's stream. h2 holds it to the length that its head has told, if any.
#[derive(Debug)]
pub(super) struct Streamed {
    stream: RecvStream,
    left: Option<u64>,
    /// Only trailers can come.
    is_data_over: bool,
}

impl Streamed {
    /// Of that length, if it is known.
    pub(super) fn new(stream: RecvStream, left: Option<u64>) -> Self {
        Self { stream, left, is_data_over: false }
    }

    /// The next part. What is handed out the client may send again.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let part = if self.is_data_over { None } else { ready!(self.stream.poll_data(cx)) };
        let frame = match part {
            Some(Ok(data)) => {
                let _ = self.stream.flow_control().release_capacity(data.len()); // refused only if it was not taken
                self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                Ok(Some(Frame::data(data)))
            }
            Some(Err(error)) => Err(error),
            None => {
                self.is_data_over = true;
                ready!(self.stream.poll_trailers(cx)).map(|trailers| trailers.map(Frame::trailers))
            }
        };
        Poll::Ready(match frame {
            // The client has had its answer and sends no more (RFC 9113, section 8.1).
            Err(error) if error.reason() == Some(Reason::NO_ERROR) => None,
            frame => frame.transpose(),
        })
    }

    /// Whether nothing more comes.
    pub(super) fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    /// Bytes still to come, where that is known.
    pub(super) fn left(&self) -> Option<u64> {
        self.left
    }
}
