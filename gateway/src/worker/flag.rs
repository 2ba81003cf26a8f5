//! Something that happens once and that any number of tasks of this thread wait for.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use slab::Slab;

/// Down at first; raised once.
#[derive(Debug, Default)]
pub(super) struct Flag {
    raised: Cell<bool>,
    /// One place for each lookout; empty until it is polled.
    waiting: RefCell<Slab<Option<Waker>>>,
}

/// Somebody who wants to know.
#[derive(Debug)]
pub(super) struct Lookout {
    flag: Rc<Flag>,
    key: usize,
}

impl Flag {
    /// Raises it and wakes everybody.
    pub(super) fn raise(&self) {
        self.raised.set(true);
        let waiting: Vec<Waker> =
            self.waiting.borrow_mut().iter_mut().filter_map(|(_, waker)| waker.take()).collect();
        for waker in waiting {
            waker.wake();
        }
    }

    /// Whether it is up.
    pub(super) fn is_raised(&self) -> bool {
        self.raised.get()
    }

    /// Looks out for it.
    pub(super) fn lookout(self: &Rc<Self>) -> Lookout {
        let key = self.waiting.borrow_mut().insert(None);
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
        match &mut waiting[self.key] {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
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
        self.flag.waiting.borrow_mut().remove(self.key);
    }
}
