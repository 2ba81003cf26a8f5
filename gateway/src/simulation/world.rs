//! The world: clients, workers and time. Each event is done at once; what follows from it is entered in the agenda.

use std::collections::BTreeMap;

use usher_flowcontrol::level::{Arrival, Finish, Ticket, Verdict};
use usher_flowcontrol::units::{FlowHash, Nanos, Seats, Work};
use usher_shards::{Event as Heard, Look};

use super::admission::Admission;
use super::agenda::{Agenda, Event};
use super::checks::{Checks, RESTART, Violation, at};
use super::flow::{Asks, Distribution, Flow, Places};
use super::measured::Measured;
use super::random::Random;
use super::scenario::Scenario;

/// A run.
pub(super) struct World<'a> {
    scenario: &'a Scenario,
    now: Nanos,
    agenda: Agenda,
    admission: Admission,
    pub(super) checks: Checks,
    pub(super) measured: Measured,
    flows: Vec<Asker<'a>>,
    clients: Vec<Client>,
    /// By number, in order of arrival.
    requests: BTreeMap<u64, Request>,
    arrived: u64,
    steps: u64,
    workers: Vec<Worker>,
}

/// One flow.
struct Asker<'a> {
    flow: &'a Flow,
    hash: FlowHash,
    random: Random,
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

struct Request {
    client: usize,
    worker: usize,
    ticket: Ticket,
    phase: Phase,
    seats: u64,
    arrived: Nanos,
    started: Nanos,
    service: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Executing,
    Lingering,
}

struct Worker {
    alive: bool,
    stalled_until: Nanos,
    /// Requests that execute and seats that were in use when it died, until it is buried.
    left: (u64, u64),
}

/// Every so many events somebody visits to look at the queues. Seldom, as a visit repairs what was forgotten.
const LOOK_EVERY: u64 = 512;

type Checked = Result<(), Violation>;

