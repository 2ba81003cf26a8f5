//! `cargo xtask hdr`: usher's histograms read by HdrHistogram's own Java and Python libraries.
//!
//! The tests are the target `hdr` of `tests/`. They fetch the libraries from Maven Central and PyPI.

use crate::{Outcome, Task, run};

pub(crate) const TASK: Task = Task {
    name: "hdr",
    arguments: "[FILTER …]",
    about: "HdrHistogram's own tools read usher's logs (needs a JDK, Maven, Python)",
    run: hdr,
};

fn hdr(arguments: &[String]) -> Outcome {
    run::build_as_tested(&["usher"], "hdr")?;
    let mut command = run::cargo(["test", "--workspace", "--test", "hdr", "--"]);
    run::run(command.args(arguments))
}
