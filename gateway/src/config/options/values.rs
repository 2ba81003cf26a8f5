//! How the text of a flag becomes a value. Each reader says what it wanted when it refuses.

use std::path::PathBuf;
use std::time::Duration;

use usher_flowcontrol::wait_limit::parse_duration;

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Where the control socket is, unless something else is said.
pub const RUNTIME_DIR: &str = "/run/usher";

/// `--hand-over`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum HandOver {
    /// Never: a second usher by mistake must not take the place of the first.
    #[default]
    Off,
    /// Take over from the usher that runs in --runtime-dir, if one does
    Auto,
    /// Take over, or do not start
    Required,
}

/// `--runtime-dir`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeDir {
    /// There is no control socket.
    Nowhere,
    /// It is in this folder.
    At(PathBuf),
}

/// A folder, or nothing for none.
///
/// # Errors
/// Never: a folder that cannot be had is found when it is used.
pub fn runtime_dir(text: &str) -> Result<RuntimeDir, String> {
    Ok(if text.is_empty() { RuntimeDir::Nowhere } else { RuntimeDir::At(text.into()) })
}

/// A span of time in Go's syntax: `60s`, `1m30s`, `1.5h`, `300ms`, `0`. Not negative.
///
/// # Errors
/// Anything else; or longer than Go's own 2^63 ns (292 years).
pub fn duration(text: &str) -> Result<Duration, String> {
    let wanted = |_| "wanted a duration like 60s, 1m30s, 1.5h or 300ms".to_owned();
    let nanos = parse_duration(text.as_bytes()).map_err(wanted)?;
    u64::try_from(nanos.0).map(Duration::from_nanos).map_err(|_| "a duration here cannot be negative".into())
}

/// An amount of memory: bytes, or a quantity as Kubernetes writes it: `512Mi`, `2G`.
///
/// # Errors
/// Anything else; or more than 2^64 bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit: u64 = match unit {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return Err("wanted bytes, or a quantity like 512Mi, 2Gi or 2G".into()),
    };
    let number: u64 = number.parse().map_err(|_| "wanted bytes, or a quantity like 512Mi, 2Gi or 2G")?;
    number.checked_mul(unit).ok_or_else(|| "that is more than fits into 64 bits".into())
}

/// A truth value in the spellings of Go's flags.
///
/// # Errors
/// Anything else.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "True" | "TRUE" => Ok(true),
        "0" | "f" | "F" | "false" | "False" | "FALSE" => Ok(false),
        _ => Err("wanted true or false".into()),
    }
}

/// A number of requests that may be 0 but not less.
///
/// # Errors
/// Anything else.
pub fn limit(text: &str) -> Result<u32, String> {
    match text.parse::<i64>() {
        Ok(negative) if negative < 0 => Err("it cannot be negative".into()),
        Ok(number) => u32::try_from(number).map_err(|_| format!("it can be {} at most", u32::MAX)),
        Err(_) => Err("wanted a whole number".into()),
    }
}

/// Which log lines are written: a level, or levels by module as in `info,usher::worker=debug`.
///
/// # Errors
/// Anything else.
pub fn log_level(text: &str) -> Result<String, String> {
    let wanted = "wanted off, error, warn, info, debug or trace, also by module: info,usher::worker=debug";
    let level = |word: &str| word.parse::<tracing_subscriber::filter::LevelFilter>().is_ok();
    let sound = text.split(',').all(|part| match part.split_once('=') {
        Some((module, word)) => !module.trim().is_empty() && level(word.trim()),
        None => level(part.trim()),
    });
    if sound { Ok(text.to_owned()) } else { Err(wanted.to_owned()) }
}
