//! Programs from the distribution: which are needed, and what to install for those that are missing.

use std::collections::BTreeSet;
use std::process::Command;

use super::Failure;
use crate::process;

/// Program and Debian package.
const PACKAGES: &[(&str, &str)] = &[
    ("haproxy", "haproxy"),
    ("nginx", "nginx-light"),
    ("wrk", "wrk"),
    ("h2load", "nghttp2-client"),
    ("setpriv", "util-linux"),
    ("taskset", "util-linux"),
];

/// What counts system calls and instructions; without it those columns are not there.
pub(super) const PERF: &str = "perf";

/// Whether perf may and can count such events here: ordinary users may not trace, and many virtual machines have no
/// counters.
pub(super) fn countable(event: &str) -> bool {
    let own = std::process::id().to_string();
    let mut perf = Command::new(PERF);
    perf.args(["stat", "-x,", "-e", event, "-p", &own, "--", "true"]);
    perf.output().is_ok_and(|output| {
        output.status.success() && !String::from_utf8_lossy(&output.stderr).contains("<not supported>")
    })
}

/// An error that says what to install, if one of these is missing.
pub(super) fn require(programs: &BTreeSet<&'static str>) -> Result<(), Failure> {
    let needed = programs.iter().chain(&["setpriv", "taskset"]);
    let missing: Vec<&str> = needed.copied().filter(|program| !process::found(program)).collect();
    if !process::found(PERF) {
        eprintln!(
            "perf is missing: system calls and instructions are not counted (apt-get install linux-perf)"
        );
    }
    if missing.is_empty() {
        return Ok(());
    }
    let packages: BTreeSet<&str> = PACKAGES
        .iter()
        .filter(|(program, _)| missing.contains(program))
        .map(|(_, package)| *package)
        .collect();
    let packages: Vec<&str> = packages.into_iter().collect();
    Err(format!("missing: {}; apt-get install {}", missing.join(", "), packages.join(" ")).into())
}
