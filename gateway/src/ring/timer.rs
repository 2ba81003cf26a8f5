//! Timers: one implementation for both ways of I/O, which only need to know the next deadline.
//!
//! A request sets a handful of time-outs and almost none of them ends. So setting, moving and dropping one is
//! cheap, and being right is left to the moment at which one is due: the heap holds keys that may be out of date,
//! and a key that comes up asks the timer itself whether, and when, it ends.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use usher_flowcontrol::units::Nanos;

use super::clock;

/// Done at an instant. Belongs to the thread that polls it first, and ends there only while [`super::run`] runs.
#[derive(Debug)]
pub struct Sleep {
    at: Nanos,
    timer: Option<Key>,
}

/// Sleeps until a time told by [`super::now`].
#[must_use]
pub fn sleep_until(at: Nanos) -> Sleep {
    Sleep { at, timer: None }
}

/// What `future` gives, or `None` if it takes longer than `limit`.
pub async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut sleep = sleep_until(clock::now() + nanos(limit));
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => Pin::new(&mut sleep).poll(cx).map(|()| None),
    })
    .await
}

/// hyper's way to sleep.
#[derive(Clone, Copy, Debug)]
pub struct Timer;

/// The thread's timers.
#[derive(Debug, Default)]
struct Timers {
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    /// When to look at which timer again, soonest first. Invariant: every timer that waits has a key at its
    /// `looked_at`, which is not later than its `at`. Other keys are out of date.
    looks: BinaryHeap<Reverse<(Nanos, Key)>>,
}

/// A timer that waits, or the place of one that is gone.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    at: Nanos,
    looked_at: Nanos,
    waker: Option<Waker>,
}

/// Names a timer; out of date once that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    index: u32,
    generation: u32,
}

/// The heap is cleaned once it holds this many keys for each timer that waits, ...
const KEYS_PER_TIMER: usize = 3;
/// ... and so many besides: cleaning a small heap often is wasted work.
const KEYS_SPARE: usize = 256;

thread_local! {
    static TIMERS: RefCell<Timers> = RefCell::default();
}

/// Wakes whoever waits for a time up to now.
pub(super) fn fire() {
    let now = clock::now();
    while let Some(waker) = TIMERS.with_borrow_mut(|timers| timers.due(now)) {
        waker.wake();
    }
}

/// Nothing is due before; `None`: ever.
pub(super) fn next_at() -> Option<Nanos> {
    TIMERS.with_borrow(|timers| timers.looks.peek().map(|Reverse((at, _))| *at))
}

/// How long nothing is due; `None`: for ever.
pub(super) fn next_in() -> Option<Duration> {
    let wait = next_at()? - clock::now();
    Some(Duration::from_nanos(u64::try_from(wait.0).unwrap_or(0)))
}

// === impl Sleep ===

impl Sleep {
    /// Sleeps until another time instead.
    pub fn reset(mut self: Pin<&mut Self>, at: Nanos) {
        self.at = at;
        if let Some(timer) = self.timer {
            TIMERS.with_borrow_mut(|timers| timers.reset(timer, at));
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.at <= clock::now() {
            return Poll::Ready(());
        }
        TIMERS.with_borrow_mut(|timers| {
            let key = *self.timer.get_or_insert_with(|| timers.insert());
            timers.wait(key, self.at, cx.waker());
        });
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            let _ = TIMERS.try_with(|timers| timers.borrow_mut().remove(timer));
        }
    }
}

impl hyper::rt::Sleep for Sleep {}

// === impl Timer ===

impl hyper::rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(sleep_until(clock::now() + nanos(duration)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(sleep_until(clock::nanos(deadline)))
    }
}

// === impl Timers ===

