//! Instructions per decision: two runs of different lengths under callgrind, and what the longer one executed more.
//!
//! Exact and the same on a busy machine, but of the processor that valgrind plays: it has no instructions for SHA-256, so
//! the flow's hash is computed in plain code, which real processors of today do not need.

use std::path::Path;
use std::process::{Command, Stdio};

use super::Options;
use super::cells::Cell;
use crate::Failure;

/// Decisions of the two runs.
const SHORT: u64 = 2_000;
const LONG: u64 = 10_000;

/// Whether they are counted; if not, that is said.
pub(super) fn available(options: &Options) -> bool {
    let there =
        Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_ok_and(|it| it.success());
    if options.quick {
        println!("instructions are not counted: --quick");
    } else if !there {
        println!("valgrind is missing: instructions are NOT counted (apt-get install valgrind)");
    }
    there && !options.quick
}

/// Instructions per decision of a cell.
#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53")]
pub(super) fn count(cell: Cell, folder: &Path) -> Result<f64, Failure> {
    let (short, long) = (run(cell, SHORT, folder)?, run(cell, LONG, folder)?);
    Ok(long.saturating_sub(short) as f64 / (LONG - SHORT) as f64)
}

fn run(cell: Cell, decisions: u64, folder: &Path) -> Result<u64, Failure> {
    let counts = folder.join("callgrind.out");
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .arg(std::env::current_exe()?)
        .args(["--cells", &cell.to_string(), "--spin", &decisions.to_string()])
        .output()?;
    if !output.status.success() {
        return Err(format!("valgrind: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let text = std::fs::read_to_string(&counts)?;
    total(&text).ok_or_else(|| format!("{}: no total", counts.display()).into())
}

/// Of a file that callgrind wrote.
fn total(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("summary: "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_total_is_found() {
        assert_eq!(super::total("events: Ir\nsummary: 1234\n\nfn=(1)\n"), Some(1234));
        assert_eq!(super::total("events: Ir\n"), None);
    }
}
