//! A worker's side of a level: arrivals in, verdicts out, and events for those who had to wait.

use std::collections::VecDeque;
use std::sync::Arc;

pub use usher_flowcontrol::level::Event;
use usher_flowcontrol::level::{Arrival, Dispatched, Finish, Mode, Reason, Ticket, Verdict};
use usher_flowcontrol::units::{Nanos, Seats};

use crate::desk::{Claim, Desk, Tally, flag_goes_first};
use crate::level::{Level, believed, believed_limit};
use crate::operation::Operation;
use crate::sequencer::Answer;
use crate::slots::{Slot, State};
use crate::sync::{Ordering, Step, left_out};
use crate::table::News;
use crate::wakes::Workers;

/// One worker's access to a level. After every call that takes `&mut self`, drain [`Shard::next_event`] and
/// [`Shard::next_wake`].
///
/// Dropped with requests still in it (its worker died), it leaves seats taken until somebody calls
/// [`Shard::bury`].
#[derive(Debug)]
pub struct Shard {
    pub(crate) level: Arc<Level>,
    /// This worker.
    pub(crate) me: usize,
    /// Its desk at the level.
    pub(crate) desk: Arc<Desk>,
    /// By slot; of those that were ever used. The memory for the others is not touched: few levels fill their queues.
    entries: Vec<Entry>,
    news: News,
    /// Slots for new requests.
    free: Vec<u32>,
    /// Slots of cancelled requests, as their operations were left; free when the sequencer says so.
    cancelled: VecDeque<u32>,
    /// Operations that found the ring full. At most four a slot.
    pub(crate) outbox: VecDeque<(u64, u64)>,
    /// Workers that must be woken.
    pub(crate) wakes: Workers,
}

/// What the worker knows of one of its requests.
#[derive(Clone, Copy, Debug)]
struct Entry {
    generation: u32,
    phase: Phase,
    /// It took its seats without the sequencer. It may have been adopted since.
    bypassed: bool,
    seats: u64,
    tag: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Vacant,
    Waiting,
    Executing,
    Lingering,
}

impl Shard {
    pub(crate) fn new(level: Arc<Level>, me: usize) -> Self {
        let desks = level.common.desks.len();
        let desk = Arc::clone(&level.common.desks[me]);
        let news = News::of(&desk.table);
        Self {
            level,
            me,
            desk,
            entries: Vec::new(),
            news,
            free: Vec::new(),
            cancelled: VecDeque::new(),
            outbox: VecDeque::new(),
            wakes: Workers::none(desks),
        }
    }

    /// A request arrives. One that waits, also because the sequencer was busy, is heard of again by
    /// [`Shard::next_event`].
    ///
    /// A worker without a free slot turns requests away ([`Reason::ConcurrencyLimit`]).
    pub fn arrive(&mut self, now: Nanos, arrival: Arrival) -> Verdict {
        let Some(slot) = self.free_slot() else { return self.turn_away(Reason::ConcurrencyLimit) };
        let arrival = Arrival { work: believed(arrival.work), ..arrival };
        if self.level.common.options.bypass {
            if self.starts_at_once(now, arrival.work.max_seats()) {
                let ticket = self.hold(slot, Phase::Executing, true, arrival);
                let (shown, mark) = self.desk.table.marked_slot(slot);
                shown.describe(arrival.flow, arrival.work);
                shown.bypass(ticket.generation);
                mark.set();
                Tally::add(&self.desk.tally.bypassed);
                return Verdict::Execute(ticket);
            }
            if let Some(why) = self.hopeless(&arrival) {
                self.free.push(slot);
                return self.turn_away(why);
            }
        }
        let shown = self.slot(slot);
        shown.describe(arrival.flow, arrival.work);
        shown.set(State::Waiting);
        let ticket = self.hold(slot, Phase::Waiting, false, arrival);
        self.leave_ticket(now, slot);
        match self.visit(now, Some(slot)) {
            Some(Answer::Granted) => {
                self.entry_mut(slot).phase = Phase::Executing;
                Verdict::Execute(ticket)
            }
            Some(Answer::TurnedAway(why)) => {
                self.vacate(slot);
                Verdict::Reject(why)
            }
            None => Verdict::Wait(ticket),
        }
    }

    /// A request arrived whose wait was over before it began: it is counted, and never runs.
    pub fn refuse(&mut self, why: Reason) {
        let tally = &self.desk.tally;
        Tally::add(if why == Reason::TimeOut { &tally.too_late } else { &tally.turned_away });
    }

    /// Gives up the waiting of a request. `false` if it does not wait any more: it has been granted its seats
    /// or turned away, and [`Shard::next_event`] says so, if it has not yet.
    pub fn cancel(&mut self, now: Nanos, ticket: Ticket, why: Reason) -> bool {
        if !self.is(ticket, Phase::Waiting) || !self.slot(ticket.slot).cancel(why) {
            return false;
        }
        // The slot stays out of use until the sequencer has seen this.
        self.forget(ticket.slot);
        self.cancelled.push_back(ticket.slot);
        self.post(now, Operation::Cancel(ticket.slot, why));
        self.visit(now, None);
        true
    }

