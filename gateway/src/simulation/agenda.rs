//! What will happen: events in order of time, those of one instant in the order in which they were entered.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use usher_flowcontrol::units::Nanos;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// That client asks.
    Ask(usize),
    /// The next request of that open flow.
    Next(usize),
    /// All the clients of that flow begin.
    Begin(usize),
    /// On that level, that worker was woken.
    Wake(usize, usize),
    /// The work of that request is done.
    Finish(u64),
    /// The seats of that request have lingered.
    LingerEnd(u64),
    /// The client of that request gives up, if it still waits.
    GiveUp(u64),
    /// Of that level, so much of what was published can be seen.
    Show(usize, u64),
    /// The coordinator looks at the levels' demand.
    Sample,
    /// Seats may be moved between levels.
    Divide,
    /// One of the scenario's stalls.
    Stall(usize),
    /// One of the scenario's deaths.
    Die(usize),
    /// That worker is buried and replaced.
    Replace(usize),
    /// One of the scenario's clocks jumps.
    Clock(usize),
    /// One of the scenario's changes of the configuration.
    Change(usize),
    /// The coordinator is gone, for one of the scenario's absences.
    Lose(usize),
    /// The coordinator's desks are buried.
    Vacate,
    /// There is a coordinator again.
    Return,
}

/// The events to come.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    entered: u64,
}

impl Agenda {
    pub(super) fn enter(&mut self, at: Nanos, event: Event) {
        self.entered += 1;
        self.events.push(Reverse((at, self.entered, event)));
    }

    pub(super) fn next(&mut self) -> Option<(Nanos, Event)> {
        self.events.pop().map(|Reverse((at, _, event))| (at, event))
    }
}
