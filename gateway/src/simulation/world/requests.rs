//! Requests: they start, execute, linger and are gone; and what workers hear of them.

use usher_flowcontrol::level::{Dispatched, Finish, Ticket};
use usher_flowcontrol::units::Nanos;
use usher_shards::Event as Heard;

use super::{Asks, Checked, Event, Sabotage, State, World, at};

/// A request that waits, executes or lingers.
pub(super) struct Request {
    pub(super) client: usize,
    pub(super) worker: usize,
    pub(super) level: usize,
    pub(super) ticket: Ticket,
    pub(super) phase: Phase,
    pub(super) seats: u64,
    pub(super) arrived: Nanos,
    pub(super) started: Nanos,
    pub(super) service: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    Executing,
    Lingering,
}

impl World<'_> {
    pub(super) fn start(&mut self, id: u64, at_once: bool) -> Checked {
        let now = self.now;
        let Some(request) = self.requests.get_mut(&id) else {
            return at(now, format!("request {id} was granted seats, but it is not there"));
        };
        request.phase = Phase::Executing;
        request.started = now;
        let waited = now - request.arrived;
        self.agenda.enter(now + request.service, Event::Finish(id));
        self.measured.started(self.clients[request.client].flow, now, waited, at_once);
        self.levels[request.level].checks.start(now, request.seats, waited)
    }

    pub(super) fn finish(&mut self, id: u64) -> Checked {
        let Some(&Request { worker, client, level, ticket, .. }) = self.requests.get(&id) else {
            return Ok(());
        };
        let clock = self.clock(worker);
        let finish = match self.is_sabotaged(Sabotage::KeepSeats) {
            true => Finish::Released,
            false => self.levels[level].admission.finish(worker, clock, ticket),
        };
        self.levels[level].checks.finish();
        match finish {
            Finish::Released => self.release(id),
            Finish::Lingers { until } => self.agenda.enter(self.now + (until - clock), Event::LingerEnd(id)),
        }
        if let Some(request) = self.requests.get_mut(&id) {
            request.phase = Phase::Lingering;
        }
        self.clients[client].failures = 0;
        let flow = self.flows[self.clients[client].flow].flow;
        if let Asks::Connections(_) = flow.asks {
            self.again(client, flow.think.0);
        }
        self.listen(level, worker)
    }

    pub(super) fn linger_end(&mut self, id: u64) -> Checked {
        let Some(&Request { worker, level, ticket, .. }) = self.requests.get(&id) else { return Ok(()) };
        let clock = self.clock(worker);
        self.levels[level].admission.linger_end(worker, clock, ticket);
        self.release(id);
        self.listen(level, worker)
    }

    fn release(&mut self, id: u64) {
        if let Some(request) = self.requests.remove(&id) {
            let flow = self.clients[request.client].flow;
            self.measured.released((request.level, flow), request.seats, request.started, self.now);
            self.levels[request.level].checks.release(request.seats);
        }
    }

    /// It starts, or never will.
    pub(super) fn waits_no_more(&mut self, id: u64) {
        if let Some(request) = self.requests.get(&id) {
            self.measured.waits_no_more(self.clients[request.client].flow, self.now);
            self.levels[request.level].checks.wait_no_more(request.seats);
        }
    }

    /// A wake-up has arrived.
    pub(super) fn wake(&mut self, level: usize, worker: usize) -> Checked {
        self.levels[level].on_way -= 1;
        if self.workers[worker].state != State::Here || self.levels[level].gone {
            return Ok(());
        }
        let clock = self.clock(worker);
        self.levels[level].admission.poll(worker, clock);
        self.listen(level, worker)
    }

    /// What that worker hears, and whom it wakes. It looks at once, as workers do before they sleep.
    pub(super) fn listen(&mut self, level: usize, worker: usize) -> Checked {
        self.take_limits();
        while let Some(heard) = self.levels[level].admission.next_event(worker) {
            let (Heard::Dispatched(Dispatched { tag, .. }) | Heard::Rejected { tag, .. }) = heard;
            let Some(client) = self.requests.get(&tag).map(|request| request.client) else {
                return at(self.now, format!("request {tag} was heard of, but it is not there"));
            };
            self.waits_no_more(tag);
            if let Heard::Dispatched(_) = heard {
                self.start(tag, false)?;
            } else {
                self.requests.remove(&tag);
                self.turned_away(client);
            }
        }
        while let Some(other) = self.levels[level].admission.next_wake(worker) {
            if self.is_sabotaged(Sabotage::LoseWake) {
                continue;
            }
            let delay = if other == worker { Nanos::ZERO } else { self.scenario.message_delay.0 };
            self.measured.woke(self.now);
            self.levels[level].on_way += 1;
            self.agenda.enter(self.now + delay, Event::Wake(level, other));
        }
        Ok(())
    }
}
