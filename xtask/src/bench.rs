//! `cargo xtask bench proxy`: usher beside HAProxy and nginx. `cargo xtask bench dispatch`: a decision beside
//! kube-apiserver's own implementation. `cargo xtask bench overload`: the whole gateway under far too much load.
//! `cargo xtask bench steering`: the kernel's choice of a worker.
//!
//! The benches are the programs `usher-bench-…` of `bench/`, whose README says what their
//! numbers mean; here they are only built and started: what is measured as it is shipped (profile `dist`), the tools of
//! the bench quicker. `--quick` takes the debug build, which is there after the tests: its figures mean nothing.

use crate::{Outcome, Task, run};

pub(crate) const TASK: Task = Task {
    name: "bench",
    arguments: "proxy|dispatch|overload|steering [--quick] [--help]",
    about: "CPU, latency and memory beside HAProxy and nginx; decisions beside kube-apiserver's own; overload; steering",
    run: bench,
};

fn bench(arguments: &[String]) -> Outcome {
    match arguments.split_first() {
        Some((which, rest)) if which == "proxy" => gateway("usher-bench-proxy", &["usher-relay"], rest),
        Some((which, rest)) if which == "overload" => gateway("usher-bench-overload", &[], rest),
        Some((which, rest)) if which == "dispatch" => inside("usher-bench-dispatch", shipped, rest),
        // What is measured is the kernel's.
        Some((which, rest)) if which == "steering" => inside("usher-bench-steering", || &[], rest),
        _ => Err(format!("usage: cargo xtask bench {}", TASK.arguments)),
    }
}

/// A bench of the whole usher, which is built beside it; it needs these `helpers` of `bench/` as well.
fn gateway(program: &str, helpers: &[&str], arguments: &[String]) -> Outcome {
    if is_quick(arguments) {
        return quick(program, &[helpers, &["usher"]].concat(), arguments);
    }
    run::run(run::cargo(["build", "--package", "usher", "--bin", "usher"]).args(shipped()))?;
    let tools = ["--release", "--package", "usher-bench"];
    let programs = helpers.iter().chain([&program]).flat_map(|name| ["--bin", name]);
    run::run(run::cargo(["build"]).args(tools).args(programs))?;
    let mut command = run::cargo(["run", "--quiet"]);
    command.args(tools).args(["--bin", program, "--"]);
    if !arguments.iter().any(|word| word.starts_with("--usher")) {
        command.arg("--usher").arg(run::target().join("dist/usher"));
    }
    run::run(command.args(arguments))
}

/// What is measured is in the bench's own program, which is built by this `profile`.
fn inside(program: &str, profile: fn() -> &'static [&'static str], arguments: &[String]) -> Outcome {
    if is_quick(arguments) {
        return quick(program, &[], arguments);
    }
    let mut command = run::cargo(["run", "--quiet"]);
    command.args(profile()).args(["--package", "usher-bench", "--bin", program, "--"]);
    run::run(command.args(arguments))
}

fn is_quick(arguments: &[String]) -> bool {
    arguments.iter().any(|word| word == "--quick")
}

/// The debug build of it and of what it starts: whether it works.
fn quick(program: &str, others: &[&str], arguments: &[String]) -> Outcome {
    run::build_as_tested(&[others, &[program]].concat(), "conformance")?;
    run::run(run::as_tested(program).args(arguments))
}

/// How cargo is told to build what is measured.
fn shipped() -> &'static [&'static str] {
    eprintln!("building usher as it is shipped; the first time takes some minutes");
    &["--profile", "dist"]
}
