//! The program's options: flags, then environment, then file, then defaults; checked as a whole.
//!
//! One table ([`flags`]) names them. The environment spells `--request-timeout` as `USHER_REQUEST_TIMEOUT`, the
//! file as `request-timeout:`. What comes out of [`read`] needs no second look.

pub mod flags;
pub mod values;

mod check;
mod nearest;
mod sources;

pub use flags::{
    Authentication, FlowControl, Histograms, Limits, Observation, Options, Ring, Serving, Steering, Takeover,
    Upstream, Workers,
};

pub use values::{HandOver, RUNTIME_DIR, RuntimeDir};

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, Command, FromArgMatches};

pub(crate) use check::flow_control as check_flow_control;
use nearest::nearest;

/// Why the options cannot be used. Whatever it is, the operator has to change something: exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// What clap says of the command line, in its words; also `--help` and `--version`.
    #[error(transparent)]
    CommandLine(#[from] clap::Error),
    /// The file cannot be read.
    #[error("{path}: {problem}; --config (or USHER_CONFIG) names this file", path = path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system, or the YAML reader, said.
        problem: String,
    },
    /// A key of the file that is no flag.
    #[error("{place}: no such key: {key}{hint}")]
    UnknownKey {
        /// `FILE:LINE`.
        place: String,
        /// As written.
        key: String,
        /// `; did you mean …?`, or where to look.
        hint: String,
    },
    /// A value from the environment or the file that its flag does not take.
    #[error("{place}: {problem}")]
    Value {
        /// The variable, or `FILE:LINE: key`.
        place: String,
        /// What was wanted.
        problem: String,
    },
    /// Values that do not go together, or one that is missing. Each says which flag and what to do.
    #[error("{}", .0.join("\n"))]
    Together(Vec<String>),
}

/// Reads the options of the subcommand `name` of `program`: `arguments` as the system gave them, program name
/// first; `environment` likewise.
///
/// # Errors
/// The first thing wrong with a single value; or all that is wrong with their combination.
pub fn read(
    program: &Command,
    name: &str,
    arguments: &[OsString],
    environment: &[(OsString, OsString)],
) -> Result<Options, OptionsError> {
    let given = program.clone().try_get_matches_from(arguments)?;
    let given = subcommand(&given, name)?;
    let flags = program.find_subcommand(name).ok_or_else(|| unknown_subcommand(name))?;

    let mut arguments = arguments.to_vec();
    let by_environment = sources::environment(flags, environment)?;
    arguments.extend(sources::arguments(&by_environment, &[given]));
    let with_environment = program.clone().try_get_matches_from(&arguments)?;
    let with_environment = subcommand(&with_environment, name)?;

    if let Some(path) = with_environment.get_one::<PathBuf>("config") {
        let by_file = sources::file(flags, path)?;
        arguments.extend(sources::arguments(&by_file, &[with_environment]));
    }
    let all = program.clone().try_get_matches_from(&arguments)?;
    let options = Options::from_arg_matches(subcommand(&all, name)?)?;
    check::all(&options)?;
    Ok(options)
}

fn subcommand<'a>(matches: &'a ArgMatches, name: &str) -> Result<&'a ArgMatches, clap::Error> {
    matches.subcommand_matches(name).ok_or_else(|| unknown_subcommand(name))
}

fn unknown_subcommand(name: &str) -> clap::Error {
    clap::Error::raw(clap::error::ErrorKind::InvalidSubcommand, format!("not the subcommand {name}\n"))
}

#[cfg(test)]
mod tests;
