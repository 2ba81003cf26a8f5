//! A picture as SVG: no scripts, no fonts or colours from elsewhere.

use std::fmt::Write as _;

use super::super::shown;
use super::Picture;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 20.0;
/// Of each line of the legend.
const LINE: f64 = 20.0;
/// One for each curve, told apart by those who do not see colours alike, too (Okabe and Ito).
const COLOURS: [&str; super::CURVES_MAX] =
    ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#000000", "#f0e442"];

pub(super) fn draw(picture: &Picture<'_>) -> String {
    let count = u16::try_from(picture.curves.len()).unwrap_or(u16::MAX);
    let (width, height) = (LEFT + WIDTH + 40.0, TOP + HEIGHT + 50.0 + LINE * f64::from(count));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    axes(&mut svg, picture);
    for (index, (curve, colour)) in (0_u16..).zip(picture.curves.iter().zip(COLOURS)) {
        let points: Vec<String> = curve
            .points
            .iter()
            .map(|point| at(picture.place(*point)))
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"/>",
            points.join(" ")
        );
        let y = TOP + HEIGHT + 50.0 + LINE * f64::from(index);
        let _ = writeln!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>",
            y - 6.0
        );
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{y}\">{}</text>", LEFT + 20.0, escaped(curve.tag));
    }
    svg.push_str("</svg>\n");
    svg
}

fn axes(svg: &mut String, picture: &Picture<'_>) {
    let (right, bottom) = (LEFT + WIDTH, TOP + HEIGHT);
    for (nines, name) in picture.marks() {
        let (x, _) = at(picture.place((nines, 1)));
        let _ =
            writeln!(svg, "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#ddd\"/>");
        let _ =
            writeln!(svg, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{name}</text>", bottom + 18.0);
    }
    for value in picture.values() {
        let (_, y) = at(picture.place((0.0, value)));
        let _ =
            writeln!(svg, "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>");
        let name = shown(value, picture.unit);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
            LEFT - 8.0,
            y + 4.0
        );
    }
}

fn at((x, y): (f64, f64)) -> (f64, f64) {
    (LEFT + WIDTH * x.clamp(0.0, 1.0), TOP + HEIGHT * (1.0 - y.clamp(0.0, 1.0)))
}

/// A tag is whatever stands in the file.
fn escaped(text: &str) -> String {
    text.chars()
        .filter(|character| !character.is_control())
        .map(|character| match character {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            other => other.to_string(),
        })
        .collect()
}
