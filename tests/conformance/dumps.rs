//! dumps.json: a scenario replayed through the real controller, its state, and the operators' tables.
//!
//! One departure shows: kube-apiserver counts a request that timed out as cancelled (C9). Our counts are
//! added up to its own before they are compared; nothing else is touched.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use usher_flowcontrol::controller::{Class, Controller, LevelId, User};
use usher_flowcontrol::dump::{self, Details};
use usher_flowcontrol::flow::Method;
use usher_flowcontrol::level::{Dispatched, Event, Finish, QueueState, Reason, Ticket, Verdict};
use usher_flowcontrol::objects::defaults;
use usher_flowcontrol::request_info::{Query, RequestInfo};
use usher_flowcontrol::snapshot::{Level, Queue, Request, Snapshot};
use usher_flowcontrol::units::{Nanos, Seats, Work};

use crate::compare::compare;
use crate::crew::{Crew, Lead, Nobody, OfFour};
use crate::numbers::{count, each_case, integer, list, text};
use crate::{File, Outcome};

pub(crate) fn run(file: &File) -> Vec<(String, Outcome)> {
    each_case(file, case::<Nobody>)
}

pub(crate) fn run_with_four(file: &File) -> Vec<(String, Outcome)> {
    each_case(file, case::<OfFour>)
}

fn case<L: Lead>(case: &Value) -> Result<(), String> {
    let mut replay = Replay {
        crew: Crew::<L>::new(Seats(count(case, "server_concurrency_limit")?)),
        requests: Vec::new(),
        lingering: BTreeMap::new(),
        unix_epoch: Nanos::ZERO - unix_nanos(text(case, "start_time")?)?,
        now: Nanos::ZERO,
    };
    for (index, event) in list(case, "events")?.iter().enumerate() {
        replay.event(event).map_err(|why| format!("event {index}: {why}"))?;
    }
    let snapshot = as_kube_apiserver_counts(replay.crew.snapshot(replay.now));
    let state: Vec<Value> = snapshot.levels.iter().map(|level| replay.level(level)).collect();
    compare("state", &json!(state), &case["state"])?;
    for expected in list(case, "dumps")? {
        let path = text(expected, "path")?;
        let table = replay.dump(&snapshot, path)?;
        if table != text(expected, "text")? {
            return Err(format!("{path}: {}", first_difference(&table, text(expected, "text")?)));
        }
        compare(
            path,
            &json!([200, dump::content_type(&table)]),
            &json!([expected["status"], expected["content_type"]]),
        )?;
    }
    Ok(())
}

/// Departure C9, undone.
fn as_kube_apiserver_counts(mut snapshot: Snapshot) -> Snapshot {
    for level in &mut snapshot.levels {
        level.counters.cancelled += std::mem::take(&mut level.counters.timed_out);
    }
    snapshot
}

struct Replay<'a, L: Lead> {
    crew: Crew<L>,
    /// By tag.
    requests: Vec<Known<'a>>,
    lingering: BTreeMap<Nanos, (usize, LevelId, Ticket)>,
    /// The start of 1970 on the scenario's clock.
    unix_epoch: Nanos,
    now: Nanos,
}

/// What the owner of a request knows.
struct Known<'a> {
    id: &'a str,
    event: &'a Value,
    worker: usize,
    class: Class,
    ticket: Option<Ticket>,
}

// === impl Replay: events ===

impl<'a, L: Lead> Replay<'a, L> {
    fn event(&mut self, event: &'a Value) -> Result<(), String> {
        let at = Nanos(integer(event, "at_ns")?);
        while let Some((&until, &(worker, level, ticket))) = self.lingering.first_key_value() {
            if until > at {
                break;
            }
            self.lingering.remove(&until);
            self.crew.at(worker, until, 0, |controller| controller.linger_end(until, level, ticket));
        }
        self.now = at;
        match text(event, "op")? {
            "configure" => self.configure(event)?,
            "arrive" => self.arrive(event)?,
            "finish" => self.finish(text(event, "id")?)?,
            "time-out" => self.time_out(text(event, "id")?)?,
            "pass" => {}
            other => return Err(format!("unknown operation {other}")),
        }
        let started: Vec<&str> = std::iter::from_fn(|| self.crew.next_event())
            .map(|(_, event)| match event {
                Event::Dispatched(Dispatched { tag, .. }) | Event::Rejected { tag, .. } => tag,
            })
            .map(|tag| self.requests[usize::try_from(tag).unwrap_or(0)].id)
            .collect();
        let expected = list(event, "then_start")?;
        if started.len() == expected.len() && expected.iter().all(|id| started.iter().any(|ours| id == ours))
        {
            Ok(())
        } else {
            Err(format!("{started:?} start instead of {expected:?}"))
        }
    }

