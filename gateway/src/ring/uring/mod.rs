//! Sockets by io_uring: one ring for each worker, and one system call for each turn.
//!
//! ```text
//!  tasks of the turn ─► put, poll_recv, connect … ─► operations queued ─┐
//!        ▲                                                             enter: submit all, wait for one
//!        └── wakers ◄─ sockets, listeners ◄── completions ◄────────────┘
//! ```
//!
//! **Who owns what.** Whatever the kernel may touch belongs to a place in the driver's [`table`], which keeps it until
//! every operation of that place has completed, whoever has lost interest meanwhile: [`Stream`] and [`Listener`] are
//! handles, and dropping one only asks for the place to be cleared. A place's number has a generation, so that a late
//! completion finds nobody instead of somebody else. Buffers for receiving belong to [`buffers`].
//!
//! **Silent sends.** A send that takes everything posts no completion, so that a turn's own sends do not end its wait.
//! It was tried, and is over, when `enter` is back; only a short one says so ([`sending`]).
//!
//! Kernels: buffer rings are of 5.19, receiving more than once of 6.0, deferred task running of 6.1, incremental
//! buffers of 6.12. The whole path runs from 6.1 on; `ARCHITECTURE.md` has a table of what is lost below.

mod buffers;
mod descriptor;
mod listener;
mod look;
mod message;
mod naming;
mod queue;
mod receiving;
mod sending;
mod socket;
mod table;
mod waiting;
mod wake;

pub(super) use buffers::Lent;
pub(super) use listener::Listener;
pub(super) use socket::{Stream, connect};

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd};
use io_uring::{cqueue, opcode, squeue};

use self::buffers::Buffers;
use self::descriptor::Slots;
use self::listener::Listening;
use self::look::Counted;
use self::queue::{Position, Queue};
use self::socket::Socket;
use self::table::{Kind, Place, Table, Token};
use self::wake::Bell;
use super::settings::Settings;
use super::tasks::Tasks;
use super::{Look, clock, ending, timer};

/// What the ring of this kernel has beyond what is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Features {
    /// Completions are worked on when the worker asks for them, not whenever they come in (6.1).
    pub(super) deferred: bool,
    /// Buffers are filled bit by bit (6.12).
    pub(super) incremental: bool,
    /// One wait for several completions, of limited length (6.12).
    pub(super) min_wait: bool,
    /// Accepted connections are in slots of the ring's own (6.13): asked for, and had.
    pub(super) slots: bool,
}

impl std::fmt::Display for Features {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let not = |has: bool| if has { "" } else { "no " };
        write!(
            formatter,
            "{}deferred task running, {}incremental buffers, {}minimum wait, {}registered files",
            not(self.deferred),
            not(self.incremental),
            not(self.min_wait),
            not(self.slots)
        )
    }
}

/// One ring and all that it drives.
pub(super) struct Uring {
    queue: RefCell<Queue>,
    table: RefCell<Table>,
    buffers: Rc<Buffers>,
    /// For accepted connections; without it they are descriptors.
    slots: Option<Rc<Slots>>,
    bell: Arc<Bell>,
    features: Features,
    settings: Settings,
    turn: RefCell<Turn>,
    /// Operations that will complete.
    in_flight: Cell<usize>,
    /// Completions of the last wait.
    batch: Cell<u64>,
    /// The kernel can be told how much to receive at most, as far as is known.
    limits_receiving: Cell<bool>,
    counted: Counted,
}

/// What is to be seen to at the end of this turn.
#[derive(Default)]
struct Turn {
    /// Has something to send.
    dirty: Vec<Rc<Socket>>,
    /// Its handle was dropped.
    abandoned: Vec<Rc<Socket>>,
    /// Had received more than its reader should leave lying about.
    ahead: Vec<Rc<Socket>>,
    /// Found no buffer to receive into.
    starved: Vec<Rc<Socket>>,
    /// Accepted more than were asked for.
    crowded: Vec<Rc<Listening>>,
    /// Sends that are over once the kernel has been entered, if nothing is heard of them.
    silent: Vec<(Rc<Socket>, Position)>,
    /// Rings to be woken, by the order of their messages.
    called: Vec<Arc<Bell>>,
}

/// A thread's ring and its tasks.
#[derive(Clone)]
struct Current {
    driver: Rc<Uring>,
    tasks: Rc<Tasks>,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// The ring that runs on this thread.
pub(super) fn current() -> Option<Rc<Uring>> {
    CURRENT.with_borrow(|current| current.as_ref().map(|current| Rc::clone(&current.driver)))
}

/// Starts a task on this thread's ring; gives it back if there is none.
pub(super) fn spawn<F: Future<Output = ()> + 'static>(task: F) -> Result<(), F> {
    match CURRENT.with_borrow(|current| current.as_ref().map(|current| Rc::clone(&current.tasks))) {
        Some(tasks) => {
            tasks.spawn(Box::pin(task));
            Ok(())
        }
        None => Err(task),
    }
}

