//! Whether a request may go on now, must wait, or is turned away.

use std::sync::Arc;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use usher_flowcontrol::controller::Class;
use usher_flowcontrol::estimate::{self, Basis, Facts, Stats};
use usher_flowcontrol::level::Reason;
use usher_flowcontrol::reply::{Reply, RequestLabels};
use usher_flowcontrol::request_info::RequestInfo;
use usher_flowcontrol::units::{Nanos, Work};
use usher_flowcontrol::wait_limit;

use super::admission::{Admission, Controller, Described, Entry, Seat, Waiting};
use super::body::Pass;
use super::common::Place;
use super::reply::{self, Failure};
use super::request::{Known, Refusal};
use super::uids::Uids;
use super::{Admit, Worker};
use crate::observe::hdr::{Measured, Outcome};
use crate::ring;

/// What a request got on its way in.
pub(super) struct Admitted {
    /// `None`: nobody counts it.
    pub(super) pass: Option<Pass>,
    /// `None`: it was not classified.
    pub(super) uids: Option<Uids>,
}

/// Why a request does not go on.
enum Away {
    Core(Reason),
    TooManyWaiting,
    /// Its whole time was over when it came to wait.
    TooLate,
}

/// Waits if need be.
pub(super) async fn admit(known: &Known<'_>, headers: &HeaderMap) -> Result<Admitted, Refusal> {
    let worker = &known.client.worker;
    if known.info.bypasses_flow_control() {
        return Ok(Admitted { pass: None, uids: None });
    }
    match &worker.admit {
        Admit::InFlight(limits) => match limits.enter(&known.info, &known.caller.flow) {
            Some(slot) => Ok(Admitted { pass: Some(Pass::Slot(slot)), uids: None }),
            None => {
                worker.counters.rejected_in_flight.add();
                worker.turned_away.borrow_mut().count(labels(known, headers));
                Err(Box::new(reply::of_core(Reply::too_many_requests(1))))
            }
        },
        Admit::FlowControl(admission) => {
            let measured = Measured::begin(worker.recorder.as_ref(), known.received);
            let (class, uids, work) = classify(known, admission);
            match seat(known, admission, &class, work, measured).await {
                Ok(seat) => Ok(Admitted { pass: Some(Pass::Seat(seat)), uids: Some(uids) }),
                Err(Away::TooLate) => {
                    Away::TooLate.count(worker);
                    Err(Box::new(Failure::timed_out().respond(headers))) // so kube-apiserver's time-out filter, which is there first
                }
                Err(away) => {
                    away.count(worker);
                    worker.turned_away.borrow_mut().count(labels(known, headers));
                    let seconds =
                        admission.act(|controller| controller.retry_after(ring::wall(), class.level));
                    let mut refusal = reply::of_core(Reply::too_many_requests(seconds));
                    uids.put_on(&mut refusal);
                    Err(Box::new(refusal))
                }
            }
        }
    }
}

/// Where it belongs, what that is called, and what the request costs there.
fn classify(known: &Known<'_>, admission: &Admission) -> (Class, Uids, Work) {
    let worker = &known.client.worker;
    let flow = &known.caller.flow;
    let (class, uids, facts) = {
        let controller = admission.controller.borrow();
        let class = known.client.familiar.borrow_mut().classify(&controller, flow, &known.info);
        (
            class,
            admission.uids.borrow_mut().of(&controller, &class),
            facts(worker, &controller, &class, &known.info),
        )
    };
    if Basis::of(&known.info) == Basis::Watches {
        let watches = usize::try_from(facts.watches).unwrap_or(usize::MAX);
        admission.act(|controller| controller.observe_watch_count(&class, watches));
    }
    (class, uids, estimate::work(&known.info, &facts))
}

fn facts(worker: &Worker, controller: &Controller, class: &Class, info: &RequestInfo<'_>) -> Facts {
    let basis = Basis::of(info);
    Facts {
        statistics: match basis {
            Basis::Statistics => worker.statistics.borrow().of(ring::now(), info),
            Basis::Watches | Basis::Nothing => Stats::Absent,
        },
        watches: if basis == Basis::Watches { worker.settings.common.audience.interested(info) } else { 0 },
        max_seats: controller.max_seats(class.level),
        consistent_reads: worker.settings.consistent_reads,
    }
}

/// A seat, in time. Dropped while waiting, the request gives up its place.
async fn seat(
    known: &Known<'_>,
    admission: &std::rc::Rc<Admission>,
    class: &Class,
    work: Work,
    mut measured: Measured,
) -> Result<Box<Seat>, Away> {
    let worker = &known.client.worker;
    let now = ring::now();
    let default_limit = wait_limit::default_limit(worker.request_timeout());
    let wait_until = known.execution.wait_deadline(now, known.received, default_limit);
    if wait_until.is_some_and(|until| until <= now) {
        // parity: C7. What may not wait any more is not given a chance to run; it is counted.
        admission.act(|controller| controller.refuse(class, Reason::TimeOut));
        admission.measure(&mut measured, class, work);
        measured.ends(Outcome::TimedOut);
        return Err(Away::TooLate);
    }
    let described = Described {
        user: Arc::clone(&known.caller.flow),
        method: known.method.clone(),
        target: known.target.clone(),
    };
    match admission.arrive(class, work, described, measured) {
        Entry::Seated(seat) => Ok(seat),
        Entry::TurnedAway(reason) => Err(Away::Core(reason)),
        Entry::Waits(waiting) => {
            match worker.settings.common.place(|all| &all.waiting, worker.settings.limits.waiting) {
                Some(place) => Box::pin(wait(waiting, wait_until, place)).await,
                None => {
                    waiting.refuse(Reason::QueueFull, Outcome::TooManyWaiting);
                    Err(Away::TooManyWaiting)
                }
            }
        }
    }
}

/// Boxed by its caller: few requests wait.
async fn wait(mut waiting: Waiting, until: Option<Nanos>, _place: Place) -> Result<Box<Seat>, Away> {
    let Some(until) = until else { return waiting.await.map_err(Away::Core) };
    tokio::select! {
        biased;
        seat = &mut waiting => return seat.map_err(Away::Core),
        () = ring::sleep_until(until) => {}
    }
    match waiting.time_out() {
        None => Err(Away::Core(Reason::TimeOut)),
        Some(decided) => decided.await.map_err(Away::Core),
    }
}

/// As it is counted when it is turned away.
pub(super) fn labels(known: &Known<'_>, headers: &HeaderMap) -> RequestLabels {
    let content_type = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    RequestLabels::of(known.method.as_str(), &known.info, content_type)
}

impl Away {
    fn count(&self, worker: &Worker) {
        let counters = &worker.counters;
        match self {
            Self::Core(Reason::QueueFull) => counters.rejected_queue_full.add(),
            Self::Core(Reason::ConcurrencyLimit) => counters.rejected_concurrency_limit.add(),
            Self::Core(Reason::TimeOut) => counters.rejected_time_out.add(),
            Self::Core(Reason::Cancelled) => counters.cancelled_waiting.add(),
            Self::TooManyWaiting => counters.rejected_too_many_waiting.add(),
            Self::TooLate => counters.timed_out_executing.add(),
        }
    }
}
