//! Who watches: how many watches a write will wake, over all workers.
//!
//! Watches come and go seldom beside writes, which ask about two or three scopes each. So the table is cut into shards
//! that are never changed: who adds a watch puts a changed copy in a shard's place, who asks looks at what is there and
//! waits for nobody. A shard holds a few of the scopes whatever clients name, for which one a scope is in depends on a
//! hash that they do not know; so a copy is short.
//!
//! Exact: each watch is counted once from its beginning to its end, which a worker's death is, too, for the destructors of
//! its requests run. It holds what watches that run are about, and nothing else.

use std::sync::Arc;

use arc_swap::ArcSwap;
use usher_flowcontrol::request_info::RequestInfo;
use usher_flowcontrol::watches::{Key, Keys, Scope, Shard, Watch};

/// 5 000 kubelets that watch ten objects each, all of them others, make for some 50 scopes in each; 8 KiB while nobody
/// watches.
const SHARDS: u64 = 1024;

/// The watches of all workers.
#[derive(Debug)]
pub(super) struct Audience {
    keys: Keys,
    shards: Box<[ArcSwap<Shard>]>,
}

impl Default for Audience {
    fn default() -> Self {
        let nobody = Arc::<Shard>::default();
        let shards = (0..SHARDS).map(|_| ArcSwap::new(Arc::clone(&nobody))).collect();
        Self { keys: Keys::default(), shards }
    }
}

impl Audience {
    /// Counts a request if it is a watch, until [`Audience::leave`].
    pub(super) fn join(&self, request: &RequestInfo<'_>) -> Option<Watch> {
        let watch = self.keys.watch(request)?;
        watch.scope().into_iter().for_each(|scope| self.change(scope, Shard::add));
        Some(watch)
    }

    /// A watch has ended.
    pub(super) fn leave(&self, watch: &Watch) {
        watch.scope().into_iter().for_each(|scope| self.change(scope, Shard::remove));
    }

    /// How many watches a request will wake; none if it only reads.
    pub(super) fn interested(&self, request: &RequestInfo<'_>) -> u64 {
        self.keys.interests(request).map(|key| self.shard(key).load().count(key)).sum()
    }

    /// Whoever changes the same shard at the same time is not lost: who comes second begins again.
    fn change(&self, scope: &Scope, change: fn(&mut Shard, &Scope)) {
        self.shard(scope.key()).rcu(|now| {
            let mut then = Shard::clone(now);
            change(&mut then, scope);
            then
        });
    }

    fn shard(&self, key: Key<'_>) -> &ArcSwap<Shard> {
        // The upper bits: in the shard its table goes by the lower ones.
        let index = ((key.hash() >> 32) % SHARDS) as usize;
        &self.shards[index]
    }
}

#[cfg(test)]
mod tests;
