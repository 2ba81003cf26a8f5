//! Instants and spans in the spelling of Go.

use alloc::format;
use alloc::string::String;

use crate::units::Nanos;

/// Go's zero time: shown for what has not happened.
pub const NEVER: &str = "0001-01-01T00:00:00Z";

/// An instant, as the span since the start of 1970, in UTC and RFC 3339; the fraction of the second
/// without zeros at its end.
#[must_use]
pub fn rfc3339_nano(since_1970: Nanos) -> String {
    let second = Nanos::from_secs(1).0;
    let (seconds, nanos) = (since_1970.0.div_euclid(second), since_1970.0.rem_euclid(second));
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let fraction = if nanos == 0 { String::new() } else { format!(".{nanos:09}") };
    let fraction = fraction.trim_end_matches('0');
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
///
/// Years are counted from March, so that the leap day is the last one; four centuries have 146 097 days.
fn civil(day: i64) -> (i64, i64, i64) {
    let from_march_0 = day + 719_468;
    let (era, day) = (from_march_0.div_euclid(146_097), from_march_0.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * day + 2) / 153;
    let day = day - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (400 * era + year + i64::from(month <= 2), month, day)
}

/// A span: `1h2m3.5s`, `16.666666ms`, `0s`.
#[must_use]
pub fn duration(span: Nanos) -> String {
    let sign = if span.0 < 0 { "-" } else { "" };
    let nanos = span.0.unsigned_abs();
    let text = match nanos {
        0 => String::from("0s"),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{}µs", decimal(nanos, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(nanos, 1_000_000)),
        _ => {
            let minutes = nanos / 60_000_000_000;
            let seconds = decimal(nanos % 60_000_000_000, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    };
    format!("{sign}{text}")
}

/// A decimal fraction, without zeros at its end.
fn decimal(value: u64, unit: u64) -> String {
    let digits = unit.ilog10() as usize;
    let text = format!("{}.{:0digits$}", value / unit, value % unit);
    String::from(text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_spelt_as_go_spells_them() {
        for (seconds, nanos, text) in [
            (0, 0, "1970-01-01T00:00:00Z"),
            (1_772_600_767, 170_000_000, "2026-03-04T05:06:07.17Z"),
            (951_782_399, 999_999_999, "2000-02-28T23:59:59.999999999Z"),
            (951_782_400, 1, "2000-02-29T00:00:00.000000001Z"),
            (4_107_542_399, 0, "2100-02-28T23:59:59Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00Z"),
            (-1, 500_000_000, "1969-12-31T23:59:59.5Z"),
        ] {
            assert_eq!(rfc3339_nano(Nanos(seconds * 1_000_000_000 + nanos)), text);
        }
    }

    #[test]
    fn spans_are_spelt_as_go_spells_them() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (16_666_666, "16.666666ms"),
            (100_000_000, "100ms"),
            (1_000_000_000, "1s"),
            (61_500_000_000, "1m1.5s"),
            (3_600_000_000_000, "1h0m0s"),
            (-2_000_000, "-2ms"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(duration(Nanos(nanos)), text);
        }
    }
}
