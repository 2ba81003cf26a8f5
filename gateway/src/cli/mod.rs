//! What the program is told on its command line: `serve`, `check`, `explain`, `hdr`,
//! `simulate`, `seccomp`; `status`, `drain`, `release`, `take`.
//!
//! Exit codes: 0 done, 1 failed, 2 the operator has to write something else; [`control`] and [`hdr`] have more.

pub mod check;
pub mod control;
pub mod explain;
pub mod hdr;
pub mod seccomp;
mod serve;
pub mod simulate;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::options::{self, Options, OptionsError};

/// Something went wrong that the command line is not to blame for.
const FAILED: u8 = 1;
/// The command line, the environment or the options file must be changed.
const USAGE: u8 = 2;

/// Admission gateway in front of kube-apiserver: API Priority and Fairness (KEP-1040).
#[derive(Parser, Debug)]
#[command(name = "usher", version, max_term_width = 110, disable_help_flag = true)]
struct Program {
    /// Print help
    #[arg(short, long, global = true, action = ArgAction::HelpShort)]
    help: Option<bool>,
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand, Debug)]
enum Task {
    /// Seat, queue or turn away requests on their way to kube-apiserver
    #[command(after_help = OTHER_SOURCES)]
    Serve(Box<Options>),
    /// Tell how the usher stands that runs on this machine
    Status(control::StatusArgs),
    /// Have one of its workers take no new connections, finish what it has, and end; the others serve
    Drain(control::DrainArgs),
    /// Have it give the apiserver's port back: new connections go there directly. Also without it: what a fail-closed usher
    /// has left is removed
    Release(control::ReleaseArgs),
    /// Have it take the apiserver's port again
    Take(control::TellArgs),
    /// Say what is wrong with a folder of flow-control objects
    Check(check::CheckArgs),
    /// Tell where a request would go, and why
    Explain(explain::Explain),
    /// Read the histograms that --hdr-log-dir wrote
    Hdr(hdr::HdrArgs),
    /// Try many workers and many clients in virtual time
    Simulate(simulate::Simulate),
    /// Print the seccomp profile that a container of usher needs, or put it where the kubelet looks
    Seccomp(seccomp::Seccomp),
}

/// Closes `usher serve --help`.
const OTHER_SOURCES: &str = "\
Every flag may also be an environment variable (USHER_REQUEST_TIMEOUT=60s; lists with commas) or a key of the \
--config file (request-timeout: 60s). The command line wins over the environment, the environment over the \
file, the file over the default.";

/// Runs the program and says how it ended.
pub fn run(arguments: Vec<OsString>, environment: Vec<(OsString, OsString)>) -> ExitCode {
    let program = Program::command();
    let task = match program.clone().try_get_matches_from(&arguments) {
        Ok(matches) => Program::from_arg_matches(&matches).map(|program| program.task),
        Err(error) => Err(error),
    };
    match task {
        Ok(Task::Serve(_)) => match options::read(&program, "serve", &arguments, &environment) {
            Ok(options) => serve::run(&options),
            Err(error) => refuse(&error),
        },
        Ok(Task::Status(args)) => control::status(&args),
        Ok(Task::Drain(args)) => control::drain(&args),
        Ok(Task::Release(args)) => control::release(&args),
        Ok(Task::Take(args)) => control::tell(&args, "take"),
        Ok(Task::Check(args)) => check::run(&args),
        Ok(Task::Explain(explain)) => explain::run(&explain),
        Ok(Task::Hdr(args)) => hdr::run(&args),
        Ok(Task::Simulate(simulate)) => simulate::run(&simulate),
        Ok(Task::Seccomp(seccomp)) => seccomp::run(&seccomp),
        Err(error) => refuse(&OptionsError::CommandLine(error)),
    }
}

/// Says what is wrong with the options; `--help` and `--version` come here too, and are no fault.
fn refuse(error: &OptionsError) -> ExitCode {
    if let OptionsError::CommandLine(error) = error {
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE));
    }
    usage(&error.to_string())
}

/// Something has to be written differently.
fn usage(problem: &str) -> ExitCode {
    eprintln!("usher: {problem}");
    ExitCode::from(USAGE)
}

/// Something did not work.
fn failed(problem: &str) -> ExitCode {
    eprintln!("usher: {problem}");
    ExitCode::from(FAILED)
}
