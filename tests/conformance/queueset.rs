//! The life of one level's queue set, event by event, every reading compared.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use usher_flowcontrol::level::{
    Arrival, Dispatched, Event, Finish, Level, Mode, Picture, Reason, Ticket, Verdict,
};
use usher_flowcontrol::units::{FlowHash, Nanos, Seats, Work};

use crate::crew::{Four, Subject};
use crate::numbers::{count, decimal, integer, list, text};
use crate::{File, Outcome};

/// Tags of the deliberate departures in the queue set; see design.md, section 5: C5, C2 with C3, and
/// readings that are older than an epoch.
const LEFT_OUT: [&str; 3] = ["cancel_starts_nothing", "shrink", "epoch_wrap"];

pub(crate) fn run(file: &File) -> Vec<(String, Outcome)> {
    run_on::<Level>(file)
}

pub(crate) fn run_with_four(file: &File) -> Vec<(String, Outcome)> {
    run_on::<Four>(file)
}

fn run_on<S: Subject>(file: &File) -> Vec<(String, Outcome)> {
    let cases = file.document["cases"].as_array().map(Vec::as_slice).unwrap_or_default();
    let name = |case: &Value| case["name"].as_str().unwrap_or("unnamed").to_owned();
    cases.iter().map(|case| (name(case), outcome::<S>(case))).collect()
}

fn outcome<S: Subject>(case: &Value) -> Outcome {
    let tagged =
        |tag: &&str| case["tags"].as_array().is_some_and(|tags| tags.iter().any(|given| given == tag));
    match LEFT_OUT.into_iter().find(tagged) {
        Some(tag) => Outcome::LeftOut(tag),
        None => match Replay::<S>::of(case).and_then(Replay::run) {
            Ok(()) => Outcome::Agreed,
            Err(why) => Outcome::Failed(why),
        },
    }
}

/// The mode that a vector's configuration stands for, and its limit.
pub(crate) fn mode(config: &Value) -> Result<(Mode, Seats), String> {
    let limit = Seats(count(config, "concurrencyLimit")?);
    let mode = match integer(config, "desiredQueues")? {
        i64::MIN..0 => Mode::Exempt,
        0 => Mode::Reject,
        _ => Mode::Queue {
            queues: count(config, "desiredQueues")?,
            hand_size: count(config, "handSize")?,
            queue_length_limit: count(config, "queueLengthLimit")?,
        },
    };
    Ok((mode, limit))
}

/// One case on its way.
struct Replay<'a, S> {
    case: &'a Value,
    level: S,
    /// By time: no two things of a case happen at the same time.
    agenda: BTreeMap<i64, Item<'a>>,
    requests: Vec<Request<'a>>,
}

/// What happens at an instant.
enum Item<'a> {
    Input(&'a Value),
    /// The request of that number.
    Finish(usize),
    LingerEnd(usize),
}

struct Request<'a> {
    id: &'a str,
    ticket: Ticket,
    duration: i64,
}

impl<'a, S: Subject> Replay<'a, S> {
    fn of(case: &'a Value) -> Result<Self, String> {
        let (mode, limit) = mode(&case["config"])?;
        let mut agenda = BTreeMap::new();
        for event in list(case, "events")? {
            agenda.insert(integer(event, "t")?, Item::Input(event));
        }
        Ok(Self { case, level: S::new(mode, limit), agenda, requests: Vec::new() })
    }

    fn run(mut self) -> Result<(), String> {
        let case = self.case;
        let mut last = 0;
        for expected in list(case, "expect")? {
            let (now, item) = self.agenda.pop_first().ok_or("nothing happens any more")?;
            let mut found = self.happen(now, item)?;
            self.observe(now, &mut found)?;
            compare(&found, expected)?;
            last = now;
        }
        if let Some(left) = self.agenda.keys().next() {
            return Err(format!("something happens at {left}"));
        }
        compare(&self.end(last)?, &case["end"])?;
        Ok(())
    }

    /// Lets one thing happen; its entry, without the state.
    fn happen(&mut self, now: i64, item: Item<'a>) -> Result<Value, String> {
        let mut entry = match item {
            Item::Input(event) => match text(event, "kind")? {
                "arrive" => self.arrive(now, event)?,
                "cancel" => self.cancel(now, event)?,
                "reconfigure" => {
                    let (mode, limit) = mode(&event["config"])?;
                    self.level.reconfigure(Nanos(now), mode, limit);
                    json!({"kind": "reconfigure", "id": event["id"], "outcome": "applied", "dispatched": []})
                }
                kind => return Err(format!("no kind {kind}")),
            },
            Item::Finish(number) => {
                let Request { id, ticket, .. } = self.requests[number];
                let outcome = match self.level.finish(Nanos(now), ticket) {
                    Finish::Released => "released",
                    Finish::Lingers { until } => {
                        self.agenda.insert(until.0, Item::LingerEnd(number));
                        "lingering"
                    }
                };
                json!({"kind": "finish", "id": id, "outcome": outcome, "dispatched": []})
            }
            Item::LingerEnd(number) => {
                let Request { id, ticket, .. } = self.requests[number];
                self.level.linger_end(Nanos(now), ticket);
                json!({"kind": "linger_end", "id": id, "outcome": "released", "dispatched": []})
            }
        };
        entry["t"] = now.into();
        while let Some(event) = self.level.next_event() {
            let Event::Dispatched(Dispatched { tag, .. }) = event else {
                return Err(format!("{event:?} after it was to wait"));
            };
            let number = usize::try_from(tag).map_err(|error| error.to_string())?;
            self.agenda.insert(now + self.requests[number].duration, Item::Finish(number));
            entry["dispatched"].as_array_mut().ok_or("no list")?.push(self.requests[number].id.into());
        }
        Ok(entry)
    }

