//! A priority level that many workers share.

use std::sync::Arc;

use usher_flowcontrol::level::{Mode, Ticket};
use usher_flowcontrol::units::{Nanos, Seats, Work};

use crate::desk::Desk;
use crate::lengths::Lengths;
use crate::mail::Mail;
use crate::operation::{Changes, Shape};
use crate::pool::{Pool, WAITING_BITS};
use crate::publication::KeptBack;
use crate::role::{Holder, Role};
use crate::sequencer::Sequencer;
use crate::shard::Shard;
use crate::sync::{AtomicBool, AtomicU64, Data, Ordering};
use crate::table::SLOTS_MAX;

/// The level. Workers come to it through their [`Shard`]s.
#[derive(Debug)]
pub struct Level {
    pub(crate) common: Common,
    role: Role<Sequencer>,
}

/// How a level is shared. What is out of range is drawn back into it.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Workers, 1 to 256.
    pub workers: usize,
    /// Desks after those of the workers, for those who change the configuration and bury the dead. Each has one slot:
    /// they send no requests. Up to 16.
    pub watchers: usize,
    /// Requests that a worker may have at the level at a time, waiting, executing and lingering; 1 to 65535. A place costs
    /// nothing before it is used.
    pub slots: usize,
    /// Operations that a worker can leave without being visited. Beyond, they stay with the worker, who
    /// tries again; nothing is lost.
    pub ring: usize,
    /// Whether requests may start without the sequencer while nobody waits. Without, the order is
    /// kube-apiserver's bit for bit, and every request costs a visit.
    pub bypass: bool,
    /// Seats that a worker may keep for its next requests.
    pub lease: u64,
    /// Limit, in seats a worker, from which leases are used: with fewer, what one keeps another one misses.
    pub lease_from: u64,
    /// Operations that a worker does in one go before it passes the role on: 64 are some ten microseconds
    /// that its own connections wait for.
    pub hold: u32,
}

/// What everybody can reach without the role.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) pool: Pool,
    pub(crate) mail: Mail,
    /// By worker, whose shard has it, too.
    pub(crate) desks: Box<[Arc<Desk>]>,
    /// As the sequencer has it; written by the holder of the role.
    pub(crate) shape: Shape,
    /// Those of the limit, until the pool has followed.
    pub(crate) limit_changes: Changes,
    pub(crate) lengths: Lengths,
    /// Seats of those that wait, as of the last visit.
    pub(crate) seats_waiting: Data,
    pub(crate) backoff: Backoff,
    /// It has no object any more and was idle: workers keep it for what they still hold there, and nobody else comes.
    closed: AtomicBool,
    pub(crate) options: Options,
    /// Only in simulations.
    pub(crate) kept_back: Option<KeptBack>,
}

/// What clients that are turned away are told, whichever worker they met.
#[derive(Debug)]
pub(crate) struct Backoff {
    /// Requests turned away; workers add.
    pub(crate) turned_away: AtomicU64,
    /// `Retry-After`; the coordinator writes.
    pub(crate) seconds: AtomicU64,
}

/// The widest request that is believed. Estimates end at 100 seats; half a million requests as wide as this
/// are counted rightly by the pool.
pub(crate) const SEATS_MAX: u64 = 1 << 20;

/// The highest limit that is believed.
const LIMIT_MAX: Seats = Seats(1 << 30);

const WORKERS_MAX: usize = 256;
const WATCHERS_MAX: usize = 16;
const RING_MAX: usize = 1 << 16;
const _: () = assert!(WORKERS_MAX * SLOTS_MAX + WATCHERS_MAX < 1 << WAITING_BITS, "all may wait");

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: 1,
            watchers: 0,
            slots: 1024,
            ring: 256,
            bypass: true,
            lease: 4,
            lease_from: 8,
            hold: 64,
        }
    }
}

impl Level {
    /// A level with nothing in it and nobody at its desks.
    #[must_use]
    pub fn new(now: Nanos, mode: Mode, limit: Seats, options: Options) -> Arc<Self> {
        Self::build(now, mode, limit, options, None)
    }

    /// The same for simulations: what is published can be seen when [`Level::show`] says so.
    #[must_use]
    pub fn keeping_back(now: Nanos, mode: Mode, limit: Seats, options: Options) -> Arc<Self> {
        Self::build(now, mode, limit, options, Some(KeptBack::default()))
    }

