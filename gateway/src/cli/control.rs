//! `usher status`, `usher release`, `usher take`, `usher drain`: ask and tell the usher that runs on this machine, by its
//! control socket.
//!
//! Exit codes: 0 done, 1 it was reached but could not or would not, 3 no usher runs there (`status` of an init script has
//! the same number for "not running"; with `--own` also if it is another container's), 4 it may run but cannot be reached: another user's.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::FAILED;
use crate::config::options::RUNTIME_DIR;
use crate::config::options::values::duration;
use crate::control::{self, Drain, Nobody};
use crate::observe::status::{self, Status};
use crate::takeover::{self, PINS};

/// No usher runs there.
const NOBODY: u8 = 3;
/// Somebody may be there, but not for this user.
const UNREACHABLE: u8 = 4;

/// Which usher.
#[derive(Args, Clone, Debug)]
pub struct Whom {
    /// The --runtime-dir of the usher that is meant
    #[arg(long, value_name = "DIR", env = "USHER_RUNTIME_DIR", default_value = RUNTIME_DIR)]
    runtime_dir: PathBuf,
}

/// `usher status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    whom: Whom,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Only of this container's own usher (of the same PID namespace): another one that answers, as the former one does
    /// until it has handed over, is none
    #[arg(long)]
    own: bool,
}

/// A verb without words.
#[derive(Args, Clone, Debug)]
pub struct TellArgs {
    #[command(flatten)]
    whom: Whom,
}

/// `usher release`.
#[derive(Args, Clone, Debug)]
pub struct ReleaseArgs {
    #[command(flatten)]
    tell: TellArgs,
    /// The --takeover-pin-dir of the usher that is meant
    #[arg(long, value_name = "DIR", env = "USHER_TAKEOVER_PIN_DIR", default_value = PINS)]
    takeover_pin_dir: PathBuf,
}

/// `usher drain`.
#[derive(Args, Clone, Debug)]
pub struct DrainArgs {
    #[command(flatten)]
    tell: TellArgs,
    /// Which worker: the number in its name
    #[arg(long, value_name = "N")]
    worker: usize,
    /// What its requests have to finish; else the --shutdown-grace-period of that usher
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    grace: Option<Duration>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Prints how it stands.
pub fn status(args: &StatusArgs) -> ExitCode {
    let asked =
        ask(&args.whom, "status", Value::Null).and_then(|told| if args.own { own(told) } else { Ok(told) });
    finish(asked.and_then(|told| match args.output {
        Output::Json => Ok(format!("{told:#}\n")),
        Output::Text => match serde_json::from_value::<Status>(told) {
            Ok(status) => Ok(status.text()),
            Err(error) => {
                Err((FAILED, format!("this usher's status is of another version ({error}): try -o json")))
            }
        },
    }))
}

/// What was told, if the usher that told it is of this container.
fn own(told: Value) -> Result<Value, (u8, String)> {
    let here = status::pid_namespace();
    if here.is_some() && told["pid_namespace"].as_str() == here.as_deref() {
        return Ok(told);
    }
    let since = told["since"].as_str().unwrap_or_default();
    Err((
        NOBODY,
        format!(
            "another container's usher answers, which serves since {since}: this one's has not taken over yet, or has handed \
             over"
        ),
    ))
}

/// Has it do `verb`, and prints what it says.
pub fn tell(args: &TellArgs, verb: &str) -> ExitCode {
    tell_with(args, verb, Value::Null)
}

/// Has it let one worker go.
pub fn drain(args: &DrainArgs) -> ExitCode {
    let DrainArgs { ref tell, worker, grace } = *args;
    tell_with(tell, "drain", json!(Drain { worker, grace }))
}

fn tell_with(args: &TellArgs, verb: &str, with: Value) -> ExitCode {
    finish(ask(&args.whom, verb, with).map(|told| match told {
        Value::String(said) => format!("{said}\n"),
        Value::Null => String::new(),
        other => format!("{other:#}\n"),
    }))
}

/// Has it give the port back. If there is nobody who could, or who knows of a port, what a fail-closed usher has left is
/// removed.
pub fn release(args: &ReleaseArgs) -> ExitCode {
    let told =
        ask(&args.tell.whom, "release", Value::Null).map(|told| told.as_str().unwrap_or_default().to_owned());
    let told = told.or_else(|(code, why)| match takeover::release_pinned(&args.takeover_pin_dir) {
        Ok(true) => {
            Ok("the port is the apiserver's again: what a fail-closed usher had left is removed".into())
        }
        Ok(false) => Err((code, why)),
        Err(problem) => Err((FAILED, problem.to_string())),
    });
    finish(told.map(|said| format!("{said}\n")))
}

fn ask(whom: &Whom, verb: &str, with: Value) -> Result<Value, (u8, String)> {
    let mut line = control::connect(&whom.runtime_dir).map_err(|nobody| match nobody {
        Nobody::There(_) => (NOBODY, nobody.to_string()),
        Nobody::Reachable(..) => (UNREACHABLE, nobody.to_string()),
    })?;
    control::ask(&mut line, verb, with).map_err(|why| (FAILED, why))
}

fn finish(told: Result<String, (u8, String)>) -> ExitCode {
    match told {
        Ok(text) => match std::io::stdout().lock().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(FAILED), // whoever reads it has gone away
        },
        Err((code, why)) => {
            eprintln!("usher: {why}");
            ExitCode::from(code)
        }
    }
}
