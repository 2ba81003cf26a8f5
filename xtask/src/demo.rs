//! `cargo xtask demo`: usher in front of a stand-in apiserver, with a noisy neighbour.
//!
//! The scenario is the program `usher-demo` of `bench/`; here it is only built and started.

use crate::{Outcome, Task, run};

pub(crate) const TASK: Task = Task {
    name: "demo",
    arguments: "[--seconds N] [--stay] [-o json]",
    about: "a noisy neighbour: half a minute with admission, half a minute without",
    run: demo,
};

fn demo(arguments: &[String]) -> Outcome {
    eprintln!("building (release); the first time takes some minutes");
    let programs =
        ["--package", "usher", "--package", "usher-bench", "--bin", "usher", "--bin", "usher-demo"];
    run::run(run::cargo(["build", "--release"]).args(programs))?;
    let mut command =
        run::cargo(["run", "--release", "--quiet", "--package", "usher-bench", "--bin", "usher-demo", "--"]);
    run::run(command.args(arguments))
}
