//! What a worker leaves behind: its numbers, so that sums over all workers never go backwards when one dies.

use usher_flowcontrol::snapshot::Past;

use super::{Counters, Glitched, TurnedAway};
use crate::ring;

/// What the ended incarnations of a worker have counted.
#[derive(Clone, Debug, Default)]
pub struct Legacy {
    /// How many have ended.
    pub ended: u64,
    /// Their numbers; those of what is open now are 0.
    pub counters: Counters,
    /// What they turned away.
    pub turned_away: TurnedAway,
    /// What their connections did that honest ones do not.
    pub glitched: Glitched,
    /// What their rings did.
    pub ring: ring::Look,
    /// What their cores counted by schema and, where they were alone, by level.
    pub core: Past,
}

impl Legacy {
    /// One more has ended.
    pub(super) fn add(
        &mut self,
        counters: Counters,
        turned_away: &TurnedAway,
        glitched: Glitched,
        ring: ring::Look,
        core: &Past,
    ) {
        self.ended += 1;
        self.counters.add(&counters.of_the_dead());
        self.turned_away.add(turned_away);
        self.glitched.add(&glitched);
        self.ring.add(&ring);
        self.core.add(core);
    }
}
