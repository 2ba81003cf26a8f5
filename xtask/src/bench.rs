//! `cargo xtask bench proxy`: usher beside HAProxy and nginx.
//!
//! The bench is the program `usher-bench-proxy` of `bench/`, whose README says what its numbers mean; here it is only
//! built and started. `--quick` takes the debug build, which is there after the tests: its figures mean nothing.

use crate::{Outcome, Task, run};

pub(crate) const TASK: Task = Task {
    name: "bench",
    arguments: "proxy [--quick] [--cells …] [--help]",
    about: "CPU, latency and memory beside HAProxy and nginx",
    run: bench,
};

fn bench(arguments: &[String]) -> Outcome {
    match arguments.split_first() {
        Some((which, rest)) if which == "proxy" => proxy(rest),
        _ => Err(format!("usage: cargo xtask bench {}", TASK.arguments)),
    }
}

fn proxy(arguments: &[String]) -> Outcome {
    let release = !arguments.iter().any(|word| word == "--quick");
    let profile: &[&str] = if release { &["--release"] } else { &[] };
    if release {
        eprintln!("building (release); the first time takes some minutes");
    }
    let packages = ["--package", "usher", "--package", "usher-bench"];
    let programs = ["--bin", "usher", "--bin", "usher-bench-proxy", "--bin", "usher-relay"];
    run::run(run::cargo(["build"]).args(profile).args(packages).args(programs))?;
    let mut command = run::cargo(["run", "--quiet"]);
    command.args(profile).args(["--package", "usher-bench", "--bin", "usher-bench-proxy", "--"]);
    run::run(command.args(arguments))
}
