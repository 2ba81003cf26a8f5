//! `cargo xtask e2e`: usher against a real control plane, each test named by what it protects.
//!
//! The tests are the target `e2e` of `tests/`; `cargo xtask e2e --help` tells their options;
//! `--io` and `--workers` are usher's.

use crate::{Outcome, Task, run};

pub(crate) const TASK: Task = Task {
    name: "e2e",
    arguments: "[--io auto|uring|epoll] [--workers N] [--seed N] [FILTER …]",
    about: "real clients through usher to a real control plane (needs Go)",
    run: e2e,
};

pub(crate) fn e2e(arguments: &[String]) -> Outcome {
    run::build_as_tested(&["usher"], "e2e")?;
    let mut command = run::cargo(["test", "--workspace", "--test", "e2e", "--"]);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--io" => command.env("USHER_IO", arguments.next().ok_or("--io wants auto, uring or epoll")?),
            "--workers" => command.env("USHER_WORKERS", arguments.next().ok_or("--workers wants a number")?),
            other => match other.split_once('=') {
                Some(("--io", io)) => command.env("USHER_IO", io),
                Some(("--workers", workers)) => command.env("USHER_WORKERS", workers),
                _ => command.arg(other),
            },
        };
    }
    run::run(&mut command)
}
