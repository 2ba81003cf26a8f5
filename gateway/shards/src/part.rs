//! A worker's part of a level, as its `Controller` wants it; and the coordinator's, who watches the level as a whole.
//!
//! A [`Shard`] knows what it needs to decide. What people look at comes on top here: when a request arrived, when it
//! began, how wide it is.

use std::sync::Arc;

use usher_flowcontrol::level::{
    self, Arrival, Counters, Dispatched, Finish, Held, Mode, Phase, Picture, Reason, RequestState, Ticket,
    Totals, Verdict,
};
use usher_flowcontrol::units::{Nanos, SeatSeconds, Seats, Work};

use crate::lending::Lending;
use crate::level::Level;
use crate::shard::{Event, Shard};
use crate::sync::Ordering;

/// A shard and what is told of its requests.
#[derive(Debug)]
pub struct Part {
    shard: Shard,
    watches: bool,
    /// By slot.
    known: Vec<Known>,
    /// The latest instant that the part was told.
    now: Nanos,
    /// Requests turned away by all parts, as of the last look.
    turned_away_seen: u64,
    lending: Lending,
}

/// A request of this worker.
#[derive(Clone, Copy, Debug)]
struct Known {
    generation: u32,
    phase: Phase,
    tag: u64,
    arrived: Nanos,
    started: Option<Nanos>,
    work: Work,
}

/// How often the coordinator tries what others may just be in the way of; a visit takes some microseconds.
pub(crate) const ATTEMPTS_MAX: u32 = 1000;

impl Part {
    /// A worker's part: it decides about its own requests.
    #[must_use]
    pub fn of_worker(shard: Shard) -> Self {
        Self::new(shard, false)
    }

    /// The coordinator's part: nothing arrives at it, but it knows the level as a whole.
    #[must_use]
    pub fn of_coordinator(shard: Shard) -> Self {
        Self::new(shard, true)
    }

    fn new(shard: Shard, watches: bool) -> Self {
        let turned_away_seen = shard.level().common.backoff.turned_away.load(Ordering::Relaxed);
        Self {
            shard,
            watches,
            known: Vec::new(),
            now: Nanos::ZERO,
            turned_away_seen,
            lending: Lending::default(),
        }
    }

    /// The level that this is a part of.
    #[must_use]
    pub fn level(&self) -> &Arc<Level> {
        self.shard.level()
    }

    /// Gives back what those left who died, workers and watchers.
    fn bury_the_dead(&mut self, now: Nanos) {
        for desk in 0..self.level().common.desks.len() {
            if self.level().common.desks[desk].is_abandoned() {
                self.shard.bury(now, desk);
            }
        }
    }

    fn told(&mut self, now: Nanos) -> Nanos {
        self.now = self.now.max(now);
        self.now
    }

    fn enter(&mut self, ticket: Ticket, phase: Phase, Arrival { work, tag, .. }: Arrival) {
        let now = self.now;
        let started = (phase == Phase::Executing).then_some(now);
        let known = Known { generation: ticket.generation, phase, tag, arrived: now, started, work };
        let slot = ticket.slot as usize;
        if slot >= self.known.len() {
            self.known.resize(slot + 1, Known { phase: Phase::Gone, ..known });
        }
        self.known[slot] = known;
    }

    fn known(&self, ticket: Ticket) -> Option<&Known> {
        let known = self.known.get(ticket.slot as usize)?;
        (known.generation == ticket.generation && known.phase != Phase::Gone).then_some(known)
    }

    fn becomes(&mut self, ticket: Ticket, phase: Phase) {
        if self.known(ticket).is_some() {
            self.known[ticket.slot as usize].phase = phase;
        }
    }

    /// What this worker holds, in order of slots.
    fn own(&self) -> Vec<RequestState> {
        let held = (0..).zip(&self.known).filter(|(_, known)| known.phase != Phase::Gone);
        let state = |(slot, known): (u32, &Known)| RequestState {
            ticket: Ticket { slot, generation: known.generation },
            tag: known.tag,
            phase: known.phase,
            queue: None,
            work: known.work,
            total_work: SeatSeconds::default(),
            arrival_r: SeatSeconds::default(),
            arrived: known.arrived,
            started: known.started,
        };
        held.filter(|(_, known)| known.phase != Phase::Lingering).map(state).collect()
    }

    /// The words of it are read one after the other while workers go on: off by what they do meanwhile, and by
    /// the seats of a lease for each of them that is just being filled or taken back.
    fn level_totals(&self) -> Totals {
        let look = || self.totals_now();
        let undisturbed = || {
            let seen = self.level().common.limit_changes.without(look);
            if seen.is_none() {
                std::thread::yield_now();
            }
            seen
        };
        (0..ATTEMPTS_MAX).find_map(|_| undisturbed()).unwrap_or_else(look)
    }

    fn totals_now(&self) -> Totals {
        let common = &self.level().common;
        let glance = self.level().glance();
        let sum = |count: fn(&crate::desk::Tally) -> u64| {
            common.desks.iter().map(|desk| count(&desk.tally)).sum::<u64>()
        };
        let held = sum(|tally| tally.held.load(Ordering::Relaxed));
        let lingering = sum(|tally| tally.lingering.load(Ordering::Relaxed));
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let free = glance.free + glance.leased.cast_signed();
        let in_use = self.level().limit().0.cast_signed() - free;
        Totals {
            waiting: count(glance.waiting),
            executing: count(held.saturating_sub(glance.waiting + lingering)),
            seats_in_use: Seats(u64::try_from(in_use).unwrap_or(0)),
            seats_waiting: Seats(common.seats_waiting.load(Ordering::Relaxed)),
        }
    }

