//! Breaking a worker on purpose, to show what contains it. Only in builds with debug assertions, and only by a
//! [`Command`](super::Command): nothing that comes over the network reaches it.

use std::sync::{Arc, Barrier};

use super::{Admit, Worker};
use crate::ring;

/// Where a worker breaks.
#[derive(Clone, Debug)]
pub enum Sabotage {
    /// The next request, once it has its seat.
    Request,
    /// The connection of the next request.
    Connection,
    /// The main loop.
    Loop,
    /// The core of decisions, in the midst of a change.
    Core,
    /// A task that the worker cannot do without.
    Task,
    /// The thread itself: it stands still until the barrier has been passed twice.
    Hold(Arc<Barrier>),
}

/// What may break when it comes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Request,
    Connection,
}

impl Worker {
    /// Breaks now, or when that comes along.
    #[expect(clippy::panic, reason = "to panic is the purpose")]
    pub(super) fn sabotaged(&self, sabotage: Sabotage) {
        match sabotage {
            Sabotage::Request => self.sabotage.set(Some(Place::Request)),
            Sabotage::Connection => self.sabotage.set(Some(Place::Connection)),
            Sabotage::Loop => panic!("sabotage of the main loop"),
            Sabotage::Core => {
                if let Admit::FlowControl(admission) = &self.admit {
                    let admission = std::rc::Rc::clone(admission);
                    ring::spawn(async move { admission.act(|_| panic!("sabotage of the core")) });
                }
            }
            Sabotage::Task => ring::spawn_vital(async { panic!("sabotage of a task") }),
            Sabotage::Hold(barrier) => {
                barrier.wait();
                barrier.wait();
            }
        }
    }

    /// Something that may be broken comes along.
    #[expect(clippy::panic, reason = "to panic is the purpose")]
    pub(super) fn breaks_at(&self, here: Place) {
        if self.sabotage.get() == Some(here) {
            self.sabotage.set(None);
            panic!("sabotage: {here:?}");
        }
    }
}
