//! `cargo xtask cluster up|down|status`: a real control plane on loopback with usher in front.
//!
//! The work is done by the program `usher-cluster` of `tests/`; `--help` there tells its options.

use crate::{Outcome, Task, run};

pub(crate) const TASK: Task = Task {
    name: "cluster",
    arguments: "up|down|status|build [--dir D]",
    about: "a real control plane on loopback, usher in front (needs Go)",
    run: cluster,
};

fn cluster(arguments: &[String]) -> Outcome {
    let up = arguments.first().is_some_and(|word| word == "up");
    let programs: &[&str] = if up { &["usher", "usher-cluster"] } else { &["usher-cluster"] };
    run::build_as_tested(programs, "conformance")?;
    run::run(run::as_tested("usher-cluster").args(arguments))
}
