//! What all workers of the process have in common: how much is taken of the limits that are the process's, and who
//! watches.
//!
//! The kernel spreads connections over workers unevenly, and a limit cut into equal parts would turn clients away
//! while other workers have room. So these are counted together, each by an atomic: no worker waits for another. What
//! the limits are, [`super::Limits`] says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Notify, watch};

use super::audience::Audience;

/// How much is taken, over all workers.
#[derive(Debug, Default)]
pub struct Common {
    /// How many workers there are.
    pub(super) workers: usize,
    /// Nobody accepts connections yet: see [`Common::open`].
    shut: watch::Sender<bool>,
    /// Open connections.
    pub(super) connections: Taken,
    /// One of them has ended.
    pub(super) room: Notify,
    /// Requests that wait.
    pub(super) waiting: Taken,
    /// Requests being answered without flow control.
    pub(super) reading: Taken,
    /// The same, of those that write.
    pub(super) writing: Taken,
    /// Bytes promised to clients: see [`super::ahead`].
    pub(super) ahead: Taken,
    /// TLS handshakes half done.
    pub(super) handshakes: Arc<AtomicU64>,
    /// Answers that nobody takes: see [`super::readers`].
    pub(super) stalled_answers: Taken,
    /// Bytes held for them.
    pub(super) stalled_bytes: Taken,
    /// Watches that run, for the cost of writes.
    pub(super) audience: Audience,
}

/// How much of something is taken.
#[derive(Debug, Default)]
pub(super) struct Taken(AtomicU64);

/// A share of something. Dropped, it is given back.
#[derive(Debug)]
#[must_use]
pub(super) struct Place {
    common: Arc<Common>,
    of: fn(&Common) -> &Taken,
}

impl Common {
    /// For so many workers.
    #[must_use]
    pub fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self { workers: workers.max(1), ..Self::default() })
    }

    /// The same, but nobody accepts a connection before [`Common::open`]: another process still does, on the same
    /// sockets.
    #[must_use]
    pub fn shut(workers: usize) -> Arc<Self> {
        Arc::new(Self { workers: workers.max(1), shut: watch::Sender::new(true), ..Self::default() })
    }

    /// From now on connections are accepted.
    pub fn open(&self) {
        self.shut.send_replace(false);
    }

    /// Until connections are to be accepted.
    pub(super) async fn until_open(&self) {
        let _ = self.shut.subscribe().wait_for(|shut| !shut).await; // the sender is in `self`
    }

    /// One of `max`, if there is one.
    pub(super) fn place(self: &Arc<Self>, of: fn(&Self) -> &Taken, max: usize) -> Option<Place> {
        of(self).take(1, max as u64).then(|| Place { common: Arc::clone(self), of })
    }

    /// What one worker may have in any case of something that its workers share.
    pub(super) fn share(&self, max: u64) -> u64 {
        max / self.workers as u64
    }
}

impl Taken {
    /// Takes so many if there are `max` in all and as many are left.
    pub(super) fn take(&self, count: u64, max: u64) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
                now.checked_add(count).filter(|then| *then <= max)
            })
            .is_ok()
    }

    /// Takes a part of what is left of `max`. `part`: from what is left to what is taken.
    pub(super) fn take_part(&self, max: u64, mut part: impl FnMut(u64) -> u64) -> u64 {
        let mut taken = 0;
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            let free = max.saturating_sub(now);
            taken = part(free).min(free);
            Some(now + taken)
        });
        taken
    }

    /// Gives so many back.
    pub(super) fn give(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    /// This worker's share was `before` and is `now`.
    pub(super) fn moved(&self, before: u64, now: u64) {
        if before > now {
            self.0.fetch_sub(before - now, Ordering::Relaxed);
        } else {
            self.0.fetch_add(now - before, Ordering::Relaxed);
        }
    }

    /// How much is taken.
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        (self.of)(&self.common).give(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_there_is_whoever_asks() {
        let common = Common::new(2);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let common = Arc::clone(&common);
                std::thread::spawn(move || {
                    (0..100).map_while(|_| common.place(|all| &all.waiting, 10)).collect::<Vec<_>>()
                })
            })
            .collect();
        let places: Vec<Place> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!((places.len(), common.waiting.get()), (10, 10));
        drop(places);
        assert_eq!(common.waiting.get(), 0);
    }

    #[test]
    fn parts_and_shares() {
        let taken = Taken::default();
        assert_eq!(taken.take_part(100, |free| free / 4), 25);
        assert_eq!(taken.take_part(100, |_| 1000), 75);
        assert_eq!(taken.take_part(100, |_| 1), 0);
        assert!(!taken.take(1, 100) && taken.take(1, 101));
        taken.moved(50, 20);
        taken.moved(20, 30);
        assert_eq!(taken.get(), 81);
    }
}
