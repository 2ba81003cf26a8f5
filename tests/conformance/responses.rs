//! responses.json: what a client is told, and what is counted.
//!
//! Decisions and words are the controller's and [`usher_flowcontrol::reply`]'s. Around them stands as
//! much of a server as the vectors presume: an upstream that does what it is told, and the headers that
//! Go's HTTP server adds to a handler's answer. An upstream's own headers replace those that flow
//! control had set before it was asked; that is how the handlers of the original are nested.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use usher_flowcontrol::controller::{Class, Controller, LevelId, User};
use usher_flowcontrol::level::{Event, Reason, Ticket, Verdict};
use usher_flowcontrol::objects::defaults;
use usher_flowcontrol::reply::{LEVEL_UID_HEADER, Reply, RequestLabels, SCHEMA_UID_HEADER};
use usher_flowcontrol::request_info::RequestInfo;
use usher_flowcontrol::units::{Nanos, Seats, Work};

use crate::compare::compare;
use crate::crew::{Crew, Lead, Nobody, OfFour};
use crate::numbers::{count, each_case, list, text};
use crate::{File, Outcome};

/// Go's server knows the length of a body that fits here; what is longer it sends in chunks.
const GO_BUFFER: usize = 2048;

/// When all of it happens: a second of Unix time.
const UNIX_SECOND: i64 = 1_700_000_000;

pub(crate) fn run(file: &File) -> Vec<(String, Outcome)> {
    each_case(file, case::<Nobody>)
}

pub(crate) fn run_with_four(file: &File) -> Vec<(String, Outcome)> {
    each_case(file, case::<OfFour>)
}

fn case<L: Lead>(case: &Value) -> Result<(), String> {
    let mut server = Server {
        crew: Crew::<L>::new(Seats(count(case, "server_concurrency_limit")?)),
        now: Nanos::ZERO,
        exchanges: Vec::new(),
        counters: BTreeMap::new(),
    };
    server.configure(case)?;
    for (index, step) in list(case, "steps")?.iter().enumerate() {
        server.step(step).map_err(|why| format!("step {index}: {why}"))?;
    }
    for (exchange, expected) in server.exchanges.iter().zip(list(case, "responses")?) {
        let answer = exchange.answer.as_ref().ok_or_else(|| format!("{} has no answer", exchange.id))?;
        let mut headers: Vec<(String, String)> = Vec::new();
        for header in list(expected, "headers")? {
            let part = |index: usize| header[index].as_str().unwrap_or_default();
            headers.push((part(0).to_ascii_lowercase(), part(1).to_owned()));
        }
        headers.sort();
        let ours: Vec<(String, String)> = answer.headers.clone().into_iter().collect();
        compare("headers", &json!(ours), &json!(headers))?;
        compare("status", &json!(answer.status), &expected["status"])?;
        compare("body", &json!(answer.body), &expected["body"])?;
        compare("reached_upstream", &json!(exchange.reached_upstream), &expected["reached_upstream"])?;
        compare("id", &json!(exchange.id), &expected["id"])?;
    }
    compare("answers", &json!(server.exchanges.len()), &json!(list(case, "responses")?.len()))?;
    let mut counters: Vec<String> = list(case, "counters")?.iter().map(Value::to_string).collect();
    counters.sort();
    compare("counters", &json!(server.counters()), &json!(counters))
}

struct Server<'a, L: Lead> {
    crew: Crew<L>,
    now: Nanos,
    /// One a request, in order of sending; its index is the request's tag.
    exchanges: Vec<Exchange<'a>>,
    /// Of the answers that flow control gave itself: metric and labels.
    counters: BTreeMap<(&'static str, String), u64>,
}

struct Exchange<'a> {
    id: &'a str,
    step: &'a Value,
    /// Who serves it.
    worker: usize,
    /// Response headers so far, by name in lower case.
    headers: BTreeMap<String, String>,
    /// Where it waits or executes.
    seated: Option<(LevelId, Ticket)>,
    class: Option<Class>,
    reached_upstream: bool,
    answer: Option<Answer>,
}

struct Answer {
    status: u64,
    headers: BTreeMap<String, String>,
    body: String,
}

// === impl Server ===

impl<'a, L: Lead> Server<'a, L> {
    fn configure(&mut self, case: &Value) -> Result<(), String> {
        fn read<T: serde::de::DeserializeOwned>(
            case: &Value,
            member: &str,
            fill: fn(&mut T),
        ) -> Result<Vec<T>, String> {
            let object = |object: &Value| {
                let mut object = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
                fill(&mut object);
                Ok(object)
            };
            list(case, member)?.iter().map(object).collect()
        }
        let schemas = read(case, "flow_schemas", defaults::fill_schema)?;
        let levels = read(case, "priority_levels", defaults::fill_level)?;
        self.crew.configure(self.now, &schemas, &levels);
        Ok(())
    }

