//! Sending: what a turn's tasks put goes out at its end, in one operation, whole if the kernel takes it.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use io_uring::cqueue;

use super::Uring;
use super::message::Message;
use super::socket::{Socket, keep, wake};
use super::table::{Key, Kind, Place, Token};
use crate::ring::clock;
use crate::ring::outgoing::{Loan, Outgoing};

/// What a connection has to send.
#[derive(Default)]
pub(super) struct Sending {
    pub(super) outgoing: Outgoing,
    flight: Flight,
    /// It is in the turn's list.
    is_dirty: bool,
    pub(super) broken: Option<i32>,
    /// Who waits for room, for everything to be sent, or for our side to be closed.
    pub(super) writer: Option<Waker>,
    pub(super) is_shut: bool,
}

/// What the kernel is sending just now.
#[derive(Default)]
enum Flight {
    #[default]
    None,
    /// Taken whole, unless a completion says otherwise.
    Silent(Message),
    /// Completes when the kernel has taken some.
    Waiting(Message),
    /// Some pages are lent to the network as well: [`ZeroCopy`].
    ZeroCopy(Loan, Key),
}

/// Bytes that the network reads where they lie, until it has been told twice: taken, and done with.
pub(super) struct ZeroCopy {
    socket: Rc<Socket>,
    #[expect(dead_code, reason = "kept for the kernel, which reads it")]
    message: Message,
}

// === impl Sending ===

impl Sending {
    /// Something is on its way that will complete.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.flight, Flight::Waiting(_))
    }

    /// Whose completion tells that bytes lent to the network are free again.
    pub(super) fn zero_copy(&self) -> Option<Key> {
        match self.flight {
            Flight::ZeroCopy(_, key) => Some(key),
            _ => None,
        }
    }

    /// Nobody waits any more.
    pub(super) fn abandon(&mut self) {
        self.writer = None;
    }
}

// === impl Socket ===

