//! One request, from its head to the head of its answer.
//!
//! Steps, in kube-apiserver's order: well-formed? attributes, deadline, who is asking, where it belongs, what it
//! costs, seats; then the apiserver. What is refused on the way is answered here, in kube-apiserver's words.

use std::panic::AssertUnwindSafe;
use std::rc::Rc;

use futures_util::FutureExt as _;
use http::header::{ACCEPT, CONNECTION, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use usher_flowcontrol::request_info::{RequestInfo, TargetError};
use usher_flowcontrol::units::Nanos;
use usher_flowcontrol::wait_limit::Execution;

use super::Worker;
use super::audit::AuditId;
use super::body::{Body, Held, Pass, Registered, Watch};
use super::connection::{Client, Progress};
use super::entrance::{self, Admitted};
use super::glitches::Glitch;
use super::headers::{self, Asked};
use super::host::Host;
use super::reply::{self, Failure};
use super::upgrade;
use super::watch::{Beginning, Framing};
use crate::identity::{Caller, Handover};
use crate::observe::hdr::{Measured, Outcome};
use crate::ring;
use crate::upstream::{Download, Fault, Kind, Parcel, Presents, Switched, Upload};

/// A request that is well-formed and whose caller is known.
pub(super) struct Known<'a> {
    pub(super) client: &'a Rc<Client>,
    pub(super) method: &'a Method,
    pub(super) target: &'a Uri,
    pub(super) info: RequestInfo<'a>,
    pub(super) caller: Caller,
    pub(super) received: Nanos,
    pub(super) execution: Execution,
    pub(super) asked: Asked,
}

/// An answer. Boxed, as requests are: both go through many hands.
pub(super) type Answer = Box<Response<Body>>;

/// How a request ends before it gets to an apiserver.
pub(super) type Refusal = Answer;

/// Answers a request. Being dropped means that the client has left: then everything held is given back.
pub(super) async fn serve(client: Rc<Client>, request: Parcel) -> Answer {
    let progress = client.begin();
    #[cfg(debug_assertions)]
    client.worker.breaks_at(super::sabotage::Place::Connection);
    let version = request.version();
    let answered = AssertUnwindSafe(answer(&client, request, &progress)).catch_unwind().await;
    let mut answer = answered.unwrap_or_else(|_| {
        // What it held came back while it unwound.
        client.worker.counters.panics_requests.add();
        Box::new(Failure::panicked().respond(&http::HeaderMap::new()))
    });
    let switches = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    if client.worker.drain.is_raised() && version < Version::HTTP_2 && !switches {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if version == Version::HTTP_2 {
        headers::keep_out_of_table(answer.headers_mut());
        if matches!(answer.body(), Body::Here(_)) {
            headers::strip_response(answer.headers_mut(), version);
            // A client that gives it no window must not keep the stream. The apiserver's answers have their own deadline.
            Host::current().end_at(Some(ring::now() + client.worker.request_timeout()));
        }
    }
    progress.answered();
    answer
}

/// Its steps.
async fn answer(client: &Rc<Client>, mut request: Parcel, progress: &Progress) -> Answer {
    let worker = &client.worker;
    if request.headers().len() > worker.settings.limits.header_lines {
        client.glitches.note(Glitch::HeaderList); // over HTTP/2, where nobody else counts lines
        return Box::new(reply::plain(431, "431 Request Header Fields Too Large"));
    }
    let well_formed = headers::framing(request.headers()).and_then(|()| headers::origin_form(&mut request));
    if let Err(sentence) = well_formed {
        worker.counters.refused_malformed.add();
        return Box::new(reply::malformed(sentence));
    }
    let audit_id = AuditId::of(request.headers());
    let (method, target) = (request.method().clone(), request.uri().clone());
    let known = match get_to_know(client, &method, &target, &mut request) {
        Ok(known) => known,
        Err(refusal) => return audit_id.put_on(refusal),
    };
    if let Some(refusal) =
        worker.scarcity.refuse_body(&known, request.headers(), request.body().size_hint().upper())
    {
        return audit_id.put_on(refusal);
    }
    progress.waits();
    let Admitted { pass, uids } = match entrance::admit(&known, request.headers()).await {
        Ok(admitted) => admitted,
        Err(refusal) => return audit_id.put_on(refusal),
    };
    progress.executes();
    if uids.is_some() && known.info.verb() != "watch" {
        request.body_mut().want_lines(headers::NOT_RELAYED);
    }
    #[cfg(debug_assertions)]
    worker.breaks_at(super::sabotage::Place::Request);
    let accept = request.headers().get(ACCEPT).cloned();
    let mut answer = match execute(&known, pass, request).await {
        Ok(answer) => answer,
        Err(missing) => audit_id.put_on(missing.answer(worker, accept)),
    };
    if let Some(uids) = uids {
        uids.put_on(&mut answer);
    }
    answer
}

/// Attributes, deadline, caller; and the headers as the apiserver shall see them.
fn get_to_know<'a>(
    client: &'a Rc<Client>,
    method: &'a Method,
    target: &'a Uri,
    request: &mut Request<Upload>,
) -> Result<Known<'a>, Refusal> {
    let worker = &client.worker;
    let received = ring::now();
    let line = target.path_and_query().map_or("/", |target| target.as_str());
    let info = RequestInfo::parse(method.as_str(), line).map_err(|error| {
        if error == TargetError::Malformed {
            worker.counters.refused_malformed.add();
            return Box::new(reply::malformed("malformed request target"));
        }
        worker.counters.refused_without_attributes.add();
        Box::new(reply::plain(error.status(), &error.message(line)))
    })?;
    let execution = Execution::of(&info, received, worker.request_timeout()).map_err(|error| {
        worker.counters.refused_timeout_value.add();
        Box::new(Failure::bad_request(error.to_string()).respond(request.headers()))
    })?;
    let version = request.version();
    // First what is of the connection: a client must not have removed what is added below.
    let asked = headers::strip_request(request.headers_mut(), version);
    let authenticator = &worker.settings.authenticator;
    let caller = authenticator.request(&client.who, request.headers(), asked.upgrade.as_ref(), ring::wall());
    if caller.handover == Handover::Unauthorized {
        worker.counters.refused_unauthorized.add();
        return Err(Box::new(Failure::unauthorized().respond(request.headers())));
    }
    let forged = authenticator.rewrite(&client.who, &caller, request.headers_mut());
    worker.counters.forged_identity_lines.add_many(forged as u64);
    Ok(Known { client, method, target, info, caller, received, execution, asked })
}