    /// What workers counted without the sequencer comes on top of what it has counted.
    fn with_bypassed(&self, counters: Counters) -> Counters {
        let tallies = || self.level().common.desks.iter().map(|desk| &desk.tally);
        let bypassed: u64 = tallies().map(|tally| tally.bypassed.load(Ordering::Relaxed)).sum();
        let turned_away: u64 = tallies().map(|tally| tally.turned_away.load(Ordering::Relaxed)).sum();
        let too_late: u64 = tallies().map(|tally| tally.too_late.load(Ordering::Relaxed)).sum();
        Counters {
            dispatched: counters.dispatched + bypassed,
            rejected: counters.rejected + turned_away + too_late,
            timed_out: counters.timed_out + too_late,
            ..counters
        }
    }
}

impl level::Part for Part {
    fn arrive(&mut self, now: Nanos, arrival: Arrival) -> Verdict {
        let now = self.told(now);
        let verdict = self.shard.arrive(now, arrival);
        match verdict {
            Verdict::Execute(ticket) => self.enter(ticket, Phase::Executing, arrival),
            Verdict::Wait(ticket) => self.enter(ticket, Phase::Waiting, arrival),
            Verdict::Reject(_) => {}
        }
        verdict
    }

    fn refuse(&mut self, why: Reason) {
        self.shard.refuse(why);
    }

    fn cancel(&mut self, now: Nanos, ticket: Ticket, why: Reason) -> bool {
        let now = self.told(now);
        let cancelled = self.shard.cancel(now, ticket, why);
        if cancelled {
            self.becomes(ticket, Phase::Gone);
        }
        cancelled
    }

    fn finish(&mut self, now: Nanos, ticket: Ticket) -> Finish {
        let now = self.told(now);
        let finish = self.shard.finish(now, ticket);
        self.becomes(ticket, if finish == Finish::Released { Phase::Gone } else { Phase::Lingering });
        finish
    }

    fn linger_end(&mut self, now: Nanos, ticket: Ticket) {
        let now = self.told(now);
        self.shard.linger_end(now, ticket);
        self.becomes(ticket, Phase::Gone);
    }

    fn reconfigure(&mut self, now: Nanos, mode: Mode, limit: Seats) {
        let now = self.told(now);
        self.shard.reconfigure(now, mode, limit);
    }

    fn poll(&mut self, now: Nanos) {
        let now = self.told(now);
        self.shard.poll(now);
        if self.watches {
            self.bury_the_dead(now);
            self.lending.look(now, &mut self.shard);
        }
    }

    fn next_event(&mut self) -> Option<Event> {
        let event = self.shard.next_event()?;
        match event {
            Event::Dispatched(Dispatched { ticket, .. }) => {
                self.becomes(ticket, Phase::Executing);
                self.known[ticket.slot as usize].started = Some(self.now);
            }
            Event::Rejected { ticket, .. } => self.becomes(ticket, Phase::Gone),
        }
        Some(event)
    }

    fn next_wake(&mut self) -> Option<usize> {
        self.shard.next_wake()
    }

    fn turned_away(&mut self) -> Option<u32> {
        let backoff = &self.level().common.backoff;
        backoff.turned_away.fetch_add(1, Ordering::Relaxed);
        u32::try_from(backoff.seconds.load(Ordering::Relaxed)).ok()
    }

    fn close(&mut self) {
        if self.watches {
            self.level().close();
        }
    }

    fn newly_turned_away(&mut self) -> u64 {
        let all = self.level().common.backoff.turned_away.load(Ordering::Relaxed);
        let fresh = all.wrapping_sub(self.turned_away_seen);
        self.turned_away_seen = all;
        fresh
    }

    fn set_retry_after(&mut self, seconds: u32) {
        self.level().common.backoff.seconds.store(u64::from(seconds), Ordering::Relaxed);
    }

    fn mode(&self) -> Mode {
        self.level().mode()
    }

    fn limit(&self) -> Seats {
        self.level().limit()
    }

    fn held(&self, ticket: Ticket) -> Option<Held> {
        let Known { phase, arrived, started, work, .. } = *self.known(ticket)?;
        Some(Held { phase, arrived, started, work })
    }

    fn queue_length(&self, ticket: Ticket) -> u32 {
        self.known(ticket).map_or(0, |_| self.shard.queue_length(ticket.slot))
    }

    fn blocked(&self) -> (u64, Option<Ticket>) {
        let (count, slot) = self.shard.blocked();
        let known = self.known.get(slot as usize);
        (count, known.map(|known| Ticket { slot, generation: known.generation }))
    }

    fn totals(&self) -> Option<Totals> {
        self.watches.then(|| self.level_totals())
    }

    fn is_idle(&self) -> bool {
        if self.watches {
            let totals = self.level_totals();
            totals.waiting == 0 && totals.executing == 0
        } else {
            self.level().is_closed()
        }
    }

    fn is_empty(&self) -> bool {
        if self.watches {
            // As long as a worker is there, there may be somebody to bury.
            self.level().is_empty() && !self.level().has_workers()
        } else {
            self.shard.held() == 0
        }
    }

    fn picture(&mut self, now: Nanos) -> Picture {
        if !self.watches {
            return Picture { queueless: self.own(), ..Picture::default() };
        }
        let now = self.told(now);
        let totals = self.level_totals();
        for _ in 0..ATTEMPTS_MAX {
            let Some(picture) = self.shard.with_sequencer(now, |sequencer| Picture::of(&sequencer.level))
            else {
                std::thread::yield_now();
                continue;
            };
            return Picture { totals, counters: self.with_bypassed(picture.counters), ..picture };
        }
        Picture { totals, counters: self.with_bypassed(Counters::default()), ..Picture::default() }
    }
}
