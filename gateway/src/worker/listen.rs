//! Accepting connections: as many as there is room for, and on when descriptors run out.

use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::FutureExt as _;
use usher_flowcontrol::units::Nanos;

use super::common::Place;
use super::{Worker, connection};
use crate::memory::Rung;
use crate::observe::logging::Seldom;
use crate::ring::{self, Listener};
use crate::tls;

/// After accepting failed for want of descriptors or memory. Long enough for some connection to end, short enough
/// for nobody to notice.
const PAUSE: Nanos = Nanos::from_millis(100);

/// Accepts, once the process is to, until the worker drains, and serves what has been accepted by then; then the socket
/// is closed.
pub(super) async fn accept(worker: Rc<Worker>, listener: Listener, tls: Option<Arc<tls::Server>>) {
    let _accepting = Accepting::new(&worker);
    let drain = worker.drain.lookout();
    let starved = Seldom::default();
    tokio::select! {
        () = drain.wait() => {}
        () = worker.settings.common.until_open() => {}
    }
    loop {
        let accepted = tokio::select! {
            biased;
            () = drain.wait() => break,
            accepted = accept_if_room(&worker, &listener) => accepted,
        };
        match accepted {
            Ok((stream, peer)) => begin(&worker, stream, peer, tls.clone()).await,
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                worker.counters.accept_failed.add();
                if starved.is_due(ring::now()) {
                    let worker = &worker.settings.name;
                    tracing::warn!(worker, %error, "cannot accept connections: raise the limit of open files");
                }
                tokio::select! {
                    () = ring::sleep_until(ring::now() + PAUSE) => {}
                    () = worker.room.notified() => {} // one has ended
                }
            }
        }
    }
    while let Some((stream, peer)) = listener.rest().await {
        begin(&worker, stream, peer, tls.clone()).await;
    }
}

/// Serves a connection, once there is a place for it.
///
/// They are counted over all workers, and another one may take the last place while this one accepts: then what came
/// waits here, accepted and not looked at, at most one for each listener.
async fn begin(worker: &Rc<Worker>, stream: ring::Stream, peer: SocketAddr, tls: Option<Arc<tls::Server>>) {
    let (common, max) = (&worker.settings.common, worker.settings.limits.connections);
    let place = until_room(worker, || common.place(|all| &all.connections, max)).await;
    if worker.scarcity.is_at(Rung::Connections) {
        return worker.counters.connections_refused_memory.add(); // dropped: closed
    }
    let open = Open::new(worker, place);
    let serving = connection::serve(Rc::clone(worker), stream, peer, tls);
    ring::spawn(async move {
        if AssertUnwindSafe(serving).catch_unwind().await.is_err() {
            open.worker.counters.panics_connections.add();
        }
        drop(open);
    });
}

/// With too many connections, waits until one ends.
async fn accept_if_room(worker: &Worker, listener: &Listener) -> io::Result<(ring::Stream, SocketAddr)> {
    let (common, max) = (&worker.settings.common, worker.settings.limits.connections);
    let room = || max.saturating_sub(usize::try_from(common.connections.get()).unwrap_or(usize::MAX));
    until_room(worker, || (room() > 0).then_some(())).await;
    // Others accept, too.
    listener.accept_into((room() / common.workers).max(1)).await
}

/// Asks until it is told something, after every connection that ends.
async fn until_room<T>(worker: &Worker, ask: impl Fn() -> Option<T>) -> T {
    if let Some(told) = ask() {
        return told;
    }
    worker.counters.connections_refused_full.add();
    loop {
        let mut ended = std::pin::pin!(worker.settings.common.room.notified());
        ended.as_mut().enable(); // what ends from here on is heard
        if let Some(told) = ask() {
            return told;
        }
        ended.await;
    }
}

/// Errors of a connection that ended before it was accepted (`accept(2)`); the next one may be well.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::HostUnreachable
    ) || matches!(error.raw_os_error(), Some(libc::EPROTO | libc::ENOPROTOOPT | libc::EPERM))
}

/// A listener, counted until it has given out all it has accepted.
struct Accepting(Rc<Worker>);

impl Accepting {
    fn new(worker: &Rc<Worker>) -> Self {
        worker.accepting.set(worker.accepting.get() + 1);
        Self(Rc::clone(worker))
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        self.0.accepting.set(self.0.accepting.get() - 1);
        self.0.room.notify_waiters();
    }
}

/// An open connection, counted.
struct Open {
    worker: Rc<Worker>,
    /// Its place among all of the process.
    place: Option<Place>,
}

impl Open {
    fn new(worker: &Rc<Worker>, place: Place) -> Self {
        worker.counters.connections_accepted.add();
        worker.counters.connections_open.add();
        worker.tell_connections();
        Self { worker: Rc::clone(worker), place: Some(place) }
    }
}

impl Worker {
    /// Those who send connections are told how many there are.
    fn tell_connections(&self) {
        self.settings.line.connections(self.counters.connections_open.get());
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        drop(self.place.take());
        self.worker.counters.connections_open.remove();
        self.worker.tell_connections();
        self.worker.room.notify_waiters();
        self.worker.settings.common.room.notify_waiters();
    }
}
