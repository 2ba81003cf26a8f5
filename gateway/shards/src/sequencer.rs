//! The sequencer: the exact level, and what the holder of the role does with it.
//!
//! Seats in use by requests that the exact level does not know ("outside") follow from the pool: whatever of
//! the limit is neither free nor in use inside. While somebody waits nobody but the holder takes seats from
//! the pool, so what fits when it is looked at still fits when it is granted.

use usher_flowcontrol::level::{self, Finish, Mode, Reason, Ticket, Verdict};
use usher_flowcontrol::units::{Nanos, Seats};

use crate::desk::{Claim, Tally};
use crate::level::{Booked, Common, Options, believed_limit, signed, tag, untag};
use crate::operation::Operation;
use crate::publication::Publication;
use crate::slots::State;
use crate::sync::{Ordering, Step, fence, left_out};
use crate::wakes::Workers;

/// What the role protects.
#[derive(Debug)]
pub(crate) struct Sequencer {
    pub(crate) level: level::Level,
    booked: Booked,
    /// Invariant: limit minus seats in use inside, as the pool has it.
    accounted: i64,
    /// Requests that wait no more, not yet told to the pool.
    settled: u64,
    /// By worker: tickets seen.
    tickets: Box<[u64]>,
    /// Workers with mail; empty between visits.
    due: Workers,
    /// Refusals to accommodate that have been shown.
    blocked_seen: u64,
    /// The exact level may have had to wait for seats that are free now.
    stale: bool,
    /// The limit was changed, and the pool does not know yet.
    limit_changed: bool,
    /// How often somebody came.
    pub(crate) visits: u64,
    /// What was done for the workers.
    pub(crate) operations: u64,
}

/// One visit: who comes, and what he takes home.
pub(crate) struct Visit<'a> {
    pub(crate) common: &'a Common,
    pub(crate) visitor: usize,
    pub(crate) now: Nanos,
    /// The visitor's slot whose ticket he brings. What becomes of it is not told by notice.
    pub(crate) arriving: Option<u32>,
    /// What became of it, if anything.
    pub(crate) answer: Option<Answer>,
    /// Who must be woken.
    pub(crate) wakes: &'a mut Workers,
    /// Operations that the visitor may still do before he passes the role on.
    pub(crate) budget: u32,
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted,
    TurnedAway(Reason),
}

/// Running requests that are taken over when somebody begins to wait. Those beyond are not charged to their
/// queues, which favours their flows for as long as they run; taking them over would hold the role for longer
/// than a visit should.
const ADOPTED_MAX: usize = 64;

impl Sequencer {
    pub(crate) fn new(now: Nanos, mode: Mode, limit: Seats, options: &Options) -> Self {
        Self {
            level: level::Level::new(now, mode, limit),
            booked: options.desks().map(|_| Vec::new()).collect(),
            accounted: signed(limit),
            settled: 0,
            tickets: options.desks().map(|_| 0).collect(),
            due: Workers::none(options.desks().count()),
            blocked_seen: 0,
            stale: false,
            limit_changed: false,
            visits: 0,
            operations: 0,
        }
    }

    /// Takes all mail, does what it asks for, and tells the pool. What exceeds the visit's budget stays mail.
    pub(crate) fn round(&mut self, visit: &mut Visit<'_>) {
        self.visits += 1;
        visit.common.mail.take(&mut self.due);
        self.sweep(visit.common);
        while let Some(worker) = self.due.pop() {
            if !self.drain(worker, visit) {
                visit.common.mail.post(worker);
            }
        }
        self.advance(visit);
        self.settle(visit.common);
        self.show(visit.common);
    }

    /// Does what a worker left; `false` if the budget ended before that did.
    fn drain(&mut self, worker: usize, visit: &mut Visit<'_>) -> bool {
        while visit.budget > 0 {
            let Some((code, at)) = visit.common.desks[worker].operations.pop() else { return true };
            visit.budget -= 1;
            self.perform(worker, Operation::of(code), Nanos(at.cast_signed()), visit);
        }
        false
    }