impl Timers {
    fn insert(&mut self) -> Key {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("fewer timers than memory holds")
        });
        let slot = &mut self.slots[index as usize];
        slot.looked_at = NEVER;
        Key { index, generation: slot.generation }
    }

    /// The timer of a key, if it is still there.
    fn slot(&mut self, key: Key) -> Option<&mut Slot> {
        self.slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)
    }

    /// Waits until `at`.
    fn wait(&mut self, key: Key, at: Nanos, waker: &Waker) {
        let Some(slot) = self.slot(key) else { return };
        match &mut slot.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        self.reset(key, at);
    }

    /// To a later time: nothing but a note. To an earlier one: a further key.
    fn reset(&mut self, key: Key, at: Nanos) {
        let Some(slot) = self.slot(key) else { return };
        slot.at = at;
        if at < slot.looked_at {
            slot.looked_at = at;
            self.looks.push(Reverse((at, key)));
            self.clean();
        }
    }

    fn remove(&mut self, key: Key) {
        let Some(slot) = self.slot(key) else { return };
        slot.generation = slot.generation.wrapping_add(1);
        slot.waker = None;
        self.vacant.push(key.index);
    }

    /// One that is due.
    fn due(&mut self, now: Nanos) -> Option<Waker> {
        while let Some(Reverse((at, key))) = self.looks.peek().copied() {
            if at > now {
                break;
            }
            self.looks.pop();
            let Some(slot) = self.slot(key).filter(|slot| slot.looked_at == at) else { continue };
            if slot.at <= now {
                slot.looked_at = NEVER; // it is looked at again when it is polled again
                if let Some(waker) = slot.waker.take() {
                    return Some(waker);
                }
            } else {
                slot.looked_at = slot.at;
                let again = Reverse((slot.at, key));
                self.looks.push(again);
            }
        }
        None
    }

    /// Drops keys that are out of date, once they are many.
    fn clean(&mut self) {
        let waiting = self.slots.len() - self.vacant.len();
        if self.looks.len() <= waiting * KEYS_PER_TIMER + KEYS_SPARE {
            return;
        }
        let slots = &self.slots;
        self.looks.retain(|Reverse((at, key))| {
            let slot = &slots[key.index as usize];
            slot.generation == key.generation && slot.looked_at == *at
        });
    }
}

/// Later than any time: nothing is to be looked at.
const NEVER: Nanos = Nanos(i64::MAX);

fn nanos(duration: Duration) -> Nanos {
    Nanos(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX / 4))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn fired(timers: &mut Timers, now: i64) -> usize {
        std::iter::from_fn(|| timers.due(Nanos(now))).map(Waker::wake).count()
    }

    #[test]
    fn a_timer_ends_at_its_latest_time_and_not_when_it_is_gone() {
        let waker = Waker::from(Arc::new(Count(AtomicUsize::new(0))));
        let mut timers = Timers::default();
        let (a, b) = (timers.insert(), timers.insert());
        timers.wait(a, Nanos(10), &waker);
        timers.wait(b, Nanos(10), &waker);
        timers.reset(a, Nanos(30));
        timers.remove(b);
        assert_eq!(fired(&mut timers, 20), 0, "one is later, one is gone");
        timers.reset(a, Nanos(25));
        assert_eq!(fired(&mut timers, 24), 0);
        assert_eq!(fired(&mut timers, 25), 1, "an earlier time counts too");
        assert_eq!(fired(&mut timers, 100), 0, "once");
        let c = timers.insert();
        assert_ne!(b, c, "a place has a new owner");
        timers.wait(c, Nanos(110), &waker);
        timers.remove(b);
        assert_eq!(fired(&mut timers, 110), 1);
    }

    #[test]
    fn timeouts_that_never_end_leave_little_behind() {
        let waker = Waker::noop();
        let mut timers = Timers::default();
        for now in 0..100_000 {
            let key = timers.insert();
            timers.wait(key, Nanos(now + 60_000_000_000), waker);
            timers.remove(key);
            assert!(timers.looks.len() <= KEYS_SPARE + KEYS_PER_TIMER + 1 && timers.slots.len() == 1);
        }
    }
}
