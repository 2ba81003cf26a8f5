//! Clients: they ask, wait, give up and come again.

use usher_flowcontrol::level::{Arrival, Verdict};
use usher_flowcontrol::units::{Nanos, Seats, Work};

use super::requests::{Phase, Request};
use super::{Asker, Asks, Checked, Client, Event, Sabotage, World};
use crate::simulation::flow::{Distribution, Flow, Places};
use crate::simulation::random::Random;

impl World<'_> {
    /// One more client of that flow.
    pub(super) fn place(&mut self, index: usize) {
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

    /// The client asks after that time, if it is not too late then.
    pub(super) fn again(&mut self, client: usize, after: Nanos) {
        if self.now + after < self.scenario.duration.0 {
            self.agenda.enter(self.now + after, Event::Ask(client));
        }
    }

    /// All clients of a flow ask; of a burst that comes again those are new ones every time.
    pub(super) fn begin(&mut self, index: usize) {
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
    pub(super) fn next(&mut self, index: usize) -> Checked {
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

    pub(super) fn ask(&mut self, client: usize) -> Checked {
        let Client { flow: index, worker, .. } = self.clients[client];
        let (now, worker) = (self.now, self.living(worker));
        let clock = self.clock(worker);
        let Asker { flow, hash, random, level, .. } = &mut self.flows[index];
        let (flow, level) = (*flow, *level);
        let seats = random.between(flow.work.seats.0, flow.work.seats.1);
        let service = service(flow, random);
        let linger = flow.work.linger.0;
        let last = if linger > Nanos::ZERO { seats } else { 0 };
        let work = Work { final_seats: Seats(last), additional_latency: linger, ..Work::seats(seats) };
        self.arrived += 1;
        let id = self.arrived;
        let arrival = Arrival { flow: *hash, work, tag: id };
        let request = |ticket, phase| Request {
            client,
            worker,
            level,
            ticket,
            phase,
            seats,
            arrived: now,
            started: now,
            service,
        };
        let verdict = match self.levels[level].admission.arrive(worker, clock, arrival) {
            Verdict::Wait(ticket) if self.is_sabotaged(Sabotage::RunUnasked) => Verdict::Execute(ticket),
            verdict => verdict,
        };
        match verdict {
            Verdict::Execute(ticket) => {
                self.requests.insert(id, request(ticket, Phase::Executing));
                self.take_limits();
                self.start(id, true)?;
            }
            Verdict::Wait(ticket) => {
                self.requests.insert(id, request(ticket, Phase::Waiting));
                self.levels[level].checks.wait(seats);
                self.measured.waits(index, now);
                if let Some(patience) = flow.patience {
                    self.agenda.enter(now + patience.0, Event::GiveUp(id));
                }
            }
            Verdict::Reject(_) => self.turned_away(client),
        }
        self.listen(level, worker)
    }

    pub(super) fn turned_away(&mut self, client: usize) {
        let flow = self.clients[client].flow;
        self.measured.rejected(flow, self.now);
        self.retry(client);
    }

    /// A client that was not served tries again, unless it belongs to an open flow.
    pub(super) fn retry(&mut self, client: usize) {
        let Client { flow, failures, .. } = &mut self.clients[client];
        let Asker { flow, random, .. } = &mut self.flows[*flow];
        if !matches!(flow.asks, Asks::Rate(_)) {
            let mean = flow.retry.after(*failures);
            *failures = failures.saturating_add(1);
            let after = between_half_and_more(mean, random);
            self.again(client, after);
        }
    }

    pub(super) fn give_up(&mut self, id: u64) -> Checked {
        let Some(request) = self.requests.get(&id) else { return Ok(()) };
        let Request { client, worker, level, ticket, phase, .. } = *request;
        let clock = self.clock(worker);
        if phase == Phase::Waiting && self.levels[level].admission.cancel(worker, clock, ticket) {
            self.waits_no_more(id);
            self.requests.remove(&id);
            self.measured.gave_up(self.clients[client].flow, self.now);
            self.retry(client);
        }
        self.listen(level, worker)
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
