//! Tasks of one thread: a queue of those that were woken, and a way to wake them from anywhere.
//!
//! A task is woken by a [`Waker`], which any thread may hold, so what wakers share holds no future: that stays with
//! the thread, in [`Tasks`]. A wake-up on the thread itself costs a push; one from elsewhere a lock, and a call of
//! `unpark` if the thread may be asleep.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Polls of the same tasks, over and over, before the driver gets its turn. Enough for a chain of tasks that wake each
/// other to get through in one turn; few enough that none keeps bytes from moving.
const ROUNDS_MAX: usize = 16;

/// The tasks of one thread.
pub(super) struct Tasks {
    places: RefCell<Vec<Option<Task>>>,
    vacant: RefCell<Vec<usize>>,
    inbox: Arc<Inbox>,
    main: Arc<Ticket>,
    /// No task is taken any more.
    closed: Cell<bool>,
}

/// What wakes the thread when it sleeps.
pub(super) trait Unpark: Send + Sync {
    fn unpark(&self);
}

struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    ticket: Arc<Ticket>,
    waker: Waker,
}

/// What wakers of a task share.
struct Ticket {
    place: usize,
    /// It is in the queue, or is over: nothing to do.
    queued: AtomicBool,
    inbox: Arc<Inbox>,
}

/// Where wake-ups from other threads arrive.
struct Inbox {
    woken: Mutex<Vec<Arc<Ticket>>>,
    /// Something arrived since the thread looked.
    rung: AtomicBool,
    unpark: Box<dyn Unpark>,
}

/// The place of the future that [`super::run`] was given.
const MAIN: usize = usize::MAX;

thread_local! {
    /// Tasks of this thread to be polled, and whose they are.
    static READY: RefCell<VecDeque<Arc<Ticket>>> = const { RefCell::new(VecDeque::new()) };
    static OWN_INBOX: Cell<*const Inbox> = const { Cell::new(std::ptr::null()) };
}

// === impl Tasks ===

impl Tasks {
    /// Tasks of this thread, which has no others.
    pub(super) fn new(unpark: Box<dyn Unpark>) -> Self {
        let inbox = Arc::new(Inbox { woken: Mutex::default(), rung: AtomicBool::new(false), unpark });
        OWN_INBOX.set(Arc::as_ptr(&inbox));
        READY.with_borrow_mut(VecDeque::clear);
        let main =
            Arc::new(Ticket { place: MAIN, queued: AtomicBool::new(false), inbox: Arc::clone(&inbox) });
        main.wake_by_ref();
        Self { places: RefCell::default(), vacant: RefCell::default(), inbox, main, closed: Cell::new(false) }
    }

    /// A waker for the future that is no task.
    pub(super) fn main(&self) -> Waker {
        Waker::from(Arc::clone(&self.main))
    }

    pub(super) fn spawn(&self, future: Pin<Box<dyn Future<Output = ()>>>) {
        if self.closed.get() {
            return; // the future is dropped, as all others are
        }
        let place = self.vacant.borrow_mut().pop().unwrap_or_else(|| {
            self.places.borrow_mut().push(None);
            self.places.borrow().len() - 1
        });
        let inbox = Arc::clone(&self.inbox);
        let ticket = Arc::new(Ticket { place, queued: AtomicBool::new(false), inbox });
        let task = Task { future, waker: Waker::from(Arc::clone(&ticket)), ticket };
        task.ticket.wake_by_ref();
        self.places.borrow_mut()[place] = Some(task);
    }

    /// Polls what is woken, and what that wakes in turn. `main` is called if its waker was woken; true ends the turn.
    /// True if nothing is left to be polled.
    pub(super) fn turn(&self, mut main: impl FnMut() -> bool) -> bool {
        for _ in 0..ROUNDS_MAX {
            self.take_in();
            let round = READY.with_borrow(VecDeque::len);
            if round == 0 {
                return true;
            }
            for _ in 0..round {
                let Some(ticket) = READY.with_borrow_mut(VecDeque::pop_front) else { break };
                ticket.queued.store(false, Ordering::Release);
                if ticket.place != MAIN {
                    self.poll(ticket.place);
                } else if main() {
                    return false;
                }
            }
        }
        false
    }

    fn poll(&self, place: usize) {
        let Some(mut task) = self.places.borrow_mut()[place].take() else { return };
        let polled = catch_unwind(AssertUnwindSafe(|| {
            task.future.as_mut().poll(&mut Context::from_waker(&task.waker))
        }));
        if matches!(polled, Ok(Poll::Pending)) {
            self.places.borrow_mut()[place] = Some(task);
            return;
        }
        task.ticket.queued.store(true, Ordering::Release); // whoever still wakes it wakes nobody
        self.vacant.borrow_mut().push(place);
        drop_quietly(task);
    }

    /// Tasks woken by other threads join the queue.
    fn take_in(&self) {
        if self.inbox.rung.swap(false, Ordering::AcqRel) {
            let woken = std::mem::take(&mut *self.inbox.woken.lock().unwrap_or_else(PoisonError::into_inner));
            READY.with_borrow_mut(|ready| ready.extend(woken));
        }
    }

    /// Nobody has been woken since the last turn.
    pub(super) fn is_quiet(&self) -> bool {
        READY.with_borrow(VecDeque::is_empty) && !self.inbox.rung.load(Ordering::Acquire)
    }

    /// Drops all tasks, and those that they start as they go.
    pub(super) fn close(&self) {
        self.closed.set(true);
        let tasks = std::mem::take(&mut *self.places.borrow_mut());
        self.main.queued.store(true, Ordering::Release);
        for task in tasks.into_iter().flatten() {
            task.ticket.queued.store(true, Ordering::Release); // whoever still wakes it wakes nobody
            drop_quietly(task);
        }
        self.take_in();
        READY.with_borrow_mut(VecDeque::clear);
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        OWN_INBOX.set(std::ptr::null());
    }
}

/// A future that panics as it is dropped ends nothing else.
fn drop_quietly(task: Task) {
    let dropped: Result<(), Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(|| drop(task)));
    drop(dropped); // the panic hook has said what there is to say
}

// === impl Ticket ===

impl Wake for Ticket {
    fn wake(self: Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let is_own = OWN_INBOX.try_with(|own| std::ptr::eq(own.get(), Arc::as_ptr(&self.inbox)));
        if is_own.unwrap_or(false) {
            READY.with_borrow_mut(|ready| ready.push_back(self));
        } else {
            let inbox = Arc::clone(&self.inbox);
            inbox.woken.lock().unwrap_or_else(PoisonError::into_inner).push(self);
            if !inbox.rung.swap(true, Ordering::AcqRel) {
                inbox.unpark.unpark();
            }
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.load(Ordering::Acquire) {
            Arc::clone(self).wake();
        }
    }
}
