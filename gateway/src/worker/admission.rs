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
use usher_flowcontrol::controller::{Class, Controller, LevelId};
use usher_flowcontrol::level::{Event, Finish, Reason, Ticket, Verdict};
use usher_flowcontrol::units::{Nanos, Seats, Work};

use crate::identity::Identity;
use crate::observe::hdr::{Measured, Outcome};
use crate::ring;

/// The core, and who waits for it.
#[derive(Debug)]
pub(super) struct Admission {
    pub(super) controller: RefCell<Controller>,
    book: RefCell<Book>,
    /// Requests whose final seats are still held, the earliest end on top.
    lingering: RefCell<BinaryHeap<Reverse<(Nanos, LevelId, Ticket)>>>,
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
    dispatched: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Every request that waits or executes, by tag.
#[derive(Debug, Default)]
struct Book {
    lines: Vec<Line>,
    free: Vec<u32>,
    waiting: usize,
}

#[derive(Debug, Default)]
struct Line {
    /// Tells successive users of a line apart.
    generation: u32,
    described: Option<Described>,
    parked: Option<Rc<Parked>>,
}

// === impl Admission ===

impl Admission {
    pub(super) fn new(server_limit: Seats) -> Self {
        Self {
            controller: RefCell::new(Controller::new(ring::now(), server_limit)),
            book: RefCell::default(),
            lingering: RefCell::default(),
            reschedule: Notify::new(),
        }
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
        self.wake_dispatched();
        entry
    }

    /// Where a request belongs, and what it costs there.
    pub(super) fn measure(&self, measured: &mut Measured, class: &Class, work: Work) {
        let controller = self.controller.borrow();
        let level = (class.generation, class.level.0);
        measured.arrives(ring::now(), level, controller.level_name(class.level), work.max_seats());
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.book.borrow().waiting
    }

    /// Every request that waits or executes, by tag.
    pub(super) fn described(&self) -> Vec<(u64, Described)> {
        self.book.borrow().described()
    }

    /// Does something to the core, and wakes those whom it lets run.
    pub(super) fn act<T>(&self, action: impl FnOnce(&mut Controller) -> T) -> T {
        let result = action(&mut self.controller.borrow_mut());
        self.wake_dispatched();
        result
    }

    /// Moves seats between levels and ends lingering when it is time to; for ever.
    pub(super) async fn keep_time(self: Rc<Self>) {
        loop {
            let now = ring::now();
            while let Some((level, ticket)) = self.linger_over(now) {
                self.act(|controller| controller.linger_end(now, level, ticket));
            }
            if self.controller.borrow().borrow_due() <= now {
                self.act(|controller| controller.borrow(now));
            }
            let lingering = self.lingering.borrow().peek().map(|Reverse((until, ..))| *until);
            let due = self.controller.borrow().borrow_due();
            let next = lingering.map_or(due, |until| until.min(due));
            tokio::select! {
                () = ring::sleep_until(next) => {}
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

    fn wake_dispatched(&self) {
        let mut controller = self.controller.borrow_mut();
        while let Some((_, event)) = controller.next_event() {
            if let Event::Dispatched(dispatched) = event {
                self.book.borrow_mut().dispatch(dispatched.tag);
            }
        }
    }
}

// === impl Waiting ===

impl Waiting {
    /// Its time is over. `Some`: not quite, a seat came in this very turn.
    pub(super) fn time_out(mut self) -> Option<Box<Seat>> {
        let mut seat = self.seat.take()?;
        if self.parked.dispatched.get() {
            seat.measured.starts(ring::now());
            return Some(seat);
        }
        seat.give_up(Reason::TimeOut, Outcome::TimedOut);
        None
    }
}

impl Waiting {
    /// It is not to wait after all.
    pub(super) fn refuse(mut self, why: Reason, outcome: Outcome) {
        if let Some(seat) = self.seat.take() {
            seat.give_up(why, outcome);
        }
    }
}

impl Future for Waiting {
    type Output = Box<Seat>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Box<Seat>> {
        if self.parked.dispatched.get()
            && let Some(mut seat) = self.seat.take()
        {
            seat.measured.starts(ring::now());
            return Poll::Ready(seat);
        }
        self.parked.waker.replace(Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // If it was dispatched in this very turn, it is dropped as the seat that it has become.
        if !self.parked.dispatched.get()
            && let Some(seat) = self.seat.take()
        {
            seat.give_up(Reason::Cancelled, Outcome::Cancelled);
        }
    }
}

// === impl Seat ===

impl Seat {
    /// What is measured of its request, until the seat is given back.
    pub(super) fn measured(&mut self) -> &mut Measured {
        &mut self.measured
    }

    /// Instead of finishing: it never ran.
    fn give_up(mut self, why: Reason, outcome: Outcome) {
        self.measured.ends(outcome);
        let Some(admission) = self.admission.take() else { return };
        admission.book.borrow_mut().leave(self.tag);
        admission.act(|controller| controller.cancel(ring::now(), self.level, self.ticket, why));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(admission) = self.admission.take() else { return };
        admission.book.borrow_mut().leave(self.tag);
        let finish = admission.act(|controller| controller.finish(ring::now(), self.level, self.ticket));
        if let Finish::Lingers { until } = finish {
            admission.linger(until, self.level, self.ticket);
        }
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
        let was_parked = line.parked.take().is_some();
        self.waiting -= usize::from(was_parked);
        self.free.push(index);
    }

    fn park(&mut self, tag: u64) -> Rc<Parked> {
        let parked = Rc::<Parked>::default();
        if let Some((_, line)) = self.line(tag) {
            line.parked = Some(Rc::clone(&parked));
            self.waiting += 1;
        }
        parked
    }

    fn dispatch(&mut self, tag: u64) {
        let Some((_, line)) = self.line(tag) else { return };
        let Some(parked) = line.parked.take() else { return };
        self.waiting -= 1;
        parked.dispatched.set(true);
        if let Some(waker) = parked.waker.take() {
            waker.wake();
        }
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
