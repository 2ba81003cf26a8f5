//! One request, from its head to the head of its answer.
//!
//! Steps, in kube-apiserver's order: well-formed? attributes, deadline, who is asking, where it belongs, what it
//! costs, seats; then the apiserver. What is refused on the way is answered here, in kube-apiserver's words.

use std::convert::Infallible;
use std::rc::Rc;

use http::header::{CONNECTION, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri, Version, request};
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
use crate::upstream::{Download, Fault, Kind, Presents, Switched, Upload};

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

/// How a request ends before it gets to an apiserver.
pub(super) type Refusal = Box<Response<Body>>;

/// Answers a request. Being dropped means that the client has left: then everything held is given back.
pub(super) async fn serve(
    client: Rc<Client>,
    request: Request<Upload>,
) -> Result<Response<Body>, Infallible> {
    let progress = client.begin();
    let version = request.version();
    let mut response = answer(&client, request, &progress).await;
    let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if client.worker.drain.is_raised() && version < Version::HTTP_2 && !switches {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if version == Version::HTTP_2 && matches!(response.body(), Body::Here(_)) {
        // A client that gives it no window must not keep the stream. The apiserver's answers have their own deadline.
        Host::current().end_at(Some(ring::now() + client.worker.request_timeout()));
    }
    Ok(progress.answered(response))
}

/// Its steps.
async fn answer(client: &Rc<Client>, request: Request<Upload>, progress: &Progress) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    if parts.headers.len() > client.worker.settings.limits.header_lines {
        client.glitches.note(Glitch::HeaderList); // over HTTP/2, where nobody else counts lines
        return reply::plain(431, "431 Request Header Fields Too Large");
    }
    let well_formed = headers::framing(&parts.headers).and_then(|()| headers::origin_form(&mut parts));
    if let Err(sentence) = well_formed {
        client.worker.counters.refused_malformed.add();
        return reply::malformed(sentence);
    }
    let audit_id = AuditId::of(&parts.headers);
    let (method, target) = (parts.method.clone(), parts.uri.clone());
    let known = match get_to_know(client, &method, &target, &mut parts) {
        Ok(known) => known,
        Err(refusal) => return audit_id.put_on(*refusal),
    };
    if let Some(refusal) =
        client.worker.scarcity.refuse_body(&known, &parts.headers, body.size_hint().upper())
    {
        return audit_id.put_on(*refusal);
    }
    progress.waits();
    let admitted = match entrance::admit(&known, &parts.headers).await {
        Ok(admitted) => admitted,
        Err(refusal) => return audit_id.put_on(*refusal),
    };
    progress.executes();
    execute(&known, admitted, parts, body, audit_id).await
}

/// Attributes, deadline, caller; and the headers as the apiserver shall see them.
fn get_to_know<'a>(
    client: &'a Rc<Client>,
    method: &'a Method,
    target: &'a Uri,
    parts: &mut request::Parts,
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
        Box::new(Failure::bad_request(error.to_string()).respond(&parts.headers))
    })?;
    // First what is of the connection: a client must not have removed what is added below.
    let asked = headers::strip_request(&mut parts.headers, parts.version);
    let authenticator = &worker.settings.authenticator;
    let caller = authenticator.request(&client.who, &parts.headers, ring::wall());
    if caller.handover == Handover::Unauthorized {
        worker.counters.refused_unauthorized.add();
        return Err(Box::new(Failure::unauthorized().respond(&parts.headers)));
    }
    let forged = authenticator.rewrite(&client.who, &caller, &mut parts.headers);
    worker.counters.forged_identity_lines.add_many(forged as u64);
    Ok(Known { client, method, target, info, caller, received, execution, asked })
}

