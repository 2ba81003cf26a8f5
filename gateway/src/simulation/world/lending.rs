//! Levels that lend each other seats: `usher_shards`' own coordinator, driven in virtual time as `coordinator::seats` drives
//! it by the clock.

use std::sync::Arc;

use usher_flowcontrol::units::{Nanos, Seats};
use usher_shards::{Coordinator, Level, Options, Shared};

use super::{Checked, Event, State, World};
use crate::simulation::checks::divided;
use crate::simulation::scenario::Scenario;

/// Within this time seats come to whoever wants some: ten periods.
const PERIODS_AFTERWARDS: Nanos = Nanos::from_secs(100);

/// The coordinator, and what outlives it.
pub(super) struct Lending {
    /// `None`: it has died, and there is no other yet.
    coordinator: Option<Coordinator>,
    shared: Shared,
    /// When it looks next. What a coordinator has planned who died is not done by the next one.
    sample_due: Nanos,
}

impl Lending {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let seats = Seats(scenario.seats);
        let coordinator = Coordinator::new(Nanos::ZERO, seats, scenario.workers, scenario.exact);
        let mut coordinator = coordinator.with_sizes(sizes(scenario));
        let objects: Vec<_> = scenario.levels.iter().map(|level| level.object()).collect();
        let shared = coordinator.configure(Nanos::ZERO, &[], &objects, true);
        Self { coordinator: Some(coordinator), shared, sample_due: Nanos::ZERO }
    }

    pub(super) fn level(&self, name: &str) -> Arc<Level> {
        Arc::clone(self.shared.level(name).expect("it was configured"))
    }

    pub(super) fn die(&mut self) {
        if let Some(coordinator) = self.coordinator.take() {
            self.shared = coordinator.shared().clone();
        }
    }
}

