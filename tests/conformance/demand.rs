//! `demand.json`: the time-weighted record of a value.

use serde_json::Value;
use usher_flowcontrol::demand::{Integrator, Statistics};
use usher_flowcontrol::units::Nanos;

use crate::numbers::{close, each_case, integer, list, real, required, text};
use crate::{File, Outcome};

pub(crate) fn run(file: &File) -> Vec<(String, Outcome)> {
    each_case(file, case)
}

fn case(case: &Value) -> Result<(), String> {
    let mut record = Integrator::new(Nanos::ZERO);
    for (index, step) in list(case, "ops")?.iter().enumerate() {
        let now = Nanos(integer(step, "t")?);
        let statistics = match text(step, "op")? {
            "set" => {
                record.set(now, required(step, "x")?);
                continue;
            }
            "add" => {
                record.add(now, required(step, "x")?);
                continue;
            }
            "read" => record.read(now),
            "reset" => record.reset(now),
            other => return Err(format!("unknown operation {other}")),
        };
        compare(&statistics, &step["result"]).map_err(|why| format!("operation {index}: {why}"))?;
    }
    Ok(())
}

fn compare(ours: &Statistics, expected: &Value) -> Result<(), String> {
    let scale = ours.min.abs().max(ours.max.abs()).max(1.0);
    // Null stands for a negative variance too.
    let deviation_expected = real(&expected["deviation"]).unwrap_or(0.0);
    let equal = close(ours.duration, required(expected, "duration")?)
        && match (ours.average, real(&expected["average"])) {
            (Some(one), Some(other)) => close(one, other),
            (one, other) => one == other,
        }
        && (ours.deviation.unwrap_or(0.0) - deviation_expected).abs() <= 1e-6 * scale
        && close(ours.min, required(expected, "min")?)
        && close(ours.max, required(expected, "max")?);
    if equal { Ok(()) } else { Err(format!("{ours:?} instead of {expected}")) }
}
