//! Seats for requests: arrival, waiting, execution, lingering, as the core decides.
//!
//! Whatever becomes of a request, its seats come back: [`Seat`] and [`Waiting`] give them back when dropped, on
//! a panic as well as on a closed connection. The core is told of everything at the time of the turn.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::{Method, Uri};
use tokio::sync::Notify;
use usher_flowcontrol::controller::{Class, LevelId};
use usher_flowcontrol::level::{Dispatched, Event, Finish, Level, Reason, Ticket, Verdict};
use usher_flowcontrol::units::{Nanos, Seats, Work};

use super::command::Objects;
use super::portion::Portion;
use super::settings::Together;
use super::uids;
use super::vital::Vital;
use crate::identity::Identity;
use crate::observe::hdr::{Measured, Outcome};
use crate::ring;
use crate::steering;

/// The core.
pub(super) type Controller = usher_flowcontrol::controller::Controller<Portion>;

/// The core, and who waits for it.
#[derive(Debug)]
pub(super) struct Admission {
    pub(super) controller: Vital<Controller>,
    /// Which of the workers this is.
    index: usize,
    /// With whom the levels are shared; `None`: they are this worker's alone.
    together: Option<Together>,
    /// Where it says how many requests it has.
    line: steering::Line,
    book: Vital<Book>,
    /// Requests whose final seats are still held, the earliest end on top.
    lingering: RefCell<BinaryHeap<Reverse<(Nanos, LevelId, Ticket)>>>,
    /// What answers say they were classified as.
    pub(super) uids: RefCell<uids::Ready>,
    /// The earliest end of lingering, or the time of borrowing, has changed.
    pub(super) reschedule: Notify,
}

/// What happened to an arrival.
#[derive(Debug)]
pub(super) enum Entry {
    /// It runs.
    Seated(Box<Seat>),
    /// It waits.
    Waits(Waiting),
    /// It is turned away.
    TurnedAway(Reason),
}

/// The seats of an executing request. Dropped, they are given back (or linger). Boxed: it goes through many hands.
#[derive(Debug)]
#[must_use]
pub(super) struct Seat {
    /// `None` once given up.
    admission: Option<Rc<Admission>>,
    level: LevelId,
    ticket: Ticket,
    tag: u64,
    measured: Measured,
}

/// A request's place in a queue; a future of its seat. Dropped, the place is given up.
#[derive(Debug)]
#[must_use]
pub(super) struct Waiting {
    /// `None` once it has led to a seat or was given up.
    seat: Option<Box<Seat>>,
    parked: Rc<Parked>,
}

/// What the core is asked about a request, for those who look at its tables.
#[derive(Clone, Debug)]
pub struct Described {
    /// Whose flow pays.
    pub user: Arc<Identity>,
    /// Method.
    pub method: Method,
    /// Target.
    pub target: Uri,
}

/// A task that waits for a dispatch.
#[derive(Debug, Default)]
struct Parked {
    heard: Cell<Heard>,
    waker: RefCell<Option<Waker>>,
}

/// What a waiting request has heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Heard {
    #[default]
    Nothing,
    Dispatched,
    /// It was left to another worker to decide, who found no place for it.
    TurnedAway(Reason),
}

/// Every request that waits or executes, by tag.
#[derive(Debug, Default)]
struct Book {
    lines: Vec<Line>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Line {
    /// Tells successive users of a line apart.
    generation: u32,
    described: Option<Described>,
    parked: Option<Rc<Parked>>,
    /// It was given up in the moment in which another worker decided about it: what that came to has not been heard yet.
    given_up: Option<(LevelId, Ticket)>,
}

/// Who hears of an event.
enum Hearer {
    /// Whoever waits for it.
    Parked(Rc<Parked>),
    /// Nobody any more: a seat is given back at once.
    Nobody(LevelId, Ticket),
}

// === impl Admission ===

impl Admission {
    /// Alone, with the mandatory levels; or together with others, and without any until [`Admission::configure`].
    pub(super) fn new(
        server_limit: Seats,
        index: usize,
        together: Option<Together>,
        line: steering::Line,
    ) -> Self {
        let is_alone = together.is_none();
        let admission = Self {
            controller: Vital::new(Controller::empty(ring::now(), server_limit)),
            index,
            together,
            line,
            book: Vital::new(Book::default()),
            lingering: RefCell::default(),
            uids: RefCell::default(),
            reschedule: Notify::new(),
        };
        if is_alone {
            admission.configure(&Objects::default());
        }
        admission
    }