impl World<'_> {
    /// The coordinator begins.
    pub(super) fn lending_begins(&mut self) {
        if let Some(lending) = &self.lending {
            self.agenda.enter(self.now, Event::Sample);
            let due = lending.coordinator.as_ref().map(Coordinator::borrow_due);
            due.into_iter().for_each(|due| self.agenda.enter(due, Event::Divide));
        }
        self.take_limits();
    }

    /// Another coordinator takes over. It moves nothing before it has looked for a whole period.
    pub(super) fn lending_goes_on(&mut self) -> Checked {
        let (now, objects, scenario) = (self.now, self.objects(), self.scenario);
        self.release_the_dead();
        let Some(lending) = &mut self.lending else { return Ok(()) };
        let shared = lending.shared.clone();
        let next = Coordinator::succeed(now, Seats(scenario.seats), scenario.exact, shared);
        let mut next = next.with_sizes(sizes(scenario));
        next.configure(now, &[], &objects, false);
        self.agenda.enter(next.borrow_due(), Event::Divide);
        self.agenda.enter(now, Event::Sample);
        lending.sample_due = now;
        lending.coordinator = Some(next);
        for level in &mut self.levels {
            level.demand.reset(now); // as the new one knows nothing of what was
        }
        self.heed()
    }

    /// The objects that are there.
    fn objects(&self) -> Vec<usher_flowcontrol::objects::PriorityLevelConfiguration> {
        let there = self.levels.iter().filter(|level| !level.removed);
        there.map(|level| level.shape.object()).collect()
    }

    /// After a change of the configuration. Seats are moved at once.
    pub(super) fn configure_all(&mut self) -> Checked {
        let (now, objects) = (self.now, self.objects());
        self.release_the_dead();
        if let Some(coordinator) = self.coordinator_of_all() {
            coordinator.configure(now, &[], &objects, true);
        }
        self.seats_were_moved()
    }

    /// Looks at the demand.
    pub(super) fn sample(&mut self) -> Checked {
        let (now, goes_on) = (self.now, self.goes_on());
        let Some(lending) = self.lending.as_mut().filter(|lending| lending.sample_due == now && goes_on)
        else {
            return Ok(());
        };
        if lending.coordinator.is_none() {
            return Ok(());
        }
        lending.sample_due = now + self.scenario.knobs.sample;
        self.agenda.enter(lending.sample_due, Event::Sample);
        self.release_the_dead();
        if let Some(coordinator) = self.coordinator_of_all() {
            coordinator.observe(now, now.0 / Nanos::from_secs(1).0);
        }
        self.heed()
    }

    /// The period is over, unless a change of the configuration or another coordinator has begun another one.
    pub(super) fn divide_if_due(&mut self) -> Checked {
        let (now, goes_on) = (self.now, self.goes_on());
        match self.coordinator_of_all() {
            Some(coordinator) if coordinator.borrow_due() == now && goes_on => coordinator.borrow(now),
            _ => return Ok(()),
        };
        self.seats_were_moved()
    }

    fn seats_were_moved(&mut self) -> Checked {
        let now = self.now;
        let Some(coordinator) = self.coordinator_of_all() else { return Ok(()) };
        let (due, snapshot) = (coordinator.borrow_due(), coordinator.snapshot(now));
        self.agenda.enter(due, Event::Divide);
        divided(now, &snapshot.levels)?;
        for level in &mut self.levels {
            let truth = level.demand.reset(now);
            if let Some(seen) = snapshot.levels.iter().find(|seen| *seen.name == *level.shape.name) {
                self.measured.sampled(now, &seen.demand, &truth);
            }
        }
        self.heed()
    }

    /// That worker has died: its desks are freed.
    pub(super) fn bury_everywhere(&mut self, dead: usize) -> Checked {
        let now = self.now;
        self.release_the_dead();
        if let Some(coordinator) = self.coordinator_of_all() {
            coordinator.bury(now, dead);
        }
        self.heed()
    }

    /// The coordinator is about to look at all levels. It buries whom it finds dead there, before anybody takes his place.
    fn release_the_dead(&mut self) {
        if self.lending.is_none() {
            return;
        }
        for dead in (0..self.scenario.workers)
            .filter(|worker| self.workers[*worker].state == State::Dead)
            .collect::<Vec<_>>()
        {
            (0..self.levels.len()).for_each(|level| self.release_what_was_left(level, dead));
        }
    }

    /// Whom the coordinator wakes, and which limits it has set.
    fn heed(&mut self) -> Checked {
        self.take_limits();
        self.let_go();
        while let Some(worker) = self.coordinator_of_all().and_then(Coordinator::next_wake) {
            // Whoever is woken looks at all levels.
            for index in self.there() {
                self.measured.woke(self.now);
                self.levels[index].on_way += 1;
                self.agenda.enter(self.now + self.scenario.message_delay.0, Event::Wake(index, worker));
            }
        }
        Ok(())
    }

    /// Levels that are removed, that the coordinator has let go of, and that nobody uses: workers let go of them, too.
    fn let_go(&mut self) {
        for level in &mut self.levels {
            if level.removed && !level.gone && level.admission.is_retired() && level.admission.is_empty() {
                level.gone = true;
                (0..self.scenario.workers).for_each(|worker| level.admission.kill(worker));
            }
        }
    }

    /// Limits as they are now: what the coordinator asked for may be done by whoever visits next.
    pub(super) fn take_limits(&mut self) {
        if self.lending.is_none() {
            return;
        }
        for index in self.there() {
            let limit = self.levels[index].admission.limit().0;
            if limit != self.levels[index].checks.limit() {
                self.limit_is(index, limit);
            }
        }
    }

    /// Something may still arrive or start. Whoever waits after the next few periods waits for ever.
    fn goes_on(&self) -> bool {
        let end = self.scenario.duration.0;
        self.now < end || self.now < end + PERIODS_AFTERWARDS && !self.requests.is_empty()
    }

    fn coordinator_of_all(&mut self) -> Option<&mut Coordinator> {
        let here = self.workers[self.scenario.workers].state == State::Here;
        self.lending.as_mut()?.coordinator.as_mut().filter(|_| here)
    }
}

/// Of every level.
fn sizes(scenario: &Scenario) -> Options {
    Options { slots: scenario.slots, ..scenario.knobs.options() }
}
