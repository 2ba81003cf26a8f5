//! Leaving operations, and visiting the sequencer.
//!
//! Post, fence, try for the role; the holder gives it up, fence, looks at the mail once more. Of the two
//! fences one comes first in the order that all threads agree on: either the poster finds the role free, or
//! the holder finds the mail. So an operation is never left behind, although nobody waits for anybody.

use usher_flowcontrol::units::Nanos;

use crate::operation::Operation;
use crate::sequencer::{Answer, Visit};
use crate::shard::Shard;
use crate::sync::{Ordering, Step, fence, left_out};

impl Shard {
    /// Leaves an operation for the holder of the role: [`Shard::visit`] must follow.
    pub(crate) fn post(&mut self, now: Nanos, operation: Operation) {
        let (code, at) = (operation.code(), now.0.cast_unsigned());
        if !self.outbox.is_empty() || !self.desk.operations.push(code, at) {
            self.outbox.push_back((code, at)); // behind those that found the ring full
        }
    }

    /// Has everything done that was left, by this worker or by whoever holds the role. Returns what became of
    /// the ticket of `arriving`, if this worker himself saw it.
    pub(crate) fn visit(&mut self, now: Nanos, arriving: Option<u32>) -> Option<Answer> {
        let mut answer = None;
        let mut budget = self.level.common.options.hold;
        loop {
            self.level.common.mail.post(self.me);
            if !left_out(Step::FenceAfterPosting) {
                fence(Ordering::SeqCst);
            }
            answer = self.rounds(now, arriving, &mut budget).or(answer);
            let kept = self.outbox.len();
            if kept == 0 {
                return answer;
            }
            self.flush();
            if self.outbox.len() == kept {
                // The ring is full and the role is somebody's: try again when that is over.
                if !left_out(Step::RetryWhenFull) {
                    self.wakes.add(self.me);
                }
                return answer;
            }
        }
    }

    /// Visits for as long as there is mail and the role is free.
    fn rounds(&mut self, now: Nanos, arriving: Option<u32>, budget: &mut u32) -> Option<Answer> {
        let (mut answer, mut tired) = (None, false);
        let common = &self.level.common;
        while let Some(mut sequencer) = self.level.role() {
            let (visitor, wakes) = (self.me, &mut self.wakes);
            let mut visit = Visit { common, visitor, now, arriving, answer: None, wakes, budget: *budget };
            sequencer.round(&mut visit);
            (answer, *budget) = (visit.answer.or(answer), visit.budget);
            drop(sequencer);
            if !left_out(Step::FenceAfterRole) {
                fence(Ordering::SeqCst);
            }
            if left_out(Step::MailAfterRole) || !common.mail.any() {
                break;
            }
            if *budget == 0 {
                tired = true;
                break;
            }
            *budget -= 1; // mail without operations must end, too
        }
        if tired && !left_out(Step::PassOn) {
            self.pass_on();
        }
        answer
    }

    /// Has somebody who left something, and lives, go on with what is left; else this worker itself.
    fn pass_on(&mut self) {
        let common = &self.level.common;
        // Watchers are not woken: they look every few milliseconds.
        let can = |worker: usize| worker < common.options.workers && common.desks[worker].is_claimed();
        let other = |worker: &usize| *worker != self.me && can(*worker);
        let next = common.mail.workers().find(other);
        self.wakes.add(next.unwrap_or(self.me));
        if next.is_none() {
            common.mail.post(self.me); // what the dead left is nobody's reason to visit
        }
    }

    /// Puts as much into the ring as there is room for.
    fn flush(&mut self) {
        while let Some(&(code, at)) = self.outbox.front() {
            if !self.desk.operations.push(code, at) {
                return;
            }
            self.outbox.pop_front();
        }
    }
}
