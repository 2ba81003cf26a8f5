//! Times as people write them.

use serde::{Deserialize, Deserializer};
use usher_flowcontrol::units::Nanos;

/// A time, written as `5ms` (ns, us, ms, s, m).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Nanos);

/// A time that may be negative, written as `-5ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step(pub Nanos);

impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let (sign, span) = text.strip_prefix('-').map_or((1, &*text), |span| (-1, span));
        let step = Span::parse(span).map(|Span(Nanos(nanos))| Self(Nanos(sign * nanos)));
        step.ok_or_else(|| serde::de::Error::custom(format!("{text:?}: wanted a time such as 5ms or -5ms")))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| {
            serde::de::Error::custom(format!("{text:?}: wanted a time up to 60m, such as 5ms, 1.5s"))
        })
    }
}

impl Span {
    /// A part of it; at least a nanosecond, unless it is nothing.
    #[expect(clippy::cast_possible_truncation, reason = "no longer than it was")]
    pub(super) fn divide(&mut self, by: f64) {
        let part = (self.0.0 as f64 / by) as i64;
        self.0 = Nanos(part.max(self.0.0.min(1)));
    }

    #[expect(clippy::cast_possible_truncation, reason = "looked at before")]
    fn parse(text: &str) -> Option<Self> {
        let unit = text.find(|letter: char| letter.is_ascii_alphabetic())?;
        let (number, unit) = text.split_at(unit);
        let nanos = match unit {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            _ => return None,
        } * number.parse::<f64>().ok()?;
        (0.0..=3600e9).contains(&nanos).then_some(Self(Nanos(nanos as i64)))
    }
}
