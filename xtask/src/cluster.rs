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
    if arguments.first().is_some_and(|word| word == "up") {
        run::run(&mut run::cargo(["build", "--package", "usher", "--bin", "usher"]))?;
    }
    let mut command =
        run::cargo(["run", "--quiet", "--package", "usher-tests", "--bin", "usher-cluster", "--"]);
    run::run(command.args(arguments))
}
