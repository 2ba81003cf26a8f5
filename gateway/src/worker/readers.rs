//! Clients that do not take their answers (kubernetes#115409).
//!
//! An answer under way waits for one of two: the apiserver, which has not sent the next part, or the client, whose
//! connection has not asked for it. The body knows which: as long as nobody polls it although it had something at
//! the last poll, it is the client. (hyper stops polling when its buffer is full over HTTP/1.1, h2 when the stream's
//! window or its buffer is.) Time waited for the client adds up; past a grace the answer is *stalled*:
//!
//! - Its seats are given back: the level's work is done, only the delivery is not. They do not come back to it when
//!   the client reads on: seats are taken by arriving and waiting one's turn, and a client that reads a little now
//!   and then would else hold them for ever.
//! - It counts against a budget of its own, in answers and in bytes held for them. Beyond it those answers are cut
//!   of which nothing was taken for the longest time.
//!
//! An answer whose apiserver is slow is not stalled, whoever reads it: its seats stay taken. Watches have no seats by
//! then; they are stalled while there is something for them that they do not take, and no longer once they have.
//!
//! Bytes are counted exactly while they are in hyper's or h2's hands: each part carries a counter that its last owner
//! takes down. For this the parts are wrapped, but the last part, which ends the answer: one allocation for each. Of
//! an HTTP/1.1 connection, what the kernel has not taken counts, too.
//!
//! Nothing here is timed by itself. A sweep over the answers under way, some times a second, looks what has become
//! of them; a worker without any sleeps.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use slab::Slab;
use tokio::sync::Notify;
use usher_flowcontrol::units::Nanos;

use super::Worker;
use super::body::Pass;
use super::host::Host;
use super::watch::Beginning;
use crate::observe::hdr::{Measured, Outcome};
use crate::ring::{self, Stream};

/// The answers under way of a worker.
#[derive(Debug, Default)]
pub(super) struct Readers {
    answers: RefCell<Slab<Answer>>,
    /// There is one again.
    some: Notify,
}

/// What stalled answers may hold, all together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) grace: Nanos,
    pub(super) answers: usize,
    pub(super) bytes: u64,
}

/// An answer's place among them. Dropped, it is struck out.
#[derive(Debug)]
pub(super) struct Reader {
    readers: Rc<Readers>,
    key: usize,
}

#[derive(Debug)]
struct Answer {
    /// Its seats, until it has stalled.
    pass: Option<Pass>,
    /// It had seats when it began.
    seated: bool,
    watch: Option<Rc<Beginning>>,
    /// The task to be ended if it is cut.
    host: Rc<Host>,
    /// The connection, if it has it for itself.
    stream: Option<Stream>,
    /// Since when the client is what is waited for.
    since: Option<Nanos>,
    /// How long it was before.
    waited: Nanos,
    /// Bytes handed to the connection.
    handed: u64,
    /// Those of them that it holds.
    held: Option<Arc<AtomicU64>>,
    /// Bytes that it was seen to have taken, and when it took any last.
    taken: u64,
    moved_at: Nanos,
    stalled: bool,
    cut: bool,
}

/// What a sweep found.
#[derive(Debug, Default)]
pub(super) struct Swept {
    /// Seats that are given back when this is dropped.
    pub(super) released: Vec<Pass>,
    pub(super) watches: Vec<Rc<Beginning>>,
    /// Stalled answers that are left, and bytes held for them.
    pub(super) stalled: usize,
    pub(super) bytes: u64,
    /// Cut because there were too many, or too many bytes.
    pub(super) cut_for_answers: usize,
    pub(super) cut_for_bytes: usize,
}

/// Between two sweeps. The grace is some seconds.
const SWEEP_EVERY: Nanos = Nanos::from_millis(250);
/// With each reading of memory on the last rung, one of so many answers is cut of which nothing is taken.
const CUT_PART: usize = 8;
/// If nothing was taken for so long. Who reads at all takes something several times a second.
const CUT_AFTER: Nanos = Nanos::from_millis(500);

/// A part's bytes; its counter goes down with it.
struct Part {
    bytes: Bytes,
    held: Arc<AtomicU64>,
}

// === impl Readers ===