/// See [`super::run`].
pub(super) fn run<T>(settings: &Settings, future: impl Future<Output = T>) -> io::Result<T> {
    let driver = Uring::new(settings)?;
    let tasks = Rc::new(Tasks::new(Box::new(Arc::clone(&driver.bell))));
    CURRENT.set(Some(Current { driver: Rc::clone(&driver), tasks: Rc::clone(&tasks) }));
    let _ends = Ends { driver: &driver, tasks: &tasks };
    let mut future = pin!(future);
    let waker = tasks.main();
    loop {
        clock::turn();
        timer::fire();
        let mut done = None;
        let is_quiet = tasks.turn(|| match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => {
                done = Some(value);
                true
            }
            Poll::Pending => false,
        });
        if let Some(done) = done {
            return Ok(done);
        }
        ending::survived()?;
        ending::call();
        driver.end_turn();
        let timeout = timer::next_in();
        let waits = is_quiet && tasks.is_quiet() && timeout != Some(Duration::ZERO);
        driver.wait(waits, timeout)?;
    }
}

/// Clears up when [`run`] ends, however it does.
struct Ends<'a> {
    driver: &'a Rc<Uring>,
    tasks: &'a Tasks,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.tasks.close();
        ending::forget();
        self.driver.shut_down();
        CURRENT.set(None);
    }
}

/// How often the driver looks for the last completions as it ends, and how long each time. Cancelled operations
/// complete at once; only a peer that does not acknowledge what it was sent without a copy takes longer.
const LAST_LOOKS: usize = 50;
/// See [`LAST_LOOKS`].
const LAST_LOOK: Duration = Duration::from_millis(20);

// === impl Uring ===

impl Uring {
    /// A ring for this thread.
    ///
    /// # Errors
    /// The kernel is too old, or does not permit it.
    fn new(settings: &Settings) -> io::Result<Rc<Self>> {
        let (queue, mut features) = Queue::new(settings)?;
        let buffers = Buffers::new(queue.submitter(), settings)?;
        features.incremental = buffers.is_incremental();
        let slots = settings.registered_files.map(|connections| Slots::new(queue.submitter(), connections));
        let slots = slots.transpose()?;
        features.slots = slots.is_some();
        if settings.busy_poll > 0 {
            let mut napi = io_uring::types::Napi::new().set_busy_poll_timeout(settings.busy_poll);
            queue.submitter().register_napi(&mut napi)?;
        }
        let bell = Arc::new(Bell::new(queue.descriptor())?);
        let driver = Rc::new(Self {
            queue: RefCell::new(queue),
            table: RefCell::default(),
            buffers,
            slots,
            bell,
            features,
            settings: settings.clone(),
            turn: RefCell::default(),
            in_flight: Cell::new(0),
            batch: Cell::new(0),
            limits_receiving: Cell::new(true),
            counted: Counted::default(),
        });
        driver.listen_for_the_bell();
        Ok(driver)
    }

    pub(super) fn features(&self) -> Features {
        self.features
    }

    /// What it has counted.
    pub(super) fn look(&self) -> Look {
        self.counted.look()
    }

    /// Queues an operation that completes, once or more.
    ///
    /// # Safety
    /// As for [`Queue::push`].
    unsafe fn push(&self, entry: squeue::Entry, token: Token) {
        self.in_flight.set(self.in_flight.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { self.queue.borrow_mut().push(&entry.user_data(token.into())) };
    }

    /// Queues an operation of whose end nobody wants to hear unless it fails.
    ///
    /// # Safety
    /// As for [`Queue::push`].
    unsafe fn push_silent(&self, entry: squeue::Entry, token: Token) -> Position {
        let entry = entry.flags(squeue::Flags::SKIP_SUCCESS).user_data(token.into());
        // SAFETY: the caller's promise.
        unsafe { self.queue.borrow_mut().push(&entry) }
    }

    fn listen_for_the_bell(&self) {
        let poll = opcode::PollAdd::new(Fd(self.bell.descriptor()), u32::from(libc::POLLIN.cast_unsigned()))
            .multi(true)
            .build();
        // SAFETY: points to no memory.
        unsafe { self.push(poll, Token::new(Kind::Bell, table::Key::NONE)) };
    }

    /// Cancels an operation.
    fn cancel(&self, token: Token) {
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::user_data(token.into())).build();
        // SAFETY: points to no memory.
        unsafe { self.push_silent(cancel, Token::IGNORED) };
    }

