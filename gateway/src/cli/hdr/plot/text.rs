//! A picture of characters.

use std::fmt::Write as _;

use super::super::shown;
use super::Picture;

const WIDTH: usize = 72;
const HEIGHT: usize = 20;
/// One for each curve.
const SIGNS: [char; super::CURVES_MAX] = ['*', 'o', '+', 'x', '#', '@', '%', '~'];

pub(super) fn draw(picture: &Picture<'_>) -> String {
    let mut columns = vec![[' '; HEIGHT + 1]; WIDTH + 1];
    for (curve, sign) in picture.curves.iter().zip(SIGNS) {
        for pair in curve.points.windows(2) {
            line(&mut columns, picture.place(pair[0]), picture.place(pair[1]), sign);
        }
        for point in &curve.points {
            let (column, row) = cell(picture.place(*point));
            columns[column][row] = sign;
        }
    }
    let mut text = String::new();
    let mut labels = vec![String::new(); HEIGHT + 1];
    for value in picture.values() {
        let (_, row) = cell(picture.place((0.0, value)));
        labels[row] = shown(value, picture.unit);
    }
    for (row, label) in labels.iter().enumerate().rev() {
        let cells: String = columns.iter().map(|column| column[row]).collect();
        let _ = writeln!(text, "{}", format!("{label:>8} |{cells}").trim_end());
    }
    let _ = writeln!(text, "{:>8} +{}", "", "-".repeat(WIDTH + 1));
    let mut axis = String::new();
    for (nines, name) in picture.marks() {
        let (column, _) = cell(picture.place((nines, 1)));
        if axis.len() <= column || axis.is_empty() {
            let _ = write!(axis, "{:width$}{name}", "", width = column - axis.len());
        }
    }
    let _ = writeln!(text, "{:>8}  {axis}", "");
    for (curve, sign) in picture.curves.iter().zip(SIGNS) {
        let _ = writeln!(text, "{:>8}  {sign} {}", "", curve.tag);
    }
    text
}

/// Column and row, the lowest row first.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "clamped to the picture"
)]
fn cell((x, y): (f64, f64)) -> (usize, usize) {
    (
        (x.clamp(0.0, 1.0) * WIDTH as f64).round() as usize,
        (y.clamp(0.0, 1.0) * HEIGHT as f64).round() as usize,
    )
}

/// Fills the columns between two points.
fn line(columns: &mut [[char; HEIGHT + 1]], from: (f64, f64), to: (f64, f64), sign: char) {
    let ((first, _), (last, _)) = (cell(from), cell(to));
    for (index, column) in columns.iter_mut().enumerate().take(last + 1).skip(first) {
        #[expect(clippy::cast_precision_loss, reason = "a place in a picture")]
        let part = if last == first { 1.0 } else { (index - first) as f64 / (last - first) as f64 };
        let (_, row) = cell((0.0, from.1 + (to.1 - from.1) * part));
        column[row] = sign;
    }
}
