//! The world: clients, workers and time. Each event is done at once; what follows from it is entered in the agenda.

mod clients;
mod coordinator;
mod lending;
mod requests;
mod troubles;

use std::collections::BTreeMap;
use std::sync::Arc;

use usher_flowcontrol::demand::Integrator;
use usher_flowcontrol::units::{FlowHash, Nanos};
use usher_shards::{Level as Shared, Look};

use super::admission::{Admission, Kind};
use super::agenda::{Agenda, Event};
use super::checks::{self, Checks, Violation, at};
use super::flow::{Asks, Flow};
use super::measured::Measured;
use super::random::Random;
use super::scenario::{Scenario, Shape};
use lending::Lending;
use requests::Request;

/// A run.
pub(super) struct World<'a> {
    scenario: &'a Scenario,
    kind: Kind,
    now: Nanos,
    /// By then everything is over.
    latest: Nanos,
    agenda: Agenda,
    levels: Vec<Level>,
    pub(super) measured: Measured,
    flows: Vec<Asker<'a>>,
    clients: Vec<Client>,
    /// By number, in order of arrival.
    requests: BTreeMap<u64, Request>,
    arrived: u64,
    steps: u64,
    /// The coordinator is the last.
    workers: Vec<Worker>,
    /// Where levels lend.
    lending: Option<Lending>,
    /// What shall go wrong that must not, once, so that somebody notices.
    #[cfg(test)]
    pub(super) sabotage: Option<Sabotage>,
}

/// See [`World::is_sabotaged`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sabotage {
    /// A request that is done does not give its seats back.
    KeepSeats,
    /// A request runs that was told to wait.
    RunUnasked,
    /// A worker that must be woken is not.
    LoseWake,
}

/// One priority level.
struct Level {
    /// As configured now.
    shape: Shape,
    admission: Admission,
    checks: Checks,
    /// Wake-ups on their way.
    on_way: u32,
    /// Of what it published, what will be seen or was.
    shown: u64,
    /// What it wants, at every moment.
    demand: Integrator,
    /// Nothing arrives any more.
    removed: bool,
    /// Nobody has it any more.
    gone: bool,
}

/// One flow.
struct Asker<'a> {
    flow: &'a Flow,
    hash: FlowHash,
    random: Random,
    level: usize,
    /// Its number among its like.
    number: usize,
    /// Clients placed so far.
    placed: usize,
    first_client: usize,
}

#[derive(Clone, Copy)]
struct Client {
    flow: usize,
    worker: usize,
    /// How often it was turned away since it was last served.
    failures: u32,
}

struct Worker {
    state: State,
    stalled_until: Nanos,
    /// How far its clock is ahead.
    ahead: Nanos,
    /// By level: requests that executed and seats that were in use when it died, until it is buried.
    left: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Here,
    /// It died, and nobody has buried it yet.
    Dead,
    /// The coordinator: it was buried, and there is no other yet.
    Absent,
}

/// After the last request has arrived, all are served within as much time again and this.
const AFTERWARDS: Nanos = Nanos::from_secs(3600);

/// Every so many events somebody visits to look at the queues. Seldom, as a visit repairs what was forgotten.
const LOOK_EVERY: u64 = 512;

type Checked = Result<(), Violation>;

