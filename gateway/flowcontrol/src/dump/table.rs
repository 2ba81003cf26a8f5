//! Columns as Go's `text/tabwriter` aligns them: left, padded by one space, at least eight wide.
//!
//! A column is a run of lines that have a cell there, and the last cell of a line belongs to none, so
//! text that brings its own tabs and line breaks makes columns of its own, exactly as there.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// A column is at least that wide, padding included.
const WIDTH_MIN: usize = 8;
/// Spaces after the widest cell of a column.
const PADDING: usize = 1;
/// Cells of a line that are aligned; no table of ours has half as many. Bounds what somebody can make
/// of us with a user name full of tabs: more of them are shown as they are.
const CELLS_MAX: usize = 64;

/// Lines of cells.
#[derive(Debug, Default)]
pub(crate) struct Table {
    text: String,
}

impl Table {
    pub(crate) fn new(header: &[&str]) -> Self {
        let mut table = Self::default();
        let cells: Vec<&dyn ToString> = header.iter().map(|cell| cell as &dyn ToString).collect();
        table.row(&cells);
        table
    }

    pub(crate) fn row(&mut self, cells: &[&dyn ToString]) {
        for (index, cell) in cells.iter().enumerate() {
            if index > 0 {
                self.text.push_str(",\t");
            }
            self.text.push_str(&cell.to_string());
        }
        self.text.push('\n');
    }

    pub(crate) fn render(&self) -> String {
        align(&self.text)
    }
}

/// Aligns text whose cells end with tabs and whose lines end with line feeds or form feeds; a form feed
/// ends all columns as well. What follows the last line end is a line too.
fn align(text: &str) -> String {
    let mut out = String::with_capacity(2 * text.len());
    for block in text.split_inclusive('\x0C') {
        let lines: Vec<Line<'_>> = block.split(['\n', '\x0C']).map(Line::of).collect();
        let widths = widths(&lines);
        for (index, (line, widths)) in lines.iter().zip(&widths).enumerate() {
            line.write(widths, &mut out);
            if index + 1 < lines.len() {
                out.push('\n');
            }
        }
    }
    out
}

/// The cells of a line; all but the last are in columns.
struct Line<'a> {
    cells: Vec<&'a str>,
}

impl<'a> Line<'a> {
    fn of(text: &'a str) -> Self {
        Self { cells: text.splitn(CELLS_MAX, ['\t', '\x0B']).collect() }
    }

    fn has_column(&self, column: usize) -> bool {
        column + 1 < self.cells.len()
    }

    fn write(&self, widths: &[usize], out: &mut String) {
        for (index, cell) in self.cells.iter().enumerate() {
            out.push_str(cell);
            if let Some(width) = widths.get(index) {
                out.extend(core::iter::repeat_n(' ', width.saturating_sub(cell.chars().count())));
            }
        }
    }
}

/// Widths of the columns at each line. A run of lines shares a column if all of them have it.
fn widths(lines: &[Line<'_>]) -> Vec<Vec<usize>> {
    let mut widths: Vec<Vec<usize>> = lines.iter().map(|_| Vec::new()).collect();
    for column in 0..CELLS_MAX {
        let mut from = 0;
        while from < lines.len() {
            let run = lines[from..].iter().take_while(|line| line.has_column(column));
            let (mut length, mut width) = (0, WIDTH_MIN);
            for line in run {
                length += 1;
                width = width.max(line.cells[column].chars().count() + PADDING);
            }
            widths[from..from + length].iter_mut().for_each(|columns| columns.push(width));
            from += length.max(1);
        }
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        assert_eq!(align("a,\tb\nlonger than eight,\tb\n"), "a,                 b\nlonger than eight, b\n");
        assert_eq!(align("a,\tb,\tc\n"), "a,      b,      c\n");
        assert_eq!(align("ü€𝄞,\tb\nabcdefgh,\tb\n"), "ü€𝄞,      b\nabcdefgh, b\n");
    }

    #[test]
    fn a_line_without_the_cell_ends_the_column() {
        assert_eq!(align("aaaaaaaaaa\tx\nb\nc\tx\n"), "aaaaaaaaaa x\nb\nc       x\n");
        assert_eq!(align("aaaaaaaaaa\tx\x0Cc\tx\n"), "aaaaaaaaaa x\nc       x\n");
    }

    #[test]
    fn tabs_without_end_are_harmless() {
        let text = "\t".repeat(100_000);
        assert!(align(&text).len() < 2 * text.len());
    }
}
