//! How many seats each worker may keep for its next requests: decided by the coordinator every few milliseconds.
//!
//! A lease saves its worker the way to the pool, where all workers meet; but a seat that one keeps is a seat that
//! another one misses. So nobody keeps more than his part of what is free, and who has not started anything for a while
//! (idle, or stuck) keeps nothing.

use usher_flowcontrol::units::Nanos;

use crate::shard::Shard;
use crate::sync::Ordering;

/// A worker that has started nothing in so many looks in a row has its lease taken back: 50 ms. A request that comes
/// after that takes its seat from the pool, as the first one did.
const QUIET_MAX: u32 = 10;

/// What the coordinator remembers of each desk between two looks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lending(Vec<Seen>);

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Requests started on leased or pooled seats.
    started: u64,
    /// Looks since the last one was.
    quiet: u32,
}

impl Lending {
    /// Looks at all desks; sets what each may keep, and takes back what nobody uses.
    pub(crate) fn look(&mut self, now: Nanos, shard: &mut Shard) {
        let common = &shard.level.common;
        let most = common.lease_most();
        if most == 0 {
            return; // with so few seats, or without bypass, there are no leases
        }
        let free = u64::try_from(common.pool.view().free).unwrap_or(0);
        let part = most.min(free / common.options.workers as u64);
        self.0.resize(common.options.workers, Seen::default());
        let mut back = 0;
        for (desk, seen) in common.desks.iter().zip(&mut self.0) {
            let started = desk.tally.bypassed.load(Ordering::Relaxed);
            seen.quiet = if started == seen.started { seen.quiet.saturating_add(1) } else { 0 };
            seen.started = started;
            let idle = seen.quiet >= QUIET_MAX;
            desk.lease_max.store(if idle { 0 } else { part.max(1) }, Ordering::Relaxed);
            if idle && desk.lease.load(Ordering::Relaxed) > 0 {
                back += desk.lease.swap(0, Ordering::AcqRel);
            }
        }
        if back > 0 && common.pool.give(back) {
            shard.visit(now, None);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use usher_flowcontrol::level::{Arrival, Mode, Verdict};
    use usher_flowcontrol::units::{FlowHash, Seats, Work};

    use super::*;
    use crate::{Level, Options};

    const MODE: Mode = Mode::Queue { queues: 4, hand_size: 1, queue_length_limit: 10 };

    fn cycle(shard: &mut Shard) {
        let arrival = Arrival { flow: FlowHash(0), work: Work::seats(1), tag: 0 };
        let Verdict::Execute(ticket) = shard.arrive(Nanos::ZERO, arrival) else { panic!("a free seat") };
        let _released = shard.finish(Nanos::ZERO, ticket);
    }

    #[test]
    fn who_starts_nothing_keeps_nothing() {
        let level = Level::new(Nanos::ZERO, MODE, Seats(30), Options { workers: 3, ..Options::default() });
        let shard = |worker| level.shard(worker).expect("nobody has it");
        let (mut busy, mut idle, mut coordinator) = (shard(0), shard(1), shard(2));
        let mut lending = Lending::default();
        cycle(&mut idle);
        for _ in 0..=QUIET_MAX {
            cycle(&mut busy);
            lending.look(Nanos::ZERO, &mut coordinator);
        }
        let look = coordinator.look(Nanos::ZERO);
        assert_eq!((look.leased[0] > 0, look.leased[1]), (true, 0));
        assert_eq!(look.free.unsigned_abs() + look.leased.iter().sum::<u64>(), 30);

        cycle(&mut idle);
        assert_eq!(coordinator.look(Nanos::ZERO).leased[1], 0, "it may not keep any yet");
        lending.look(Nanos::ZERO, &mut coordinator);
        cycle(&mut idle);
        assert!(coordinator.look(Nanos::ZERO).leased[1] > 0);
    }

    #[test]
    fn nobody_keeps_more_than_his_part_of_what_is_free() {
        let level = Level::new(Nanos::ZERO, MODE, Seats(30), Options { workers: 3, ..Options::default() });
        let shard = |worker| level.shard(worker).expect("nobody has it");
        let (mut worker, mut coordinator) = (shard(0), shard(2));
        let mut lending = Lending::default();
        let arrival = Arrival { flow: FlowHash(0), work: Work::seats(23), tag: 0 };
        assert!(matches!(worker.arrive(Nanos::ZERO, arrival), Verdict::Execute(_)));
        cycle(&mut worker);
        lending.look(Nanos::ZERO, &mut coordinator);
        assert_eq!(
            level.common.desks[0].lease_max.load(Ordering::Relaxed),
            1,
            "three of seven seats are free"
        );
    }
}
