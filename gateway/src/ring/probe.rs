//! Which way of I/O: what is asked for, what this machine permits, and why.
//!
//! The kernel's version says little: distributions carry features back, seccomp profiles and
//! `kernel.io_uring_disabled` take them away. So a self-test uses all that the driver uses, over loopback.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::OnceLock;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;

use super::{Io, Listener, Settings, Stream, bind, connect, mailbox, uring, within};

/// The way of I/O that workers take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Never [`Io::Auto`].
    pub io: Io,
    /// Accepted connections are in the ring's table of files.
    pub registered_files: bool,
    /// Why, in a sentence for operators.
    pub reason: String,
}

/// io_uring was asked for and cannot be had. Says why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--io=uring: {problem}; {remedy}, or give --io=auto")]
pub struct Unavailable {
    problem: String,
    remedy: &'static str,
}

/// For the whole self-test. Loopback answers in microseconds; a machine so busy that it takes longer is better served
/// by what needs no test.
const PATIENCE: Duration = Duration::from_secs(5);

/// Chooses. The self-test is made where the answer depends on it.
///
/// # Errors
/// io_uring was asked for and cannot be had.
pub fn choose(settings: &Settings) -> Result<Choice, Unavailable> {
    let reason = match settings.io {
        Io::Epoll => {
            let reason = "asked for".to_owned();
            return Ok(Choice { io: Io::Epoll, registered_files: false, reason });
        }
        Io::Uring => "asked for",
        Io::Auto => "the self-test passed",
    };
    let registered_files = settings.registered_files.is_some();
    let tested = test(settings).map(|features| (registered_files, features));
    let tested = tested.or_else(|with| {
        if !registered_files {
            return Err(with);
        }
        let features = test(&Settings { registered_files: None, ..settings.clone() })?;
        Ok((false, format!("{features}, for with them {}", with.problem)))
    });
    match tested {
        Ok((registered_files, features)) => {
            Ok(Choice { io: Io::Uring, registered_files, reason: format!("{reason}; {features}") })
        }
        Err(unavailable) if settings.io == Io::Uring => Err(unavailable),
        Err(unavailable) => {
            Ok(Choice { io: Io::Epoll, registered_files: false, reason: unavailable.problem })
        }
    }
}

impl Choice {
    /// What workers are told, of what was asked for.
    #[must_use]
    pub fn settings(&self, asked: Settings) -> Settings {
        let registered_files = asked.registered_files.filter(|_| self.registered_files);
        Settings { io: self.io, registered_files, ..asked }
    }
}

/// What [`Io::Auto`] comes to with the defaults; tested once for the process.
pub(super) fn automatic() -> Io {
    static CHOICE: OnceLock<Io> = OnceLock::new();
    *CHOICE.get_or_init(|| choose(&Settings::default()).map_or(Io::Epoll, |choice| choice.io))
}

/// Two rings, one a server and one its client, each in a thread of its own: all that a worker does.
fn test(settings: &Settings) -> Result<String, Unavailable> {
    let failed = |error| explain(&error);
    let socket = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]
        .into_iter()
        .find_map(|loopback| bind(SocketAddr::new(loopback, 0)).ok())
        .ok_or_else(|| Unavailable {
            problem: "the self-test has no loopback address".to_owned(),
            remedy: "bring the interface lo up",
        })?;
    let address = socket.local_addr().map_err(failed)?;
    let (post, mut mailbox) = mailbox::<()>();
    let with = settings.clone();
    let client = in_thread(with, move || async move {
        exchange_as_client(address).await?;
        mailbox.next().await.ok_or_else(|| io::Error::other("the server's ring sent no message"))
    });
    let with = settings.clone();
    let server = in_thread(with, move || async move {
        exchange_as_server(socket).await?;
        let features = uring::current().map_or_else(String::new, |driver| driver.features().to_string());
        let _ = post.send(()); // from ring to ring
        Ok(features)
    });
    let features = server().map_err(failed)?;
    client().map_err(failed)?;
    Ok(features)
}