impl<'a> World<'a> {
    /// The seed determines everything. With another second number the flows have the same queues, but times are drawn
    /// anew.
    pub(super) fn new(scenario: &'a Scenario, (seed, again): (u64, u64), admission: Admission) -> Self {
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
                Asker { flow, hash, random, number, placed: 0, first_client: 0 }
            })
            .collect();
        let (from, to) = (scenario.warm_up.0, scenario.duration.0);
        let mut world = Self {
            scenario,
            now: Nanos::ZERO,
            agenda: Agenda::default(),
            admission,
            checks: Checks::new(scenario),
            measured: Measured::new(flows.len(), from, to, scenario.level.seats),
            flows,
            clients: Vec::new(),
            requests: BTreeMap::new(),
            arrived: 0,
            steps: 0,
            workers: Vec::new(),
        };
        world.populate();
        world
    }

    fn populate(&mut self) {
        for _ in 0..self.scenario.workers {
            self.workers.push(Worker { alive: true, stalled_until: Nanos::ZERO, left: (0, 0) });
        }
        for index in 0..self.flows.len() {
            self.flows[index].first_client = self.clients.len();
            let flow = self.flows[index].flow;
            (0..flow.clients()).for_each(|_| self.place(index));
            let first = if let Asks::Rate(_) = flow.asks { Event::Next(index) } else { Event::Begin(index) };
            self.agenda.enter(flow.start.0, first);
        }
        let scenario = self.scenario;
        let limits = scenario.limits.iter().enumerate().map(|(index, it)| (it.at, Event::Limit(index)));
        let stalls = scenario.stalls.iter().enumerate().map(|(index, it)| (it.at, Event::Stall(index)));
        let deaths = scenario.deaths.iter().enumerate().map(|(index, it)| (it.at, Event::Die(index)));
        // On the exact level there is nobody who could stall or die.
        let troubles = stalls.chain(deaths).filter(|_| !matches!(self.admission, Admission::Single(_)));
        let all: Vec<_> = limits.chain(troubles).collect();
        all.into_iter().for_each(|(at, event)| self.agenda.enter(at.0, event));
    }

    /// One more client of that flow.
    fn place(&mut self, index: usize) {
        let asker = &mut self.flows[index];
        // Among all there are: flows of one connection are not all on the first worker.
        let connection = match asker.flow.on {
            Places::All => self.clients.len(),
            _ => asker.placed,
        };
        let worker = asker.flow.on.worker(asker.number, connection, self.scenario.workers);
        asker.placed += 1;
        self.clients.push(Client { flow: index, worker, failures: 0 });
    }

    /// From the first event to the last.
    pub(super) fn run(&mut self) -> Checked {
        while let Some((at, event)) = self.agenda.next() {
            self.now = at;
            self.happen(event)?;
            self.steps += 1;
            let troubled = self.workers.iter().any(|worker| !worker.alive || worker.stalled_until >= at);
            if let Some(glance) = self.admission.glance() {
                self.checks.step(at, glance, troubled)?;
            }
            if self.steps.is_multiple_of(LOOK_EVERY)
                && let Some(look) = self.look()
            {
                self.checks.look(at, &look)?;
                self.listen(self.living(0))?;
            }
        }
        self.measured.end();
        if let Some(look) = self.look() {
            self.measured.sequenced(&look);
        }
        self.end()
    }

    fn end(&mut self) -> Checked {
        if self.scenario.limits.last().map_or(self.scenario.level.seats, |limit| limit.seats) == 0 {
            return Ok(()); // nobody may ever run
        }
        let waiting = self.requests.len();
        if waiting > 0 {
            return at(self.now, format!("{waiting} requests wait, and nothing will ever happen"));
        }
        let empty = self.admission.is_empty();
        match self.look() {
            Some(look) => self.checks.end(self.now, &look, empty),
            None => Ok(()),
        }
    }

    /// What the level shows.
    pub(super) fn look(&mut self) -> Option<Look> {
        let worker = self.living(0);
        self.admission.look(worker, self.now)
    }

    fn happen(&mut self, event: Event) -> Checked {
        if let Some(until) = self.stalled(event) {
            self.agenda.enter(until, event);
            return Ok(());
        }
        match event {
            Event::Ask(client) => self.ask(client),
            Event::Next(flow) => self.next(flow),
            Event::Begin(flow) => {
                self.begin(flow);
                Ok(())
            }
            Event::Wake(worker) => {
                if !self.workers[worker].alive {
                    return Ok(());
                }
                self.admission.poll(worker, self.now);
                self.listen(worker)
            }
            Event::Finish(request) => self.finish(request),
            Event::LingerEnd(request) => self.linger_end(request),
            Event::GiveUp(request) => self.give_up(request),
            Event::Stall(index) => {
                let stall = self.scenario.stalls[index];
                self.workers[stall.worker].stalled_until = self.now + stall.lasts.0;
                Ok(())
            }
            Event::Die(index) => {
                self.die(self.scenario.deaths[index].worker);
                Ok(())
            }
            Event::Replace(worker) => self.replace(worker),
            Event::Limit(index) => self.set_limit(self.scenario.limits[index].seats),
        }
    }

    /// Until when the worker of an event does nothing.
    fn stalled(&self, event: Event) -> Option<Nanos> {
        let worker = match event {
            Event::Ask(client) => self.living(self.clients[client].worker),
            Event::Wake(worker) => worker,
            Event::Finish(id) | Event::LingerEnd(id) | Event::GiveUp(id) => self.requests.get(&id)?.worker,
            _ => return None,
        };
        Some(self.workers[worker].stalled_until).filter(|until| *until > self.now)
    }

    /// That worker, or the next one that lives.
    fn living(&self, worker: usize) -> usize {
        let count = self.workers.len();
        (worker..worker + count).map(|at| at % count).find(|at| self.workers[*at].alive).unwrap_or(worker)
    }
}

// === impl World: clients ===

