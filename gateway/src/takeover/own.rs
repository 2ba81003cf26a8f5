//! Usher's own connections to the apiserver: they pass where all others are taken.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use aya::maps::{HashMap, MapData, MapError};
use usher_ebpf::takeover::{OWN_MAX, Source};

use super::kernel::{Kernel, Problem};
use crate::ring::Passage;

/// Who passes.
pub(super) struct Own {
    places: Vec<SocketAddr>,
    /// Held for a system call or two of a microsecond, when a connection to an apiserver comes or goes: these are kept and
    /// used again.
    map: Mutex<HashMap<MapData, Source, u64>>,
    /// What this process writes beside its own, to know them from another one's: half of a number ...
    owner: u64,
    /// ... whose other half, counted on, knows them from each other.
    next: AtomicU32,
    open: AtomicU64,
    refused: AtomicU64,
}

/// Which half of a number says whose it is.
const OWNER_BITS: u64 = !(u32::MAX as u64);
/// Entries that are read in a sweep: all there can be, and as many again. If one goes just when the next after it is asked
/// for, the kernel begins anew.
const LOOKS_MAX: usize = 2 * OWN_MAX as usize;

impl Own {
    /// To these places, in the program's map.
    pub(super) fn new(places: Vec<SocketAddr>, kernel: &Kernel) -> Result<Self, Problem> {
        use std::hash::{BuildHasher as _, Hasher as _};
        let random = std::hash::RandomState::new().build_hasher().finish(); // unlike a pid, another in each container
        let (owner, next) = (random & OWNER_BITS, AtomicU32::default());
        let (open, refused) = (AtomicU64::default(), AtomicU64::default());
        Ok(Self { places, map: Mutex::new(kernel.own()?), owner, next, open, refused })
    }

    /// Own connections open now.
    pub(super) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Connections that did not come about because there were too many.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Forgets what other processes have left behind.
    pub(super) fn sweep(&self, kernel: &Kernel) -> Result<usize, Problem> {
        self.forget(&self.of_others(kernel)?)
    }

    /// What other processes have announced. Read by a handle of its own: workers that connect meanwhile do not wait.
    fn of_others(&self, kernel: &Kernel) -> Result<Vec<Source>, Problem> {
        let map = kernel.own()?;
        let others = map.iter().take(LOOKS_MAX).filter_map(|entry| match entry {
            Ok((_, number)) if self.is_ours(number) => None,
            Ok((source, _)) => Some(Ok(source)),
            Err(error) => Some(Err(error)),
        });
        Ok(others.collect::<Result<_, _>>()?)
    }

    /// Removes those of other processes among them: the port of one may have become ours since it was read, so it is asked for
    /// again, under the lock under which we announce.
    fn forget(&self, left: &[Source]) -> Result<usize, Problem> {
        let mut forgotten = 0;
        for source in left {
            let mut map = self.map();
            match map.get(source, 0) {
                Ok(number) if !self.is_ours(number) => forgotten += usize::from(remove(&mut map, source)?),
                Ok(_) | Err(MapError::KeyNotFound) => {}
                Err(error) => return Err(error.into()),
            }
            drop(map);
            std::thread::yield_now(); // the lock is not a fair one: whoever waits is to get it now
        }
        Ok(forgotten)
    }

    fn is_ours(&self, number: u64) -> bool {
        number & OWNER_BITS == self.owner
    }