    /// The work of an executing request is done. A ticket that does not execute: nothing happens.
    pub fn finish(&mut self, now: Nanos, ticket: Ticket) -> Finish {
        if !self.is(ticket, Phase::Executing) {
            return Finish::Released;
        }
        let slot = ticket.slot;
        let Entry { bypassed, seats, .. } = self.entries[slot as usize];
        if bypassed {
            let (shown, mark) = self.desk.table.marked_slot(slot);
            let linger = shown.described_linger();
            let next = if linger > Nanos::ZERO { State::Lingering } else { State::Free };
            let was_mine = shown.finish(ticket.generation, next);
            mark.clear();
            if was_mine {
                if linger > Nanos::ZERO {
                    return self.lingers(slot, now + linger);
                }
                self.vacate(slot);
                self.give_seats(now, seats);
                return Finish::Released;
            }
            self.entry_mut(slot).bypassed = false; // adopted
        }
        // Of an adopted one, what is described still: whoever adopted it may be about to cut that.
        let described = self.slot(slot).described_linger();
        let linger = if bypassed { described } else { self.slot(slot).linger() };
        if linger > Nanos::ZERO {
            self.entry_mut(slot).phase = Phase::Lingering;
            Tally::add(&self.desk.tally.lingering);
        } else {
            self.vacate(slot);
        }
        self.post(now, Operation::Finish(slot));
        self.visit(now, None);
        if linger > Nanos::ZERO { Finish::Lingers { until: now + linger } } else { Finish::Released }
    }

    /// The lingering of a request is over. A ticket that does not linger: nothing happens.
    pub fn linger_end(&mut self, now: Nanos, ticket: Ticket) {
        if !self.is(ticket, Phase::Lingering) {
            return;
        }
        let slot = ticket.slot;
        let Entry { bypassed, seats, .. } = self.entries[slot as usize];
        Tally::take(&self.desk.tally.lingering);
        if bypassed {
            self.slot(slot).set(State::Free);
        }
        self.vacate(slot);
        if bypassed {
            self.give_seats(now, seats);
        } else {
            self.post(now, Operation::LingerEnd(slot));
            self.visit(now, None);
        }
    }

    /// New shape or new limit, for all workers; what waits keeps its place.
    pub fn reconfigure(&mut self, now: Nanos, mode: Mode, limit: Seats) {
        self.desk.wanted.set(mode, believed_limit(limit));
        self.post(now, Operation::Reconfigure);
        self.visit(now, None);
    }

    /// That worker's shard was dropped: its waiting requests are cancelled, its seats given back, its desk is
    /// free for another. Of a worker that lives nothing is taken. Somebody must be left to call this: give the
    /// coordinator, which watches over the workers, a desk of its own.
    pub fn bury(&mut self, now: Nanos, worker: usize) {
        if let Ok(worker) = u32::try_from(worker) {
            self.post(now, Operation::Bury(worker));
            self.visit(now, None);
        }
    }

    /// Once a turn, before the worker sleeps, and when it was woken: does what others left to this worker.
    pub fn poll(&mut self, now: Nanos) {
        if flag_goes_first() {
            self.desk.lower_flag();
        }
        self.reclaim();
        if !self.outbox.is_empty() || self.level.common.mail.has(self.me) {
            self.visit(now, None);
        }
    }

    /// The next of this worker's waiting requests that has been granted its seats or turned away.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        loop {
            let Some(slot) = self.news.next(&self.desk.table) else {
                if !flag_goes_first() {
                    self.desk.lower_flag();
                }
                return None;
            };
            let ticket = self.ticket(slot);
            let Entry { phase, tag, .. } = self.entries[slot as usize];
            match self.slot(slot).state() {
                State::Granted if phase == Phase::Waiting => {
                    self.entry_mut(slot).phase = Phase::Executing;
                    return Some(Event::Dispatched(Dispatched { ticket, tag }));
                }
                State::TurnedAway(why) if phase == Phase::Waiting => {
                    self.vacate(slot);
                    return Some(Event::Rejected { ticket, tag, why });
                }
                state => debug_assert!(left_out(Step::GrantBySwap), "told about a slot {state:?}, {phase:?}"),
            }
        }
    }

    /// A worker that must be woken, to call [`Shard::poll`]. It may be this one: not now, but before it
    /// sleeps.
    #[inline]
    pub fn next_wake(&mut self) -> Option<usize> {
        self.wakes.pop()
    }

    /// How often a request of this worker had to wait although some seat was free; the slot of the last one.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "slots are 32 bits wide")]
    pub fn blocked(&self) -> (u64, u32) {
        let (count, slot) = &self.desk.blocked;
        (count.load(Ordering::Relaxed), slot.load(Ordering::Relaxed) as u32)
    }

    /// Length of the queue that the request in that slot joined; 0 if it is not known (yet).
    pub(crate) fn queue_length(&self, slot: u32) -> u32 {
        self.slot(slot).queue_length()
    }

    /// The level that this is a shard of.
    #[must_use]
    pub fn level(&self) -> &Arc<Level> {
        &self.level
    }

    /// This worker.
    #[must_use]
    pub fn worker(&self) -> usize {
        self.me
    }

    /// Requests of this worker that wait, execute or linger.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.desk.tally.held.load(Ordering::Relaxed)
    }
}

