//! Seat-seconds: conversions and text.

use crate::numbers::{decimal, each_case, integer, required, text};
use crate::{File, Outcome};
use serde_json::Value;
use usher_flowcontrol::units::{Nanos, SeatSeconds};

pub(crate) fn run(file: &File) -> Vec<(String, Outcome)> {
    each_case(file, |case| {
        let seats = || required(case, "seats");
        let raw = || decimal(case, "raw").map(SeatSeconds::from_raw);
        let (found, expected) = match text(case, "kind")? {
            "seats_times_duration" => {
                let work = SeatSeconds::of(seats()?, Nanos(integer(case, "duration")?));
                (Value::from(work.raw().to_string()), case["raw"].clone())
            }
            "duration_per_seat" => (Value::from(raw()?.per_seat(seats()?).0), case["duration"].clone()),
            "string" => (Value::from(raw()?.to_string()), case["text"].clone()),
            // Whole numbers are written without a point: compare as floats.
            "to_float" => (Value::from(raw()?.to_f64()), Value::from(case["value"].as_f64())),
            kind => return Err(format!("no kind {kind}")),
        };
        // What does not fit 64 bits depends on the reference's processor: not to panic is enough.
        if found == expected || case["platform_dependent"] == true {
            Ok(())
        } else {
            Err(format!("{found} is not {expected}"))
        }
    })
}
