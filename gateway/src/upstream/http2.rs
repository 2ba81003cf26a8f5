//! HTTP/2 connections: many watches on each.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Uri, Version, header};
use http_body::Body;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use usher_flowcontrol::units::Nanos;

use super::download::Download;
use super::{Attempt, Fault, Parcel, Pool, Presents, Server, Upload, lane};
use crate::ring;
use crate::wire::Wire;

/// A connection and the streams on it.
#[derive(Debug)]
pub(super) struct Shared {
    sender: SendRequest<Upload>,
    streams: Cell<usize>,
    allowed: Allowed,
    /// Over, or refusing new streams.
    closed: Cell<bool>,
    /// Counts the pool's connections ([`Pool::made`]).
    pub(super) number: u64,
    /// Since when it has no stream.
    pub(super) idle_since: Cell<Nanos>,
}

/// How many streams the server allows now; asked of the connection itself, which hears of it by the way.
struct Allowed(Box<dyn Fn() -> usize>);

/// A stream.
#[derive(Debug)]
pub(super) struct Lease(Rc<Shared>);

/// Bytes of one answer that may be on their way while its client does not read: they wait here, beside what
/// `--stalled-bytes-max` counts, so with `--stalled-streams-max` of them 32 MiB. Enough for a burst of events at a gigabit
/// within a data centre.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Streams of a connection whose server has not said yet how many it allows. A watch beyond its number would wait
/// for another to end, which may be never.
const STREAMS_UNTOLD: usize = 1;
/// SETTINGS are the first thing that a server says; looked for as often as this, so long.
const LOOKS_MAX: u32 = 100;
/// See [`LOOKS_MAX`].
const LOOK_EVERY: Nanos = Nanos::from_millis(1);
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
    let (sender, connection) = Builder::new(ring::Executor)
        .timer(ring::Timer)
        .initial_max_send_streams(STREAMS_UNTOLD)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(window)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .handshake(TokioIo::new(wire))
        .await
        .map_err(|error| Fault::Closed(error.into()))?;
    let connection = Rc::new(RefCell::new(connection));
    // Weakly: a request that a connection has not taken before its end comes back when the connection is dropped, and
    // would keep it from being dropped.
    let asked = Rc::downgrade(&connection);
    let allowed = move || {
        let Some(connection) = asked.upgrade() else { return 0 };
        connection.try_borrow().map_or(0, |connection| connection.current_max_send_streams())
    };
    let shared = Rc::new(Shared {
        sender,
        streams: Cell::new(0),
        allowed: Allowed(Box::new(allowed)),
        closed: Cell::new(false),
        number: pool.made.get(),
        idle_since: Cell::new(ring::now()),
    });
    pool.shared[lane(presents)].borrow_mut().push(Rc::clone(&shared));
    let (weak, pool) = (Rc::downgrade(&shared), Rc::downgrade(pool));
    ring::spawn(async move {
        let _ = poll_fn(|cx| Pin::new(&mut *connection.borrow_mut()).poll(cx)).await; // its end is all we want to know
        if let (Some(shared), Some(pool)) = (weak.upgrade(), pool.upgrade()) {
            shared.closed.set(true);
            pool.shared[lane(presents)].borrow_mut().retain(|other| !Rc::ptr_eq(other, &shared));
        }
        drop(connection); // requests that it has not taken go elsewhere
    });
    Ok(shared)
}

/// RFC 9113, section 6.9.1.
const WINDOW_MAX: u32 = (1 << 31) - 1;

/// Sends a request as a stream of a connection.
pub(super) async fn send(shared: Rc<Shared>, server: &Server, mut request: Parcel) -> Attempt {
    absolute_form(&mut request, server);
    let lease = Lease::new(&shared);
    let mut sender = shared.sender.clone();
    let copy = copy_of(&request);
    match sender.try_send_request(*request).await {
        Ok(response) => Attempt::Answered(Box::new(response.map(|body| Download::http2(body, lease)))),
        Err(mut error) => {
            let message = error.take_message();
            let error = error.into_error();
            let unsent = message.or_else(|| copy.filter(|_| is_unprocessed(&error)));
            match unsent {
                Some(request) => {
                    shared.closed.set(true); // it takes no streams any more; those it has go on
                    Attempt::Unsent((Box::new(request), Fault::Closed(error.into())))
                }
                None => Attempt::Failed(Fault::Broken(error.into())),
            }
        }
    }
}

/// The same request once more, if it has no body.
fn copy_of(request: &Request<Upload>) -> Option<Request<Upload>> {
    if !request.body().is_end_stream() {
        return None;
    }
    let mut copy = Request::new(Upload::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// Whether the server has said that it did not look at the request: it came after the last one that the
/// server's GOAWAY names (RFC 9113, section 6.8). Then it is as if it had not been sent.
fn is_unprocessed(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        cause.is_go_away() && cause.is_remote() && cause.reason() == Some(h2::Reason::NO_ERROR)
    })
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
        !self.is_over() && self.streams.get() < streams_max.min((self.allowed.0)())
    }

    /// Done when the server has said how many streams it allows, or does not say.
    pub(super) async fn told(&self) {
        for _ in 0..LOOKS_MAX {
            if (self.allowed.0)() > STREAMS_UNTOLD || self.is_over() {
                return;
            }
            ring::sleep_until(ring::now() + LOOK_EVERY).await;
        }
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

// === impl Allowed ===

impl fmt::Debug for Allowed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)().fmt(formatter)
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// SETTINGS without any, and GOAWAY: last stream 0, with this error code.
    fn goaway(code: u8) -> Vec<u8> {
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, code];
        [&settings[..], &goaway].concat()
    }

    /// Sends a request to a server that answers nothing but `bytes`.
    fn attempt(bytes: &[u8]) -> Attempt {
        let bytes = bytes.to_vec();
        let exchange = async {
            let (near, mut far) = tokio::io::duplex(4096);
            ring::spawn(async move {
                let mut asked = [0; 4096];
                // The preface, and then the request.
                while !asked.windows(4).any(|part| part == [1, 0x5, 0, 0] || part == [1, 0x25, 0, 0]) {
                    if far.read(&mut asked).await.unwrap() == 0 {
                        return;
                    }
                }
                far.write_all(&bytes).await.unwrap();
                std::future::pending::<()>().await;
            });
            let (sender, connection) =
                Builder::new(ring::Executor).handshake(TokioIo::new(near)).await.unwrap();
            ring::spawn(async {
                let _ = connection.await;
            });
            let shared = Rc::new(Shared {
                sender,
                streams: Cell::new(0),
                allowed: Allowed(Box::new(|| 1)),
                closed: Cell::new(false),
                number: 1,
                idle_since: Cell::new(ring::now()),
            });
            let request = Request::get("/api/v1/pods?watch=1").body(Upload::empty()).unwrap();
            send(shared, &"https://127.0.0.1:1".parse().unwrap(), Box::new(request)).await
        };
        ring::run(exchange).unwrap()
    }

    #[test]
    fn a_request_that_the_server_says_it_did_not_look_at_may_be_sent_again() {
        let Attempt::Unsent(unsent) = attempt(&goaway(0)) else { panic!("counted as sent") };
        assert_eq!(unsent.0.uri().query(), Some("watch=1"));
    }

    #[test]
    fn a_request_that_broke_the_connection_is_not_sent_again() {
        assert!(matches!(attempt(&goaway(1)), Attempt::Failed(Fault::Broken(_))));
    }
}
