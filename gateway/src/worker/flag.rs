//! Something that happens once and that any number of tasks of this thread wait for.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Down at first; raised once.
#[derive(Debug, Default)]
pub(super) struct Flag {
    raised: Cell<bool>,
    waiting: RefCell<HashMap<u64, Waker>>,
    next: Cell<u64>,
}

/// Somebody who wants to know.
#[derive(Debug)]
pub(super) struct Lookout {
    flag: Rc<Flag>,
    key: u64,
}

impl Flag {
    /// Raises it and wakes everybody.
    pub(super) fn raise(&self) {
        self.raised.set(true);
        for (_, waker) in self.waiting.take() {
            waker.wake();
        }
    }

    /// Whether it is up.
    pub(super) fn is_raised(&self) -> bool {
        self.raised.get()
    }

    /// Looks out for it.
    pub(super) fn lookout(self: &Rc<Self>) -> Lookout {
        let key = self.next.get();
        self.next.set(key + 1);
        Lookout { flag: Rc::clone(self), key }
    }
}

impl Lookout {
    /// Done once it is up.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.flag.raised.get() {
            return Poll::Ready(());
        }
        let mut waiting = self.flag.waiting.borrow_mut();
        match waiting.get_mut(&self.key) {
            Some(waker) => waker.clone_from(cx.waker()),
            None => drop(waiting.insert(self.key, cx.waker().clone())),
        }
        Poll::Pending
    }

    /// The same as a future.
    pub(super) async fn wait(&self) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.flag.waiting.borrow_mut().remove(&self.key);
    }
}
