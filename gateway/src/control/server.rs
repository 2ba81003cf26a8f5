//! Listens at the control socket, from a thread of its own. Every caller has a thread, too, of which there are few: they
//! are people and an usher that takes over.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::{Desk, Line, Reply, Socket, socket};

/// Callers at a time; the others wait in the kernel.
const CALLERS_MAX: usize = 8;
/// Before accepting is tried again when the system refuses (no descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// The socket, as long as somebody listens.
#[derive(Debug)]
pub struct Open {
    socket: Socket,
    ended: watch::Sender<bool>,
}

/// Listens from now on, until [`Open::leave`] or the end of the process.
///
/// # Errors
/// No thread.
pub fn start(socket: Socket, desk: Desk) -> io::Result<Open> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = socket.listener().try_clone()?;
    let (ended, until) = watch::channel(false);
    let desk = Arc::new(desk);
    std::thread::Builder::new().name("usher-socket".into()).spawn(move || {
        runtime.block_on(async {
            if let Err(error) = listen(listener, &desk, until).await {
                tracing::error!(%error, "the control socket does not work");
            }
        });
    })?;
    Ok(Open { socket, ended })
}

async fn listen(
    listener: UnixListener,
    desk: &Arc<Desk>,
    mut until: watch::Receiver<bool>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(CALLERS_MAX));
    loop {
        let accepted = tokio::select! {
            biased;
            _ = until.wait_for(|ended| *ended) => return Ok(()),
            accepted = async {
                let place = Arc::clone(&room).acquire_owned().await;
                listener.accept().await.map(|(stream, _)| (stream, place))
            } => accepted,
        };
        let called = accepted.and_then(|(stream, place)| {
            let stream = stream.into_std()?;
            stream.set_nonblocking(false)?;
            answer(stream, Arc::clone(desk), place.ok())
        });
        if let Err(error) = called {
            tracing::warn!(%error, "the control socket cannot answer; it tries again");
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// In a thread of its own, which keeps `place`.
fn answer(stream: UnixStream, desk: Arc<Desk>, place: Option<OwnedSemaphorePermit>) -> io::Result<()> {
    let trusted = socket::is_trusted(&stream)?;
    let mut line = Line::new(stream);
    std::thread::Builder::new().name("usher-caller".into()).spawn(move || {
        if trusted {
            desk.serve(line);
        } else {
            tracing::warn!("another user has asked at the control socket, and was refused");
            let _ = line.send(&Reply::Error("you are another user: ask as root".into()), &[]); // who does not wait need not know
        }
        drop(place);
    })?;
    Ok(())
}

impl Open {
    /// The socket, for somebody else to listen on.
    #[must_use]
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Listens no more: somebody else does, on the same socket.
    pub fn leave(&self) {
        let _ = self.ended.send(true); // it has ended by itself
    }

    /// Listens no more, and nobody does: the file goes, too.
    pub fn close(&self) {
        self.leave();
        self.socket.remove();
    }
}
