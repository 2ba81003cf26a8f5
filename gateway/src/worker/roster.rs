//! Every open connection, for the hour when some must go: which are idle, and since when.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use slab::Slab;
use usher_flowcontrol::units::Nanos;

use crate::ring;

/// The open connections of a worker.
#[derive(Debug, Default)]
pub(super) struct Roster(RefCell<Slab<Rc<Entry>>>);

/// A connection on it. Dropped, it is struck out.
#[derive(Debug)]
pub(super) struct Member {
    roster: Rc<Roster>,
    key: usize,
    entry: Rc<Entry>,
}

#[derive(Debug)]
struct Entry {
    /// `None`: it is in use.
    idle_since: Cell<Option<Nanos>>,
    /// It was told to go.
    told: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Roster {
    /// A new connection, idle.
    pub(super) fn join(self: &Rc<Self>) -> Member {
        let entry = Rc::new(Entry {
            idle_since: Cell::new(Some(ring::now())),
            told: Cell::new(false),
            waker: RefCell::default(),
        });
        let key = self.0.borrow_mut().insert(Rc::clone(&entry));
        Member { roster: Rc::clone(self), key, entry }
    }

    /// Tells some of those to go that are idle since `before`: one of `part`, but `least` if there are as many, the longest idle first.
    /// Returns how many were told.
    pub(super) fn send_away(&self, before: Nanos, part: usize, least: usize) -> usize {
        let members = self.0.borrow();
        let mut idle: Vec<(Nanos, &Rc<Entry>)> = members
            .iter()
            .filter(|(_, entry)| !entry.told.get())
            .filter_map(|(_, entry)| Some((entry.idle_since.get()?, entry)))
            .filter(|(since, _)| *since <= before)
            .collect();
        idle.sort_unstable_by_key(|(since, _)| *since);
        let count = (idle.len() / part.max(1)).max(least).min(idle.len());
        for (_, entry) in &idle[..count] {
            entry.told.set(true);
            if let Some(waker) = entry.waker.take() {
                waker.wake();
            }
        }
        count
    }
}

impl Member {
    /// A request is being answered.
    pub(super) fn busy(&self) {
        self.entry.idle_since.set(None);
    }

    /// None is any more.
    pub(super) fn idle(&self) {
        self.entry.idle_since.set(Some(ring::now()));
    }

    /// Ready once it is told to go. To be obeyed when idle: a request may have come in the same turn.
    pub(super) fn poll_told(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.entry.told.get() {
            return Poll::Ready(());
        }
        let mut waker = self.entry.waker.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// The same as a future.
    pub(super) async fn told(&self) {
        poll_fn(|cx| self.poll_told(cx)).await;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.roster.0.borrow_mut().try_remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: Nanos = Nanos(100);

    #[test]
    fn the_longest_idle_go_first_and_the_busy_stay() {
        let roster = Rc::<Roster>::default();
        let members: Vec<Member> = (0..10).map(|_| roster.join()).collect();
        for (member, since) in members.iter().zip([5, 3, 9, 1, 7, 8, 2, 6, 4, 0]) {
            member.entry.idle_since.set(Some(Nanos(since)));
        }
        members[9].busy();
        let told = || -> Vec<usize> { (0..10).filter(|index| members[*index].entry.told.get()).collect() };
        assert_eq!(roster.send_away(LATE, 4, 1), 2);
        assert_eq!(told(), [3, 6], "idle since 1 and 2; 0 is busy");
        assert_eq!(roster.send_away(LATE, 100, 3), 3);
        assert_eq!(told(), [0, 1, 3, 6, 8]);
        assert_eq!(roster.send_away(LATE, 1, 100), 4);
        assert_eq!(roster.send_away(LATE, 1, 100), 0);
        assert_eq!(told().len(), 9);
        members[9].entry.idle_since.set(Some(Nanos(11)));
        assert_eq!(roster.send_away(Nanos(10), 1, 100), 0, "not for long");
        drop(members);
        assert!(roster.0.borrow().is_empty());
    }
}
