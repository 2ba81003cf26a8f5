//! HTTP/1.1 connections: one request at a time, then back to the pool; or for good, if protocols are switched.

pub(super) mod hyper;

pub use hyper::Switched;

use std::rc::{Rc, Weak};

use ::hyper::Uri;
use http::{HeaderValue, Request, header};
use usher_flowcontrol::units::Nanos;

use super::{Attempt, Fault, Pool, Presents, Server, Upload, lane};
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
    Hyper(hyper::Connection),
}

/// Where a connection goes back to.
#[derive(Clone, Debug)]
struct Home {
    pool: Weak<Pool>,
    lane: usize,
}

/// Makes a connection out of a fresh wire.
pub(super) async fn start(wire: Wire, pool: &Rc<Pool>, presents: Presents) -> Result<Idle, Fault> {
    let home = Home { pool: Rc::downgrade(pool), lane: lane(presents) };
    let connection = Connection::Hyper(hyper::start(wire, home).await?);
    Ok(Idle { connection, since: ring::now() })
}

/// Sends a request over a connection.
pub(super) async fn send(idle: Idle, server: &Server, mut request: Request<Upload>) -> Attempt {
    origin_form(&mut request, server);
    match idle.connection {
        Connection::Hyper(connection) => hyper::send(connection, request).await,
    }
}

/// Sends a request that asks to switch protocols over a wire of its own.
pub(super) async fn switch(wire: Wire, request: Request<Upload>) -> Result<Switched, Fault> {
    hyper::switch(wire, request).await
}

/// Origin form, and a `Host` if the client's HTTP/1.0 had none. The client's own `Host` stays: an apiserver does
/// not look at it, what is behind it (a proxied service) may.
fn origin_form(request: &mut Request<Upload>, server: &Server) {
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

// === impl Idle ===

impl Idle {
    /// Whether a request can be sent over it now.
    pub(super) fn is_ready(&self) -> bool {
        match &self.connection {
            Connection::Hyper(connection) => connection.is_ready(),
        }
    }
}

// === impl Home ===

impl Home {
    /// Takes a connection back, unless enough are there.
    fn take_back(&self, connection: Connection) {
        let Some(pool) = self.pool.upgrade() else { return };
        let mut idle = pool.idle[self.lane].borrow_mut();
        if idle.len() < pool.idle_max {
            idle.push(Idle { connection, since: ring::now() });
        }
    }

    /// Forgets a connection that has ended.
    fn forget(&self, is_it: impl Fn(&Connection) -> bool) {
        let Some(pool) = self.pool.upgrade() else { return };
        pool.idle[self.lane].borrow_mut().retain(|idle| !is_it(&idle.connection));
    }
}
