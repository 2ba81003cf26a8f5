//! `metav1.Time`: an instant as RFC 3339 text, kept as it was written.
//!
//! Flow control never computes with these times, so they stay text; but a text that is no time is
//! refused when it is read, as the API does.

use alloc::string::String;
use core::fmt;

/// An instant, in RFC 3339.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Time(String);

impl Time {
    /// Takes the text if it is an RFC 3339 instant (`2026-01-02T03:04:05Z`, fractions and offsets too).
    pub fn parse(text: &str) -> Option<Self> {
        is_rfc3339(text.as_bytes()).then(|| Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Time {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Time {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let expected = "an RFC 3339 time such as 2026-01-02T03:04:05Z";
        Self::parse(&text)
            .ok_or_else(|| serde::de::Error::invalid_value(serde::de::Unexpected::Str(&text), &expected))
    }
}

/// RFC 3339, section 5.6, with an upper-case `T` and `Z` and no leap second, as Go's parser has it.
fn is_rfc3339(text: &[u8]) -> bool {
    let Some((date_time, rest)) = text.split_at_checked(19) else { return false };
    let shape = b"0000-00-00T00:00:00";
    if !date_time.iter().zip(shape).all(|(byte, form)| match form {
        b'0' => byte.is_ascii_digit(),
        _ => byte == form,
    }) {
        return false;
    }
    let number = |range: core::ops::Range<usize>| {
        date_time[range].iter().fold(0_u32, |sum, digit| sum * 10 + u32::from(digit - b'0'))
    };
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    (1..=12).contains(&month)
        && (1..=days_of(year, month)).contains(&day)
        && number(11..13) < 24
        && number(14..16) < 60
        && number(17..19) < 60
        && is_zone(after_fraction(rest))
}

/// Days of a month of the Gregorian calendar.
fn days_of(year: u32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        _ => 31,
    }
}

/// What follows the fraction of a second, if there is one.
fn after_fraction(text: &[u8]) -> &[u8] {
    match text {
        [b'.', digits @ ..] => {
            let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if length == 0 { text } else { &digits[length..] }
        }
        _ => text,
    }
}

/// `Z` or an offset in hours and minutes.
fn is_zone(text: &[u8]) -> bool {
    match text {
        [b'Z'] => true,
        [b'+' | b'-', h1, h2, b':', m1, m2] => {
            let two = |tens: &u8, ones: &u8| {
                (tens.is_ascii_digit() && ones.is_ascii_digit()).then(|| (tens - b'0') * 10 + (ones - b'0'))
            };
            two(h1, h2).is_some_and(|hours| hours < 24) && two(m1, m2).is_some_and(|minutes| minutes < 60)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::Time;

    #[test]
    fn only_instants_are_taken() {
        for good in ["2026-01-02T03:04:05Z", "2024-02-29T23:59:59.123456789+05:30", "0001-01-01T00:00:00Z"] {
            assert_eq!(Time::parse(good).map(|time| time.0).as_deref(), Some(good));
        }
        for bad in [
            "",
            "yesterday",
            "2026-01-02",
            "2026-01-02t03:04:05z",
            "2026-01-02 03:04:05Z",
            "2026-13-02T03:04:05Z",
            "2026-02-29T03:04:05Z",
            "2026-01-02T24:04:05Z",
            "2026-01-02T03:04:60Z",
            "2026-01-02T03:04:05",
            "2026-01-02T03:04:05.Z",
            "2026-01-02T03:04:05+5:30",
            "2026-01-02T03:04:05Zé",
            "２026-01-02T03:04:05Z",
        ] {
            assert_eq!(Time::parse(bad), None, "{bad}");
        }
    }
}