    fn configure(&mut self, event: &Value) -> Result<(), String> {
        fn read<T: serde::de::DeserializeOwned>(
            event: &Value,
            member: &str,
            fill: fn(&mut T),
        ) -> Result<Vec<T>, String> {
            let object = |object: &Value| {
                let mut object = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
                fill(&mut object);
                Ok(object)
            };
            list(event, member)?.iter().map(object).collect()
        }
        let schemas = read(event, "flow_schemas", defaults::fill_schema)?;
        let levels = read(event, "priority_levels", defaults::fill_level)?;
        self.crew.configure(self.now, &schemas, &levels);
        let snapshot = self.crew.snapshot(self.now);
        let limits: BTreeMap<&str, u64> =
            snapshot.levels.iter().map(|level| (&*level.name, level.limit.0)).collect();
        compare("limits", &json!(limits), &event["current_limits"])
    }

    fn arrive(&mut self, event: &'a Value) -> Result<(), String> {
        let groups: Vec<String> = list(&event["user"], "groups")?
            .iter()
            .filter_map(|group| group.as_str().map(str::to_owned))
            .collect();
        let user = User { name: text(&event["user"], "name")?, groups: &groups };
        let target = target(&event["request"])?;
        let method = method(&event["request"])?;
        let info = RequestInfo::parse(&method, &target).map_err(|error| error.to_string())?;
        let worker = self.crew.next();
        let controller = self.crew.of(worker);
        let class = controller.classify(user, &info);
        compare("schema", &json!(controller.schema_name(class.schema)), &event["flow_schema"])?;
        compare("level", &json!(controller.level_name(class.level)), &event["priority_level"])?;
        let work = Work {
            initial_seats: Seats(count(&event["work"], "initial_seats")?),
            final_seats: Seats(count(&event["work"], "final_seats")?),
            additional_latency: Nanos(integer(&event["work"], "additional_latency_ns")?),
        };
        let (now, tag) = (self.now, self.requests.len() as u64);
        let verdict = self.crew.at(worker, now, 0, |controller| controller.arrive(now, &class, work, tag));
        let (outcome, ticket) = match verdict {
            Verdict::Execute(ticket) => ("executing", Some(ticket)),
            Verdict::Wait(ticket) => ("waiting", Some(ticket)),
            Verdict::Reject(_) => ("rejected", None),
        };
        self.requests.push(Known { id: text(event, "id")?, event, worker, class, ticket });
        compare("outcome", &json!(outcome), &event["outcome"])
    }

    fn finish(&mut self, id: &str) -> Result<(), String> {
        let (worker, level, ticket) = self.accepted(id)?;
        let now = self.now;
        let finish = self.crew.at(worker, now, 0, |controller| controller.finish(now, level, ticket));
        if let Finish::Lingers { until } = finish {
            self.lingering.insert(until, (worker, level, ticket));
        }
        Ok(())
    }

    fn time_out(&mut self, id: &str) -> Result<(), String> {
        let (worker, level, ticket) = self.accepted(id)?;
        let now = self.now;
        let cancel =
            |controller: &mut Controller<L::Part>| controller.cancel(now, level, ticket, Reason::TimeOut);
        let waited = self.crew.at(worker, now, 0, cancel);
        if waited { Ok(()) } else { Err(format!("{id} did not wait")) }
    }

    fn accepted(&self, id: &str) -> Result<(usize, LevelId, Ticket), String> {
        let known =
            self.requests.iter().find(|known| known.id == id).ok_or_else(|| format!("no request {id}"))?;
        let ticket = known.ticket.ok_or_else(|| format!("{id} was not accepted"))?;
        Ok((known.worker, known.class.level, ticket))
    }
}

// === impl Replay: state and tables ===

