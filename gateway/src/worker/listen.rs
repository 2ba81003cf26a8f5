//! Accepting connections: as many as there is room for, and on when descriptors run out.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use usher_flowcontrol::units::Nanos;

use super::{Worker, connection};
use crate::memory::Rung;
use crate::observe::logging::Seldom;
use crate::ring::{self, Listener};
use crate::tls;

/// After accepting failed for want of descriptors or memory. Long enough for some connection to end, short enough
/// for nobody to notice.
const PAUSE: Nanos = Nanos::from_millis(100);

/// Accepts until the worker drains; then the socket is closed.
pub(super) async fn accept(worker: Rc<Worker>, listener: Listener, tls: Option<Arc<tls::Server>>) {
    let drain = worker.drain.lookout();
    let starved = Seldom::default();
    loop {
        let accepted = tokio::select! {
            biased;
            () = drain.wait() => return,
            accepted = accept_if_room(&worker, &listener) => accepted,
        };
        match accepted {
            Ok(_) if worker.scarcity.is_at(Rung::Connections) => {
                worker.counters.connections_refused_memory.add(); // dropped: closed
            }
            Ok((stream, peer)) => {
                let open = Open::new(&worker);
                let serving = connection::serve(Rc::clone(&worker), stream, peer, tls.clone());
                ring::spawn(async move {
                    serving.await;
                    drop(open);
                });
            }
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
}

/// With too many connections, waits until one ends.
async fn accept_if_room(
    worker: &Worker,
    listener: &Listener,
) -> io::Result<(ring::Stream, std::net::SocketAddr)> {
    let room = || {
        let open = usize::try_from(worker.counters.connections_open.get()).unwrap_or(usize::MAX);
        worker.settings.limits.connections.saturating_sub(open)
    };
    if room() == 0 {
        worker.counters.connections_refused_full.add();
        while room() == 0 {
            worker.room.notified().await;
        }
    }
    listener.accept_into(room()).await
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

/// An open connection, counted.
struct Open(Rc<Worker>);

impl Open {
    fn new(worker: &Rc<Worker>) -> Self {
        worker.counters.connections_accepted.add();
        worker.counters.connections_open.add();
        Self(Rc::clone(worker))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.counters.connections_open.remove();
        self.0.room.notify_waiters();
    }
}