/// Runs a future on a ring in a thread of its own; what comes back waits for it.
fn in_thread<T: Send + 'static, F: Future<Output = io::Result<T>>>(
    settings: Settings,
    future: impl FnOnce() -> F + Send + 'static,
) -> impl FnOnce() -> io::Result<T> {
    let run = move || {
        let limited = async { within(PATIENCE, future()).await };
        uring::run(&settings, limited)?.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
    };
    let thread = std::thread::Builder::new().name("ring-test".to_owned()).spawn(run);
    move || thread?.join().unwrap_or_else(|_| Err(io::Error::other("the self-test panicked")))
}

/// What travels: more than a buffer holds, in pieces.
fn message() -> Vec<Bytes> {
    (0..4_u8).map(|piece| Bytes::from(vec![piece; 10_000])).collect()
}

/// Three connections: one that waits for bytes all the time, one that is cut, one that exchanges some.
async fn exchange_as_server(socket: std::net::TcpListener) -> io::Result<()> {
    let address = socket.local_addr()?;
    let listener = Listener::new(socket)?;
    let (idle, _) = listener.accept().await?;
    let _ = poll_fn(|cx| Poll::Ready(idle.poll_recv(cx).is_pending())).await; // asked for
    let (cut, _) = listener.accept().await?;
    expect(&cut).await?;
    cut.abort();
    drop(cut);
    let (stream, peer) = listener.accept().await?;
    if peer.ip() != address.ip() || peer.port() == 0 {
        return Err(io::Error::other("the peer's address is wrong"));
    }
    expect(&stream).await?;
    send(&stream).await
}

async fn exchange_as_client(address: SocketAddr) -> io::Result<()> {
    let _idle = connect(address).await?;
    let cut = connect(address).await?;
    message().into_iter().for_each(|piece| cut.put_bytes(piece));
    // Kernels before 6.13 close what is in a slot of the ring's only after all that was begun before is over.
    match poll_fn(|cx| cut.poll_recv(cx)).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        _ => return Err(io::Error::other("a connection that was cut does not say so")),
    }
    let stream = connect(address).await?;
    send(&stream).await?;
    expect(&stream).await?;
    match poll_fn(|cx| stream.poll_recv(cx)).await?.len() {
        0 => Ok(()),
        _ => Err(io::Error::other("more was received than was sent")),
    }
}

async fn send(stream: &Stream) -> io::Result<()> {
    message().into_iter().for_each(|piece| stream.put_bytes(piece));
    poll_fn(|cx| stream.poll_close(cx)).await
}

async fn expect(stream: &Stream) -> io::Result<()> {
    let wanted = message().concat();
    let mut got = Vec::new();
    while got.len() < wanted.len() {
        let chunk = poll_fn(|cx| stream.poll_recv(cx)).await?;
        if chunk.is_empty() {
            break;
        }
        got.extend_from_slice(&chunk);
    }
    if got == wanted { Ok(()) } else { Err(io::Error::other("what was received is not what was sent")) }
}

/// What an error of the self-test means for an operator.
fn explain(error: &io::Error) -> Unavailable {
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    let (problem, remedy) = match (error.raw_os_error(), disabled.trim()) {
        (Some(libc::EPERM), "2") => {
            ("the kernel forbids io_uring (kernel.io_uring_disabled=2)", "set kernel.io_uring_disabled=0")
        }
        (Some(libc::EPERM), "1") => (
            "the kernel forbids io_uring to this user (kernel.io_uring_disabled=1)",
            "put usher's group into kernel.io_uring_group, or set kernel.io_uring_disabled=0",
        ),
        (Some(libc::EPERM | libc::EACCES | libc::ENOSYS), _) => (
            "io_uring is forbidden by a seccomp profile, or is not in this kernel",
            "use a profile that permits io_uring_setup, io_uring_enter and io_uring_register, on Linux 6.1 or later",
        ),
        (Some(libc::EINVAL), _) => ("this kernel's io_uring is too old", "use Linux 6.1 or later"),
        (Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::EAGAIN), _) => (
            "there are not enough resources for a ring",
            "raise the limits on memory, locked memory and open files, or lower --ring-entries and --ring-buffers",
        ),
        _ => ("the self-test of io_uring failed", "look at the kernel's version (6.1 or later) and its log"),
    };
    Unavailable { problem: format!("{problem} ({error})"), remedy }
}
