//! The smallest relay there is, on four ways of I/O: bytes of a client go to the upstream and back.
//!
//! It answers why usher's data path is written on the `io-uring` crate itself (`usher::ring`) and not on
//! `tokio-uring`: the cell `relay` of `cargo xtask bench proxy` measures them side by side. One thread, a connection
//! to the upstream for each client's, no HTTP.

use std::io;
use std::net::SocketAddr;

mod ring;
mod tokio_epoll;
mod tokio_ring;

/// Whose I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// tokio's current-thread runtime: epoll.
    Tokio,
    /// The `tokio-uring` crate: io_uring below tokio.
    TokioUring,
    /// usher's own ring on epoll.
    RingEpoll,
    /// usher's own ring on io_uring.
    RingUring,
}

/// What to relay.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "usher-relay", about = "The smallest relay, on one of four ways of I/O")]
pub struct Options {
    /// Whose I/O
    #[arg(long, value_enum)]
    pub io: Way,
    /// Where clients come in
    #[arg(long)]
    pub listen: SocketAddr,
    /// Where their bytes go
    #[arg(long)]
    pub upstream: SocketAddr,
}

/// Bytes read at once where a buffer must be there before bytes are.
const BUFFER_BYTES: usize = 16 * 1024;

/// Relays until it is killed.
///
/// # Errors
/// The address is taken, or the kernel does not let us have what the way needs.
pub fn run(options: &Options) -> io::Result<()> {
    match options.io {
        Way::Tokio => tokio_epoll::run(options.listen, options.upstream),
        Way::TokioUring => tokio_ring::run(options.listen, options.upstream),
        Way::RingEpoll => ring::run(usher::ring::Io::Epoll, options.listen, options.upstream),
        Way::RingUring => ring::run(usher::ring::Io::Uring, options.listen, options.upstream),
    }
}
