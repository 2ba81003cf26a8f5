//! usher's side: the core on this thread, with the clock that a worker reads. On more threads: [`super::workers`].

use std::hint::black_box;

use usher::ring;
use usher_flowcontrol::units::{Nanos, Seats};

use super::cells::Cell;
use super::crowd::Crowd;
use super::plan::Plan;
use super::{Round, allocations, distributions, workers};
use crate::Failure;

/// Decisions before anything is measured: as many requests and queues have been in use as ever will be.
const WARM: u64 = 20_000;
/// Decisions between two looks at whether the time is over.
const BATCH: u64 = 1_000;

/// Half of the time decisions one after another, half of it each by itself.
pub(super) fn measure(cell: Cell, plan: &Plan, millis: u32) -> Result<Round, Failure> {
    if cell.is_shared() {
        return workers::measure(plan, millis);
    }
    let half = Nanos::from_millis(i64::from(millis) / 2);
    let mut crowd = crowd(cell, plan)?;
    decide(&mut crowd, WARM);

    let (began, allocated) = (ring::precise(), allocations::count());
    let (mut now, mut decisions) = (began, 0);
    while now - began < half {
        now = decide(&mut crowd, BATCH);
        decisions += BATCH;
    }
    let allocations = per(allocations::count() - allocated, decisions);
    let mean = per(nanos(now - began), decisions);

    let mut singles = distributions::empty();
    let began = now;
    while now - began < half {
        let begin = ring::precise();
        black_box(crowd.decide(begin, ring::precise));
        now = ring::precise();
        singles.saturating_record(nanos(now - begin));
    }
    let waiting = per(crowd.check(now)? as u64, 1);
    Ok(Round { mean, allocations, waiting, singles })
}

/// What a reading of the clock costs.
pub(super) fn clock() -> f64 {
    const READINGS: u64 = 1_000_000;
    let began = ring::precise();
    let mut last = began;
    (0..READINGS).for_each(|_| last = black_box(ring::precise()));
    per(nanos(last - began), READINGS)
}

/// Only decides, for callgrind.
pub(super) fn spin(cell: Cell, decisions: u64) -> Result<(), Failure> {
    let plan = Plan::of(cell);
    if cell.is_shared() {
        return workers::spin(&plan, decisions);
    }
    let mut crowd = crowd(cell, &plan)?;
    let now = decide(&mut crowd, decisions);
    crowd.check(now).map(|_| ())
}

/// The width of each line of a plan.
pub(super) fn widths(plan: &Plan) -> Result<Vec<Seats>, Failure> {
    let now = ring::precise();
    Ok(Crowd::new(plan, now)?.widths(now))
}

fn crowd(cell: Cell, plan: &Plan) -> Result<Crowd<'_>, Failure> {
    let mut crowd = Crowd::new(plan, ring::precise())?;
    if cell == Cell::RequestLine {
        crowd.parses_lines();
    }
    Ok(crowd)
}

/// So many decisions, each with two readings of the clock.
fn decide(crowd: &mut Crowd<'_>, decisions: u64) -> Nanos {
    let mut now = ring::precise();
    for _ in 0..decisions {
        black_box(crowd.decide(now, ring::precise));
        now = ring::precise();
    }
    now
}

pub(super) fn nanos(span: Nanos) -> u64 {
    u64::try_from(span.0).unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "counts of a second")]
pub(super) fn per(amount: u64, decisions: u64) -> f64 {
    amount as f64 / decisions as f64
}
