//! `borrowing.json`: limits by configuration, and what adjustments make of them.

use std::collections::BTreeMap;

use serde_json::Value;
use usher_flowcontrol::borrowing::{Claim, adjust};
use usher_flowcontrol::demand::{SeatDemand, Statistics};
use usher_flowcontrol::limits::{Limits, Share, all};
use usher_flowcontrol::units::Seats;

use crate::numbers::{close, count, each_case, list, real, required, text};
use crate::{File, Outcome};

pub(crate) fn run(file: &File) -> Vec<(String, Outcome)> {
    let mut outcomes = each_case(file, case);
    for case in file.document["cases"].as_array().into_iter().flatten() {
        let ticks = case["ticks"].as_array().into_iter().flatten().enumerate();
        let left_out = ticks.filter_map(|(index, tick)| Some((index, departure(case, tick)?)));
        outcomes.extend(left_out.map(|(index, tag)| {
            (format!("{}, limits of tick {index}", case["name"]), Outcome::LeftOut(tag))
        }));
    }
    outcomes
}

/// Departure C11 changes the limits, and only those, where exempt requests use seats: the tag that says so.
fn departure(case: &Value, tick: &Value) -> Option<&'static str> {
    if case["exempt_has_shares"] == true {
        Some("exempt_has_shares")
    } else {
        (tick["exempt_active"] == true).then_some("exempt_active")
    }
}

struct Level<'a> {
    name: &'a str,
    exempt: bool,
    limits: Limits,
    demand: SeatDemand,
}

fn case(case: &Value) -> Result<(), String> {
    let mut levels = levels(case)?;
    let nominal: u64 = levels.iter().map(|level| level.limits.nominal.0).sum();
    if nominal != count::<u64>(case, "nominalCLSum")? {
        return Err(format!("nominal sum {nominal} instead of {}", case["nominalCLSum"]));
    }
    tick(&levels, &case["initial"], departure(case, &Value::Null).is_some())
        .map_err(|why| format!("initial: {why}"))?;
    for (index, period) in list(case, "ticks")?.iter().enumerate() {
        for level in &mut levels {
            level.demand.update(&statistics(&period["demand"][level.name])?);
        }
        tick(&levels, &period["expect"], departure(case, period).is_some())
            .map_err(|why| format!("tick {index}: {why}"))?;
    }
    Ok(())
}

/// The levels, sorted by name as ours always are, with limits checked.
fn levels(case: &Value) -> Result<Vec<Level<'_>>, String> {
    let mut objects: BTreeMap<&str, (bool, Share)> = BTreeMap::new();
    for object in list(case, "levels")? {
        let percent = |member: &str| object[member].as_u64().and_then(|value| u32::try_from(value).ok());
        let share = Share {
            shares: if object["shares"].is_null() { 0 } else { count(object, "shares")? },
            lendable_percent: percent("lendablePercent").unwrap_or(0),
            borrowing_limit_percent: percent("borrowingLimitPercent"),
            hand_size: if object["queuing"].is_null() {
                None
            } else {
                Some(count(&object["queuing"], "handSize")?)
            },
        };
        objects.insert(text(object, "name")?, (object["type"] == "Exempt", share));
    }
    let shares: Vec<Share> = objects.values().map(|(_, share)| *share).collect();
    let limits = all(Seats(count(case, "serverCL")?), &shares);
    let mut levels = Vec::new();
    for ((name, (exempt, _)), limits) in objects.into_iter().zip(limits) {
        let expected = &case["limits"][name];
        let ours = (limits.nominal.0, limits.minimum.0, limits.maximum.0, limits.max_seats.0);
        let theirs = (
            count(expected, "nominalCL")?,
            count(expected, "minCL")?,
            count(expected, "maxCL")?,
            count(expected, "maxSeats")?,
        );
        if ours != theirs {
            return Err(format!("limits of {name}: {ours:?} instead of {theirs:?}"));
        }
        levels.push(Level { name, exempt, limits, demand: SeatDemand::default() });
    }
    Ok(levels)
}

fn statistics(demand: &Value) -> Result<Statistics, String> {
    Ok(Statistics {
        duration: required(demand, "duration")?,
        average: real(&demand["average"]),
        deviation: real(&demand["deviation"]),
        min: 0.0,
        max: required(demand, "highWatermark")?,
    })
}

/// Adjusts, and compares; limits only if no departure touches them.
fn tick(levels: &[Level<'_>], expected: &Value, departs: bool) -> Result<(), String> {
    let claim = |level: &Level<'_>| Claim {
        exempt: level.exempt,
        limits: level.limits,
        high_watermark: level.demand.high_watermark,
        smoothed: level.demand.smoothed,
    };
    let adjusted = adjust(&levels.iter().map(claim).collect::<Vec<_>>());
    if !departs && !close(adjusted.fair_proportion, required(expected, "fairFrac")?) {
        return Err(format!(
            "fair fraction {} instead of {}",
            adjusted.fair_proportion, expected["fairFrac"]
        ));
    }
    for (level, allocation) in levels.iter().zip(&adjusted.allocations) {
        let expected = &expected["levels"][level.name];
        let differs = |what: &str, ours: &dyn std::fmt::Display| {
            Err(format!("{} {what}: {ours} instead of {expected}", level.name))
        };
        if level.demand.high_watermark.0 != count::<u64>(expected, "highWatermark")? {
            return differs("high watermark", &level.demand.high_watermark);
        }
        if !close(level.demand.smoothed, required(expected, "smoothed")?) {
            return differs("smoothed", &level.demand.smoothed);
        }
        if real(&expected["target"]).is_some_and(|target| !close(allocation.target, target)) {
            return differs("target", &allocation.target);
        }
        let slack = u64::from(expected["near_tie"] == true);
        if !departs && allocation.current.0.abs_diff(count(expected, "currentCL")?) > slack {
            return differs("limit", &allocation.current);
        }
    }
    Ok(())
}
