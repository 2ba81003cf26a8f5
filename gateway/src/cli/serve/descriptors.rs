//! File descriptors: as many as the system lets us have, and clients never take the last ones.
//!
//! The soft limit is 1024 on most systems, for programs that use `select`. As Go's runtime does, usher raises it to
//! the hard limit. Clients' connections get three quarters of it: what is left is for connections to apiservers, for
//! files that are read again, and for the admin port, which must answer when it is most needed. (Not half: watches
//! share their connections to the apiserver, and an idle client needs none.)

/// One of so many descriptors is not for clients.
const RESERVE_PART: u64 = 4;
/// And so many at least: ring, listeners, the files and watches of a process that does nothing are some forty.
const RESERVE_LEAST: u64 = 48;
/// And so many for each further worker: its ring, its sockets, twice, and its first connections to apiservers.
const RESERVE_WORKER: u64 = 12;
/// So many clients are let in however low the limit is.
const CONNECTIONS_LEAST: u64 = 16;

/// Raises the limit. Returns how many connections clients of so many workers may have of the `wanted` ones, and warns if
/// that is fewer.
pub(super) fn raise(wanted: usize, workers: usize) -> usize {
    let Some(descriptors) = raised() else { return wanted };
    let connections = for_clients(descriptors, workers).min(wanted);
    if connections < wanted {
        tracing::warn!(
            descriptors,
            connections,
            wanted,
            "there are fewer file descriptors than --max-connections needs: clients get fewer connections; raise \
             LimitNOFILE, or lower the flag"
        );
    }
    connections
}

fn for_clients(descriptors: u64, workers: usize) -> usize {
    let least = RESERVE_LEAST + RESERVE_WORKER * (workers as u64).saturating_sub(1);
    let reserve = (descriptors / RESERVE_PART).max(least);
    let connections = descriptors.saturating_sub(reserve).max(CONNECTIONS_LEAST);
    usize::try_from(connections).unwrap_or(usize::MAX)
}

/// The soft limit, raised to the hard one; `None` if the system does not tell.
fn raised() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes one `rlimit` into the one that we lend it.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return None;
    }
    let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
    // SAFETY: the call reads one `rlimit` that we lend it.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0;
    Some(if done { raised.rlim_cur } else { limit.rlim_cur })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_some_descriptors_to_others() {
        for (descriptors, connections) in
            [(0, 16), (64, 16), (256, 192), (1024, 768), (20_000, 15_000), (1 << 20, 786_432)]
        {
            assert_eq!(for_clients(descriptors, 1), connections, "{descriptors}");
        }
        assert_eq!(for_clients(256, 4), 256 - 84);
    }
}
