//! HTTP/1.1 connections: one request at a time, then back to the pool; or for good, if protocols are switched.

pub(super) mod hyper;
pub(super) mod own;

pub use hyper::Switched;

use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use http::{HeaderValue, Request, Uri, header};
use usher_flowcontrol::units::Nanos;

use super::{Attempt, Fault, Parcel, Pool, Presents, Server, Upload, lane};
use crate::http1::Speaker;
use crate::ring;
use crate::wire::Wire;

/// Bytes of an answer's head. kube-apiserver's are below 4 KiB; a proxied pod's may be anything.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// A connection that does nothing.
#[derive(Debug)]
pub(super) struct Idle {
    connection: Connection,
    /// Since when.
    pub(super) since: Nanos,
}

/// Who drives it.
#[derive(Debug)]
enum Connection {
    Own(own::Connection),
    Hyper(hyper::Connection),
}

/// Where a connection goes back to.
#[derive(Clone, Debug)]
struct Home {
    pool: Weak<Pool>,
    lane: usize,
}

/// Makes a connection out of a fresh wire.
pub(super) async fn start(
    wire: Wire,
    pool: &Rc<Pool>,
    presents: Presents,
    speaker: Speaker,
) -> Result<Idle, Fault> {
    let home = Home { pool: Rc::downgrade(pool), lane: lane(presents) };
    let connection = match speaker {
        Speaker::Own => Connection::Own(own::Connection::new(wire, home)),
        Speaker::Hyper => Connection::Hyper(hyper::start(wire, home).await?),
    };
    Ok(Idle { connection, since: ring::now() })
}

/// Sends a request over a connection.
pub(super) async fn send(idle: Idle, request: Parcel) -> Attempt {
    match idle.connection {
        Connection::Own(connection) => own::send(connection, request).await,
        Connection::Hyper(connection) => Box::pin(hyper::send(connection, *request)).await,
    }
}

/// Origin form, and a `Host` if the client's HTTP/1.0 had none. The client's own `Host` stays: an apiserver does
/// not look at it, what is behind it (a proxied service) may.
pub(super) fn origin_form(request: &mut Request<Upload>, server: &Server) {
    if request.uri().authority().is_some() {
        *request.uri_mut() = path_only(request.uri());
    }
    if !request.headers().contains_key(header::HOST)
        && let Ok(host) = HeaderValue::from_str(server.authority.as_str())
    {
        request.headers_mut().insert(header::HOST, host);
    }
}

fn path_only(uri: &Uri) -> Uri {
    uri.path_and_query().cloned().map_or_else(Uri::default, Uri::from)
}

/// Forgets connections that are closed while they do nothing, as soon as they are; for as long as somebody holds the
/// pool.
pub(super) async fn listen(pool: Weak<Pool>) {
    poll_fn(|cx| {
        let Some(pool) = pool.upgrade() else { return Poll::Ready(()) };
        pool.listener.replace(cx.waker().clone());
        for idle in &pool.idle {
            idle.borrow_mut().retain_mut(|idle| pool.is_quiet(&mut idle.connection, cx));
        }
        Poll::Pending
    })
    .await;
}

// === impl Idle ===

impl Idle {
    /// Whether a request can be sent over it now.
    pub(super) fn is_ready(&mut self, pool: &Pool) -> bool {
        pool.is_quiet(&mut self.connection, &mut Context::from_waker(Waker::noop()))
    }
}

// === impl Pool ===

impl Pool {
    /// Takes a connection back, unless enough are there.
    fn take_back(&self, lane: usize, mut connection: Connection) {
        let mut idle = self.idle[lane].borrow_mut();
        if idle.len() < self.idle_max
            && self.is_quiet(&mut connection, &mut Context::from_waker(&self.listener.borrow()))
        {
            idle.push(Idle { connection, since: ring::now() });
        }
    }

    /// Whether nothing has been heard of a connection that does nothing.
    fn is_quiet(&self, connection: &mut Connection, cx: &mut Context<'_>) -> bool {
        match connection {
            Connection::Own(connection) => match connection.poll_heard(cx) {
                Poll::Pending => true,
                Poll::Ready(unasked) => {
                    if unasked {
                        self.note_unasked();
                    }
                    false
                }
            },
            Connection::Hyper(connection) => connection.is_ready(),
        }
    }

    /// An apiserver has sent bytes that nobody asked for: what they are is unknown, so the connection is closed.
    fn note_unasked(&self) {
        self.unasked.set(self.unasked.get() + 1);
        tracing::debug!(server = %self.server, "an apiserver sent more than its answer");
    }
}
