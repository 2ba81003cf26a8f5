//! `uniform_scenarios.json`: closed-loop clients on one queue set, judged by long-run averages.
//!
//! Simultaneous events run in the order in which they were scheduled, which leaves no freedom: the
//! reference's averages must be met, not just its bounds.

use std::collections::BTreeMap;

use serde_json::Value;
use usher_flowcontrol::demand::Integrator;
use usher_flowcontrol::level::{Arrival, Dispatched, Event, Finish, Level, Reason, Ticket, Totals, Verdict};
use usher_flowcontrol::units::{FlowHash, Nanos, Seats, Work};

use crate::crew::{Four, Subject};
use crate::numbers::{close, count, decimal, each_case, integer, list, required};
use crate::{File, Outcome};

pub(crate) fn run(file: &File) -> Vec<(String, Outcome)> {
    run_on::<Level>(file)
}

pub(crate) fn run_with_four(file: &File) -> Vec<(String, Outcome)> {
    run_on::<Four>(file)
}

fn run_on<S: Subject>(file: &File) -> Vec<(String, Outcome)> {
    each_case(file, |case| {
        let mut scenario = Scenario::<S>::of(case)?;
        for (number, check) in list(case, "checks")?.iter().enumerate() {
            scenario.run_until(integer(check, "at")?)?;
            scenario.check(check).map_err(|why| format!("check {number}: {why}"))?;
        }
        scenario.run_until(i64::MAX)?;
        scenario.compare_totals(case)
    })
}

/// A case on its way.
struct Scenario<S> {
    level: S,
    clients: Vec<Client>,
    /// By time, then by order of scheduling.
    agenda: BTreeMap<(i64, usize), Item>,
    scheduled: usize,
    /// By tag.
    requests: Vec<Request>,
    seat_demand: Integrator,
}

struct Client {
    flow: FlowHash,
    work: Work,
    exec: i64,
    think: i64,
    /// Seats executing, followed through time since the last check.
    seats: Integrator,
    executing: u64,
    executions: u64,
    rejects: u64,
    reject_reason: Option<Reason>,
}

/// What happens at an instant.
#[derive(Clone, Copy)]
enum Item {
    Call {
        client: usize,
        calls_left: u64,
    },
    /// The request of that tag.
    Finish(usize),
    LingerEnd(usize),
}

struct Request {
    client: usize,
    calls_left: u64,
    ticket: Ticket,
}

impl<S: Subject> Scenario<S> {
    fn of(case: &Value) -> Result<Self, String> {
        let (mode, limit) = crate::queueset::mode(&case["config"])?;
        let mut scenario = Self {
            level: S::new(mode, limit),
            clients: Vec::new(),
            agenda: BTreeMap::new(),
            scheduled: 0,
            requests: Vec::new(),
            seat_demand: Integrator::new(Nanos(0)),
        };
        for (number, client) in (0..).zip(list(case, "clients")?) {
            scenario.add_client(number, client, integer(case, "evalDuration")?)?;
        }
        Ok(scenario)
    }

    fn add_client(&mut self, number: i64, client: &Value, evaluated: i64) -> Result<(), String> {
        let (threads, calls): (i64, u64) = (integer(client, "threads")?, count(client, "calls")?);
        for thread in 0..threads {
            let late = client["split"] == true && thread >= threads / 2;
            let start = 90 * thread + 20 * number + if late { evaluated / 2 } else { 0 };
            let calls_left = if late { calls / 2 } else { calls };
            if calls_left > 0 {
                self.schedule(start, Item::Call { client: self.clients.len(), calls_left });
            }
        }
        self.clients.push(Client {
            flow: FlowHash(decimal(client, "hash")?),
            work: Work {
                initial_seats: Seats(count(client, "initialSeats")?),
                final_seats: Seats(count(client, "finalSeats")?),
                additional_latency: Nanos(integer(client, "pad")?),
            },
            exec: integer(client, "exec")?,
            think: integer(client, "think")?,
            seats: Integrator::new(Nanos(0)),
            executing: 0,
            executions: 0,
            rejects: 0,
            reject_reason: None,
        });
        Ok(())
    }

    fn schedule(&mut self, at: i64, item: Item) {
        self.agenda.insert((at, self.scheduled), item);
        self.scheduled += 1;
    }

