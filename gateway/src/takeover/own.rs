//! Usher's own connections to the apiserver: they pass where all others are taken.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use aya::maps::{HashMap, MapData, MapError};
use usher_ebpf::takeover::Source;

use super::kernel::{Kernel, Problem};
use crate::ring::Passage;

/// Who passes.
pub(super) struct Own {
    places: Vec<SocketAddr>,
    /// Held for one system call of a microsecond, once for each connection to an apiserver: these are kept and used again.
    map: Mutex<HashMap<MapData, Source, u64>>,
    /// What this process writes beside its own, to know them from another one's.
    owner: u64,
    open: AtomicU64,
    refused: AtomicU64,
}

impl Own {
    /// To these places, in the program's map.
    pub(super) fn new(places: Vec<SocketAddr>, kernel: &Kernel) -> Result<Self, Problem> {
        use std::hash::{BuildHasher as _, Hasher as _};
        let owner = std::hash::RandomState::new().build_hasher().finish(); // unlike a pid, another in each container
        let (open, refused) = (AtomicU64::default(), AtomicU64::default());
        Ok(Self { places, map: Mutex::new(kernel.own()?), owner, open, refused })
    }

    /// Own connections open now.
    pub(super) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Connections that did not come about because there were too many.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Forgets what another process has left behind.
    pub(super) fn sweep(&self) -> Result<usize, Problem> {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let left: Vec<Source> = map
            .iter()
            .filter(|entry| !entry.as_ref().is_ok_and(|(_, owner)| *owner == self.owner))
            .map(|entry| entry.map(|(source, _)| source))
            .collect::<Result<_, _>>()?;
        for source in &left {
            map.remove(source)?;
        }
        Ok(left.len())
    }
}

impl Passage for Own {
    fn leads_to(&self, address: SocketAddr) -> bool {
        self.places.iter().any(|place| {
            place.port() == address.port()
                && (place.ip().is_unspecified() || place.ip().to_canonical() == address.ip().to_canonical())
        })
    }

    fn announce(&self, from: SocketAddr) -> io::Result<()> {
        let inserted = {
            let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
            map.insert(Source::new(from), self.owner, 0)
        };
        match inserted {
            Ok(()) => {
                self.open.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Err(match error {
                    MapError::SyscallError(failed) => failed.io_error, // E2BIG: full
                    other => io::Error::other(other),
                })
            }
        }
    }

    fn over(&self, from: SocketAddr) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = map.remove(&Source::new(from)) {
            tracing::warn!(%from, %error, "a port stays among those that pass to the apiserver");
        }
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Own")
            .field("places", &self.places)
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}
