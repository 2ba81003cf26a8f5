//! estimate.json: seats of a request, from what is known of its resource and its watches.

use serde_json::{Value, json};
use usher_flowcontrol::estimate::{self, Facts, Statistics};
use usher_flowcontrol::request_info::RequestInfo;
use usher_flowcontrol::units::{Nanos, Seats};

use crate::compare::compare;
use crate::numbers::{count, each_case, integer, text};
use crate::{File, Outcome};

/// Runs every case.
pub(crate) fn run(file: &File) -> Vec<(String, Outcome)> {
    each_case(file, |case| {
        let max_seats = Seats(count(case, "maxSeats")?);
        let work = if case["noRequestInfo"] == true {
            estimate::unknown(max_seats)
        } else {
            let info = RequestInfo::parse(text(case, "method")?, text(case, "url")?)
                .map_err(|error| error.to_string())?;
            let key = String::from_utf8_lossy(&estimate::key(&info)).into_owned();
            compare("statsKey", &json!(key), &case["statsKey"])?;
            let facts = Facts {
                statistics: statistics(case)?.of(NOW, &info),
                watches: count(case, "watchCount")?,
                max_seats,
                consistent_reads: case["consistentReadsFromCache"] == true,
            };
            estimate::work(&info, &facts)
        };
        let found = json!({
            "initialSeats": work.initial_seats.0,
            "finalSeats": work.final_seats.0,
            "additionalLatencyNs": work.additional_latency.0,
        });
        compare("expect", &found, &case["expect"])
    })
}

/// When requests arrive.
const NOW: Nanos = Nanos::from_secs(1_000);

/// A table that holds what the case says, reported as long ago as it says.
fn statistics(case: &Value) -> Result<Statistics, String> {
    let mut statistics = Statistics::default();
    let key = text(case, "statsKey")?.as_bytes();
    match &case["stats"] {
        Value::String(kind) if kind == "absent" => {}
        Value::String(kind) if kind == "stale" => {
            statistics.report(Nanos::ZERO, key, 1, 1);
        }
        stats => {
            statistics.report(NOW, key, integer(stats, "count")?, integer(stats, "averageSizeBytes")?);
        }
    }
    Ok(statistics)
}