// === impl Shard: what decides without the sequencer ===

impl Shard {
    fn starts_at_once(&mut self, now: Nanos, seats: Seats) -> bool {
        if self.level.common.shape.mode() == Mode::Exempt {
            self.level.common.pool.take_anyway(seats.0);
            return true;
        }
        self.take_seats(now, seats.0)
    }

    /// Whether the sequencer would certainly turn it away, as far as can be seen from here.
    fn hopeless(&self, arrival: &Arrival) -> Option<Reason> {
        let common = &self.level.common;
        match common.shape.mode() {
            Mode::Exempt => None,
            Mode::Reject => {
                // One wider than the limit runs when nothing else does: the sequencer knows.
                let seats = arrival.work.max_seats();
                let narrow = seats > Seats(0) && seats <= common.shape.limit();
                let pool = common.pool.view();
                let full = pool.waiting == 0 && pool.free < seats.0.cast_signed();
                (narrow && full).then_some(Reason::ConcurrencyLimit)
            }
            Mode::Queue { queues, hand_size, queue_length_limit } => {
                let full = common.pool.view().free <= 0
                    && common.lengths.all_full(queues, hand_size, arrival.flow, queue_length_limit);
                full.then_some(Reason::QueueFull)
            }
        }
    }

    /// Counts a request as waiting and leaves its ticket, in this order: counted after the sequencer had
    /// granted it, it would make fewer than none wait.
    fn leave_ticket(&mut self, now: Nanos, slot: u32) {
        Tally::add(&self.desk.tally.tickets);
        if left_out(Step::CountBeforeTicket) {
            self.post(now, Operation::Ticket(slot));
            self.level.common.pool.count_waiting();
            return;
        }
        self.level.common.pool.count_waiting();
        self.post(now, Operation::Ticket(slot));
    }

    fn turn_away(&self, why: Reason) -> Verdict {
        Tally::add(&self.desk.tally.turned_away);
        Verdict::Reject(why)
    }
}

// === impl Shard: slots ===

impl Shard {
    fn free_slot(&mut self) -> Option<u32> {
        if self.free.is_empty() {
            self.reclaim();
        }
        self.free.pop().or_else(|| self.fresh_slot())
    }

    /// One that was never used.
    fn fresh_slot(&mut self) -> Option<u32> {
        let slot = u32::try_from(self.entries.len()).ok()?;
        self.desk.table.make(slot).then(|| {
            let phase = Phase::Vacant;
            self.entries.push(Entry { generation: 0, phase, bypassed: false, seats: 0, tag: 0 });
            slot
        })
    }

    /// Takes back the slots of cancelled requests that the sequencer has seen.
    fn reclaim(&mut self) {
        while let Some(&slot) = self.cancelled.front() {
            if self.slot(slot).state() != State::Free {
                return;
            }
            self.cancelled.pop_front();
            self.free.push(slot);
        }
    }

    fn hold(&mut self, slot: u32, phase: Phase, bypassed: bool, arrival: Arrival) -> Ticket {
        let seats = arrival.work.max_seats().0;
        let entry = self.entry_mut(slot);
        *entry = Entry { phase, bypassed, seats, tag: arrival.tag, generation: entry.generation };
        Tally::add(&self.desk.tally.held);
        self.ticket(slot)
    }

    /// The seats are held until then.
    fn lingers(&mut self, slot: u32, until: Nanos) -> Finish {
        self.entry_mut(slot).phase = Phase::Lingering;
        Tally::add(&self.desk.tally.lingering);
        Finish::Lingers { until }
    }

    /// The request is gone and its slot free.
    fn vacate(&mut self, slot: u32) {
        self.forget(slot);
        self.free.push(slot);
    }

    fn forget(&mut self, slot: u32) {
        let entry = self.entry_mut(slot);
        entry.phase = Phase::Vacant;
        entry.generation = entry.generation.wrapping_add(1);
        Tally::take(&self.desk.tally.held);
    }

    fn is(&self, ticket: Ticket, phase: Phase) -> bool {
        let entry = self.entries.get(ticket.slot as usize);
        entry.is_some_and(|entry| entry.generation == ticket.generation && entry.phase == phase)
    }

    fn ticket(&self, slot: u32) -> Ticket {
        Ticket { slot, generation: self.entries[slot as usize].generation }
    }

    fn entry_mut(&mut self, slot: u32) -> &mut Entry {
        &mut self.entries[slot as usize]
    }

    fn slot(&self, slot: u32) -> &Slot {
        self.desk.slot(slot)
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.desk.set_claim(Claim::Gone);
    }
}
