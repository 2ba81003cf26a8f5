//! HTTP/1.1 connections that hyper drives, each in a task of its own: the reference that [`super::own`] is held
//! against, and how protocols are switched.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Builder, SendRequest};
use hyper_util::rt::TokioIo;

use super::{HEAD_BYTES_MAX, Home, path_only};
use crate::ring;
use crate::upstream::{Attempt, Download, Fault, Upload};
use crate::wire::Wire;

/// A connection that does nothing.
#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Upload>,
    driver: Rc<Driver>,
}

/// What a connection's task and its user tell each other.
#[derive(Debug)]
struct Driver {
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
pub(in crate::upstream) struct Lease {
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

type Driven = http1::Connection<TokioIo<Wire>, Upload>;

/// Makes a connection out of a fresh wire.
pub(super) async fn start(wire: Wire, home: Home) -> Result<Connection, Fault> {
    let (sender, connection) = handshake(wire).await?;
    let driver = Rc::new(Driver { state: RefCell::new(State::Free), waker: RefCell::new(None) });
    ring::spawn(drive(connection, Rc::clone(&driver), Some(home)));
    Ok(Connection { sender, driver })
}

/// Sends a request over a connection.
pub(super) async fn send(connection: Connection, mut request: Request<Upload>) -> Attempt {
    let uploaded = request.body_mut().progress();
    hold_body_if_asked(&mut request);
    let Connection { mut sender, driver } = connection;
    let answer = sender.try_send_request(request);
    *driver.state.borrow_mut() = State::Busy(sender);
    let lease = Lease::new(&driver, uploaded);
    match answer.await {
        Ok(response) => Attempt::Answered(Box::new(response.map(|body| Download::hyper(body, lease)))),
        Err(mut error) => match error.take_message() {
            Some(request) => Attempt::Unsent((Box::new(request), Fault::Closed(error.into_error().into()))),
            None => Attempt::Failed(Fault::Broken(error.into_error().into())),
        },
    }
}

/// Sends a request that asks to switch protocols over a wire of its own.
pub(in crate::upstream) async fn switch(wire: Wire, mut request: Request<Upload>) -> Result<Switched, Fault> {
    *request.uri_mut() = path_only(request.uri());
    let (mut sender, mut connection) = handshake(wire).await?;
    let uploaded = request.body_mut().progress();
    let mut answer = pin!(sender.send_request(request));
    let mut over = false;
    let response = poll_fn(|cx| {
        if !over {
            over = connection.poll_without_shutdown(cx).is_ready();
        }
        answer.as_mut().poll(cx)
    })
    .await
    .map_err(|error| Fault::Broken(error.into()))?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let driver = Rc::new(Driver { state: RefCell::new(State::Busy(sender)), waker: RefCell::new(None) });
        ring::spawn(drive(connection, Rc::clone(&driver), None));
        let lease = Lease::new(&driver, uploaded);
        return Ok(Switched::No(Box::new(response.map(|body| Download::hyper(body, lease)))));
    }
    if !over {
        poll_fn(|cx| connection.poll_without_shutdown(cx))
            .await
            .map_err(|error| Fault::Broken(error.into()))?;
    }
    let parts = connection.into_parts();
    let head = response.map(|_: Incoming| ());
    Ok(Switched::Yes { head: Box::new(head), wire: parts.io.into_inner().unread(parts.read_buf) })
}

async fn handshake(wire: Wire) -> Result<(SendRequest<Upload>, Driven), Fault> {
    Builder::new()
        .max_header_size(HEAD_BYTES_MAX)
        .handshake(TokioIo::new(wire))
        .await
        .map_err(|error| Fault::Closed(error.into()))
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
    pool.idle[lane].borrow_mut().retain(|idle| {
        !matches!(&idle.connection, super::Connection::Hyper(other) if Rc::ptr_eq(&other.driver, &driver))
    });
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
        drop(state);
        let Some(pool) = home.pool.upgrade() else { return Poll::Ready(()) };
        pool.take_back(home.lane, super::Connection::Hyper(Connection { sender, driver: Rc::clone(self) }));
        Poll::Pending
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

// === impl Connection ===

impl Connection {
    /// Whether a request can be sent over it now.
    pub(super) fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }
}

// === impl Lease ===

impl Lease {
    fn new(driver: &Rc<Driver>, uploaded: Rc<Cell<bool>>) -> Self {
        Self { driver: Some(Rc::clone(driver)), uploaded }
    }

    /// The answer has been read to its end. The connection is good for another request only if the request
    /// has been sent to its end, too.
    pub(in crate::upstream) fn complete(&mut self) {
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
