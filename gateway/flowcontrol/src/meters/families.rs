//! The values of a snapshot under the names of the metrics.

use alloc::vec;
use alloc::vec::Vec;

use super::descriptions as metric;
use super::{Description, Distribution, Histogram, LevelMeters, SchemaMeters};
use crate::level::Reason;
use crate::limits::as_f64;
use crate::snapshot::{Level, Snapshot};
use crate::units::{Nanos, SeatSeconds, Seats};

/// A metric with its children.
#[derive(Clone, Debug)]
pub struct Family<'a> {
    /// What it is.
    pub description: &'static Description,
    /// Its children, in order.
    pub children: Vec<Child<'a>>,
}

/// A child of a metric.
#[derive(Clone, Debug)]
pub struct Child<'a> {
    /// Values of [`Description::labels`].
    pub labels: Vec<&'a str>,
    /// What it shows.
    pub value: Value,
}

/// What a child of a metric shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of a counter.
    Count(u64),
    /// Of a gauge.
    Number(f64),
    /// Of a histogram: cumulative counts by bucket, the infinite one last, and the sum.
    Buckets(Vec<u64>, f64),
}

/// Every exposed metric that has a value, sorted by name.
#[must_use]
pub fn families(snapshot: &Snapshot) -> Vec<Family<'_>> {
    let exposed = metric::ALL.iter().filter(|description| !description.is_hidden());
    exposed
        .map(|description| Family { description, children: children(description, snapshot) })
        .filter(|family| !family.children.is_empty())
        .collect()
}

fn children<'a>(description: &Description, snapshot: &'a Snapshot) -> Vec<Child<'a>> {
    if *description == metric::SEAT_FAIR_FRAC {
        return vec![Child { labels: vec![], value: Value::Number(snapshot.fair_proportion) }];
    }
    if *description == metric::READ_VS_WRITE_CURRENT_REQUESTS {
        return read_vs_write(snapshot);
    }
    let mut children = Vec::new();
    match description.labels {
        ["priority_level", "flow_schema", ..] => {
            for meters in &snapshot.schemas {
                of_schema(description, meters, &mut |more, value| {
                    children.push(Child { labels: labels([&meters.level, &meters.schema], more), value });
                });
            }
        }
        _ => {
            for level in &snapshot.levels {
                of_level(description, level, snapshot.at, &mut |more, value| {
                    // Of one metric the level's name is the second label.
                    let labels = if description.labels[0] == "phase" {
                        labels([more.unwrap_or_default(), &level.name], None)
                    } else {
                        labels([&*level.name], more)
                    };
                    children.push(Child { labels, value });
                });
            }
        }
    }
    children
}

fn labels<'a, const N: usize>(first: [&'a str; N], more: Option<&'a str>) -> Vec<&'a str> {
    first.into_iter().chain(more).collect()
}

