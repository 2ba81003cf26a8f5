//! What goes wrong: workers stall, die and are replaced, and clocks jump.

use super::requests::Phase;
use super::{Checked, Event, Kind, Nanos, State, World};
use crate::simulation::checks::RESTART;

impl World<'_> {
    /// On exact levels there is nobody who could stall or die.
    pub(super) fn plan_troubles(&mut self) {
        let scenario = self.scenario;
        let changes = scenario.changes.iter().enumerate().map(|(index, it)| (it.at, Event::Change(index)));
        let stalls = scenario.stalls.iter().enumerate().map(|(index, it)| (it.at, Event::Stall(index)));
        let deaths = scenario.deaths.iter().enumerate().map(|(index, it)| (it.at, Event::Die(index)));
        let clocks = scenario.clocks.iter().enumerate().map(|(index, it)| (it.at, Event::Clock(index)));
        let lost =
            scenario.coordinator_lost.iter().enumerate().map(|(index, it)| (it.at, Event::Lose(index)));
        let exact = self.kind == Kind::Exact;
        let troubles = stalls.chain(deaths).chain(clocks).chain(lost).filter(|_| !exact);
        changes.chain(troubles).for_each(|(at, event)| self.agenda.enter(at.0, event));
    }

    pub(super) fn stall(&mut self, index: usize) {
        let stall = self.scenario.stalls[index];
        self.workers[stall.worker].stalled_until = self.now + stall.lasts.0;
    }

    pub(super) fn step_clock(&mut self, index: usize) {
        let step = self.scenario.clocks[index];
        let ahead = &mut self.workers[step.worker].ahead;
        *ahead = *ahead + step.by.0;
    }

    /// Its requests are gone; clients come again, to somebody else.
    pub(super) fn die(&mut self, worker: usize) {
        let here = |worker: usize| self.workers[worker].state == State::Here;
        let living = (0..self.scenario.workers).filter(|worker| here(*worker)).count();
        if living < 2 || !here(worker) {
            return;
        }
        self.levels.iter_mut().for_each(|level| level.admission.kill(worker));
        self.workers[worker].state = State::Dead;
        let its = self.requests.iter().filter(|(_, request)| request.worker == worker);
        for id in its.map(|(id, _)| *id).collect::<Vec<_>>() {
            if self.requests[&id].phase == Phase::Waiting {
                self.waits_no_more(id);
            }
            let Some(request) = self.requests.remove(&id) else { continue };
            if request.phase != Phase::Waiting {
                let flow = self.clients[request.client].flow;
                self.measured.released((request.level, flow), request.seats, request.started, self.now);
                let (executing, seats) = &mut self.workers[worker].left[request.level];
                *executing += u64::from(request.phase == Phase::Executing);
                *seats += request.seats;
            }
            if request.phase != Phase::Lingering {
                self.retry(request.client);
            }
        }
        self.agenda.enter(self.now + RESTART, Event::Replace(worker));
    }

    /// The coordinator buries the dead and has somebody take the place; without a coordinator that has to wait.
    pub(super) fn replace(&mut self, dead: usize) -> Checked {
        if !self.is_coordinated() {
            self.agenda.enter(self.now + RESTART, Event::Replace(dead));
            return Ok(());
        }
        if self.scenario.lends() {
            self.bury_everywhere(dead)?;
        } else {
            self.bury(self.coordinator(), dead)?;
        }
        let mut there = self.levels.iter_mut().filter(|level| !level.gone);
        let replaced = there.all(|level| level.admission.replace(dead)); // the others next time
        if replaced {
            self.workers[dead].state = State::Here;
            (self.workers[dead].stalled_until, self.workers[dead].ahead) = (Nanos::ZERO, Nanos::ZERO);
        } else {
            self.agenda.enter(self.now + RESTART, Event::Replace(dead));
        }
        Ok(())
    }

    /// On all levels.
    pub(super) fn bury(&mut self, by: usize, dead: usize) -> Checked {
        let clock = self.clock(by);
        for level in 0..self.levels.len() {
            self.release_what_was_left(level, dead);
            self.levels[level].admission.bury(by, clock, dead);
            self.listen(level, by)?;
        }
        Ok(())
    }

    pub(super) fn release_what_was_left(&mut self, level: usize, dead: usize) {
        let (executing, seats) = std::mem::take(&mut self.workers[dead].left[level]);
        let checks = &mut self.levels[level].checks;
        (0..executing).for_each(|_| checks.finish());
        checks.release(seats);
    }
}
