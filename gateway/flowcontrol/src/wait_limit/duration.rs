//! Durations as Go writes them: `300ms`, `-1.5h`, `2h45m`; read as `time.ParseDuration` reads them.
//!
//! Fractions are scaled in double precision, to the bit as there.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt::{self, Write as _};

use crate::units::Nanos;

/// A text is no duration. Displayed, it is what kube-apiserver tells the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurationError {
    why: Why,
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Why {
    Invalid,
    MissingUnit,
    UnknownUnit(String),
}

/// The least magnitude that does not fit: 2^63 ns, which fits only with a minus sign.
const OVERFLOW: u64 = 1 << 63;

/// Reads a duration.
///
/// # Errors
/// [`DurationError`] if there is no number, no unit, an unknown unit, or more than 64 bits of it.
pub fn parse(text: &[u8]) -> Result<Nanos, DurationError> {
    let (negative, mut rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if rest == b"0" {
        return Ok(Nanos::ZERO);
    }
    let mut sum = 0_u64;
    let result = loop {
        match term(&mut rest) {
            // Two terms of 2^63 make 0, as there.
            Ok(value) => sum = sum.wrapping_add(value),
            Err(why) => break Err(why),
        }
        if sum > OVERFLOW {
            break Err(Why::Invalid);
        }
        if rest.is_empty() {
            break match (negative, i64::try_from(sum)) {
                (true, _) => Ok(Nanos(0_i64.wrapping_sub_unsigned(sum))),
                (false, Ok(nanos)) => Ok(Nanos(nanos)),
                (false, Err(_)) => Err(Why::Invalid),
            };
        }
    };
    result.map_err(|why| DurationError { why, text: quote(text) })
}

/// One number and its unit, in nanoseconds; at most [`OVERFLOW`].
fn term(rest: &mut &[u8]) -> Result<u64, Why> {
    let whole_digits = take_digits(rest);
    let mut fraction_digits: &[u8] = &[];
    if let [b'.', after @ ..] = *rest {
        *rest = after;
        fraction_digits = take_digits(rest);
    }
    let whole = integer(whole_digits).ok_or(Why::Invalid)?;
    if whole_digits.is_empty() && fraction_digits.is_empty() {
        return Err(Why::Invalid);
    }
    let width = rest.iter().position(|byte| *byte == b'.' || byte.is_ascii_digit()).unwrap_or(rest.len());
    let (name, after) = rest.split_at(width);
    *rest = after;
    let unit = unit(name)?;
    let whole = whole.checked_mul(unit).filter(|&nanos| nanos <= OVERFLOW).ok_or(Why::Invalid)?;
    Some(whole.saturating_add(scale(fraction_digits, unit)))
        .filter(|&sum| sum <= OVERFLOW)
        .ok_or(Why::Invalid)
}

fn take_digits<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let width = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, after) = rest.split_at(width);
    *rest = after;
    digits
}

/// Whole part; none is 0.
fn integer(digits: &[u8]) -> Option<u64> {
    digits
        .iter()
        .try_fold(0_u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
        .filter(|&sum| sum <= OVERFLOW)
}

/// Digits behind the point, as nanoseconds of that unit. Digits beyond 63 bits are ignored.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "double precision is what the reference computes in; the result is below one unit"
)]
fn scale(digits: &[u8], unit: u64) -> u64 {
    let (mut value, mut scale) = (0_u64, 1.0_f64);
    for digit in digits {
        if value > (OVERFLOW - 1) / 10 {
            break;
        }
        let next = value * 10 + u64::from(digit - b'0');
        if next > OVERFLOW {
            break;
        }
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

/// Nanoseconds of a unit.
fn unit(name: &[u8]) -> Result<u64, Why> {
    Ok(match name {
        b"" => return Err(Why::MissingUnit),
        b"ns" => 1,
        // U+00B5, the micro sign, and U+03BC, the Greek letter.
        b"us" | b"\xC2\xB5s" | b"\xCE\xBCs" => 1_000,
        b"ms" => 1_000_000,
        b"s" => 1_000_000_000,
        b"m" => 60_000_000_000,
        b"h" => 3_600_000_000_000,
        unknown => return Err(Why::UnknownUnit(quote(unknown))),
    })
}

/// In double quotes; what is not printable ASCII in hexadecimal.
fn quote(text: &[u8]) -> String {
    let mut quoted = String::from("\"");
    for &byte in text {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=0x7F => quoted.push(char::from(byte)),
            _ => write!(quoted, "\\x{byte:02x}").expect("a string takes every write"),
        }
    }
    quoted.push('"');
    quoted
}

// === impl DurationError ===

impl fmt::Display for DurationError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what: Cow<'_, str> = match &self.why {
            Why::Invalid => "invalid duration ".into(),
            Why::MissingUnit => "missing unit in duration ".into(),
            Why::UnknownUnit(unit) => alloc::format!("unknown unit {unit} in duration ").into(),
        };
        write!(formatter, "invalid timeout specified in the request URL - time: {what}{}", self.text)
    }
}

impl core::error::Error for DurationError {}