impl Readers {
    /// An answer is under way; its client's connection has not asked for any of it.
    pub(super) fn join(
        self: &Rc<Self>,
        pass: Option<Pass>,
        watch: Option<Rc<Beginning>>,
        stream: Option<Stream>,
    ) -> Reader {
        let now = ring::now();
        let mut answers = self.answers.borrow_mut();
        if answers.is_empty() {
            self.some.notify_one();
        }
        let key = answers.insert(Answer {
            seated: pass.is_some(),
            pass,
            watch,
            host: Host::current(),
            stream,
            since: Some(now),
            waited: Nanos(0),
            handed: 0,
            held: None,
            taken: 0,
            moved_at: now,
            stalled: false,
            cut: false,
        });
        Reader { readers: Rc::clone(self), key }
    }

    /// Looks what has become of every answer, and cuts what is over the budget.
    pub(super) fn sweep(&self, now: Nanos, budget: &Budget) -> Swept {
        let mut swept = Swept::default();
        let mut answers = self.answers.borrow_mut();
        let mut stalled = Vec::new();
        for (key, answer) in answers.iter_mut().filter(|(_, answer)| !answer.cut) {
            answer.look(now, budget.grace, &mut swept);
            if answer.stalled {
                swept.bytes += answer.held();
                stalled.push((answer.moved_at, key));
            }
        }
        swept.stalled = stalled.len();
        if swept.stalled <= budget.answers && swept.bytes <= budget.bytes {
            return swept;
        }
        stalled.sort_unstable();
        for (_, key) in stalled {
            match (swept.stalled > budget.answers, swept.bytes > budget.bytes) {
                (false, false) => break,
                (true, _) => swept.cut_for_answers += 1,
                (false, true) => swept.cut_for_bytes += 1,
            }
            swept.stalled -= 1;
            swept.bytes -= answers[key].held();
            answers[key].cut();
        }
        swept
    }

    /// Memory has run out: cuts some of the answers of which nothing is taken. Returns how many.
    fn cut_slowest(&self, now: Nanos) -> usize {
        let mut answers = self.answers.borrow_mut();
        let is_slow = |answer: &Answer| !answer.cut && answer.is_owed() && now >= answer.moved_at + CUT_AFTER;
        let mut slow: Vec<_> = answers
            .iter()
            .filter(|(_, answer)| is_slow(answer))
            .map(|(key, answer)| (answer.moved_at, key))
            .collect();
        slow.sort_unstable();
        slow.truncate(slow.len().div_ceil(CUT_PART));
        for (_, key) in &slow {
            answers[*key].cut();
        }
        slow.len()
    }
}

// === impl Reader ===

impl Reader {
    /// The client's connection asks for the next part.
    pub(super) fn asks(&self) {
        self.with(|answer| {
            if let Some(since) = answer.since.take() {
                answer.waited = answer.waited + (ring::now() - since);
            }
        });
    }

    /// It gets one, not the last.
    pub(super) fn gets(&self, part: Bytes) -> Bytes {
        let length = part.len() as u64;
        let held = self.with(|answer| {
            answer.since = Some(ring::now());
            answer.handed += length;
            Arc::clone(answer.held.get_or_insert_default())
        });
        held.fetch_add(length, Ordering::Relaxed);
        Bytes::from_owner(Part { bytes: part, held })
    }

    /// Tells what is measured of the request, while it holds its seats.
    pub(super) fn measured(&self, tell: fn(&mut Measured)) {
        self.with(|answer| {
            if let Some(Pass::Seat(seat)) = &mut answer.pass {
                tell(seat.measured());
            }
        });
    }

    /// Whether usher has cut it.
    pub(super) fn is_cut(&self) -> bool {
        self.with(|answer| answer.cut)
    }

    fn with<T>(&self, action: impl FnOnce(&mut Answer) -> T) -> T {
        action(&mut self.readers.answers.borrow_mut()[self.key])
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let answer = self.readers.answers.borrow_mut().remove(self.key);
        drop(answer); // its seats, too: not while the table is borrowed
    }
}

// === impl Answer ===