/// The children of a metric by level and schema; `add` takes the value of a third label.
fn of_schema(
    description: &Description,
    meters: &SchemaMeters,
    add: &mut dyn FnMut(Option<&'static str>, Value),
) {
    let whole = |count: u64| Value::Number(as_f64(Seats(count)));
    match *description {
        metric::REJECTED_REQUESTS_TOTAL => {
            for why in Reason::ALL {
                if meters.rejected[why.index()] > 0 {
                    add(Some(why.label()), Value::Count(meters.rejected[why.index()]));
                }
            }
        }
        metric::REQUEST_WAIT_DURATION_SECONDS => {
            add_met(&meters.wait[0], Some("true"), add);
            add_met(&meters.wait[1], Some("false"), add);
        }
        metric::REQUEST_EXECUTION_SECONDS => {
            add_met(&meters.execution[0], Some("regular"), add);
            add_met(&meters.execution[1], Some("watch"), add);
        }
        metric::REQUEST_QUEUE_LENGTH_AFTER_ENQUEUE => add_met(&meters.queue_lengths, None, add),
        metric::WATCH_COUNT_SAMPLES => add_met(&meters.watch_counts, None, add),
        metric::WORK_ESTIMATED_SEATS => add_met(&meters.widths, None, add),
        metric::DISPATCHED_REQUESTS_TOTAL if meters.dispatched > 0 => {
            add(None, Value::Count(meters.dispatched))
        }
        metric::REQUEST_DISPATCH_NO_ACCOMMODATION_TOTAL if meters.not_accommodated > 0 => {
            add(None, Value::Count(meters.not_accommodated));
        }
        metric::CURRENT_INQUEUE_REQUESTS => add(None, whole(meters.waiting)),
        metric::CURRENT_INQUEUE_SEATS => add(None, whole(meters.waiting_seats)),
        metric::CURRENT_EXECUTING_REQUESTS => add(None, whole(meters.executing)),
        metric::CURRENT_EXECUTING_SEATS => add(None, whole(meters.executing_seats)),
        _ => {}
    }
}

/// The children of a metric by level; `add` takes the value of a second label.
fn of_level(
    description: &Description,
    level: &Level,
    at: Nanos,
    add: &mut dyn FnMut(Option<&'static str>, Value),
) {
    let LevelMeters { seats, waiting, executing, demand } = &level.meters;
    let number = |value: f64| Value::Number(value);
    let value = match *description {
        metric::NOMINAL_LIMIT_SEATS => number(as_f64(level.limits.nominal)),
        metric::LOWER_LIMIT_SEATS => number(as_f64(level.limits.minimum)),
        metric::UPPER_LIMIT_SEATS => number(as_f64(level.limits.maximum)),
        metric::CURRENT_LIMIT_SEATS => number(as_f64(level.limit)),
        metric::TARGET_SEATS => number(level.target),
        metric::DEMAND_SEATS_HIGH_WATERMARK => number(as_f64(level.demand.high_watermark)),
        metric::DEMAND_SEATS_AVERAGE => number(level.demand.average),
        metric::DEMAND_SEATS_STDEV => number(level.demand.deviation),
        metric::DEMAND_SEATS_SMOOTHED => number(level.demand.smoothed),
        metric::CURRENT_R => number(level.r.to_f64()),
        metric::DISPATCH_R => match level.last_dispatch {
            Some(dispatch) => number(dispatch.r.to_f64()),
            None => return,
        },
        metric::LATEST_S => match level.last_dispatch {
            Some(dispatch) => number(dispatch.virtual_start.to_f64()),
            None => return,
        },
        metric::DEMAND_SEATS => buckets(&demand.read(at)),
        metric::PRIORITY_LEVEL_SEAT_UTILIZATION => buckets(&seats.read(at)),
        metric::PRIORITY_LEVEL_REQUEST_UTILIZATION => {
            add(Some("waiting"), buckets(&waiting.read(at)));
            add(Some("executing"), buckets(&executing.read(at)));
            return;
        }
        metric::EPOCH_ADVANCE_TOTAL => {
            for (label, count) in [("true", level.epochs.complete), ("false", level.epochs.clipped)] {
                if count > 0 {
                    add(Some(label), Value::Count(count));
                }
            }
            return;
        }
        metric::NEXT_S_BOUNDS => return bounds(level, false, add),
        metric::NEXT_DISCOUNTED_S_BOUNDS => return bounds(level, true, add),
        _ => return,
    };
    add(None, value);
}

/// Smallest and largest virtual start of the queues in which something waits.
///
/// parity: as of now, where kube-apiserver shows them as of the latest dispatch. parity: C24, discounted
/// they may be negative; there they wrap.
fn bounds(level: &Level, discounted: bool, add: &mut dyn FnMut(Option<&'static str>, Value)) {
    let heads = || {
        level.queues.iter().filter(|queue| queue.state.waiting > 0).map(|queue| {
            let guess =
                SeatSeconds::of(as_f64(queue.state.seats_in_use), crate::queueset::SERVICE_TIME_GUESS);
            let discount = if discounted { guess.to_f64() } else { 0.0 };
            queue.state.next_dispatch_r.to_f64() - discount
        })
    };
    if let (Some(least), Some(most)) = (heads().reduce(f64::min), heads().reduce(f64::max)) {
        add(Some("min"), Value::Number(least));
        add(Some("max"), Value::Number(most));
    }
}

fn read_vs_write(snapshot: &Snapshot) -> Vec<Child<'_>> {
    let mut children = Vec::new();
    for (phase, meters) in [("waiting", &snapshot.crowd.waiting), ("executing", &snapshot.crowd.executing)] {
        for (kind, meter) in ["readOnly", "mutating"].into_iter().zip(meters) {
            children.push(Child { labels: vec![phase, kind], value: buckets(&meter.read(snapshot.at)) });
        }
    }
    children
}

/// A histogram is shown from its first observation on.
fn add_met<const N: usize>(
    histogram: &Histogram<N>,
    label: Option<&'static str>,
    add: &mut dyn FnMut(Option<&'static str>, Value),
) {
    if histogram.count() > 0 {
        add(label, buckets(histogram));
    }
}

fn buckets<const N: usize>(histogram: &Histogram<N>) -> Value {
    let Distribution { counts, above, sum, .. } = histogram.distribution();
    let mut total = 0_u64;
    let cumulative = counts.iter().chain([&above]).map(|count| {
        total = total.saturating_add(*count);
        total
    });
    Value::Buckets(cumulative.collect(), sum)
}