impl<'a> World<'a> {
    /// The seed determines everything. With another second number the flows have the same queues, but times are drawn
    /// anew.
    pub(super) fn new(scenario: &'a Scenario, (seed, again): (u64, u64), kind: Kind) -> Self {
        let all =
            scenario.flows.iter().flat_map(|flow| (0..flow.count as usize).map(move |number| (number, flow)));
        let flows: Vec<_> = all
            .enumerate()
            .map(|(index, (number, flow))| {
                let mut random = Random::new(seed, index as u64);
                let hash = FlowHash(random.next());
                if again > 0 {
                    random = Random::new(random.next(), again);
                }
                let level = scenario.position(&flow.level).unwrap_or(0);
                Asker { flow, hash, random, level, number, placed: 0, first_client: 0 }
            })
            .collect();
        let span = (scenario.warm_up.0, scenario.duration.0);
        let limits = scenario.levels.iter().map(|level| level.seats);
        let lending = scenario.lends().then(|| Lending::new(scenario));
        let there = |shape: &Shape| lending.as_ref().map(|lending| lending.level(&shape.name));
        let mut world = Self {
            scenario,
            kind,
            now: Nanos::ZERO,
            latest: scenario.duration.0 + scenario.duration.0 + AFTERWARDS,
            agenda: Agenda::default(),
            levels: scenario
                .levels
                .iter()
                .map(|shape| Level::new(kind, scenario, shape, there(shape)))
                .collect(),
            measured: Measured::new(flows.len(), span, limits),
            flows,
            clients: Vec::new(),
            requests: BTreeMap::new(),
            arrived: 0,
            steps: 0,
            workers: (0..=scenario.workers).map(|_| Worker::new(scenario.levels.len())).collect(),
            lending,
            #[cfg(test)]
            sabotage: None,
        };
        world.populate();
        world.plan_troubles();
        world.lending_begins();
        world
    }

    fn populate(&mut self) {
        for index in 0..self.flows.len() {
            self.flows[index].first_client = self.clients.len();
            let flow = self.flows[index].flow;
            (0..flow.clients()).for_each(|_| self.place(index));
            let first = if let Asks::Rate(_) = flow.asks { Event::Next(index) } else { Event::Begin(index) };
            self.agenda.enter(flow.start.0, first);
        }
    }

    /// From the first event to the last.
    pub(super) fn run(&mut self) -> Checked {
        while let Some((at, event)) = self.agenda.next() {
            if at > self.latest {
                return checks::at(at, format!("it does not come to an end: {event:?}"));
            }
            self.now = at;
            self.happen(event)?;
            self.steps += 1;
            self.check()?;
            if self.steps.is_multiple_of(LOOK_EVERY) {
                self.look_around()?;
            }
        }
        self.measured.end();
        self.end()
    }

    /// The longest wait that the scenario allows at any level, if there is telling.
    pub(super) fn bound(&self) -> Option<Nanos> {
        self.levels
            .iter()
            .map(|level| level.checks.bound())
            .try_fold(Nanos::ZERO, |most, it| Some(most.max(it?)))
    }

    /// What must hold after every event.
    fn check(&mut self) -> Checked {
        self.take_limits();
        let now = self.now;
        let dead = self.workers.iter().any(|worker| worker.state == State::Dead);
        let troubled = dead || self.workers.iter().any(|worker| worker.stalled_until >= now);
        for (index, level) in self.levels.iter_mut().enumerate().filter(|(_, level)| !level.gone) {
            let published = level.admission.published();
            if published > level.shown {
                level.shown = published;
                self.agenda.enter(now + self.scenario.publish_delay.0, Event::Show(index, published));
            }
            level.demand.set_seats(now, level.checks.demand());
            let Some(glance) = level.admission.glance() else { continue };
            level.checks.step(now, glance, troubled)?;
            if !dead && level.on_way == 0 {
                level.checks.conserved(now, glance)?;
            }
        }
        Ok(())
    }

