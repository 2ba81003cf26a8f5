//! What is known about tokens seen lately, so that a token's signature is verified once and not at every request.
//!
//! A table of fixed size, without locks: readers load a slot, writers replace one. A token is known by its SHA-256,
//! so the table holds no secret and its size does not depend on what clients send.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use aws_lc_rs::digest;

use super::Identity;

/// Tokens kept at most: the service accounts of a large cluster, with room to spare; about 4 MB when full of
/// tokens of the usual size.
const SLOTS: usize = SETS * WAYS;
const SETS: usize = 1024;
/// Slots that a token may be in.
const WAYS: usize = 4;

/// How long a verified token is believed without looking again, in seconds. Its own end comes first if it is
/// sooner; a changed key or token file ends all belief at once.
const VERIFIED_KEPT: i64 = 300;

/// How long a refused token stays refused, in seconds: short, because its time may just be coming.
const REFUSED_KEPT: i64 = 10;

/// SHA-256 of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(super) fn of(token: &str) -> Fingerprint {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
        Fingerprint(bytes)
    }

    fn set(self) -> usize {
        usize::from(u16::from_le_bytes([self.0[0], self.0[1]])) % SETS
    }
}

struct Entry {
    token: Fingerprint,
    user: Option<Arc<Identity>>,
    /// Of the keys and files it was judged by.
    generation: u64,
    /// First second at which it is forgotten.
    until: i64,
}

/// What is lost if a slot is taken, least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    Replaced,
    Nothing,
    Refused,
    Verified,
}

/// See the module.
pub(super) struct Cache {
    slots: Box<[ArcSwapOption<Entry>]>,
}

impl Cache {
    pub(super) fn new() -> Cache {
        Cache { slots: (0..SLOTS).map(|_| ArcSwapOption::empty()).collect() }
    }

    /// What is known about a token: `Some(None)` is "refused lately".
    pub(super) fn get(&self, token: Fingerprint, generation: u64, now: i64) -> Option<Option<Arc<Identity>>> {
        self.ways(token).iter().find_map(|slot| {
            let slot = slot.load();
            let entry = slot.as_ref()?;
            let good = entry.token == token && entry.generation == generation && now < entry.until;
            good.then(|| entry.user.clone())
        })
    }

    /// Remembers a judgement; `until` is the first second at which a verified token ends by itself.
    pub(super) fn put(
        &self,
        token: Fingerprint,
        user: Option<Arc<Identity>>,
        until: i64,
        generation: u64,
        now: i64,
    ) {
        let kept = if user.is_some() { VERIFIED_KEPT } else { REFUSED_KEPT };
        let until = until.min(now.saturating_add(kept));
        let worth = |slot: &ArcSwapOption<Entry>| match slot.load().as_ref() {
            None => (Worth::Nothing, 0),
            Some(entry) if entry.token == token => (Worth::Replaced, 0),
            Some(entry) if entry.generation != generation || entry.until <= now => (Worth::Nothing, 0),
            Some(entry) if entry.user.is_none() => (Worth::Refused, entry.until),
            Some(entry) => (Worth::Verified, entry.until),
        };
        let victim = self.ways(token).iter().min_by_key(|slot| worth(slot));
        // A refused token never takes the place of a verified one: strangers cannot empty the table.
        if let Some(victim) = victim.filter(|slot| user.is_some() || worth(slot).0 < Worth::Verified) {
            victim.store(Some(Arc::new(Entry { token, user, generation, until })));
        }
    }

    fn ways(&self, token: Fingerprint) -> &[ArcSwapOption<Entry>] {
        let first = token.set() * WAYS;
        &self.slots[first..first + WAYS]
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("slots", &self.slots.len()).finish()
    }
}

#[cfg(test)]
mod tests;
