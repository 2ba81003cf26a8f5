//! HTTP/1.1 connections: one request at a time, then back to the pool; or for good, if protocols are switched.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use usher_flowcontrol::units::Nanos;

use super::{Attempt, Download, Fault, Pool, Presents, Server, Upload, download, lane};
use crate::ring;
use crate::wire::Wire;

/// A connection that does nothing.
#[derive(Debug)]
pub(super) struct Idle {
    sender: SendRequest<Upload>,
    driver: Rc<Driver>,
    /// Since when.
    pub(super) since: Nanos,
}

/// What a connection's task and its user tell each other.
#[derive(Debug)]
pub(super) struct Driver {
    state: RefCell<State>,
    waker: RefCell<Option<Waker>>,
}

#[derive(Debug)]
enum State {
    /// In the pool, or between two states.
    Free,
    /// A request is on its way; the sender is kept here meanwhile.
    Busy(SendRequest<Upload>),
    /// The answer is complete: back to the pool as soon as the connection is ready for more.
    Returned(SendRequest<Upload>),
    /// Nobody wants what is still to come.
    Abandoned,
}

/// A request on a connection. Dropped before [`Lease::complete`], it closes the connection: that is how an
/// apiserver learns over HTTP/1.1 that its work is not wanted any more.
#[derive(Debug)]
pub(super) struct Lease {
    /// Its connection; none once it is given back: the next request's answer may come over it already.
    driver: Option<Rc<Driver>>,
    uploaded: Rc<Cell<bool>>,
}

/// The answer to a request that asked to switch protocols.
#[derive(Debug)]
pub enum Switched {
    /// 101: from here on the bytes are the new protocol's.
    Yes {
        /// Head of the answer.
        head: Box<Response<()>>,
        /// The connection, to be read from the first byte of the new protocol.
        wire: Wire,
    },
    /// Any other answer.
    No(Box<Response<Download>>),
}

/// Bytes of an answer's head. kube-apiserver's are below 4 KiB; a proxied pod's may be anything.
const HEAD_BYTES_MAX: usize = 64 * 1024;

type Driven = Connection<TokioIo<Wire>, Upload>;

/// Makes a connection out of a fresh wire.
pub(super) async fn start(
    wire: Wire,
    pool: &Rc<Pool>,
    presents: Presents,
    idle_max: usize,
) -> Result<Idle, Fault> {
    let (sender, connection) = handshake(wire).await?;
    let driver = Rc::new(Driver { state: RefCell::new(State::Free), waker: RefCell::new(None) });
    let home = Home { pool: Rc::downgrade(pool), lane: lane(presents), idle_max };
    ring::spawn(drive(connection, Rc::clone(&driver), Some(home)));
    Ok(Idle { sender, driver, since: ring::now() })
}

/// Sends a request over a connection.
pub(super) async fn send(connection: Idle, server: &Server, mut request: Request<Upload>) -> Attempt {
    origin_form(&mut request, server);
    let uploaded = request.body().progress();
    hold_body_if_asked(&mut request);
    let Idle { mut sender, driver, .. } = connection;
    let answer = sender.try_send_request(request);
    *driver.state.borrow_mut() = State::Busy(sender);
    let lease = download::http1(&driver, uploaded);
    match answer.await {
        Ok(response) => Attempt::Answered(Box::new(response.map(|body| Download::new(body, lease)))),
        Err(mut error) => match error.take_message() {
            Some(request) => Attempt::Unsent(Box::new((request, Fault::Closed(error.into_error())))),
            None => Attempt::Failed(Fault::Broken(error.into_error())),
        },
    }
}

/// Sends a request that asks to switch protocols over a wire of its own.
pub(super) async fn switch(wire: Wire, mut request: Request<Upload>) -> Result<Switched, Fault> {
    *request.uri_mut() = path_only(request.uri());
    let (mut sender, mut connection) = handshake(wire).await?;
    let uploaded = request.body().progress();
    let mut answer = pin!(sender.send_request(request));
    let mut over = false;
    let response = poll_fn(|cx| {
        if !over {
            over = connection.poll_without_shutdown(cx).is_ready();
        }
        answer.as_mut().poll(cx)
    })
    .await
    .map_err(Fault::Broken)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let driver = Rc::new(Driver { state: RefCell::new(State::Busy(sender)), waker: RefCell::new(None) });
        ring::spawn(drive(connection, Rc::clone(&driver), None));
        let lease = download::http1(&driver, uploaded);
        return Ok(Switched::No(Box::new(response.map(|body| Download::new(body, lease)))));
    }
    if !over {
        poll_fn(|cx| connection.poll_without_shutdown(cx)).await.map_err(Fault::Broken)?;
    }
    let parts = connection.into_parts();
    let head = response.map(|_: Incoming| ());
    Ok(Switched::Yes { head: Box::new(head), wire: parts.io.into_inner().unread(parts.read_buf) })
}