    /// What the turn's tasks wanted becomes operations.
    fn end_turn(self: &Rc<Self>) {
        let mut turn = std::mem::take(&mut *self.turn.borrow_mut());
        turn.dirty.drain(..).for_each(|socket| socket.start_sending(self));
        turn.abandoned.drain(..).for_each(|socket| socket.close(self));
        turn.ahead.drain(..).for_each(|socket| socket.pause(self));
        turn.crowded.drain(..).for_each(|listening| listening.pause(self));
        if self.buffers.are_there() {
            turn.starved.drain(..).for_each(|socket| socket.receive_again(self));
        }
        if let Some(slots) = &self.slots {
            slots.close(self);
        }
        self.buffers.publish();
        let mut new = self.turn.borrow_mut();
        new.keep_memory_of(turn);
    }

    fn reap(self: &Rc<Self>) {
        loop {
            let Some(completion) = self.queue.borrow_mut().completion() else { return };
            self.counted.completions.add(1);
            self.complete(&completion);
        }
    }

    /// Sends of which nothing was heard are over.
    fn end_silence(self: &Rc<Self>) {
        let mut turn = self.turn.borrow_mut();
        turn.called.clear();
        let mut silent = std::mem::take(&mut turn.silent);
        drop(turn);
        silent.retain(|(socket, position)| {
            let is_taken = self.queue.borrow().has_taken(*position);
            if is_taken {
                socket.sent_in_silence(self);
            }
            !is_taken
        });
        self.turn.borrow_mut().silent = silent;
    }

    fn complete(self: &Rc<Self>, completion: &cqueue::Entry) {
        let Some(token) = Token::read(completion.user_data()) else { return };
        let (result, flags) = (completion.result(), completion.flags());
        if token.kind.completes() && !cqueue::more(flags) {
            self.in_flight.set(self.in_flight.get() - 1);
        }
        match token.kind {
            Kind::Bell => {
                if !cqueue::more(flags) && result != -libc::ECANCELED {
                    self.listen_for_the_bell();
                }
            }
            Kind::Message => {
                // The other ring could not be told; its descriptor can.
                if let Some(bell) = self.turn.borrow().called.get(token.key.index()) {
                    bell.ring_by_descriptor();
                }
            }
            Kind::Naming => naming::completed(self, token.key, result),
            Kind::ZeroCopy => sending::zero_copy_completed(self, token.key, result, flags),
            kind => {
                let place = self.table.borrow().get(token.key);
                match place {
                    Some(Place::Socket(socket)) => socket.completed(self, kind, result, flags),
                    Some(Place::Listening(listening)) => listening.completed(self, result, flags),
                    _ if kind == Kind::Accept => drop(listener::adopt(self, result)),
                    _ => self.give_back_unread(flags),
                }
            }
        }
    }

    /// A buffer that was filled for nobody.
    fn give_back_unread(&self, flags: u32) {
        if let Some(buffer) = cqueue::buffer_select(flags) {
            drop(self.buffers.received(buffer, 0, cqueue::buffer_more(flags)));
        }
    }

    /// Ends all operations, and waits for that: afterwards the kernel touches no memory of ours.
    fn shut_down(self: &Rc<Self>) {
        self.end_turn();
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::any()).build();
        for _ in 0..LAST_LOOKS {
            if self.in_flight.get() == 0 {
                break;
            }
            // SAFETY: points to no memory.
            unsafe { self.push_silent(cancel.clone(), Token::IGNORED) };
            let _ = self.wait(true, Some(LAST_LOOK));
            self.end_turn();
        }
        let _ = self.wait(false, None); // descriptors are closed
        if self.in_flight.get() > 0 {
            // The kernel may still read what it was lent. Memory that is never freed is better than that.
            tracing::warn!(
                operations = self.in_flight.get(),
                "operations did not end with their ring; their memory stays"
            );
            std::mem::forget(Rc::clone(self));
        }
    }
}

impl Turn {
    /// The lists of the last turn are this turn's, with what was added meanwhile.
    fn keep_memory_of(&mut self, mut last: Self) {
        last.dirty.append(&mut self.dirty);
        last.abandoned.append(&mut self.abandoned);
        last.ahead.append(&mut self.ahead);
        last.starved.append(&mut self.starved);
        last.crowded.append(&mut self.crowded);
        last.silent.append(&mut self.silent);
        last.called.append(&mut self.called);
        *self = last;
    }
}

#[cfg(test)]
mod tests;
