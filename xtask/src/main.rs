//! The project's own commands: `cargo xtask TASK`, one file a task.
//!
//! Nothing here depends on anything, so that a fresh clone reaches its first line of output in seconds. What
//! needs HTTP or certificates lives in `tests/` and `bench/`; the tasks build and run it.

mod bench;
mod ci;
mod cluster;
mod demo;
mod deploy;
mod dist;
mod e2e;
mod ebpf;
mod hdr;
mod loom;
mod run;
mod seeds;
mod test;
mod vectors;

use std::process::ExitCode;

/// What a task says when it could not do what it was asked.
type Outcome = Result<(), String>;

/// One command.
struct Task {
    name: &'static str,
    /// Its arguments as shown in the help.
    arguments: &'static str,
    /// One line of help.
    about: &'static str,
    run: fn(&[String]) -> Outcome,
}

/// In the order of the help: first what a newcomer wants.
const TASKS: &[Task] = &[
    demo::TASK,
    test::TASK,
    vectors::TASK,
    cluster::TASK,
    e2e::TASK,
    deploy::TASK,
    dist::TASK,
    hdr::TASK,
    loom::TASK,
    seeds::TASK,
    bench::TASK,
    ebpf::TASK,
    ci::TASK,
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("help", String::as_str);
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        return help(name);
    };
    match (task.run)(arguments.get(1..).unwrap_or_default()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask {name}: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The list of tasks; a failure if `asked` was not a request for it.
fn help(asked: &str) -> ExitCode {
    println!("usage: cargo xtask TASK [ARGUMENTS]\n");
    for task in TASKS {
        println!("  {:<8} {:<34} {}", task.name, task.arguments, task.about);
    }
    if matches!(asked, "help" | "-h" | "--help") {
        return ExitCode::SUCCESS;
    }
    eprintln!("\nxtask: there is no task {asked:?}");
    ExitCode::FAILURE
}