    /// Lets everything happen that happens by `end`.
    fn run_until(&mut self, end: i64) -> Result<(), String> {
        while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= end) {
            let ((at, _), item) = entry.remove_entry();
            self.happen(at, item)?;
            let demand =
                self.level.totals().map(Totals::demand).ok_or("somebody knows the level as a whole")?;
            self.seat_demand.set_seats(Nanos(at), demand);
        }
        Ok(())
    }

    fn happen(&mut self, at: i64, item: Item) -> Result<(), String> {
        match item {
            Item::Call { client, calls_left } => self.call(at, client, calls_left),
            Item::Finish(tag) => {
                let Request { client, ticket, .. } = self.requests[tag];
                self.clients[client].executing -= 1;
                self.clients[client].follow(at);
                if let Finish::Lingers { until } = self.level.finish(Nanos(at), ticket) {
                    self.schedule(until.0, Item::LingerEnd(tag));
                }
            }
            Item::LingerEnd(tag) => self.level.linger_end(Nanos(at), self.requests[tag].ticket),
        }
        while let Some(event) = self.level.next_event() {
            let Event::Dispatched(Dispatched { tag, .. }) = event else {
                return Err(format!("{event:?} after it was to wait"));
            };
            self.dispatched(at, usize::try_from(tag).map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    fn call(&mut self, at: i64, client: usize, calls_left: u64) {
        let tag = self.requests.len();
        let Client { flow, work, .. } = self.clients[client];
        match self.level.arrive(Nanos(at), Arrival { flow, work, tag: tag as u64 }) {
            Verdict::Execute(ticket) => {
                self.requests.push(Request { client, calls_left, ticket });
                self.dispatched(at, tag);
            }
            Verdict::Wait(ticket) => self.requests.push(Request { client, calls_left, ticket }),
            Verdict::Reject(why) => {
                self.clients[client].rejects += 1;
                self.clients[client].reject_reason = Some(why);
            }
        }
    }

    fn dispatched(&mut self, at: i64, tag: usize) {
        let Request { client, calls_left, .. } = self.requests[tag];
        let Client { exec, think, .. } = self.clients[client];
        self.clients[client].executions += 1;
        self.clients[client].executing += 1;
        self.clients[client].follow(at);
        if calls_left > 1 {
            self.schedule(at + exec + think, Item::Call { client, calls_left: calls_left - 1 });
        }
        self.schedule(at + exec, Item::Finish(tag));
    }

    /// Compares the averages since the last check.
    fn check(&mut self, check: &Value) -> Result<(), String> {
        let at = Nanos(integer(check, "at")?);
        let averages: Vec<f64> =
            self.clients.iter_mut().map(|client| client.seats.reset(at).average.unwrap_or(0.0)).collect();
        let numbers = |member: &str| -> Result<Vec<f64>, String> {
            list(check, member)?
                .iter()
                .map(|number| number.as_f64().ok_or(format!("{member}: {number}")))
                .collect()
        };
        for (client, (&average, &measured)) in averages.iter().zip(&numbers("measured")?).enumerate() {
            if !close(average, measured) {
                return Err(format!("client {client}: {average} instead of {measured}"));
            }
        }
        let expected = numbers("expectedAverages")?;
        for expectation in list(check, "expectations")? {
            let margin = required(expectation, "margin")?;
            for (client, (average, expected)) in averages.iter().zip(&expected).enumerate() {
                let fair = (average - expected).abs() / expected <= margin + 1e-12;
                if expectation["fair"] != fair {
                    return Err(format!("client {client}: fair is {fair} with {average} for {expected}"));
                }
            }
        }
        self.check_seat_demand(at, &check["seatDemand"])
    }

    fn check_seat_demand(&mut self, at: Nanos, expected: &Value) -> Result<(), String> {
        let limit = self.level.limit();
        if self.clients.iter().any(|client| client.work.final_seats > limit) {
            return Ok(()); // parity: C1. The reference's demand leaks when final seats exceed the limit.
        }
        let found = self.seat_demand.read(at);
        let deviation = required(expected, "deviation")?;
        let equal = close(found.duration, required(expected, "duration")?)
            && close(found.average.unwrap_or(0.0), required(expected, "average")?)
            && (found.deviation.unwrap_or(0.0) - deviation).abs() <= 1e-6 * found.max.max(1.0);
        if equal { Ok(()) } else { Err(format!("seat demand {found:?} instead of {expected}")) }
    }

    fn compare_totals(&mut self, case: &Value) -> Result<(), String> {
        let totals = |count: fn(&Client) -> u64| -> Value { self.clients.iter().map(count).collect() };
        let (executions, rejects) = (totals(|client| client.executions), totals(|client| client.rejects));
        if executions != case["executions"] || rejects != case["rejects"] {
            return Err(format!("{executions} executions, {rejects} rejects"));
        }
        let all = self.clients.iter().all(|client| client.rejects == 0);
        let reason = match self.clients.iter().find_map(|client| client.reject_reason) {
            Some(Reason::QueueFull) => Value::from("queue-full"),
            Some(Reason::ConcurrencyLimit) => Value::from("concurrency-limit"),
            _ => Value::Null,
        };
        if case["expectAllRequests"] != all || case["rejectReason"] != reason {
            return Err(format!("rejected because of {reason}"));
        }
        let epochs = self.level.picture(Nanos(i64::MAX)).epochs;
        if case["expectedEpochAdvances"] != epochs.complete + epochs.clipped {
            return Err(format!("{epochs:?}"));
        }
        if self.level.is_empty() { Ok(()) } else { Err("seats are still in use at the end".to_owned()) }
    }
}

impl Client {
    /// From now on that many seats execute.
    fn follow(&mut self, at: i64) {
        self.seats.set_seats(Nanos(at), Seats(self.executing * self.work.initial_seats.0));
    }
}