impl World<'_> {
    /// The client asks after that time, if it is not too late then.
    fn again(&mut self, client: usize, after: Nanos) {
        if self.now + after < self.scenario.duration.0 {
            self.agenda.enter(self.now + after, Event::Ask(client));
        }
    }

    /// All clients of a flow ask; of a burst that comes again those are new ones every time.
    fn begin(&mut self, index: usize) {
        let Asker { first_client: first, flow, .. } = self.flows[index];
        let mut clients = first..first + flow.clients() as usize;
        if let Asks::Burst(count, Some(every)) = flow.asks {
            let new = self.clients.len();
            (0..count).for_each(|_| self.place(index));
            clients = new..self.clients.len();
            if self.now + every.0 < self.scenario.duration.0 {
                self.agenda.enter(self.now + every.0, Event::Begin(index));
            }
        }
        clients.for_each(|client| self.again(client, Nanos::ZERO));
    }

    /// A request of an open flow, and the time of its next one.
    fn next(&mut self, index: usize) -> Checked {
        let asker = &mut self.flows[index];
        let Asks::Rate(rate) = asker.flow.asks else { return Ok(()) };
        let next = self.now + Nanos(asker.random.exponential(1e9 / rate));
        if next < self.scenario.duration.0 {
            self.agenda.enter(next, Event::Next(index));
        }
        self.place(index);
        self.again(self.clients.len() - 1, Nanos::ZERO);
        Ok(())
    }

    fn ask(&mut self, client: usize) -> Checked {
        let Client { flow: index, worker, .. } = self.clients[client];
        let (now, worker) = (self.now, self.living(worker));
        let Asker { flow, hash, random, .. } = &mut self.flows[index];
        let seats = random.between(flow.work.seats.0, flow.work.seats.1);
        let service = service(flow, random);
        let linger = flow.work.linger.0;
        let last = if linger > Nanos::ZERO { seats } else { 0 };
        let work = Work { final_seats: Seats(last), additional_latency: linger, ..Work::seats(seats) };
        let patience = flow.patience;
        self.arrived += 1;
        let id = self.arrived;
        let request = |ticket, phase| Request {
            client,
            worker,
            ticket,
            phase,
            seats,
            arrived: now,
            started: now,
            service,
        };
        match self.admission.arrive(worker, now, Arrival { flow: *hash, work, tag: id }) {
            Verdict::Execute(ticket) => {
                self.requests.insert(id, request(ticket, Phase::Executing));
                self.start(id, true)?;
            }
            Verdict::Wait(ticket) => {
                self.requests.insert(id, request(ticket, Phase::Waiting));
                self.measured.waits(index, now);
                if let Some(patience) = patience {
                    self.agenda.enter(now + patience.0, Event::GiveUp(id));
                }
            }
            Verdict::Reject(_) => self.turned_away(client),
        }
        self.listen(worker)
    }

    fn turned_away(&mut self, client: usize) {
        let flow = self.clients[client].flow;
        self.measured.rejected(flow, self.now);
        self.retry(client);
    }

    /// A client that was not served tries again, unless it belongs to an open flow.
    fn retry(&mut self, client: usize) {
        let Client { flow, failures, .. } = &mut self.clients[client];
        let Asker { flow, random, .. } = &mut self.flows[*flow];
        if !matches!(flow.asks, Asks::Rate(_)) {
            let mean = flow.retry.after(*failures);
            *failures += 1;
            let after = between_half_and_more(mean, random);
            self.again(client, after);
        }
    }

    fn give_up(&mut self, id: u64) -> Checked {
        let Some(request) = self.requests.get(&id) else { return Ok(()) };
        let Request { client, worker, ticket, phase, .. } = *request;
        if phase == Phase::Waiting && self.admission.cancel(worker, self.now, ticket) {
            self.requests.remove(&id);
            let flow = self.clients[client].flow;
            self.measured.waits_no_more(flow, self.now);
            self.measured.gave_up(flow, self.now);
            self.retry(client);
        }
        self.listen(worker)
    }
}

// === impl World: requests ===

impl World<'_> {
    fn start(&mut self, id: u64, at_once: bool) -> Checked {
        let now = self.now;
        let Some(request) = self.requests.get_mut(&id) else {
            return at(now, format!("request {id} was granted seats, but it is not there"));
        };
        request.phase = Phase::Executing;
        request.started = now;
        let waited = now - request.arrived;
        self.agenda.enter(now + request.service, Event::Finish(id));
        self.measured.started(self.clients[request.client].flow, now, waited, at_once);
        self.checks.start(now, request.seats, waited)
    }

    fn finish(&mut self, id: u64) -> Checked {
        let Some(request) = self.requests.get_mut(&id) else { return Ok(()) };
        let (worker, client) = (request.worker, request.client);
        let finish = self.admission.finish(worker, self.now, request.ticket);
        request.phase = Phase::Lingering;
        self.checks.finish();
        match finish {
            Finish::Released => self.release(id),
            Finish::Lingers { until } => self.agenda.enter(until, Event::LingerEnd(id)),
        }
        self.clients[client].failures = 0;
        let flow = self.flows[self.clients[client].flow].flow;
        if let Asks::Connections(_) = flow.asks {
            self.again(client, flow.think.0);
        }
        self.listen(worker)
    }

    fn linger_end(&mut self, id: u64) -> Checked {
        let Some(&Request { worker, ticket, .. }) = self.requests.get(&id) else { return Ok(()) };
        self.admission.linger_end(worker, self.now, ticket);
        self.release(id);
        self.listen(worker)
    }

    fn release(&mut self, id: u64) {
        if let Some(request) = self.requests.remove(&id) {
            let flow = self.clients[request.client].flow;
            self.measured.released(flow, request.seats, request.started, self.now);
            self.checks.release(request.seats);
        }
    }

    /// What that worker hears, and whom it wakes. It looks at once, as workers do before they sleep.
    fn listen(&mut self, worker: usize) -> Checked {
        while let Some(heard) = self.admission.next_event(worker) {
            let (Heard::Dispatched(usher_flowcontrol::level::Dispatched { tag, .. })
            | Heard::Rejected { tag, .. }) = heard;
            let Some(client) = self.requests.get(&tag).map(|request| request.client) else {
                return at(self.now, format!("request {tag} was heard of, but it is not there"));
            };
            self.measured.waits_no_more(self.clients[client].flow, self.now);
            if let Heard::Dispatched(_) = heard {
                self.start(tag, false)?;
            } else {
                self.requests.remove(&tag);
                self.turned_away(client);
            }
        }
        while let Some(other) = self.admission.next_wake(worker) {
            let delay = if other == worker { Nanos::ZERO } else { self.scenario.message_delay.0 };
            self.measured.woke(self.now);
            self.agenda.enter(self.now + delay, Event::Wake(other));
        }
        Ok(())
    }
}