    /// What somebody sees who visits.
    fn look_around(&mut self) -> Checked {
        let worker = self.living(0);
        for index in self.there() {
            if let Some(look) = self.look(index) {
                self.levels[index].checks.look(self.now, &look)?;
                self.listen(index, worker)?;
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Checked {
        let stuck = self.requests.values();
        let stuck = stuck.filter(|request| self.levels[request.level].checks.limit() > 0).count();
        if stuck > 0 {
            return at(self.now, format!("{stuck} requests wait, and nothing will ever happen"));
        }
        if !self.requests.is_empty() {
            return Ok(()); // at a level without a seat nobody may ever run
        }
        for index in self.there() {
            if let Some(look) = self.look(index) {
                self.measured.sequenced(&look);
                let level = &self.levels[index];
                level.checks.end(self.now, &look, level.admission.is_empty())?;
            }
        }
        Ok(())
    }

    /// Whether this is to go wrong now: once, after some requests. Only in tests.
    fn is_sabotaged(&mut self, how: Sabotage) -> bool {
        #[cfg(test)]
        if self.arrived > 100 && self.sabotage == Some(how) {
            self.sabotage = None;
            return true;
        }
        let _ = how;
        false
    }

    /// Levels that somebody has.
    fn there(&self) -> Vec<usize> {
        (0..self.levels.len()).filter(|index| !self.levels[*index].gone).collect()
    }

    /// What that level shows.
    pub(super) fn look(&mut self, level: usize) -> Option<Look> {
        let worker = self.living(0);
        let now = self.clock(worker);
        self.levels[level].admission.look(worker, now)
    }

    fn happen(&mut self, event: Event) -> Checked {
        if let Some(until) = self.stalled(event) {
            self.agenda.enter(until, event);
            return Ok(());
        }
        match event {
            Event::Ask(client) => return self.ask(client),
            Event::Next(flow) => return self.next(flow),
            Event::Begin(flow) => self.begin(flow),
            Event::Wake(level, worker) => return self.wake(level, worker),
            Event::Finish(request) => return self.finish(request),
            Event::LingerEnd(request) => return self.linger_end(request),
            Event::GiveUp(request) => return self.give_up(request),
            Event::Show(level, published) => self.levels[level].admission.show(published),
            Event::Sample => return self.sample(),
            Event::Divide => return self.divide_if_due(),
            Event::Stall(index) => self.stall(index),
            Event::Die(index) => self.die(self.scenario.deaths[index].worker),
            Event::Replace(worker) => return self.replace(worker),
            Event::Clock(index) => self.step_clock(index),
            Event::Change(index) => return self.change(index),
            Event::Lose(index) => self.lose_coordinator(index),
            Event::Vacate => return self.bury_coordinator(),
            Event::Return => return self.coordinator_returns(),
        }
        Ok(())
    }

    /// Until when the worker of an event does nothing.
    fn stalled(&self, event: Event) -> Option<Nanos> {
        let worker = match event {
            Event::Ask(client) => self.living(self.clients[client].worker),
            Event::Wake(_, worker) => worker,
            Event::Finish(id) | Event::LingerEnd(id) | Event::GiveUp(id) => self.requests.get(&id)?.worker,
            _ => return None,
        };
        Some(self.workers[worker].stalled_until).filter(|until| *until > self.now)
    }

    /// That worker, or the next one that lives.
    fn living(&self, worker: usize) -> usize {
        let count = self.scenario.workers;
        let mut all = (worker..worker + count).map(|at| at % count);
        all.find(|at| self.workers[*at].state == State::Here).unwrap_or(worker)
    }

    /// What that worker takes for now.
    fn clock(&self, worker: usize) -> Nanos {
        self.now + self.workers[worker].ahead
    }
}

impl Level {
    fn new(kind: Kind, scenario: &Scenario, shape: &Shape, there: Option<Arc<Shared>>) -> Self {
        Self {
            admission: Admission::new(kind, scenario, shape, there),
            checks: Checks::new(scenario, shape),
            shape: shape.clone(),
            on_way: 0,
            shown: 0,
            demand: Integrator::new(Nanos::ZERO),
            removed: false,
            gone: false,
        }
    }
}

impl Worker {
    fn new(levels: usize) -> Self {
        Self {
            state: State::Here,
            stalled_until: Nanos::ZERO,
            ahead: Nanos::ZERO,
            left: vec![(0, 0); levels],
        }
    }
}