    /// Whether it decides alone: about all seats, and from the beginning.
    pub(super) fn is_alone(&self) -> bool {
        self.together.is_none()
    }

    /// From now on these objects are in force.
    pub(super) fn configure(&self, objects: &Objects) {
        let (now, schemas, levels) = (ring::now(), &objects.schemas, &objects.levels);
        self.act(|controller| match objects.shared.as_ref().filter(|_| !self.is_alone()) {
            Some(shared) => {
                controller.take_over(now, schemas, levels, |level, known| {
                    let part = shared.part(self.index, level, known.and_then(Portion::part))?;
                    Some(Portion::Shared(Box::new(part)))
                });
            }
            None => {
                controller.take_over(now, schemas, levels, |level, known| {
                    known.is_none().then(|| Portion::Whole(Box::new(Level::new(now, level.mode, Seats(0)))))
                });
                controller.borrow(now);
            }
        });
        self.reschedule.notify_one();
    }

    /// A classified request asks for its seats.
    pub(super) fn arrive(
        self: &Rc<Self>,
        class: &Class,
        work: Work,
        described: Described,
        mut measured: Measured,
    ) -> Entry {
        let tag = self.book.borrow_mut().enter(described);
        self.measure(&mut measured, class, work);
        let verdict = self.controller.borrow_mut().arrive(ring::now(), class, work, tag);
        measured.decided();
        let seat = |ticket, measured| {
            let admission = Some(Rc::clone(self));
            Box::new(Seat { admission, level: class.level, ticket, tag, measured })
        };
        let entry = match verdict {
            Verdict::Execute(ticket) => {
                measured.starts(ring::now());
                Entry::Seated(seat(ticket, measured))
            }
            Verdict::Wait(ticket) => {
                let parked = self.book.borrow_mut().park(tag);
                Entry::Waits(Waiting { seat: Some(seat(ticket, measured)), parked })
            }
            Verdict::Reject(why) => {
                self.book.borrow_mut().leave(tag);
                measured.ends(outcome(why));
                Entry::TurnedAway(why)
            }
        };
        self.settle();
        entry
    }

    /// Where a request belongs, and what it costs there.
    pub(super) fn measure(&self, measured: &mut Measured, class: &Class, work: Work) {
        let controller = self.controller.borrow();
        let level = (class.generation, class.level.0);
        measured.arrives(ring::now(), level, controller.level_name(class.level), work.max_seats());
    }

    /// Requests that wait.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.book.borrow().lines.iter().filter(|line| line.parked.is_some()).count()
    }

    /// Every request that waits or executes, by tag.
    pub(super) fn described(&self) -> Vec<(u64, Described)> {
        self.book.borrow().described()
    }

    /// Does something to the core, and wakes those whom it lets run.
    pub(super) fn act<T>(&self, action: impl FnOnce(&mut Controller) -> T) -> T {
        let result = action(&mut self.controller.borrow_mut());
        self.settle();
        result
    }

    /// Looks at what other workers decided whenever they say that they did; for ever.
    pub(super) async fn heed_others(self: Rc<Self>) {
        let Some(together) = &self.together else { return };
        loop {
            together.bells.rung(self.index).await;
            self.act(|controller| controller.poll(ring::now()));
        }
    }

    /// Moves seats between levels, where that is this worker's to do, and ends lingering when it is time to; for ever.
    pub(super) async fn keep_time(self: Rc<Self>) {
        loop {
            let now = ring::now();
            while let Some((level, ticket)) = self.linger_over(now) {
                self.act(|controller| controller.linger_end(now, level, ticket));
            }
            let alone = self.is_alone();
            if alone && self.controller.borrow().borrow_due() <= now {
                self.act(|controller| controller.borrow(now));
            }
            let lingering = self.lingering.borrow().peek().map(|Reverse((until, ..))| *until);
            let due = alone.then(|| self.controller.borrow().borrow_due());
            tokio::select! {
                () = ring::sleep_until(lingering.into_iter().chain(due).min().unwrap_or(FAR)) => {}
                () = self.reschedule.notified() => {}
            }
        }
    }