/// Sends an admitted request on and returns the head of its answer, the body to follow.
async fn execute(
    known: &Known<'_>,
    admitted: Admitted,
    mut parts: request::Parts,
    upload: Upload,
    audit_id: AuditId,
) -> Response<Body> {
    let worker = &known.client.worker;
    worker.counters.executed.add();
    let accept = parts.headers.get(http::header::ACCEPT).cloned();
    let Admitted { pass, uids } = admitted;
    let is_watch = known.info.verb() == "watch";
    let mut held = Held::default();
    held.pass = pass;
    held.is_alone = parts.version == Version::HTTP_2;
    held.measured(Measured::sent);
    held.busy = Some(known.client.busy());
    if is_watch {
        let seat = match held.pass.take() {
            Some(Pass::Seat(seat)) => Some(seat),
            _ => None, // without flow control watches are not counted
        };
        let beginning = Beginning::new(&known.info, seat);
        beginning.bound(worker);
        held.watch = Some(Watch::new(worker, beginning, Registered::new(worker, &known.info)));
    }
    let deadline =
        known.execution.deadline.or_else(|| is_watch.then(|| ring::now() + worker.request_timeout()));
    let pace = upload.pace();
    let answer = send(known, &mut parts, upload);
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
    let mut response = match answer {
        Ok(Answer::Plain(response)) => relay(known, *response, held),
        Ok(Answer::Switched(response)) => {
            held.measured(|measured| measured.ends(Outcome::Executed));
            *response
        }
        Err(missing) => audit_id.put_on(missing.answer(worker, accept)),
    };
    if let Some(uids) = uids {
        uids.put_on(response.headers_mut());
    }
    response
}

/// An apiserver's answer.
enum Answer {
    Plain(Box<Response<Download>>),
    /// 101, to be followed by the bytes of another protocol.
    Switched(Box<Response<Body>>),
}

/// Why there is none.
enum Missing {
    TimeIsUp,
    /// The client's body comes too slowly.
    SlowBody,
    /// The client's body is malformed.
    BadBody,
    Fault(Fault),
}

async fn send(known: &Known<'_>, parts: &mut request::Parts, upload: Upload) -> Result<Answer, Missing> {
    let upstream = &known.client.worker.upstream;
    let missing = |fault| Missing::because(known.client, fault);
    let presents = match known.caller.handover {
        Handover::FrontProxy => Presents::FrontProxy,
        Handover::Token | Handover::Anonymous | Handover::Unauthorized => Presents::Nothing,
    };
    let mut request = Request::new(upload);
    *request.method_mut() = known.method.clone();
    *request.uri_mut() = known.target.clone();
    *request.headers_mut() = std::mem::take(&mut parts.headers);
    let Some(protocols) = &known.asked.upgrade else {
        let kind = match known.info.verb() {
            _ if !known.caller.is_known() => Kind::Stranger,
            "watch" => Kind::Watch,
            _ => Kind::Short,
        };
        let response = upstream.send(presents, kind, request).await.map_err(missing)?;
        return Ok(Answer::Plain(response));
    };
    headers::ask_upgrade(request.headers_mut(), protocols.clone());
    match Box::pin(upstream.switch(presents, request)).await.map_err(missing)? {
        Switched::No(response) => Ok(Answer::Plain(response)),
        Switched::Yes { head, wire } => {
            Ok(Answer::Switched(Box::new(upgrade::begin(known.client, *head, wire))))
        }
    }
}

/// The apiserver's answer becomes ours.
fn relay(known: &Known<'_>, response: Response<Download>, mut held: Held) -> Response<Body> {
    let worker = &known.client.worker;
    let (mut head, download) = response.into_parts();
    headers::strip_response(&mut head.headers);
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
    Response::from_parts(head, Body::relayed(download, held, known.client))
}

impl Missing {
    /// Whose fault it was.
    fn because(client: &Client, fault: Fault) -> Self {
        let Some(glitch) = fault.of_client().and_then(Glitch::of_body) else { return Self::Fault(fault) };
        client.glitches.note(glitch);
        Self::BadBody
    }

    /// What the client hears, and what the log does.
    fn answer(self, worker: &Worker, accept: Option<http::HeaderValue>) -> Response<Body> {
        let counters = &worker.counters;
        let failure = match self {
            Self::TimeIsUp => {
                counters.timed_out_executing.add();
                Failure::timed_out()
            }
            Self::BadBody => {
                counters.refused_malformed.add();
                return reply::malformed("malformed body");
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
            asked.insert(http::header::ACCEPT, accept);
        }
        let mut response = failure.respond(&asked);
        if response.status() == StatusCode::REQUEST_TIMEOUT {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
