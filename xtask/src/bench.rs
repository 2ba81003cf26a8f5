//! `cargo xtask bench proxy`: usher beside HAProxy and nginx.
//!
//! The bench is the program `usher-bench-proxy` of `bench/`, whose README says what its numbers mean; here it is only
//! built and started: usher as it is shipped (profile `dist`), the tools of the bench quicker. `--quick` takes the debug
//! build, which is there after the tests: its figures mean nothing.

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
    let quick = arguments.iter().any(|word| word == "--quick");
    let tools: &[&str] = if quick { &[] } else { &["--release"] };
    let shipped: &[&str] = if quick { &[] } else { &["--profile", "dist"] };
    if !quick {
        eprintln!("building usher as it is shipped; the first time takes some minutes");
    }
    run::run(run::cargo(["build", "--package", "usher", "--bin", "usher"]).args(shipped))?;
    let programs = ["--package", "usher-bench", "--bin", "usher-bench-proxy", "--bin", "usher-relay"];
    run::run(run::cargo(["build"]).args(tools).args(programs))?;
    let mut command = run::cargo(["run", "--quiet"]);
    command.args(tools).args(["--package", "usher-bench", "--bin", "usher-bench-proxy", "--"]);
    if !quick && !arguments.iter().any(|word| word.starts_with("--usher")) {
        command.arg("--usher").arg(run::target().join("dist/usher"));
    }
    run::run(command.args(arguments))
}
