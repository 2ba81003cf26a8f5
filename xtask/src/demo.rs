//! `cargo xtask demo`: usher in front of a stand-in apiserver, with a noisy neighbour.
//!
//! The scenario is the program `demo` of `bench/`; here it is only built and started.

use crate::{Outcome, Task, run};

pub(crate) const TASK: Task = Task {
    name: "demo",
    arguments: "[--stay]",
    about: "a noisy neighbour, with and without usher, in half a minute",
    run: demo,
};

fn demo(arguments: &[String]) -> Outcome {
    println!("building (release); the first time takes some minutes");
    run::run(&mut run::cargo(["build", "--release", "--package", "usher", "--bin", "usher"]))?;
    let mut command =
        run::cargo(["run", "--release", "--quiet", "--package", "usher-bench", "--bin", "demo", "--"]);
    run::run(command.args(arguments))
}