/// Sends an admitted request on and returns the head of its answer, the body to follow.
async fn execute(known: &Known<'_>, pass: Option<Pass>, request: Parcel) -> Result<Answer, Missing> {
    let worker = &known.client.worker;
    worker.counters.executed.add();
    let is_watch = known.info.verb() == "watch";
    let mut held = Held::default();
    held.pass = pass;
    held.is_alone = request.version() == Version::HTTP_2;
    held.measured(Measured::sent);
    held.busy = Some(known.client.busy());
    if is_watch {
        let seat = match held.pass.take() {
            Some(Pass::Seat(seat)) => Some(seat),
            _ => None, // without flow control watches are not counted
        };
        let beginning = Beginning::new(&known.info, seat);
        beginning.bound(worker);
        held.watch = Some(Box::new(Watch::new(worker, beginning, Registered::new(worker, &known.info))));
    }
    let deadline =
        known.execution.deadline.or_else(|| is_watch.then(|| ring::now() + worker.request_timeout()));
    let pace = request.body().pace();
    let answer = send(known, request);
    let answer = match (deadline, pace) {
        (None, _) => answer.await,
        (Some(deadline), None) => tokio::select! {
            biased;
            answer = answer => answer,
            () = ring::sleep_until(deadline) => Err(Missing::TimeIsUp),
        },
        (Some(deadline), Some(pace)) => tokio::select! {
            biased;
            answer = answer => answer,
            () = ring::sleep_until(deadline) => Err(Missing::TimeIsUp),
            () = pace.too_slow(worker.settings.limits.body_timeout) => {
                known.client.glitches.note(Glitch::SlowBody);
                Err(Missing::SlowBody)
            }
        },
    };
    Ok(match answer? {
        Sent::Answered(response) => relay(known, *response, held),
        Sent::Switched(answer) => {
            held.measured(|measured| measured.ends(Outcome::Executed));
            answer
        }
    })
}

