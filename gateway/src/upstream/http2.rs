//! HTTP/2 connections: many watches on each.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Uri, Version, header};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use usher_flowcontrol::units::Nanos;

use super::download::{self, Download};
use super::{Attempt, Fault, Pool, Presents, Server, Upload, lane};
use crate::ring;
use crate::wire::Wire;

/// A connection and the streams on it.
#[derive(Debug)]
pub(super) struct Shared {
    sender: SendRequest<Upload>,
    streams: Cell<usize>,
    /// Streams that the server allows.
    streams_max: Cell<usize>,
    /// Over, or refusing new streams.
    closed: Cell<bool>,
    /// Since when it has no stream.
    pub(super) idle_since: Cell<Nanos>,
}

/// A stream.
#[derive(Debug)]
pub(super) struct Lease(Rc<Shared>);

/// Bytes of one watch that may be on their way while its client does not read. Enough for a burst of events at
/// full speed within a data centre.
const STREAM_WINDOW: u32 = 256 * 1024;
/// A connection that has said nothing for so long is asked whether it is alive, as client-go does.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// And is over if it does not answer in that time, as in client-go.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Makes a connection out of a fresh wire and puts it into the pool.
pub(super) async fn start(
    wire: Wire,
    pool: &Rc<Pool>,
    presents: Presents,
    streams_max: usize,
) -> Result<Rc<Shared>, Fault> {
    // The connection's window must hold all streams' windows: else slow watchers stop the fast ones.
    let window = STREAM_WINDOW.saturating_mul(u32::try_from(streams_max).unwrap_or(u32::MAX)).min(WINDOW_MAX);
    let (sender, mut connection) = Builder::new(ring::Executor)
        .timer(ring::Timer)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(window)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .handshake(TokioIo::new(wire))
        .await
        .map_err(Fault::Closed)?;
    let shared = Rc::new(Shared {
        sender,
        streams: Cell::new(0),
        streams_max: Cell::new(connection.current_max_send_streams()),
        closed: Cell::new(false),
        idle_since: Cell::new(ring::now()),
    });
    pool.shared[lane(presents)].borrow_mut().push(Rc::clone(&shared));
    let (weak, pool) = (Rc::downgrade(&shared), Rc::downgrade(pool));
    ring::spawn(async move {
        poll_fn(|cx| {
            let over = Pin::new(&mut connection).poll(cx).is_ready();
            if let Some(shared) = weak.upgrade() {
                shared.streams_max.set(connection.current_max_send_streams());
            }
            if over { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        if let (Some(shared), Some(pool)) = (weak.upgrade(), pool.upgrade()) {
            shared.closed.set(true);
            pool.shared[lane(presents)].borrow_mut().retain(|other| !Rc::ptr_eq(other, &shared));
        }
    });
    Ok(shared)
}

/// RFC 9113, section 6.9.1.
const WINDOW_MAX: u32 = (1 << 31) - 1;

/// Sends a request as a stream of a connection.
pub(super) async fn send(shared: &Rc<Shared>, server: &Server, mut request: Request<Upload>) -> Attempt {
    absolute_form(&mut request, server);
    let lease = Lease::new(shared);
    let mut sender = shared.sender.clone();
    match sender.try_send_request(request).await {
        Ok(response) => {
            let lease = download::Lease::Http2(lease);
            Attempt::Answered(Box::new(response.map(|body| Download::new(body, lease))))
        }
        Err(mut error) => match error.take_message() {
            Some(request) => {
                shared.closed.set(true); // it takes no streams any more; those it has go on
                Attempt::Unsent(Box::new((request, Fault::Closed(error.into_error()))))
            }
            None => Attempt::Failed(Fault::Broken(error.into_error())),
        },
    }
}

/// HTTP/2 has the authority in the target, and no `Host`, `TE` other than trailers, or `Expect`.
fn absolute_form(request: &mut Request<Upload>, server: &Server) {
    let host = request.headers_mut().remove(header::HOST);
    let client = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(Scheme::HTTPS);
    parts.authority = Some(client.unwrap_or_else(|| server.authority.clone()));
    parts.path_and_query = Some(path);
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    request.headers_mut().remove(header::CONNECTION);
    request.headers_mut().remove(header::EXPECT);
    *request.version_mut() = Version::HTTP_2;
}

// === impl Shared ===

impl Shared {
    /// Whether another stream fits.
    pub(super) fn has_room(&self, streams_max: usize) -> bool {
        !self.is_over() && self.streams.get() < streams_max.min(self.streams_max.get())
    }

    /// Whether it takes no more streams.
    pub(super) fn is_over(&self) -> bool {
        self.closed.get() || self.sender.is_closed()
    }

    /// Whether it has no streams.
    pub(super) fn is_idle(&self) -> bool {
        self.streams.get() == 0
    }
}

// === impl Lease ===

impl Lease {
    fn new(shared: &Rc<Shared>) -> Self {
        shared.streams.set(shared.streams.get() + 1);
        Self(Rc::clone(shared))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.streams.set(self.0.streams.get() - 1);
        self.0.idle_since.set(ring::now());
    }
}