impl Socket {
    pub(super) fn poll_unsent(&self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<()>> {
        let mut sending = self.sending.borrow_mut();
        if let Some(error) = sending.broken {
            return Poll::Ready(Err(io::Error::from_raw_os_error(error)));
        }
        if sending.outgoing.unsent() <= most {
            return Poll::Ready(Ok(()));
        }
        keep(&mut sending.writer, cx);
        Poll::Pending
    }

    pub(super) fn put(self: &Rc<Self>, driver: &Uring, put: impl FnOnce(&mut Outgoing)) {
        let mut sending = self.sending.borrow_mut();
        if sending.broken.is_some() {
            return; // who puts hears of it from `poll_room`
        }
        put(&mut sending.outgoing);
        if !std::mem::replace(&mut sending.is_dirty, true) {
            driver.turn.borrow_mut().dirty.push(Rc::clone(self));
        }
    }

    /// At the end of a turn: what was put goes out, unless something is on its way still.
    pub(super) fn start_sending(self: &Rc<Self>, driver: &Rc<Uring>) {
        let mut sending = self.sending.borrow_mut();
        sending.is_dirty = false;
        let is_idle = matches!(sending.flight, Flight::None) && sending.broken.is_none();
        if !is_idle || sending.outgoing.unsent() == 0 {
            return;
        }
        driver.counted.sends.add(1);
        let is_stalled = sending.outgoing.stalled_since().is_some();
        let message = Message::new(sending.outgoing.lend());
        let zero_copy = driver.settings.zero_copy_from.is_some_and(|from| message.len() >= from);
        if zero_copy && !is_stalled && !self.abandoned.get() {
            return self.send_zero_copy(driver, &mut sending, message);
        }
        // Who waits for it must hear of it.
        let is_silent = !is_stalled && sending.writer.is_none() && driver.queue.borrow().is_synchronous();
        let mut flags = libc::MSG_NOSIGNAL;
        if !is_stalled {
            // As much as the kernel takes at once; less than all counts as failing, and so is heard of.
            flags |= libc::MSG_WAITALL | libc::MSG_DONTWAIT;
        }
        let entry = message.entry(self.name(), flags);
        if is_silent {
            sending.flight = Flight::Silent(message);
            // SAFETY: the message's memory does not move with it, and stays in `flight` until `end_silence` has seen
            // that the send was tried, or a completion has told how much was taken.
            let position = unsafe { driver.push_silent(entry, self.token(Kind::SilentSend)) };
            driver.turn.borrow_mut().silent.push((Rc::clone(self), position));
        } else {
            sending.flight = Flight::Waiting(message);
            // SAFETY: the message's memory does not move with it, and stays in `flight` until the send completes.
            unsafe { self.push(driver, entry, Kind::Send) };
        }
    }

    fn send_zero_copy(self: &Rc<Self>, driver: &Uring, sending: &mut Sending, message: Message) {
        driver.counted.sends_zero_copy.add(1);
        let loan = message.loan().clone();
        let entry = message.entry_zero_copy(self.name());
        let kept = Rc::new(ZeroCopy { socket: Rc::clone(self), message });
        let key = driver.table.borrow_mut().insert(|_| Place::ZeroCopy(kept));
        sending.flight = Flight::ZeroCopy(loan, key);
        self.in_flight.set(self.in_flight.get() + 1);
        // SAFETY: the message's memory stays in the table until the kernel has said that it is done with it.
        unsafe { driver.push(entry, Token::new(Kind::ZeroCopy, key)) };
    }

    /// The kernel was entered and nothing was heard: it has taken everything.
    pub(super) fn sent_in_silence(self: &Rc<Self>, driver: &Rc<Uring>) {
        let mut sending = self.sending.borrow_mut();
        if !matches!(sending.flight, Flight::Silent(_)) {
            return; // something was heard
        }
        if let Flight::Silent(message) = std::mem::take(&mut sending.flight) {
            let count = message.len();
            sending.outgoing.settle(message.into_loan(), count);
        }
        drop(sending);
        self.go_on(driver);
    }

    /// A send has completed: the kernel took so much, or failed.
    pub(super) fn sent(self: &Rc<Self>, driver: &Rc<Uring>, result: i32) {
        let mut sending = self.sending.borrow_mut();
        let loan = match std::mem::take(&mut sending.flight) {
            Flight::Silent(message) | Flight::Waiting(message) => message.into_loan(),
            Flight::ZeroCopy(loan, _) => loan,
            Flight::None => return,
        };
        let count = usize::try_from(result).unwrap_or(0);
        if count < loan.len() {
            driver.counted.sends_short.add(1);
        }
        let is_whole = count == loan.len();
        sending.outgoing.settle(loan, count);
        if result < 0 && !matches!(-result, libc::EAGAIN | libc::EINTR | libc::ECANCELED) {
            sending.broken = Some(-result);
            sending.outgoing.give_up();
        } else if !is_whole {
            sending.outgoing.stalled(clock::now());
        }
        drop(sending);
        self.go_on(driver);
    }

    /// A send is over: the next one may begin, and there may be room.
    fn go_on(self: &Rc<Self>, driver: &Rc<Uring>) {
        let mut sending = self.sending.borrow_mut();
        if self.abandoned.get() {
            sending.outgoing.give_up();
            return;
        }
        if sending.outgoing.unsent() > 0 && !std::mem::replace(&mut sending.is_dirty, true) {
            driver.turn.borrow_mut().dirty.push(Rc::clone(self));
        }
        wake(sending.writer.take()); // it looks for itself whether that is enough
    }
}
/// A zero-copy send has got somewhere: first taken, then done with.
pub(super) fn zero_copy_completed(driver: &Rc<Uring>, key: Key, result: i32, flags: u32) {
    let Some(Place::ZeroCopy(kept)) = driver.table.borrow().get(key) else { return };
    if !cqueue::notif(flags) {
        kept.socket.sent(driver, result);
    }
    if !cqueue::more(flags) {
        kept.socket.in_flight.set(kept.socket.in_flight.get() - 1);
        let place = driver.table.borrow_mut().remove(key);
        drop(place);
        kept.socket.vacate(driver);
    }
}