// === impl World: what goes wrong ===

impl World<'_> {
    /// Its requests are gone; clients come again, to somebody else.
    fn die(&mut self, worker: usize) {
        let alive = self.workers.iter().filter(|worker| worker.alive).count();
        if alive < 2 || !self.workers[worker].alive {
            return;
        }
        self.admission.kill(worker);
        self.workers[worker].alive = false;
        let its = self.requests.iter().filter(|(_, request)| request.worker == worker);
        for id in its.map(|(id, _)| *id).collect::<Vec<_>>() {
            let Some(request) = self.requests.remove(&id) else { continue };
            let flow = self.clients[request.client].flow;
            if request.phase == Phase::Waiting {
                self.measured.waits_no_more(flow, self.now);
            } else {
                self.measured.released(flow, request.seats, request.started, self.now);
                let left = &mut self.workers[worker].left;
                *left = (left.0 + u64::from(request.phase == Phase::Executing), left.1 + request.seats);
            }
            if request.phase != Phase::Lingering {
                self.retry(request.client);
            }
        }
        self.agenda.enter(self.now + RESTART, Event::Replace(worker));
    }

    fn replace(&mut self, dead: usize) -> Checked {
        let able = |worker: &Worker| worker.alive && worker.stalled_until <= self.now;
        let by = self.workers.iter().position(able);
        if let Some(by) = by {
            let (executing, seats) = std::mem::take(&mut self.workers[dead].left);
            (0..executing).for_each(|_| self.checks.finish());
            self.checks.release(seats);
            self.admission.bury(by, self.now, dead);
            self.listen(by)?;
        }
        if by.is_some() && self.admission.replace(dead) {
            self.workers[dead] = Worker { alive: true, stalled_until: Nanos::ZERO, left: (0, 0) };
        } else {
            self.agenda.enter(self.now + RESTART, Event::Replace(dead));
        }
        Ok(())
    }

    fn set_limit(&mut self, limit: u64) -> Checked {
        let by = self.living(0);
        self.checks.set_limit(self.now, limit);
        self.measured.set_limit(self.now.min(self.scenario.duration.0), limit);
        self.admission.set_limit(by, self.now, limit);
        self.listen(by)
    }
}

#[expect(clippy::cast_precision_loss, reason = "an hour has fewer ns than 53 bits can count")]
fn service(flow: &Flow, random: &mut Random) -> Nanos {
    let mean = flow.work.service.0.0 as f64;
    match flow.work.distribution {
        Distribution::Fixed => flow.work.service.0,
        Distribution::Exponential => Nanos(random.exponential(mean)),
        // The mean of both together is as asked: (0.95 + 0.05 * 20) / 1.95.
        Distribution::Heavy => {
            let times = if random.chance(0.05) { 20.0 } else { 1.0 };
            Nanos(random.exponential(mean * times / 1.95))
        }
    }
}

/// So that those who were turned away together do not come back together.
fn between_half_and_more(mean: Nanos, random: &mut Random) -> Nanos {
    let mean = mean.0.cast_unsigned();
    Nanos(random.between(mean / 2, mean / 2 + mean).cast_signed())
}