    fn perform(&mut self, worker: usize, operation: Operation, at: Nanos, visit: &mut Visit<'_>) {
        self.operations += 1;
        match operation {
            Operation::Ticket(slot) => {
                self.tickets[worker] += 1;
                self.arrive(worker, slot, at, visit);
            }
            Operation::Cancel(slot, why) => {
                if let Some(ticket) = self.booked_mut(worker, slot).take() {
                    self.cancel(at, ticket, why, visit);
                }
                visit.common.desks[worker].slot(slot).set(State::Free);
            }
            Operation::Finish(slot) => self.finish(worker, slot, at, visit),
            Operation::LingerEnd(slot) => {
                if let Some(ticket) = self.booked_mut(worker, slot).take() {
                    self.look_outside(visit.common);
                    self.level.linger_end(at, ticket);
                }
            }
            Operation::Reconfigure => {
                let wanted = &visit.common.desks[worker].wanted;
                self.reconfigure(at, wanted.mode(), believed_limit(wanted.limit()), visit.common);
            }
            Operation::Bury(dead) => self.bury(dead as usize, at, visit),
        }
        self.hand_out(visit);
    }

    // === operations ===

    fn arrive(&mut self, worker: usize, slot: u32, at: Nanos, visit: &mut Visit<'_>) {
        let common = visit.common;
        let arrival = common.desks[worker].slot(slot).arrival(tag(worker, slot));
        self.look_outside(common);
        self.adopt_if_crowded(at, arrival.work.max_seats(), common);
        match self.level.arrive(at, arrival) {
            Verdict::Execute(ticket) => {
                *self.booked_mut(worker, slot) = Some(ticket);
                if let Mode::Queue { .. } = self.level.mode() {
                    common.desks[worker].slot(slot).joins(1); // and left it at once
                }
                self.grant(worker, slot, ticket, visit);
            }
            Verdict::Wait(ticket) => {
                *self.booked_mut(worker, slot) = Some(ticket);
                if let Some((queue, length)) = self.level.queue_length_of(ticket) {
                    common.desks[worker].slot(slot).joins(length);
                    self.publish_length(queue, length, common);
                }
            }
            Verdict::Reject(why) => {
                self.stale = true; // nothing was started: it may have been seen before seats came back
                self.settled += 1;
                if common.desks[worker].slot(slot).turn_away(why) {
                    tell(worker, slot, Answer::TurnedAway(why), visit);
                }
            }
        }
    }

    fn cancel(&mut self, at: Nanos, ticket: Ticket, why: Reason, visit: &Visit<'_>) {
        let queue = self.level.queue_length_of(ticket);
        self.look_outside(visit.common);
        if self.level.cancel(at, ticket, why) {
            self.settled += 1;
        }
        if let Some((queue, _)) = queue {
            self.publish_length(queue, self.level.queue_state(queue).waiting, visit.common);
        }
    }

    fn finish(&mut self, worker: usize, slot: u32, at: Nanos, visit: &Visit<'_>) {
        let Some(ticket) = *self.booked_mut(worker, slot) else { return };
        self.look_outside(visit.common);
        if self.level.finish(at, ticket) == Finish::Released {
            *self.booked_mut(worker, slot) = None;
        }
    }

    fn reconfigure(&mut self, at: Nanos, mode: Mode, limit: Seats, common: &Common) {
        self.look_outside(common);
        self.level.reconfigure(at, mode, limit);
        if !std::mem::replace(&mut self.limit_changed, true) {
            common.limit_changes.begin();
        }
        common.publish(Publication::Shape { mode, limit });
        for queue in self.level.queue_states() {
            self.publish_length(queue.index, queue.waiting, common);
        }
    }