impl<L: Lead> Replay<'_, L> {
    fn dump(&self, snapshot: &Snapshot, path: &str) -> Result<String, String> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        match path.strip_prefix("/debug/api_priority_and_fairness/") {
            Some("dump_priority_levels") => Ok(dump::priority_levels(snapshot)),
            Some("dump_queues") => Ok(dump::queues(snapshot)),
            Some("dump_requests") => {
                let in_full = dump::asks_for_details(Query::of(query));
                Ok(dump::requests(snapshot, self.unix_epoch, |tag| self.details(tag), in_full))
            }
            _ => Err(format!("no table at {path}")),
        }
    }

    fn details(&self, tag: u64) -> Option<Details<'_>> {
        let event = self.requests.get(usize::try_from(tag).ok()?)?.event;
        let of_request = |member: &str| event["request"][member].as_str().unwrap_or_default().into();
        Some(Details {
            user: event["user"]["name"].as_str().unwrap_or_default().into(),
            verb: of_request("verb"),
            path: of_request("path"),
            namespace: of_request("namespace"),
            name: of_request("name"),
            api_group: of_request("api_group"),
            api_version: of_request("api_version"),
            resource: of_request("resource"),
            subresource: of_request("subresource"),
        })
    }

    fn level(&self, level: &Level) -> Value {
        json!({
            "name": &*level.name,
            "idle": level.idle,
            "quiescing": level.quiescing,
            "current_limit": level.limit.0,
            "waiting": level.waiting,
            "executing": level.executing,
            "dispatched": level.counters.dispatched,
            "rejected": level.counters.rejected,
            "timed_out": level.counters.timed_out,
            "cancelled": level.counters.cancelled,
            "queues": (0..level.queue_count).map(|index| self.queue(index, level.queue(index))).collect::<Vec<_>>(),
            "queueless": self.listed(&level.queueless),
        })
    }

    fn queue(&self, index: u32, queue: Option<&Queue>) -> Value {
        let state = queue.map_or(QueueState { index, ..QueueState::default() }, |queue| queue.state);
        let decimal = |amount: String| amount.trim_end_matches("ss").to_owned();
        json!({
            "waiting": queue.map_or_else(|| json!([]), |queue| self.listed(&queue.waiting)),
            "executing": queue.map_or_else(|| json!([]), |queue| self.listed(&queue.executing)),
            "executing_requests": state.executing,
            "seats_in_use": state.seats_in_use.0,
            "next_dispatch_r": decimal(state.next_dispatch_r.to_string()),
            "total_work_sum": decimal(state.total_work_sum.to_string()),
            "initial_seats_sum": state.initial_seats_sum.0,
            "max_seats_sum": state.max_seats_sum.0,
        })
    }

    fn listed(&self, requests: &[Request]) -> Value {
        requests.iter().map(|request| self.request(request)).collect()
    }

    fn request(&self, request: &Request) -> Value {
        let details = self.details(request.tag).unwrap_or_default();
        let clock = |at: Nanos| with_nine_digits(&dump::time::rfc3339_nano(at - self.unix_epoch));
        json!({
            "flow_schema": &*request.schema,
            "flow_distinguisher": match request.distinguisher {
                Some(Method::ByUser) => &details.user,
                Some(Method::ByNamespace) => &details.namespace,
                None => "",
            },
            "arrive_time": clock(request.arrived),
            "start_time": request.started.map(clock),
            "initial_seats": request.work.initial_seats.0,
            "final_seats": request.work.final_seats.0,
            "additional_latency_ns": request.work.additional_latency.0,
            "user_name": details.user,
            "verb": details.verb,
            "path": details.path,
            "namespace": details.namespace,
            "object_name": details.name,
            "api_group": details.api_group,
            "api_version": details.api_version,
            "resource": details.resource,
            "subresource": details.subresource,
        })
    }
}

// === reading ===

fn method(request: &Value) -> Result<String, String> {
    let verb = text(request, "verb")?;
    Ok(match verb {
        "get" | "list" | "watch" | "proxy" => "GET".to_owned(),
        "create" => "POST".to_owned(),
        "update" => "PUT".to_owned(),
        "deletecollection" => "DELETE".to_owned(),
        method => method.to_ascii_uppercase(),
    })
}

/// The request target that has the path.
fn target(request: &Value) -> Result<String, String> {
    let mut target = String::new();
    for byte in text(request, "path")?.bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                target.push(char::from(byte))
            }
            _ => target += &format!("%{byte:02X}"),
        }
    }
    if request["verb"] == "watch" {
        target += "?watch=true";
    }
    Ok(target)
}

/// The vectors' state has the fraction in full.
fn with_nine_digits(time: &str) -> String {
    let (whole, fraction) =
        time.trim_end_matches('Z').split_once('.').unwrap_or((time.trim_end_matches('Z'), ""));
    format!("{whole}.{fraction:0<9}Z")
}

/// An RFC 3339 instant in UTC as nanoseconds since the start of 1970: the one whose spelling it is.
fn unix_nanos(time: &str) -> Result<Nanos, String> {
    let wrong = || format!("not an instant: {time}");
    let digits: Vec<i64> = time
        .trim_end_matches('Z')
        .split(['-', 'T', ':', '.'])
        .take(6)
        .map(|part| part.parse().map_err(|_| wrong()))
        .collect::<Result<_, _>>()?;
    let [year, month, day, hour, minute, second] = digits[..] else { return Err(wrong()) };
    let fraction = time.trim_end_matches('Z').split_once('.').map_or("", |(_, fraction)| fraction);
    let nanos: i64 = format!("{fraction:0<9}").parse().map_err(|_| wrong())?;
    // Days by counting: slow and obvious.
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let february = if is_leap(year) { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month - 1).ok().and_then(|month| months.get(..month)).ok_or_else(wrong)?;
    let days = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum::<i64>()
        + before.iter().sum::<i64>()
        + day
        - 1;
    Ok(Nanos((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000_000 + nanos))
}

fn first_difference(ours: &str, theirs: &str) -> String {
    let mut lines = ours.lines().zip(theirs.lines()).enumerate().filter(|(_, (one, other))| one != other);
    lines.next().map_or_else(
        || format!("{} lines instead of {}", ours.lines().count(), theirs.lines().count()),
        |(index, (one, other))| format!("line {index}:\n{one:?}\ninstead of\n{other:?}"),
    )
}
