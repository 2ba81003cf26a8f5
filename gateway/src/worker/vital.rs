//! State that a panic must not leave half changed: whoever panics while he changes it ends the worker.
//!
//! Most panics cost one request or one connection, for what they leave behind belongs to them alone. The core of
//! decisions belongs to all: a panic in the middle of it may have left anything, so the worker is started again.

use std::cell::{Ref, RefCell, RefMut};
use std::ops::{Deref, DerefMut};

use crate::ring;

/// A [`RefCell`] whose contents the worker cannot do without.
#[derive(Debug)]
pub(super) struct Vital<T>(RefCell<T>);

/// What [`Vital::borrow_mut`] lends.
#[derive(Debug)]
pub(super) struct VitalMut<'a, T> {
    lent: RefMut<'a, T>,
    /// Nothing had panicked when it was lent: destructors give seats back while something else unwinds.
    calm: bool,
}

impl<T> Vital<T> {
    pub(super) fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }

    pub(super) fn borrow(&self) -> Ref<'_, T> {
        self.0.borrow()
    }

    pub(super) fn borrow_mut(&self) -> VitalMut<'_, T> {
        VitalMut { lent: self.0.borrow_mut(), calm: !std::thread::panicking() }
    }
}

impl<T> Deref for VitalMut<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.lent
    }
}

impl<T> DerefMut for VitalMut<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.lent
    }
}

impl<T> Drop for VitalMut<'_, T> {
    fn drop(&mut self) {
        if self.calm && std::thread::panicking() {
            ring::die("a panic in flow control");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::ring::Died;

    /// How a thread ends in which a task does that to a vital value.
    fn after(action: impl FnOnce(&Vital<u32>) + 'static) -> Option<Died> {
        let ended = ring::run(async {
            let vital = Rc::new(Vital::new(0));
            ring::spawn(async move { action(&vital) });
            ring::sleep_until(ring::now() + usher_flowcontrol::units::Nanos::from_millis(20)).await;
        });
        ended.err().map(|error| *error.get_ref().unwrap().downcast_ref::<Died>().unwrap())
    }

    #[test]
    fn a_panic_while_it_is_changed_ends_the_thread() {
        let died = after(|vital| {
            let mut number = vital.borrow_mut();
            *number += 1;
            panic!("in the middle of it");
        });
        assert_eq!(died, Some(Died("a panic in flow control")));
    }

    #[test]
    fn others_do_not() {
        struct GivesBack<'a>(&'a Vital<u32>);
        impl Drop for GivesBack<'_> {
            fn drop(&mut self) {
                *self.0.borrow_mut() -= 1;
            }
        }
        let died = after(|vital| {
            *vital.borrow_mut() += 1;
            let _seat = GivesBack(vital);
            panic!("elsewhere");
        });
        assert_eq!(died, None);
    }
}