    fn step(&mut self, step: &'a Value) -> Result<(), String> {
        self.now = self.now + Nanos::from_millis(1);
        match text(step, "op")? {
            "send" => {
                self.send(step)?;
                compare("then", &json!(self.state()), &step["then"])
            }
            "release" => {
                let exchange = self.find(text(step, "id")?)?;
                self.answer(exchange)?;
                compare("then_start", &json!(self.dispatch()?), &step["then_start"])
            }
            "await" => {
                let exchange = self.find(text(step, "id")?)?;
                self.time_out(exchange)
            }
            other => Err(format!("unknown operation {other}")),
        }
    }

    fn find(&self, id: &str) -> Result<usize, String> {
        let place = self.exchanges.iter().position(|exchange| exchange.id == id);
        place.ok_or_else(|| format!("no request {id}"))
    }

    /// What became of the request sent last.
    fn state(&self) -> &'static str {
        match self.exchanges.last() {
            Some(Exchange { answer: Some(_), .. }) | None => "answered",
            Some(Exchange { reached_upstream: true, .. }) => "executing",
            Some(_) => "waiting",
        }
    }

    fn send(&mut self, step: &'a Value) -> Result<(), String> {
        let mut headers = BTreeMap::new();
        for header in step["headers_set_before"].as_array().into_iter().flatten() {
            set(&mut headers, header[0].as_str().unwrap_or_default(), header[1].as_str().unwrap_or_default());
        }
        let (place, worker, now) = (self.exchanges.len(), self.crew.next(), self.now);
        self.exchanges.push(Exchange {
            id: text(step, "id")?,
            step,
            worker,
            headers,
            seated: None,
            class: None,
            reached_upstream: false,
            answer: None,
        });
        let (method, target) = (text(step, "method")?, text(step, "path")?);
        if step["lacks"].is_string() {
            self.reply(place, Reply::internal_server_error(target));
            return Ok(());
        }
        let info = RequestInfo::parse(method, target).map_err(|error| error.to_string())?;
        if info.bypasses_flow_control() {
            return self.reach_upstream(place);
        }
        let groups: Vec<String> =
            list(step, "groups")?.iter().filter_map(|group| group.as_str().map(str::to_owned)).collect();
        let class = self.crew.of(worker).classify(User { name: text(step, "user")?, groups: &groups }, &info);
        let exchange = &mut self.exchanges[place];
        exchange.class = Some(class);
        set(&mut exchange.headers, LEVEL_UID_HEADER, self.crew.of(worker).level_uid(class.level));
        set(&mut exchange.headers, SCHEMA_UID_HEADER, self.crew.of(worker).schema_uid(class.schema));
        let work = Work::seats(count(step, "seats")?);
        let arrive =
            |controller: &mut Controller<L::Part>| controller.arrive(now, &class, work, place as u64);
        match self.crew.at(worker, now, UNIX_SECOND, arrive) {
            Verdict::Execute(ticket) => {
                self.exchanges[place].seated = Some((class.level, ticket));
                self.reach_upstream(place)
            }
            Verdict::Wait(ticket) => {
                self.exchanges[place].seated = Some((class.level, ticket));
                Ok(())
            }
            Verdict::Reject(_) => self.turn_away(place),
        }
    }

    /// Sends on what left its queue; its ids.
    fn dispatch(&mut self) -> Result<Vec<&'a str>, String> {
        let mut started = Vec::new();
        while let Some((_, Event::Dispatched(dispatched))) = self.crew.next_event() {
            let place = usize::try_from(dispatched.tag).map_err(|error| error.to_string())?;
            self.reach_upstream(place)?;
            started.push(self.exchanges[place].id);
        }
        Ok(started)
    }

    fn reach_upstream(&mut self, place: usize) -> Result<(), String> {
        let exchange = &mut self.exchanges[place];
        exchange.reached_upstream = true;
        match text(&exchange.step["upstream"], "behaviour")? {
            "answer" => self.answer(place),
            "watch" => {
                self.give_back_seat(place);
                Ok(())
            }
            "hold" | "watch-uninitialised" => Ok(()),
            other => Err(format!("an upstream cannot {other}")),
        }
    }

    fn give_back_seat(&mut self, place: usize) {
        let (worker, now) = (self.exchanges[place].worker, self.now);
        if let Some((level, ticket)) = self.exchanges[place].seated.take() {
            let _ =
                self.crew.at(worker, now, UNIX_SECOND, |controller| controller.finish(now, level, ticket));
        }
    }

    /// The upstream's handler returns.
    fn answer(&mut self, place: usize) -> Result<(), String> {
        self.give_back_seat(place);
        let exchange = &mut self.exchanges[place];
        let upstream = &exchange.step["upstream"];
        for header in list(upstream, "headers")? {
            set(
                &mut exchange.headers,
                header[0].as_str().unwrap_or_default(),
                header[1].as_str().unwrap_or_default(),
            );
        }
        // One that flushed its headers has no length.
        let flushed = upstream["behaviour"] == "watch";
        exchange.write(count(upstream, "status")?, text(upstream, "body")?, flushed);
        Ok(())
    }

    fn time_out(&mut self, place: usize) -> Result<(), String> {
        if self.exchanges[place].answer.is_some() {
            return Ok(());
        }
        let (level, ticket) = self.exchanges[place].seated.take().ok_or("it does not wait")?;
        let (worker, now) = (self.exchanges[place].worker, self.now);
        let cancel =
            |controller: &mut Controller<L::Part>| controller.cancel(now, level, ticket, Reason::TimeOut);
        if !self.crew.at(worker, now, UNIX_SECOND, cancel) {
            return Err("it does not wait".to_owned());
        }
        self.turn_away(place)?;
        self.dispatch().map(|_| ())
    }

    fn turn_away(&mut self, place: usize) -> Result<(), String> {
        let exchange = &self.exchanges[place];
        let class = exchange.class.ok_or("it is not classified")?;
        let method = text(exchange.step, "method")?;
        let info =
            RequestInfo::parse(method, text(exchange.step, "path")?).map_err(|error| error.to_string())?;
        let labels = RequestLabels::of(method, &info, "");
        for (metric, labels) in [
            ("apiserver_request_total", object(&labels.of_total("429"))),
            ("apiserver_request_terminations_total", object(&labels.of_termination("429"))),
        ] {
            *self.counters.entry((metric, labels)).or_default() += 1;
        }
        let (worker, now) = (exchange.worker, self.now);
        let retry_after =
            |controller: &mut Controller<L::Part>| controller.retry_after(UNIX_SECOND, class.level);
        let seconds = self.crew.at(worker, now, UNIX_SECOND, retry_after);
        self.reply(place, Reply::too_many_requests(seconds));
        Ok(())
    }

    fn reply(&mut self, place: usize, reply: Reply) {
        let exchange = &mut self.exchanges[place];
        exchange.headers.remove("content-length");
        for (name, value) in &reply.headers {
            set(&mut exchange.headers, name, value);
        }
        exchange.write(u64::from(reply.status), &reply.body, false);
    }

    /// Every counter that grew, as the vectors write it.
    fn counters(&mut self) -> Vec<String> {
        let mut grown: Vec<Value> = self
            .counters
            .iter()
            .map(|((metric, labels), increase)| {
                let labels: Value = serde_json::from_str(labels).unwrap_or_default();
                json!({ "metric": metric, "labels": labels, "increase": increase })
            })
            .collect();
        for meters in self.crew.snapshot(self.now).schemas {
            let (level, schema) = (&*meters.level, &*meters.schema);
            if meters.dispatched > 0 {
                grown.push(json!({
                    "metric": "apiserver_flowcontrol_dispatched_requests_total",
                    "labels": { "priority_level": level, "flow_schema": schema },
                    "increase": meters.dispatched,
                }));
            }
            for (why, count) in Reason::ALL.into_iter().zip(meters.rejected).filter(|(_, count)| *count > 0) {
                grown.push(json!({
                    "metric": "apiserver_flowcontrol_rejected_requests_total",
                    "labels": { "priority_level": level, "flow_schema": schema, "reason": why.label() },
                    "increase": count,
                }));
            }
        }
        let mut grown: Vec<String> = grown.iter().map(Value::to_string).collect();
        grown.sort();
        grown
    }
}

// === impl Exchange ===

impl Exchange<'_> {
    /// What Go's server makes of a handler's answer.
    fn write(&mut self, status: u64, body: &str, flushed: bool) {
        let mut headers = self.headers.clone();
        let is_head = self.step["method"] == "HEAD";
        let has_body = !matches!(status, 204 | 304);
        let body = if has_body { body } else { "" };
        if has_body && !body.is_empty() && !flushed {
            headers.entry("content-type".into()).or_insert_with(|| "text/plain; charset=utf-8".into());
        }
        let buffered = !flushed && body.len() <= GO_BUFFER;
        if has_body && buffered && !(is_head && body.is_empty()) {
            headers.entry("content-length".into()).or_insert_with(|| body.len().to_string());
        }
        let body = if is_head { String::new() } else { body.to_owned() };
        self.answer = Some(Answer { status, headers, body });
    }
}

fn set(headers: &mut BTreeMap<String, String>, name: &str, value: &str) {
    headers.insert(name.to_ascii_lowercase(), value.to_owned());
}

fn object(labels: &[(&str, &str)]) -> String {
    let object: Map<String, Value> =
        labels.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    Value::Object(object).to_string()
}