    fn linger_over(&self, now: Nanos) -> Option<(LevelId, Ticket)> {
        let mut lingering = self.lingering.borrow_mut();
        let Reverse((until, level, ticket)) = *lingering.peek()?;
        (until <= now).then(|| {
            lingering.pop();
            (level, ticket)
        })
    }

    fn linger(&self, until: Nanos, level: LevelId, ticket: Ticket) {
        let mut lingering = self.lingering.borrow_mut();
        let earliest = lingering.peek().is_none_or(|Reverse((first, ..))| until < *first);
        lingering.push(Reverse((until, level, ticket)));
        if earliest {
            self.reschedule.notify_one();
        }
    }

    /// Hears what became of those who waited, and wakes whom others are to wake.
    fn settle(&self) {
        while let Some((_, event)) = self.next_event() {
            let (Event::Dispatched(Dispatched { tag, .. }) | Event::Rejected { tag, .. }) = event;
            let heard = match event {
                Event::Dispatched(_) => Heard::Dispatched,
                Event::Rejected { why, .. } => Heard::TurnedAway(why),
            };
            match self.book.borrow_mut().hearer(tag) {
                Some(Hearer::Parked(parked)) => parked.hears(heard),
                Some(Hearer::Nobody(level, ticket)) if heard == Heard::Dispatched => {
                    self.finish(level, ticket);
                }
                Some(Hearer::Nobody(..)) | None => {}
            }
        }
        let Some(together) = &self.together else { return };
        let mut controller = self.controller.borrow_mut();
        let (waiting, executing) = controller.crowd();
        together.shared.tell_crowd(self.index, waiting, executing);
        self.line.busy(waiting.iter().chain(&executing).sum());
        while let Some(worker) = controller.next_wake() {
            together.bells.ring(worker);
        }
    }

    fn next_event(&self) -> Option<(LevelId, Event)> {
        self.controller.borrow_mut().next_event()
    }

    /// The work is done; [`Admission::settle`] follows.
    fn finish(&self, level: LevelId, ticket: Ticket) {
        let finish = self.controller.borrow_mut().finish(ring::now(), level, ticket);
        if let Finish::Lingers { until } = finish {
            self.linger(until, level, ticket);
        }
    }
}

/// A year: nothing is due.
const FAR: Nanos = Nanos::from_secs(1 << 33);

// === impl Waiting ===

impl Waiting {
    /// Its time is over. `Some`: not quite, it has been decided about in this very moment; wait for what that came to.
    pub(super) fn time_out(mut self) -> Option<Self> {
        if self.parked.heard.get() == Heard::Nothing
            && self.seat.as_mut().is_some_and(|seat| seat.cancel(Reason::TimeOut, Outcome::TimedOut))
        {
            self.seat = None;
            return None;
        }
        Some(self)
    }

    /// It is not to wait after all.
    pub(super) fn refuse(mut self, why: Reason, outcome: Outcome) {
        if let Some(seat) = self.seat.take() {
            seat.give_up(why, outcome);
        }
    }
}

impl Future for Waiting {
    /// The seat, or why there will be none.
    type Output = Result<Box<Seat>, Reason>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.parked.heard.get() {
            Heard::Dispatched => {
                if let Some(mut seat) = self.seat.take() {
                    seat.measured.starts(ring::now());
                    return Poll::Ready(Ok(seat));
                }
            }
            Heard::TurnedAway(why) => {
                if let Some(seat) = self.seat.take() {
                    seat.turned_away(why);
                }
                return Poll::Ready(Err(why));
            }
            Heard::Nothing => {}
        }
        self.parked.waker.replace(Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        match (self.parked.heard.get(), self.seat.take()) {
            // If it was dispatched in this very turn, it is dropped as the seat that it has become.
            (Heard::Dispatched, seat) => drop(seat),
            (Heard::TurnedAway(why), Some(seat)) => seat.turned_away(why),
            (Heard::Nothing, Some(seat)) => seat.give_up(Reason::Cancelled, Outcome::Cancelled),
            (_, None) => {}
        }
    }
}

