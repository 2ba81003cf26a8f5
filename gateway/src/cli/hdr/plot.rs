//! `usher hdr plot`: values over percentiles. Both axes are logarithmic: each step to the right leaves a tenth of the
//! requests (90 %, 99 %, 99.9 % …), so that the tail, which capacity is planned for, takes the room.

mod svg;
mod text;

use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;

use super::selection::{Selection, Sums};
use super::{Told, Unit};
use crate::observe::hdr::formats;

/// Curves that can be told apart.
const CURVES_MAX: usize = 8;
/// Points for each halving of the distance to 100 %.
const TICKS_PER_HALF: u32 = 10;
/// The most nines that an axis has: beyond, curves of any real count are flat.
const NINES_MAX: f64 = 7.0;

/// Of what, and how it is drawn.
#[derive(Args, Clone, Debug)]
pub(super) struct Plot {
    #[command(flatten)]
    selection: Selection,
    /// How to draw it
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value = "text")]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For a terminal
    Text,
    /// For a browser or a document
    Svg,
}

/// A tag's points: nines (the decimal logarithm of 1/(1-percentile)) and value.
struct Curve<'a> {
    tag: &'a str,
    points: Vec<(f64, u64)>,
}

/// What is drawn.
struct Picture<'a> {
    curves: Vec<Curve<'a>>,
    unit: Unit,
    /// The axis to the right ends there.
    nines: f64,
    /// The decimal logarithms between which the axis upwards runs, whole numbers.
    decades: (i32, i32),
}

impl Plot {
    pub(super) fn tell(&self) -> Told {
        let sums = self.selection.sums()?;
        let picture = Picture::of(&sums)?;
        let text = match self.output {
            Format::Text => text::draw(&picture),
            Format::Svg => svg::draw(&picture),
        };
        Ok((text, 0))
    }
}

impl<'a> Picture<'a> {
    fn of(sums: &'a Sums) -> Result<Self, String> {
        if sums.len() > CURVES_MAX {
            return Err(format!(
                "{} tags are more than can be told apart ({CURVES_MAX}): choose with --tag",
                sums.len()
            ));
        }
        let unit = sums.keys().next().map_or(Unit::Plain, |tag| Unit::of(tag));
        if sums.keys().any(|tag| Unit::of(tag) != unit) {
            return Err("times and seats do not go into one picture: choose with --tag".into());
        }
        let curves: Vec<Curve<'a>> =
            sums.iter().map(|(tag, sum)| Curve { tag, points: points(&sum.histogram) }).collect();
        let all = || curves.iter().flat_map(|curve| &curve.points);
        let nines = all().map(|(nines, _)| *nines).fold(1.0, f64::max);
        // Who did not wait at all is drawn at the bottom, without nine empty decades above.
        let heights = || all().filter(|(_, value)| *value > 0).map(|(_, value)| height(*value));
        let high = heights().fold(0.0, f64::max);
        let low = heights().fold(high, f64::min);
        #[expect(clippy::cast_possible_truncation, reason = "logarithms of u64 are from 0 to 19.3")]
        let decades = (low.floor() as i32, (high.ceil() as i32).max(low.floor() as i32 + 1));
        Ok(Self { curves, unit, nines, decades })
    }

    /// Where a point is, from 0 to 1 on both axes.
    fn place(&self, (nines, value): (f64, u64)) -> (f64, f64) {
        let (low, high) = (f64::from(self.decades.0), f64::from(self.decades.1));
        (nines / self.nines, (height(value) - low) / (high - low))
    }

    /// The percentiles that the axis names, with their nines.
    fn marks(&self) -> impl Iterator<Item = (f64, String)> {
        let name = |nines: u32| match nines {
            0 => "0 %".to_owned(),
            1 => "90 %".to_owned(),
            2 => "99 %".to_owned(),
            _ => format!("99.{} %", "9".repeat(nines as usize - 2)),
        };
        let nines = self.nines;
        (0..=7_u32).map(move |mark| (f64::from(mark), name(mark))).filter(move |(mark, _)| *mark <= nines)
    }

    /// The values that the axis names.
    fn values(&self) -> impl Iterator<Item = u64> {
        (self.decades.0..=self.decades.1).map(|decade| 10_u64.saturating_pow(decade.unsigned_abs()))
    }
}

/// A value's place on a logarithmic axis; nothing is drawn like 1.
#[expect(clippy::cast_precision_loss, reason = "a place in a picture")]
fn height(value: u64) -> f64 {
    (value.max(1) as f64).log10()
}

fn points(histogram: &Histogram<u64>) -> Vec<(f64, u64)> {
    let steps = formats::steps(histogram, TICKS_PER_HALF);
    let point = |quantile: f64, value: u64| {
        let nines = if quantile < 1.0 { -(1.0 - quantile).log10() } else { NINES_MAX };
        (nines.min(NINES_MAX), value)
    };
    let mut points: Vec<(f64, u64)> = steps.iter().map(|step| point(step.quantile, step.value)).collect();
    // The largest value has no percentile of its own on this axis: it is put where the last request is.
    #[expect(clippy::cast_precision_loss, reason = "a place in a picture")]
    let last = (histogram.len().max(1) as f64).log10().clamp(0.0, NINES_MAX);
    points.retain(|(nines, _)| *nines <= last);
    points.push((last, histogram.max()));
    points
}