    fn build(
        now: Nanos,
        mode: Mode,
        limit: Seats,
        options: Options,
        kept_back: Option<KeptBack>,
    ) -> Arc<Self> {
        let options = Options {
            workers: options.workers.clamp(1, WORKERS_MAX),
            watchers: options.watchers.min(WATCHERS_MAX),
            slots: options.slots.clamp(1, SLOTS_MAX),
            ring: options.ring.clamp(1, RING_MAX),
            hold: options.hold.max(1),
            ..options
        };
        let limit = believed_limit(limit);
        let queues = if let Mode::Queue { queues, .. } = mode { queues } else { 0 };
        let desk = |slots| Arc::new(Desk::new(mode, limit, slots, options.ring));
        let common = Common {
            pool: Pool::new(signed(limit)),
            mail: Mail::new(options.desks().count()),
            desks: options.desks().map(desk).collect(),
            shape: Shape::new(mode, limit),
            limit_changes: Changes::new(),
            lengths: Lengths::new(queues),
            seats_waiting: Data::new(0),
            backoff: Backoff { turned_away: AtomicU64::new(0), seconds: AtomicU64::new(1) },
            closed: AtomicBool::new(false),
            options,
            kept_back,
        };
        common.set_leases(mode, limit);
        Arc::new(Self { role: Role::new(Sequencer::new(now, mode, limit, &common.options)), common })
    }

    /// The shard of that worker, counted from 0, watchers after workers. `None` while it exists, and after it
    /// was dropped until it is buried ([`Shard::bury`]).
    #[must_use]
    pub fn shard(self: &Arc<Self>, worker: usize) -> Option<Shard> {
        self.common.desks.get(worker)?.claim().then(|| Shard::new(Arc::clone(self), worker))
    }

    /// Current concurrency limit.
    #[must_use]
    pub fn limit(&self) -> Seats {
        self.common.shape.limit()
    }

    /// How it treats what does not fit.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.common.shape.mode()
    }

    /// Nothing waits, executes or lingers, and nothing is on its way to the sequencer. Meant for a level to
    /// which nothing arrives any more: once true, it stays true, and nobody needs the level.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let held = |desk: &Arc<Desk>| desk.tally.held.load(Ordering::Acquire) > 0;
        !self.common.desks.iter().any(held) && self.common.pool.view().waiting == 0 && !self.common.mail.any()
    }

    /// Whether it has no object any more and was idle since: for good. Workers keep it for what they still hold there.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.common.closed.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.common.closed.store(true, Ordering::Release);
    }

    /// Whether somebody sat at that desk who died, and is not buried yet.
    pub(crate) fn is_abandoned(&self, desk: usize) -> bool {
        self.common.desks.get(desk).is_some_and(|desk| desk.is_abandoned())
    }

    /// Whether a worker sits at a desk there.
    pub(crate) fn has_workers(&self) -> bool {
        self.common.desks.iter().take(self.common.options.workers).any(|desk| desk.is_claimed())
    }

    /// The role, if nobody holds it.
    #[inline]
    pub(crate) fn role(&self) -> Option<Holder<'_, Sequencer>> {
        self.role.take()
    }
}

// === impl Common ===

impl Common {
    /// Leases begin anew at that limit; the coordinator goes on from there (`lending`).
    pub(crate) fn set_leases(&self, mode: Mode, limit: Seats) {
        let most = self.lease_most_at(mode, limit);
        self.desks.iter().for_each(|desk| desk.lease_max.store(most, Ordering::Relaxed));
    }

    /// Seats that one lease may hold at the most.
    pub(crate) fn lease_most(&self) -> u64 {
        self.lease_most_at(self.shape.mode(), self.shape.limit())
    }

    fn lease_most_at(&self, mode: Mode, limit: Seats) -> u64 {
        let workers = self.options.workers as u64;
        // Without queues a request is turned away when the pool is empty, so nobody may keep seats for later.
        let enough = limit.0 >= self.options.lease_from.saturating_mul(workers);
        let pays = matches!(mode, Mode::Queue { .. }) && self.options.bypass && enough;
        if pays { self.options.lease.min((limit.0 / workers).max(1)) } else { 0 }
    }
}

// === impl Options ===

impl Options {
    /// Slots by desk, those of the workers first.
    pub(crate) fn desks(&self) -> impl Iterator<Item = usize> {
        let workers = std::iter::repeat_n(self.slots, self.workers);
        workers.chain(std::iter::repeat_n(1, self.watchers))
    }
}

/// Work no wider than is believed.
#[inline]
pub(crate) fn believed(work: Work) -> Work {
    let seats = |seats: Seats| seats.min(Seats(SEATS_MAX));
    Work { initial_seats: seats(work.initial_seats), final_seats: seats(work.final_seats), ..work }
}

pub(crate) fn believed_limit(limit: Seats) -> Seats {
    limit.min(LIMIT_MAX)
}

/// Seats of a limit or in use, as a difference can be.
pub(crate) fn signed(seats: Seats) -> i64 {
    seats.0.cast_signed()
}

/// A worker's request, as the sequencer calls it.
pub(crate) fn tag(worker: usize, slot: u32) -> u64 {
    (worker as u64) << 32 | u64::from(slot)
}

/// The worker and the slot of a tag.
#[expect(clippy::cast_possible_truncation, reason = "written by `tag`")]
pub(crate) fn untag(tag: u64) -> (usize, u32) {
    ((tag >> 32) as usize, tag as u32)
}

/// By worker and slot: the sequencer's ticket of every request that it knows.
pub(crate) type Booked = Box<[Vec<Option<Ticket>>]>;
