//! What is to be done at the end of a turn, before what was put is sent; and the end of all turns before its time.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

/// Something with work that is cheaper once a turn than once a call: sealing what was put piece by piece.
pub trait AtEnd {
    /// The turn ends. Called once for every [`at_end`].
    fn at_end(&self);
}

thread_local! {
    static WAITING: RefCell<Vec<Rc<dyn AtEnd>>> = const { RefCell::new(Vec::new()) };
    static DYING: Cell<Option<Died>> = const { Cell::new(None) };
}

/// Why a thread's turns ended before their time: something broke without which it cannot go on. The payload of the
/// error that [`super::run_with`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Died(pub &'static str);

/// Ends this thread's turns with this one: what it holds is not to be trusted any more. From destructors, too.
pub fn die(why: &'static str) {
    DYING.set(Some(Died(why)));
}

/// Whether somebody has said [`die`] in this turn.
pub(super) fn survived() -> io::Result<()> {
    match DYING.take() {
        None => Ok(()),
        Some(died) => Err(io::Error::other(died)),
    }
}

/// Calls `it` at the end of this turn.
pub fn at_end(it: Rc<dyn AtEnd>) {
    WAITING.with_borrow_mut(|waiting| waiting.push(it));
}

/// The turn ends: drivers call it before they send.
pub(super) fn call() {
    let mut waiting = WAITING.take();
    waiting.drain(..).for_each(|it| it.at_end());
    WAITING.with_borrow_mut(|now| {
        if now.is_empty() {
            *now = waiting; // its memory serves the next turn
        }
    });
}

/// There is no turn any more.
pub(super) fn forget() {
    WAITING.take();
    DYING.take();
}