    /// Gives back all that a worker held that will not come back: what it left is done first, so that what it
    /// finished is finished.
    fn bury(&mut self, worker: usize, at: Nanos, visit: &mut Visit<'_>) {
        let common = visit.common;
        let Some(desk) = common.desks.get(worker).filter(|desk| desk.is_abandoned()) else { return };
        while let Some((code, at)) = desk.operations.pop() {
            match Operation::of(code) {
                Operation::Bury(_) => {} // whoever buried is buried; its dead are somebody else's to find
                operation => self.perform(worker, operation, Nanos(at.cast_signed()), visit),
            }
        }
        for slot in 0..self.booked[worker].len() {
            let Some(ticket) = self.booked[worker][slot].take() else { continue };
            self.cancel(at, ticket, Reason::Cancelled, visit);
            self.hand_out(visit); // each step may start what the next one ends
            self.look_outside(common);
            let _lingers_no_more = self.level.finish(at, ticket);
            self.hand_out(visit);
            self.level.linger_end(at, ticket);
            self.hand_out(visit);
        }
        let counted = desk.tally.tickets.load(Ordering::Acquire);
        self.settled += counted - self.tickets[worker];
        self.tickets[worker] = counted;
        common.pool.give(desk.clear());
        self.stale = true;
        desk.set_claim(Claim::Nobody);
    }

    // === steps ===

    /// Tells the exact level how many seats are in use outside of it.
    pub(crate) fn look_outside(&mut self, common: &Common) {
        if common.options.bypass {
            let outside = self.accounted - common.pool.view().free;
            debug_assert!(outside >= 0, "free, inside and outside make up the limit: {outside}");
            let outside = Seats(u64::try_from(outside).unwrap_or(0));
            // Not every operation that looks lets those who wait start.
            self.stale |= outside < self.level.outside();
            self.level.set_outside(outside);
        }
    }

    /// Takes all leases back into the pool, so that nobody waits for a seat that nobody uses.
    fn sweep(&mut self, common: &Common) {
        let wanted = common.options.lease > 0 && common.pool.view().waiting > 0;
        if !wanted || left_out(Step::SweepLeases) {
            return;
        }
        if !left_out(Step::FenceBeforeSweep) {
            // Whose ticket has been seen is counted as waiting: whoever parks seats after this sweep sees
            // that.
            fence(Ordering::SeqCst);
        }
        for desk in &common.desks {
            if desk.lease.load(Ordering::Relaxed) > 0 {
                common.pool.give(desk.lease.swap(0, Ordering::AcqRel));
                self.stale = true;
            }
        }
    }

    /// When somebody begins to wait, takes over what runs outside, so that every queue is charged for its
    /// running requests; what finished before is forgotten.
    fn adopt_if_crowded(&mut self, at: Nanos, need: Seats, common: &Common) {
        let outside = self.level.outside();
        let crowded = self.level.seats_in_use() + outside + need > self.level.limit();
        if outside == Seats(0) || self.level.waiting() > 0 || !crowded {
            return;
        }
        let marked = common.desks.iter().enumerate();
        let marked = marked.flat_map(|(worker, desk)| desk.table.marked().map(move |slot| (worker, slot)));
        for (worker, slot) in marked.take(ADOPTED_MAX) {
            // What the worker finished in that slot earlier may still be in its ring.
            if self.booked_mut(worker, slot).is_some() {
                continue;
            }
            if let Some(arrival) = common.desks[worker].slot(slot).adopt(tag(worker, slot)) {
                let ticket = self.level.adopt(at, arrival);
                *self.booked_mut(worker, slot) = Some(ticket);
                let kept = self.level.request(ticket).map_or(Seats(0), |request| request.work.max_seats());
                // The seats change sides. What was cut off, because the limit is lower now, is free.
                self.accounted -= signed(kept);
                common.pool.give((arrival.work.max_seats() - kept).0);
            }
        }
        self.look_outside(common);
    }