async fn handshake(wire: Wire) -> Result<(SendRequest<Upload>, Driven), Fault> {
    Builder::new().max_header_size(HEAD_BYTES_MAX).handshake(TokioIo::new(wire)).await.map_err(Fault::Closed)
}

/// Where a connection goes back to.
struct Home {
    pool: Weak<Pool>,
    lane: usize,
    idle_max: usize,
}

/// A connection's task: ends with the connection, or when it is abandoned; the pool forgets it then.
async fn drive(mut connection: Driven, driver: Rc<Driver>, home: Option<Home>) {
    poll_fn(|cx| {
        driver.waker.replace(Some(cx.waker().clone()));
        if matches!(*driver.state.borrow(), State::Abandoned) {
            return Poll::Ready(());
        }
        if Pin::new(&mut connection).poll(cx).is_ready() {
            return Poll::Ready(());
        }
        driver.poll_home(cx, home.as_ref())
    })
    .await;
    *driver.state.borrow_mut() = State::Abandoned;
    let Some((pool, lane)) = home.and_then(|home| Some((home.pool.upgrade()?, home.lane))) else { return };
    pool.idle[lane].borrow_mut().retain(|idle| !Rc::ptr_eq(&idle.driver, &driver));
}

/// Origin form, and a `Host` if the client's HTTP/1.0 had none. The client's own `Host` stays: an apiserver does
/// not look at it, what is behind it (a proxied service) may.
fn origin_form(request: &mut Request<Upload>, server: &Server) {
    *request.uri_mut() = path_only(request.uri());
    if !request.headers().contains_key(header::HOST)
        && let Ok(host) = HeaderValue::from_str(server.authority.as_str())
    {
        request.headers_mut().insert(header::HOST, host);
    }
}

fn path_only(uri: &Uri) -> Uri {
    uri.path_and_query().cloned().map_or_else(Uri::default, Uri::from)
}

/// A client that waits for `100 Continue` gets it when the apiserver asks for the body.
fn hold_body_if_asked(request: &mut Request<Upload>) {
    if request.headers().contains_key(header::EXPECT) {
        let gate = request.body_mut().hold();
        hyper::ext::on_informational(request, move |response| {
            if response.status() == StatusCode::CONTINUE {
                gate.open();
            }
        });
    }
}

// === impl Driver ===

impl Driver {
    /// Takes a returned connection home once it is ready for the next request.
    fn poll_home(self: &Rc<Self>, cx: &mut Context<'_>, home: Option<&Home>) -> Poll<()> {
        let mut state = self.state.borrow_mut();
        let State::Returned(sender) = &mut *state else { return Poll::Pending };
        match sender.poll_ready(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(_)) => return Poll::Ready(()),
            Poll::Ready(Ok(())) => {}
        }
        let (Some(home), State::Returned(sender)) = (home, std::mem::replace(&mut *state, State::Free))
        else {
            return Poll::Ready(());
        };
        let Some(pool) = home.pool.upgrade() else { return Poll::Ready(()) };
        let mut idle = pool.idle[home.lane].borrow_mut();
        if idle.len() < home.idle_max {
            idle.push(Idle { sender, driver: Rc::clone(self), since: ring::now() });
        }
        Poll::Pending
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

// === impl Idle ===

impl Idle {
    /// Whether a request can be sent over it now.
    pub(super) fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }
}

// === impl Lease ===

impl Lease {
    pub(super) fn new(driver: &Rc<Driver>, uploaded: Rc<Cell<bool>>) -> Self {
        Self { driver: Some(Rc::clone(driver)), uploaded }
    }

    /// The answer has been read to its end. The connection is good for another request only if the request
    /// has been sent to its end, too.
    pub(super) fn complete(&mut self) {
        if !self.uploaded.get() {
            return; // dropped with the rest unsent: the connection is closed
        }
        let Some(driver) = self.driver.take() else { return };
        let mut state = driver.state.borrow_mut();
        if let State::Busy(sender) = std::mem::replace(&mut *state, State::Free) {
            *state = State::Returned(sender);
            drop(state);
            driver.wake();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(driver) = self.driver.take() else { return };
        let mut state = driver.state.borrow_mut();
        if matches!(*state, State::Busy(_)) {
            *state = State::Abandoned;
            drop(state);
            driver.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_that_is_done_with_cannot_end_the_next_one() {
        let (near, _far) = tokio::io::duplex(64);
        let (sender, _connection) = Builder::new().handshake::<_, Upload>(TokioIo::new(near)).await.unwrap();
        let driver = Rc::new(Driver { state: RefCell::new(State::Busy(sender)), waker: RefCell::default() });
        let mut first = Lease::new(&driver, Rc::new(Cell::new(true)));
        first.complete();
        let State::Returned(sender) = driver.state.replace(State::Free) else { panic!("not given back") };
        driver.state.replace(State::Busy(sender)); // lent again, before the first answer is dropped
        first.complete();
        drop(first);
        assert!(matches!(*driver.state.borrow(), State::Busy(_)));
    }
}