impl Answer {
    /// Whether it has stalled since the last look, or is no longer.
    fn look(&mut self, now: Nanos, grace: Nanos, swept: &mut Swept) {
        let taken = self.handed.saturating_sub(self.held());
        if !self.is_owed() || taken != self.taken {
            (self.taken, self.moved_at) = (taken, now);
        }
        if !self.is_owed() && !self.has_lost_seats() {
            self.stalled = false;
            if !self.seated {
                self.waited = Nanos(0);
            }
        }
        let waited = self.waited + self.since.map_or(Nanos(0), |since| now - since);
        if waited >= grace {
            self.stalled = true;
            // parity: kubernetes#115409. kube-apiserver's seats are held until the client has taken the answer.
            if let Some(mut pass) = self.pass.take() {
                if let Pass::Seat(seat) = &mut pass {
                    seat.measured().ends(Outcome::Executed);
                }
                swept.released.push(pass);
            }
            swept.watches.extend(self.watch.take());
        }
        // Perhaps it is the apiserver that is waited for; what the client does not take is here all the same.
        if now >= self.moved_at + grace {
            self.stalled = true;
        }
    }

    /// Then it stays stalled to its end.
    fn has_lost_seats(&self) -> bool {
        self.seated && self.pass.is_none()
    }

    /// There is something for the client that it has not taken.
    fn is_owed(&self) -> bool {
        self.since.is_some() || self.held() > 0
    }

    fn held(&self) -> u64 {
        let unsent = self.stream.as_ref().map_or(0, Stream::unsent);
        self.held.as_ref().map_or(0, |held| held.load(Ordering::Relaxed)) + unsent as u64
    }

    fn cut(&mut self) {
        self.cut = true;
        self.host.cut();
    }
}

// === impl Part ===

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
    }
}

// === impl Worker ===

impl Worker {
    /// Sweeps for ever.
    pub(super) async fn watch_readers(self: Rc<Self>) {
        let limits = &self.settings.limits;
        let grace = Nanos(i64::try_from(limits.slow_reader_grace.as_nanos()).unwrap_or(i64::MAX));
        loop {
            if self.readers.answers.borrow().is_empty() {
                self.note_swept(Swept::default());
                self.readers.some.notified().await;
            }
            ring::sleep_until(ring::now() + SWEEP_EVERY).await;
            let (answers, bytes) = (limits.stalled_streams as u64, limits.stalled_bytes);
            let (others, of_others) = self.stalled_elsewhere();
            let budget = Budget {
                grace,
                answers: usize::try_from(self.left(answers, others)).unwrap_or(usize::MAX),
                bytes: self.left(bytes, of_others),
            };
            self.note_swept(self.readers.sweep(ring::now(), &budget));
        }
    }

    /// What of a limit other workers leave; this one's own part in any case, so that all come to theirs.
    fn left(&self, limit: u64, others: u64) -> u64 {
        limit.saturating_sub(others).max(self.settings.common.share(limit))
    }

    /// Stalled answers of other workers, and bytes held for them.
    fn stalled_elsewhere(&self) -> (u64, u64) {
        let (counters, common) = (&self.counters, &self.settings.common);
        (
            common.stalled_answers.get().saturating_sub(counters.stalled_answers.get()),
            common.stalled_bytes.get().saturating_sub(counters.stalled_bytes.get()),
        )
    }

    /// So many answers are stalled here, and so many bytes are held for them.
    pub(super) fn stalled_are(&self, answers: u64, bytes: u64) {
        let (counters, common) = (&self.counters, &self.settings.common);
        common.stalled_answers.moved(counters.stalled_answers.get(), answers);
        common.stalled_bytes.moved(counters.stalled_bytes.get(), bytes);
        counters.stalled_answers.set(answers);
        counters.stalled_bytes.set(bytes);
    }

    fn note_swept(&self, swept: Swept) {
        let counters = &self.counters;
        self.stalled_are(swept.stalled as u64, swept.bytes);
        counters.stalled_cut_answers.add_many(swept.cut_for_answers as u64);
        counters.stalled_cut_bytes.add_many(swept.cut_for_bytes as u64);
        counters.stalled_released.add_many(swept.released.len() as u64);
        for watch in &swept.watches {
            counters.stalled_released.add_many(u64::from(watch.end()));
        }
        if swept.cut_for_answers + swept.cut_for_bytes > 0 {
            let Swept { cut_for_answers, cut_for_bytes, stalled, bytes, .. } = swept;
            let worker = &self.settings.name;
            tracing::warn!(
                worker,
                cut_for_answers,
                cut_for_bytes,
                stalled,
                bytes,
                "cut answers that nobody takes"
            );
        }
    }

    /// Memory has run out.
    pub(super) fn cut_slowest_readers(&self) {
        let cut = self.readers.cut_slowest(ring::now());
        self.counters.stalled_cut_memory.add_many(cut as u64);
    }
}

#[cfg(test)]
mod tests;