    fn map(&self) -> MutexGuard<'_, HashMap<MapData, Source, u64>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// False: it was not there. (Another process may have swept it away.)
fn remove(map: &mut HashMap<MapData, Source, u64>, source: &Source) -> Result<bool, MapError> {
    match map.remove(source) {
        Ok(()) => Ok(true),
        Err(MapError::SyscallError(failed)) if failed.io_error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl Passage for Own {
    fn leads_to(&self, address: SocketAddr) -> bool {
        self.places.iter().any(|place| {
            place.port() == address.port()
                && (place.ip().is_unspecified() || place.ip().to_canonical() == address.ip().to_canonical())
        })
    }

    fn announce(&self, from: SocketAddr) -> io::Result<u64> {
        let number = self.owner | u64::from(self.next.fetch_add(1, Ordering::Relaxed));
        let inserted = self.map().insert(Source::new(from), number, 0);
        match inserted {
            Ok(()) => {
                self.open.fetch_add(1, Ordering::Relaxed);
                Ok(number)
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

    fn over(&self, from: SocketAddr, number: u64) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        let source = Source::new(from);
        let mut map = self.map();
        let removed = match map.get(&source, 0) {
            Ok(now) if now == number => remove(&mut map, &source).map(drop),
            Ok(_) | Err(MapError::KeyNotFound) => Ok(()), // announced anew, or swept away
            Err(error) => Err(error),
        };
        drop(map);
        if let Err(error) = removed {
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

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: &str = "0.0.0.0:6443";
    /// So many, from port 1 on.
    const PORTS: u16 = 1000;

    fn from(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    /// A former process and this one with the same map, or says aloud why that cannot be tried here.
    fn both() -> Option<(Kernel, Own, Own)> {
        let kernel = match Kernel::load() {
            Ok(kernel) => kernel,
            Err(Problem::Privileges(missing)) => {
                assert!(std::env::var_os("CI").is_none(), "this must be tried where CI is set: {missing}");
                eprintln!("NOT TRIED: {missing}");
                return None;
            }
            Err(problem) => panic!("{problem}"),
        };
        let own = || Own::new(vec![PLACE.parse().unwrap()], &kernel).unwrap();
        let (former, own) = (own(), own());
        for port in 1..=PORTS {
            former.announce(from(port)).unwrap();
        }
        Some((kernel, former, own))
    }

    /// Whose a port is in the map.
    fn owner(kernel: &Kernel, port: u16) -> Option<u64> {
        number(kernel, port).map(|number| number & OWNER_BITS)
    }

    fn number(kernel: &Kernel, port: u16) -> Option<u64> {
        kernel.own().unwrap().get(&Source::new(from(port)), 0).ok()
    }

    /// The kernel frees a port when the connection is reset, before we know of it.
    #[test]
    fn what_is_announced_anew_outlives_what_was_announced_before() {
        let Some((kernel, former, own)) = both() else { return };
        let before = [former.announce(from(1)).unwrap(), own.announce(from(2)).unwrap()];
        let after = [own.announce(from(1)).unwrap(), own.announce(from(2)).unwrap()];
        former.over(from(1), before[0]);
        own.over(from(2), before[1]);
        assert_eq!([1, 2].map(|port| number(&kernel, port)), after.map(Some));
        own.over(from(1), after[0]);
        own.over(from(2), after[1]);
        assert_eq!([1, 2].map(|port| number(&kernel, port)), [None, None]);
        assert_eq!((own.open(), former.open()), (0, u64::from(PORTS)));
    }

    #[test]
    fn what_a_former_process_left_is_forgotten_and_what_has_become_ours_is_not() {
        let Some((kernel, former, own)) = both() else { return };
        own.announce(from(1)).unwrap();
        own.announce(from(PORTS + 1)).unwrap();
        let left = own.of_others(&kernel).unwrap();
        assert_eq!(left.len(), usize::from(PORTS) - 1);
        // Between the look and the removal: one becomes ours, one goes by itself, one was ours and has gone.
        own.announce(from(2)).unwrap();
        former.over(from(3), number(&kernel, 3).unwrap());
        let gone = own.announce(from(4)).unwrap();
        own.over(from(4), gone);
        assert_eq!(own.forget(&left).unwrap(), usize::from(PORTS) - 4);
        for port in 1..=PORTS + 1 {
            let expected = [1, 2, PORTS + 1].contains(&port).then_some(own.owner);
            assert_eq!(owner(&kernel, port), expected, "port {port}");
        }
        assert_eq!(own.open(), 3);
        assert_eq!(own.sweep(&kernel).unwrap(), 0);
    }

    /// Workers connect, from ports that were the former one's, while these are swept.
    #[test]
    fn what_is_announced_during_a_sweep_stays() {
        let Some((kernel, _former, own)) = both() else { return };
        std::thread::scope(|threads| {
            for worker in 0..4 {
                let own = &own;
                let ports = (1..=PORTS).rev().filter(move |port| port % 4 == worker);
                threads.spawn(move || {
                    for port in ports {
                        own.announce(from(port)).unwrap();
                    }
                });
            }
            own.sweep(&kernel).unwrap();
        });
        for port in 1..=PORTS {
            assert_eq!(owner(&kernel, port), Some(own.owner), "port {port}");
        }
    }
}
