//! Handshakes in their turn: what they cost a worker, and how many may be half done.
//!
//! A stranger's first word costs us a key exchange and a signature, a quarter of a millisecond or more, before we know
//! anything about it. So few of them are answered in a turn of the loop, and requests of others go on in between. Nobody
//! holds a turn while we wait for it: what is half done only holds memory, and of that there is a limit, at which the
//! one that has waited longest goes. An honest client answers within its round trip; thousands a second would have to
//! come, more than there are turns, for the oldest to be one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use futures_util::future::{AbortHandle, Abortable};
use tokio::sync::Semaphore;

use crate::ring;

/// First words answered in a turn: some two milliseconds, the most that a storm adds to everybody's latency.
const TURNS: usize = 8;

/// The handshakes of a worker.
#[derive(Debug)]
pub struct Gate {
    turns: Semaphore,
    /// Turns taken since the loop's turn began.
    taken: Cell<usize>,
    /// By age.
    half_done: RefCell<BTreeMap<u64, AbortHandle>>,
    half_done_max: usize,
    /// Of all workers.
    half_done_in_all: Arc<AtomicU64>,
    next: Cell<u64>,
    delayed: Cell<u64>,
}

// === impl Gate ===

impl Gate {
    /// With so many half done at most.
    #[must_use]
    pub fn new(half_done_max: usize) -> Rc<Self> {
        Self::shared(half_done_max, Arc::default())
    }

    /// With so many half done at most, all workers together, which count them in `half_done_in_all`. A worker may have
    /// one in any case; at the limit it cuts the oldest of its own.
    #[must_use]
    pub fn shared(half_done_max: usize, half_done_in_all: Arc<AtomicU64>) -> Rc<Self> {
        Rc::new(Self {
            turns: Semaphore::new(TURNS),
            taken: Cell::new(0),
            half_done: RefCell::default(),
            half_done_max: half_done_max.max(1),
            half_done_in_all,
            next: Cell::new(0),
            delayed: Cell::new(0),
        })
    }

    /// Handshakes that had to wait for their turn.
    #[must_use]
    pub fn delayed(&self) -> u64 {
        self.delayed.get()
    }

    /// Handshakes half done now.
    #[must_use]
    pub fn half_done(&self) -> usize {
        self.half_done.borrow().len()
    }

    /// Waits for a turn; first come, first served.
    pub(super) async fn turn(self: &Rc<Self>) {
        if self.turns.available_permits() == 0 {
            self.delayed.set(self.delayed.get() + 1);
        }
        if let Ok(turn) = self.turns.acquire().await {
            turn.forget();
        }
        if self.taken.replace(self.taken.get() + 1) == 0 {
            ring::spawn(Rc::clone(self).renew());
        }
    }

    /// With the loop's next turn there are turns again.
    async fn renew(self: Rc<Self>) {
        let begun = ring::now();
        poll_fn(|cx| {
            if ring::now() != begun {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        self.turns.add_permits(self.taken.take());
    }

    /// The rest of a handshake, unless it is cut for newer ones.
    pub(super) async fn half_done_while<F: Future>(&self, rest: F) -> Option<F::Output> {
        let (handle, registration) = AbortHandle::new_pair();
        let number = self.next.get();
        self.next.set(number + 1);
        let oldest = {
            let mut own = self.half_done.borrow_mut();
            let before = self.half_done_in_all.fetch_add(1, Ordering::Relaxed);
            let oldest = if before >= self.half_done_max as u64 { own.pop_first() } else { None };
            own.insert(number, handle);
            oldest
        };
        if let Some((_, oldest)) = oldest {
            self.half_done_in_all.fetch_sub(1, Ordering::Relaxed);
            oldest.abort();
        }
        let _entry = Entry { gate: self, number };
        Abortable::new(rest, registration).await.ok()
    }
}

/// One that is half done.
struct Entry<'a> {
    gate: &'a Gate,
    number: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        if self.gate.half_done.borrow_mut().remove(&self.number).is_some() {
            self.gate.half_done_in_all.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use usher_flowcontrol::units::Nanos;

    use super::*;

    #[test]
    fn a_turn_of_the_loop_has_few_turns_and_all_get_one() {
        ring::run(async {
            let gate = Gate::new(1);
            let times = Rc::new(RefCell::new(Vec::new()));
            for _ in 0..5 * TURNS {
                let (gate, times) = (Rc::clone(&gate), Rc::clone(&times));
                ring::spawn(async move {
                    gate.turn().await;
                    times.borrow_mut().push(ring::now());
                });
            }
            while times.borrow().len() < 5 * TURNS {
                ring::sleep_until(ring::now() + Nanos::from_millis(1)).await;
            }
            let times = times.borrow();
            let most = times.chunk_by(|one, other| one == other).map(<[_]>::len).max();
            assert_eq!(most, Some(TURNS), "{times:?}");
            assert_eq!(gate.delayed(), 4 * TURNS as u64);
        })
        .unwrap();
    }

    #[test]
    fn the_oldest_goes_first() {
        ring::run(async {
            let in_all = Arc::new(AtomicU64::new(1)); // another worker has one
            let gate = Gate::shared(3, Arc::clone(&in_all));
            let gone = Rc::new(RefCell::new(Vec::new()));
            for number in 0..4 {
                let (gate, gone) = (Rc::clone(&gate), Rc::clone(&gone));
                ring::spawn(async move {
                    let done = gate.half_done_while(std::future::pending::<()>()).await;
                    gone.borrow_mut().push((number, done));
                });
            }
            while gone.borrow().len() < 2 {
                ring::sleep_until(ring::now() + Nanos::from_millis(1)).await;
            }
            assert_eq!(*gone.borrow(), [(0, None), (1, None)]);
            assert_eq!((gate.half_done(), in_all.load(Ordering::Relaxed)), (2, 3));
        })
        .unwrap();
    }
}
