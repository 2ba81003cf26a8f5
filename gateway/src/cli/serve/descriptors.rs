//! File descriptors: as many as the system lets us have.
//!
//! The soft limit is 1024 on most systems, for programs that use `select`. As Go's runtime does, usher raises it to
//! the hard limit.

/// A connection of a client and one to the apiserver.
const PER_CONNECTION: u64 = 2;

/// Listeners, files, the admin port and its clients, unused connections to apiservers.
const BESIDES: u64 = 1024;

/// Raises the limit, and warns if it does not suffice for so many connections.
pub(super) fn raise(connections: usize) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes one `rlimit` into the one that we lend it.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return;
    }
    let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
    // SAFETY: the call reads one `rlimit` that we lend it.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
        limit = raised;
    }
    let needed = (connections as u64).saturating_mul(PER_CONNECTION).saturating_add(BESIDES);
    if limit.rlim_cur < needed {
        tracing::warn!(
            descriptors = limit.rlim_cur,
            needed,
            connections,
            "there may be fewer file descriptors than --max-connections needs; raise LimitNOFILE, or lower the flag"
        );
    }
}