    fn arrive(&mut self, now: i64, event: &'a Value) -> Result<Value, String> {
        let work = Work {
            initial_seats: Seats(count(event, "initialSeats")?),
            final_seats: Seats(count(event, "finalSeats")?),
            additional_latency: Nanos(integer(event, "additionalLatency")?),
        };
        let id = text(event, "id")?;
        let (number, duration) = (self.requests.len(), integer(event, "duration")?);
        let flow = FlowHash(decimal(event, "hash")?);
        let mut entry = json!({"kind": "arrive", "id": id, "dispatched": []});
        let (outcome, ticket) =
            match self.level.arrive(Nanos(now), Arrival { flow, work, tag: number as u64 }) {
                Verdict::Execute(ticket) => {
                    self.agenda.insert(now + duration, Item::Finish(number));
                    entry["dispatched"] = json!([id]);
                    ("executing", Some(ticket))
                }
                Verdict::Wait(ticket) => ("queued", Some(ticket)),
                Verdict::Reject(why) => {
                    let why = match why {
                        Reason::QueueFull => "queue-full",
                        Reason::ConcurrencyLimit => "concurrency-limit",
                        Reason::TimeOut | Reason::Cancelled => "not at arrival",
                    };
                    entry["reason"] = why.into();
                    ("rejected", None)
                }
            };
        entry["outcome"] = outcome.into();
        if let Some(ticket) = ticket {
            self.level.held(ticket).ok_or("accepted and unknown")?;
            entry["queue"] = self.level.queue_of(ticket).map_or(Value::from(-1), Value::from);
            self.requests.push(Request { id, ticket, duration });
        }
        Ok(entry)
    }

    fn cancel(&mut self, now: i64, event: &Value) -> Result<Value, String> {
        let id = text(event, "id")?;
        let ticket = self.requests.iter().find(|request| request.id == id).map(|request| request.ticket);
        let removed = ticket.is_some_and(|ticket| self.level.cancel(Nanos(now), ticket, Reason::Cancelled));
        let outcome = if removed { "removed" } else { "ignored" };
        Ok(json!({"kind": "cancel", "id": id, "outcome": outcome, "dispatched": []}))
    }

    /// Adds the state to an entry; the queues in which anything is not zero.
    fn observe(&mut self, now: i64, entry: &mut Value) -> Result<Picture, String> {
        let picture = self.level.picture(Nanos(now));
        if self.level.totals() != Some(picture.totals) {
            return Err(format!("{:?} without asking for a picture", self.level.totals()));
        }
        entry["R"] = picture.r.raw().to_string().into();
        entry["seatsInUse"] = picture.totals.seats_in_use.0.into();
        entry["requestsWaiting"] = picture.totals.waiting.into();
        entry["requestsExecuting"] = picture.totals.executing.into();
        entry["robinIndex"] = picture.robin_index.into();
        entry["queues"] = queues(&picture, false);
        Ok(picture)
    }

    fn end(&mut self, now: i64) -> Result<Value, String> {
        let mut end = json!({});
        let picture = self.observe(now, &mut end)?;
        end["numQueues"] = picture.queue_count.into();
        end["seatsWaiting"] = picture.totals.seats_waiting.0.into();
        end["epochAdvances"] = (picture.epochs.complete + picture.epochs.clipped).into();
        end["rejected"] = picture.counters.rejected.into();
        end["cancelled"] = picture.counters.cancelled.into();
        end["queues"] = queues(&picture, true);
        Ok(end)
    }
}

/// The queues in use; or, if `stale`, all in which anything is not zero.
fn queues(picture: &Picture, stale: bool) -> Value {
    let states = picture.queues.iter().map(|(state, ..)| state).filter(|state| {
        state.waiting > 0
            || state.executing > 0
            || state.seats_in_use.0 > 0
            || (stale && state.next_dispatch_r.raw() > 0)
    });
    let shown = states.map(|state| {
        json!({
            "index": state.index,
            "waiting": state.waiting,
            "executing": state.executing,
            "seatsInUse": state.seats_in_use.0,
            "nextDispatchR": state.next_dispatch_r.raw().to_string(),
        })
    });
    shown.collect()
}

/// What is found must be what is expected. Fields that only the expectation has are not ours to judge.
fn compare(found: &Value, expected: &Value) -> Result<(), String> {
    for (key, value) in found.as_object().ok_or("no entry")? {
        if *value != expected[key] {
            let at = (&expected["t"], &expected["kind"], &expected["id"]);
            return Err(format!("{at:?}: {key} is {value}, expected {}", expected[key]));
        }
    }
    Ok(())
}
