//! The levels of a controller and what it keeps beside each of them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Class, LevelId, SchemaId};
use crate::demand::{Integrator, SeatDemand};
use crate::flow::Method;
use crate::level::{Held, Level, Mode, Part, Phase, Ticket, Totals};
use crate::limits::{Limits, Share};
use crate::meters::LevelMeters;
use crate::plan;
use crate::retry_after::RetryAfter;
use crate::units::{Nanos, Seats};

/// The levels, by [`LevelId`].
#[derive(Debug)]
pub(super) struct Levels<P = Level> {
    slots: Vec<Option<Entry<P>>>,
    /// Those that share the seats, sorted by name; the others are gone but for what lingers there.
    in_order: Vec<LevelId>,
}

/// A level.
#[derive(Debug)]
pub(super) struct Entry<P = Level> {
    pub(super) name: Arc<str>,
    pub(super) uid: Arc<str>,
    /// Configuration that brought it.
    pub(super) since: u64,
    pub(super) presence: Presence,
    pub(super) level: P,
    /// What its object says; `level` follows with the next adjustment.
    mode: Mode,
    pub(super) share: Share,
    pub(super) limits: Limits,
    /// What it was reckoned to want at the last adjustment.
    pub(super) target: f64,
    pub(super) integrator: Integrator,
    pub(super) demand: SeatDemand,
    pub(super) retry_after: RetryAfter,
    pub(super) meters: LevelMeters,
    /// By slot of the ticket.
    rides: Vec<Ride>,
    /// Refusals to accommodate that are counted already.
    blocked_seen: u64,
}

/// Whether there is an object for a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Configured,
    /// Not any more; requests of it wait or execute.
    Quiescing,
    /// Not any more; only lingering requests hold it.
    Gone,
}

/// What is remembered of a request that a level has accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ride {
    pub(super) schema: SchemaId,
    /// The length of the queue that it joined has been counted.
    pub(super) queue_known: bool,
    pub(super) distinguisher: Option<Method>,
    /// Width at arrival.
    pub(super) seats: Seats,
    pub(super) watch: bool,
    pub(super) mutating: bool,
}

/// Requests turned away that are counted in one go; a hundred a second raise Retry-After to its highest.
const RECORDED_MAX: u64 = 1000;

// === impl Levels ===

impl<P> Default for Levels<P> {
    fn default() -> Self {
        Self { slots: Vec::new(), in_order: Vec::new() }
    }
}

impl<P: Part> Levels<P> {
    pub(super) fn get(&self, id: LevelId) -> Option<&Entry<P>> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: LevelId) -> Option<&mut Entry<P>> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    /// Ids of the levels that share the seats, sorted by name.
    pub(super) fn ids(&self) -> impl Iterator<Item = LevelId> {
        self.in_order.iter().copied()
    }

    /// Ids of all that there are, those included that only linger.
    pub(super) fn all(&self) -> impl Iterator<Item = LevelId> + use<P> {
        (0..u32::try_from(self.slots.len()).unwrap_or(u32::MAX)).map(LevelId)
    }

    /// The levels that share the seats, sorted by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<P>> {
        self.in_order.iter().filter_map(|id| self.get(*id))
    }

    /// The level of that name, if it shares the seats.
    pub(super) fn find(&self, name: &str) -> Option<LevelId> {
        let name_of = |id: &LevelId| self.get(*id).map_or("", |entry| &entry.name);
        let place = self.in_order.binary_search_by(|id| name_of(id).cmp(name)).ok()?;
        Some(self.in_order[place])
    }

    /// Adds a level whose name is not there. It shares the seats from the next
    /// [`Levels::retire_idle`] on.
    pub(super) fn add(&mut self, entry: Entry<P>) -> LevelId {
        let free = self.slots.iter().position(Option::is_none);
        let slot = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let id = LevelId(u32::try_from(slot).expect("memory ends before four billion levels"));
        self.slots[slot] = Some(entry);
        id
    }

    /// Takes away from sharing every quiescing level that is idle, `true` if there was one, and puts
    /// the others in order.
    pub(super) fn retire_idle(&mut self) -> bool {
        let mut retired = false;
        for entry in self.slots.iter_mut().flatten() {
            if entry.presence == Presence::Quiescing && entry.level.is_idle() {
                entry.presence = Presence::Gone;
                entry.level.close();
                retired = true;
            }
        }
        for slot in 0..self.slots.len() {
            self.free_if_gone(LevelId(u32::try_from(slot).unwrap_or(u32::MAX)));
        }
        self.sort();
        retired
    }

    /// Forgets a level that is gone, once nothing holds it.
    pub(super) fn free_if_gone(&mut self, id: LevelId) {
        let unheld = |entry: &mut Entry<P>| entry.presence == Presence::Gone && entry.level.is_empty();
        if self.get_mut(id).is_some_and(unheld) {
            self.slots[id.0 as usize] = None;
        }
    }

    fn sort(&mut self) {
        let shares = |(slot, entry): (usize, &Option<Entry<P>>)| {
            let present = entry.as_ref().is_some_and(|entry| entry.presence != Presence::Gone);
            u32::try_from(slot).ok().filter(|_| present).map(LevelId)
        };
        self.in_order = self.slots.iter().enumerate().filter_map(shares).collect();
        self.in_order.sort_by(|one, other| {
            let name = |id: &LevelId| self.slots[id.0 as usize].as_ref().map(|entry| &entry.name);
            name(one).cmp(&name(other))
        });
    }
}