/// What an apiserver made of a request.
enum Sent {
    Answered(Box<Response<Download>>),
    /// 101, to be followed by the bytes of another protocol.
    Switched(Answer),
}

/// Why there is no answer.
enum Missing {
    TimeIsUp,
    /// The client's body comes too slowly.
    SlowBody,
    /// The client's body is malformed.
    BadBody,
    Fault(Fault),
}

async fn send(known: &Known<'_>, mut request: Parcel) -> Result<Sent, Missing> {
    let upstream = &known.client.worker.upstream;
    let missing = |fault| Missing::because(known.client, fault);
    let presents = match known.caller.handover {
        Handover::FrontProxy => Presents::FrontProxy,
        Handover::Token | Handover::Anonymous | Handover::Unauthorized => Presents::Nothing,
    };
    let is_read =
        request.version() == Version::HTTP_2 && request.method().is_safe() && request.body().is_end_stream();
    // Of the client's connection, not of the apiserver's.
    *request.version_mut() = Version::HTTP_11;
    request.extensions_mut().clear();
    let Some(protocols) = &known.asked.upgrade else {
        let kind = match known.info.verb() {
            _ if !known.caller.is_known() => Kind::Stranger,
            "watch" => Kind::Watch,
            _ if is_read => Kind::Read,
            _ => Kind::Short,
        };
        return upstream.send(presents, kind, request).await.map(Sent::Answered).map_err(missing);
    };
    headers::ask_upgrade(request.headers_mut(), protocols.clone());
    match Box::pin(upstream.switch(presents, *request)).await.map_err(missing)? {
        Switched::No(response) => Ok(Sent::Answered(response)),
        Switched::Yes { head, wire } => {
            Ok(Sent::Switched(Box::new(upgrade::begin(known.client, *head, wire))))
        }
    }
}

/// The apiserver's answer becomes ours.
fn relay(known: &Known<'_>, response: Response<Download>, mut held: Held) -> Answer {
    let worker = &known.client.worker;
    let (mut head, download) = response.into_parts();
    let version = if held.is_alone { Version::HTTP_2 } else { Version::HTTP_11 };
    headers::strip_response(&mut head.headers, version);
    head.extensions.clear();
    if let Some(watch) = &mut held.watch {
        watch.framing = Framing::of(&head.headers);
        watch.beginning.answered(worker);
    }
    if let Some(deadline) = known.execution.deadline {
        let host = Host::current();
        host.end_at(Some(deadline));
        held.host = Some(host);
    }
    held.measured(Measured::answered);
    Box::new(Response::from_parts(head, Body::relayed(download, held, known.client)))
}

impl Missing {
    /// Whose fault it was.
    fn because(client: &Client, fault: Fault) -> Self {
        let Some(glitch) = fault.of_client().and_then(Glitch::of_body) else { return Self::Fault(fault) };
        client.glitches.note(glitch);
        Self::BadBody
    }

    /// What the client hears, and what the log does.
    fn answer(self, worker: &Worker, accept: Option<http::HeaderValue>) -> Answer {
        let counters = &worker.counters;
        let failure = match self {
            Self::TimeIsUp => {
                counters.timed_out_executing.add();
                Failure::timed_out()
            }
            Self::BadBody => {
                counters.refused_malformed.add();
                return Box::new(reply::malformed("malformed body"));
            }
            Self::SlowBody => {
                counters.refused_slow_body.add();
                Failure::slow_body()
            }
            Self::Fault(fault) => {
                let status = fault.status();
                match status.as_u16() {
                    _ if matches!(fault, Fault::Starved(_)) => counters.upstream_starved.add(),
                    503 => counters.upstream_unavailable.add(),
                    504 => counters.upstream_timed_out.add(),
                    _ => counters.upstream_broken.add(),
                }
                tracing::debug!(worker = worker.settings.name, %fault, "no answer from an apiserver");
                Failure::of_upstream(status, fault.message())
            }
        };
        let mut asked = http::HeaderMap::new();
        if let Some(accept) = accept {
            asked.insert(ACCEPT, accept);
        }
        let mut answer = Box::new(failure.respond(&asked));
        if answer.status() == StatusCode::REQUEST_TIMEOUT {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }
}
