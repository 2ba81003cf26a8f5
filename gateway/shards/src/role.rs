//! The role: who holds it may visit the sequencer. It is tried for, never waited for.
//!
//! A flag, and a mutex that is therefore never contended: the flag is what loom explores (its own mutex would
//! hide a missing fence), the mutex is what makes this safe without `unsafe`. Whoever leaves an operation and
//! then does not get the role relies on the holder to look at the mail after giving the role up; that needs a
//! sequentially consistent fence on both sides, see `combine`.

use core::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicBool, Ordering};

/// What is visited, and whether somebody does.
#[derive(Debug)]
pub(crate) struct Role<T> {
    held: CachePadded<AtomicBool>,
    inside: Mutex<T>,
}

/// The role, held.
#[derive(Debug)]
pub(crate) struct Holder<'a, T> {
    held: &'a AtomicBool,
    /// `None` only while it is given up.
    inside: Option<MutexGuard<'a, T>>,
}

impl<T> Role<T> {
    pub(crate) fn new(inside: T) -> Self {
        Self { held: CachePadded::new(AtomicBool::new(false)), inside: Mutex::new(inside) }
    }

    /// The role, if nobody holds it. It is given up when the holder is dropped, even in a panic.
    #[inline]
    pub(crate) fn take(&self) -> Option<Holder<'_, T>> {
        if self.held.load(Ordering::Relaxed)
            || self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return None;
        }
        let inside = match self.inside.try_lock() {
            Ok(inside) => inside,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => unreachable!("whoever holds the mutex holds the flag"),
        };
        Some(Holder { held: &self.held, inside: Some(inside) })
    }
}

impl<T> Deref for Holder<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.inside.as_deref().expect("held until it is dropped")
    }
}

impl<T> DerefMut for Holder<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inside.as_deref_mut().expect("held until it is dropped")
    }
}

impl<T> Drop for Holder<'_, T> {
    fn drop(&mut self) {
        self.inside = None;
        self.held.store(false, Ordering::Release);
    }
}
