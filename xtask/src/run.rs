//! Starting other programs: where they run, how a failure is worded, and steps with their times.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// `cargo ARGUMENTS` at the root, with the cargo that runs this task.
pub(crate) fn cargo<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Builds these programs, and the tests' target `test`, of what `cargo test --workspace` is made of. Cargo chooses the
/// dependencies' features for all packages that it is asked for, tests' own dependencies included if it builds a test: asked
/// for one package it would compile most of them once more, and usher too.
pub(crate) fn build_as_tested(programs: &[&str], test: &str) -> Outcome {
    let mut command = cargo(["build", "--workspace", "--test", test]);
    run(command.args(programs.iter().flat_map(|program| ["--bin", program])))
}

/// What [`build_as_tested`] has built.
pub(crate) fn as_tested(program: &str) -> Command {
    let mut command = Command::new(target().join("debug").join(program));
    command.current_dir(root());
    command
}

/// Where tools of the project's own are: what cargo installs is in `bin` below it.
pub(crate) fn tools() -> PathBuf {
    root().join("target/tools")
}

/// Has cargo install a tool there. Neither optimised nor with debug information: what a tool does here takes a second, to compile
/// it well minutes.
pub(crate) fn install(tool: &str) -> Outcome {
    println!("installing {tool} into {}", tools().display());
    let mut command = cargo(["install", "--locked", "--force", "--debug", "--quiet", tool, "--root"]);
    run(command.arg(tools()).env("CARGO_PROFILE_DEV_DEBUG", "0"))
}

/// Runs `command` to its end; an error unless it ended well.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let status = command.status().map_err(|error| format!("cannot start {}: {error}", words(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", words(command))) }
}

/// Whether `command` can be started and ends well; what it prints is thrown away.
pub(crate) fn works(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// What a command says, without the space around it.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("cannot start {}: {error}", words(command)))?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() {
        return Ok(said);
    }
    Err(format!("{}: {}\n{}", words(command), output.status, String::from_utf8_lossy(&output.stderr)))
}

/// The command as one would type it.
pub(crate) fn words(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_else(|| command.get_program());
    let arguments = command.get_args().map(|word| word.to_string_lossy());
    std::iter::once(program.to_string_lossy()).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// A task of ours that runs beside steps which leave the processor idle, itself with the lowest priority.
pub(crate) struct Beside {
    child: std::io::Result<Child>,
    log: PathBuf,
}

impl Beside {
    /// Starts it. What it says is kept until it is waited for.
    pub(crate) fn start(task: &[&str]) -> Self {
        let log = target().join(format!("{}.log", task.join("-")));
        let child = File::create(&log).and_then(|out| {
            let mut command = Command::new("nice");
            command.args(["-n", "19"]).arg(std::env::current_exe()?).args(task);
            command.stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out).spawn()
        });
        Self { child, log }
    }

    /// Waits for its end, and prints what it has said.
    pub(crate) fn end(self) -> Outcome {
        let status = self.child.and_then(|mut child| child.wait());
        print!("{}", std::fs::read_to_string(&self.log).unwrap_or_default());
        let status = status.map_err(|error| format!("{}: {error}", self.log.display()))?;
        if status.success() { Ok(()) } else { Err(format!("{status}: {}", self.log.display())) }
    }
}

/// Steps that are announced, timed, and summed up; a failed one does not stop those after it.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(&'static str, Duration, Outcome)>,
}

impl Steps {
    /// Announces and does one step.
    #[expect(clippy::disallowed_methods, reason = "a step's time is for the reader; nothing depends on it")]
    pub(crate) fn step(&mut self, name: &'static str, work: impl FnOnce() -> Outcome) {
        println!("\n=== {name} ===");
        let start = Instant::now();
        let outcome = work();
        let took = start.elapsed();
        match &outcome {
            Ok(()) => println!("=== {name}: done in {} ===", minutes(took)),
            Err(message) => println!("=== {name}: FAILED in {}: {message} ===", minutes(took)),
        }
        self.done.push((name, took, outcome));
    }

    /// Prints all steps with their times; an error that names the failed ones.
    pub(crate) fn summary(self) -> Outcome {
        println!("\n=== summary ===");
        for (name, took, outcome) in &self.done {
            println!("{:>8}  {:<6}  {name}", minutes(*took), if outcome.is_ok() { "ok" } else { "FAILED" });
        }
        let total = self.done.iter().map(|(_, took, _)| *took).sum();
        println!("{:>8}          in all", minutes(total));
        let failed: Vec<&str> =
            self.done.iter().filter(|(_, _, outcome)| outcome.is_err()).map(|(name, _, _)| *name).collect();
        if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
    }
}

/// `M:SS`.
fn minutes(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}