    /// Starts what seats that came back during the visit allow.
    fn advance(&mut self, visit: &mut Visit<'_>) {
        if !visit.common.options.bypass || self.level.waiting() == 0 {
            return;
        }
        self.look_outside(visit.common);
        if self.stale {
            self.level.advance(visit.now);
            self.hand_out(visit);
        }
    }

    /// Grants what the exact level has dispatched.
    fn hand_out(&mut self, visit: &mut Visit<'_>) {
        while let Some(next) = self.level.next_dispatched() {
            let (worker, slot) = untag(next.tag);
            self.publish_length_of(next.ticket, visit.common);
            self.grant(worker, slot, next.ticket, visit);
        }
    }

    /// The request executes now, unless its worker has given it up.
    fn grant(&mut self, worker: usize, slot: u32, ticket: Ticket, visit: &mut Visit<'_>) {
        self.settled += 1;
        let linger =
            self.level.request(ticket).map_or(Nanos::ZERO, |request| request.work.additional_latency);
        let shown = visit.common.desks[worker].slot(slot);
        if shown.grant(linger) {
            return tell(worker, slot, Answer::Granted, visit);
        }
        let why = if let State::Cancelled(why) = shown.state() { why } else { Reason::Cancelled };
        *self.booked_mut(worker, slot) = None;
        self.level.retract(visit.now, ticket, why);
    }

    /// Tells the pool what has become of seats and of waiting requests.
    fn settle(&mut self, common: &Common) {
        let accounted = signed(self.level.limit()) - signed(self.level.seats_in_use());
        common.pool.settle(accounted - self.accounted, self.settled);
        self.accounted = accounted;
        self.settled = 0;
        self.stale = false;
        if std::mem::take(&mut self.limit_changed) {
            common.limit_changes.end();
        }
    }

    /// What is told, not decided by.
    fn show(&mut self, common: &Common) {
        common.seats_waiting.store(self.level.seats_waiting().0, Ordering::Relaxed);
        let blocked = self.level.counters().not_accommodated;
        if blocked > self.blocked_seen
            && let Some(head) = self.level.blocked()
        {
            let (worker, slot) = untag(head.tag);
            let (count, which) = &common.desks[worker].blocked;
            count.store(count.load(Ordering::Relaxed) + blocked - self.blocked_seen, Ordering::Relaxed);
            which.store(u64::from(slot), Ordering::Relaxed);
        }
        self.blocked_seen = blocked;
    }

    fn publish_length_of(&self, ticket: Ticket, common: &Common) {
        if let Some((queue, length)) = self.level.queue_length_of(ticket) {
            self.publish_length(queue, length, common);
        }
    }

    fn publish_length(&self, queue: u32, length: u32, common: &Common) {
        if let Mode::Queue { queue_length_limit, .. } = self.level.mode() {
            common.publish(Publication::Length { queue, length, limit: queue_length_limit });
        }
    }

    fn booked_mut(&mut self, worker: usize, slot: u32) -> &mut Option<Ticket> {
        let (booked, slot) = (&mut self.booked[worker], slot as usize);
        if slot >= booked.len() {
            booked.resize(slot + 1, None);
        }
        &mut booked[slot]
    }
}

/// Tells a worker what became of a request of his.
fn tell(worker: usize, slot: u32, answer: Answer, visit: &mut Visit<'_>) {
    if answer == Answer::Granted {
        let tally = &visit.common.desks[visit.visitor].tally;
        Tally::add(if worker == visit.visitor { &tally.granted } else { &tally.granted_to_others });
    }
    if worker == visit.visitor && visit.arriving == Some(slot) {
        visit.answer = Some(answer);
        return;
    }
    let desk = &visit.common.desks[worker];
    desk.table.tell(slot);
    if worker != visit.visitor && desk.raise_flag() {
        visit.wakes.add(worker);
    }
}
