//! What is to be done at the end of a turn, before what was put is sent.

use std::cell::RefCell;
use std::rc::Rc;

/// Something with work that is cheaper once a turn than once a call: sealing what was put piece by piece.
pub trait AtEnd {
    /// The turn ends. Called once for every [`at_end`].
    fn at_end(&self);
}

thread_local! {
    static WAITING: RefCell<Vec<Rc<dyn AtEnd>>> = const { RefCell::new(Vec::new()) };
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
}