// === impl Entry ===

impl<P: Part> Entry<P> {
    pub(super) fn new(now: Nanos, generation: u64, level: &plan::Level, part: P, server: Seats) -> Self {
        let mut meters = LevelMeters::new(now);
        meters.reconfigured(now, part.mode(), part.limit(), server);
        Self {
            name: level.name.as_str().into(),
            uid: level.uid.as_str().into(),
            since: generation,
            presence: Presence::Configured,
            level: part,
            mode: level.mode,
            share: level.share,
            limits: Limits::default(),
            target: 0.0,
            integrator: Integrator::new(now),
            demand: SeatDemand::default(),
            retry_after: RetryAfter::default(),
            meters,
            rides: Vec::new(),
            blocked_seen: 0,
        }
    }

    /// There is an object for it (again). One that is only built in says nothing new: a mandatory level
    /// whose object was deleted stays as it was.
    pub(super) fn update(&mut self, level: &plan::Level) {
        self.presence = Presence::Configured;
        if !level.built_in {
            self.uid = level.uid.as_str().into();
            self.mode = level.mode;
            self.share = level.share;
        }
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// Takes over the new shape and limit.
    pub(super) fn adjust(&mut self, now: Nanos, limit: Seats, server: Seats) {
        self.level.reconfigure(now, self.mode, limit);
        self.meters.reconfigured(now, self.mode, limit, server);
    }

    pub(super) fn board(&mut self, ticket: Ticket, ride: Ride) {
        let slot = ticket.slot as usize;
        if slot >= self.rides.len() {
            self.rides.resize(slot + 1, ride);
        }
        self.rides[slot] = ride;
    }

    /// The length of the queue that a request joined is known only later.
    pub(super) fn ask_for_queue(&mut self, ticket: Ticket) {
        self.rides[ticket.slot as usize].queue_known = false;
    }

    /// That length, if it was not known at once and is now.
    pub(super) fn joined_late(&self, ticket: Ticket) -> Option<u32> {
        let length = || self.level.queue_length(ticket);
        (!self.ride(ticket).queue_known).then(length).filter(|length| *length > 0)
    }

    /// What is remembered of a request that is accepted.
    pub(super) fn ride(&self, ticket: Ticket) -> Ride {
        self.rides[ticket.slot as usize]
    }

    /// The same, of one that another worker may have accepted.
    pub(super) fn find_ride(&self, ticket: Ticket) -> Option<Ride> {
        self.rides.get(ticket.slot as usize).copied()
    }

    pub(super) fn in_phase(&self, ticket: Ticket, phase: Phase) -> Option<Held> {
        self.level.held(ticket).filter(|request| request.phase == phase)
    }

    /// The seats that a request occupies, as dispatch left them.
    pub(super) fn seats_of(&self, ticket: Ticket) -> Seats {
        self.level.held(ticket).map_or(Seats(0), |request| request.work.max_seats())
    }

    /// How long an executing request had waited; nobody waits at an exempt level.
    pub(super) fn waited(&self, ticket: Ticket) -> Option<Nanos> {
        let request = self.level.held(ticket).filter(|_| self.mode != Mode::Exempt)?;
        Some(request.started? - request.arrived)
    }

    /// The request that was too wide for the free seats when its turn came, and how often since the
    /// last look.
    pub(super) fn newly_blocked(&mut self) -> Option<(Ride, u64)> {
        let (count, blocked) = self.level.blocked();
        let times = count - self.blocked_seen;
        self.blocked_seen = count;
        Some((self.find_ride(blocked.filter(|_| times > 0)?)?, times))
    }

    /// Something happened, or time passed, at a level that is watched from here.
    pub(super) fn observe(&mut self, now: Nanos) {
        if let Some(totals) = self.level.totals() {
            self.integrator.set_seats(now, totals.demand());
            self.meters.observe(now, totals);
        }
    }

    /// Counts what all parts turned away since the last call, and tells them what their clients are to be told.
    pub(super) fn count_turned_away(&mut self, unix_second: i64) {
        let fresh = self.level.newly_turned_away().min(RECORDED_MAX);
        (0..fresh).for_each(|_| self.retry_after.record(unix_second));
        self.level.set_retry_after(self.retry_after.seconds());
    }

    /// A request counts in full for a moment, even if it is dispatched with fewer final seats.
    pub(super) fn crest(&mut self, now: Nanos, before: Option<Totals>, seats: Seats) {
        if let Some(before) = before {
            self.integrator.set_seats(now, before.demand() + seats);
        }
    }
}

// === impl Ride ===

impl Ride {
    pub(super) fn of(class: &Class, seats: Seats) -> Self {
        let Class { schema, distinguisher, watch, mutating, .. } = *class;
        Self { schema, queue_known: true, distinguisher, seats, watch, mutating }
    }
}