impl Parked {
    fn hears(&self, what: Heard) {
        self.heard.set(what);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

// === impl Seat ===

impl Seat {
    /// What is measured of its request, until the seat is given back.
    pub(super) fn measured(&mut self) -> &mut Measured {
        &mut self.measured
    }

    /// Instead of finishing: it never ran, or nobody is there any more to hear that it does.
    fn give_up(mut self, why: Reason, outcome: Outcome) {
        if self.cancel(why, outcome) {
            return;
        }
        self.measured.ends(outcome);
        if let Some(admission) = self.admission.take() {
            admission.book.borrow_mut().give_up(self.tag, self.level, self.ticket);
        }
    }

    /// Waits no more, if it still did.
    fn cancel(&mut self, why: Reason, outcome: Outcome) -> bool {
        let Some(admission) = &self.admission else { return false };
        if !admission.act(|controller| controller.cancel(ring::now(), self.level, self.ticket, why)) {
            return false;
        }
        self.measured.ends(outcome);
        admission.book.borrow_mut().leave(self.tag);
        self.admission = None;
        true
    }

    /// There is no seat.
    fn turned_away(mut self, why: Reason) {
        self.measured.ends(outcome(why));
        if let Some(admission) = self.admission.take() {
            admission.book.borrow_mut().leave(self.tag);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(admission) = self.admission.take() else { return };
        admission.book.borrow_mut().leave(self.tag);
        admission.finish(self.level, self.ticket);
        admission.settle();
    }
}

/// How a request that was turned away ends.
fn outcome(why: Reason) -> Outcome {
    match why {
        Reason::QueueFull => Outcome::QueueFull,
        Reason::ConcurrencyLimit => Outcome::ConcurrencyLimit,
        Reason::TimeOut => Outcome::TimedOut,
        Reason::Cancelled => Outcome::Cancelled,
    }
}

// === impl Book ===

impl Book {
    fn enter(&mut self, described: Described) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.lines.push(Line::default());
            u32::try_from(self.lines.len() - 1).expect("fewer requests than 2^32")
        });
        let line = &mut self.lines[index as usize];
        line.described = Some(described);
        u64::from(line.generation) << 32 | u64::from(index)
    }

    fn leave(&mut self, tag: u64) {
        let Some((index, line)) = self.line(tag) else { return };
        line.described = None;
        line.generation = line.generation.wrapping_add(1);
        line.parked = None;
        self.free.push(index);
    }

    fn park(&mut self, tag: u64) -> Rc<Parked> {
        let parked = Rc::<Parked>::default();
        if let Some((_, line)) = self.line(tag) {
            line.parked = Some(Rc::clone(&parked));
        }
        parked
    }

    /// Nobody waits for it any more, but it is decided about elsewhere.
    fn give_up(&mut self, tag: u64, level: LevelId, ticket: Ticket) {
        let Some((_, line)) = self.line(tag) else { return };
        line.given_up = Some((level, ticket));
        line.parked = None;
    }

    /// Who hears what became of a request that waited.
    fn hearer(&mut self, tag: u64) -> Option<Hearer> {
        let (_, line) = self.line(tag)?;
        if let Some((level, ticket)) = line.given_up.take() {
            self.leave(tag);
            return Some(Hearer::Nobody(level, ticket));
        }
        let parked = line.parked.take()?;
        Some(Hearer::Parked(parked))
    }

    fn line(&mut self, tag: u64) -> Option<(u32, &mut Line)> {
        let generation = u32::try_from(tag >> 32).ok()?;
        let index = u32::try_from(tag & u64::from(u32::MAX)).ok()?;
        let line = self.lines.get_mut(index as usize)?;
        (line.generation == generation && line.described.is_some()).then_some((index, line))
    }

    fn described(&self) -> Vec<(u64, Described)> {
        let tagged = |(index, line): (usize, &Line)| {
            let described = line.described.clone()?;
            Some((u64::from(line.generation) << 32 | index as u64, described))
        };
        self.lines.iter().enumerate().filter_map(tagged).collect()
    }
}

#[cfg(test)]
mod tests;
