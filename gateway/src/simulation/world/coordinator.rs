//! The coordinator of a single level: it applies changes of the configuration and buries the dead (`troubles`). It may be
//! gone for a while: then nothing of that happens, and the workers go on. Where levels lend, it is `lending`.

use usher_flowcontrol::units::Seats;

use super::{Checked, Event, State, World};
use crate::simulation::checks::RESTART;

impl World<'_> {
    /// Its desk is the last.
    pub(super) fn coordinator(&self) -> usize {
        self.scenario.workers
    }

    pub(super) fn is_coordinated(&self) -> bool {
        self.workers[self.coordinator()].state == State::Here
    }

    /// A change of the configuration; without a coordinator it has to wait.
    pub(super) fn change(&mut self, number: usize) -> Checked {
        if !self.is_coordinated() {
            self.agenda.enter(self.now + RESTART, Event::Change(number));
            return Ok(());
        }
        let change = &self.scenario.changes[number];
        let index = self.scenario.position(&change.level).unwrap_or(0);
        let level = &mut self.levels[index];
        level.shape.change(change);
        level.checks.set_queue_length_limit(level.shape.queue_length_limit);
        if change.removed {
            level.removed = true;
            self.flows.iter_mut().filter(|flow| flow.level == index).for_each(|flow| flow.level = 0);
        }
        if self.scenario.lends() {
            return self.configure_all();
        }
        let (mode, seats) = (level.shape.mode(), change.seats.unwrap_or(level.checks.limit()));
        self.limit_is(index, seats);
        let coordinator = self.coordinator();
        let clock = self.clock(coordinator);
        self.levels[index].admission.reconfigure(coordinator, clock, mode, Seats(seats));
        self.listen(index, coordinator)
    }

    pub(super) fn limit_is(&mut self, index: usize, seats: u64) {
        self.levels[index].checks.set_limit(self.now, seats);
        self.measured.set_limit(index, self.now, seats);
    }

    pub(super) fn lose_coordinator(&mut self, index: usize) {
        let coordinator = self.coordinator();
        let back = self.now + self.scenario.coordinator_lost[index].lasts.0;
        if self.is_coordinated() {
            self.workers[coordinator].state = State::Dead;
            self.agenda.enter(self.now + RESTART, Event::Vacate);
            match &mut self.lending {
                Some(lending) => lending.die(),
                None => self.levels.iter_mut().for_each(|level| level.admission.kill(coordinator)),
            }
        }
        self.agenda.enter(back.max(self.now + RESTART), Event::Return);
    }

    /// Some worker does that, as soon as one is awake; where levels lend, the next coordinator.
    pub(super) fn bury_coordinator(&mut self) -> Checked {
        let coordinator = self.coordinator();
        if !self.scenario.lends() {
            let awake = |worker: &usize| {
                let worker = &self.workers[*worker];
                worker.state == State::Here && worker.stalled_until <= self.now
            };
            let Some(by) = (0..self.scenario.workers).find(awake) else {
                self.agenda.enter(self.now + RESTART, Event::Vacate);
                return Ok(());
            };
            self.bury(by, coordinator)?;
        }
        self.workers[coordinator].state = State::Absent;
        Ok(())
    }

    /// Somebody takes its place. Two absences may overlap: the first who comes back does.
    pub(super) fn coordinator_returns(&mut self) -> Checked {
        let coordinator = self.coordinator();
        if self.is_coordinated() {
            return Ok(());
        }
        let buried = self.workers[coordinator].state == State::Absent;
        let seated =
            |world: &mut Self| world.levels.iter_mut().all(|level| level.admission.replace(coordinator));
        if !buried || !self.scenario.lends() && !seated(self) {
            self.agenda.enter(self.now + RESTART, Event::Return);
            return Ok(());
        }
        self.workers[coordinator].state = State::Here;
        self.lending_goes_on()
    }
}
