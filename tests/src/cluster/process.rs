//! Programs that outlive the one that started them: each leaves a record in `run/NAME.json`, and is ended by
//! its pid only if that pid is still the same program, started at the same moment.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::{self, Pending};
use crate::{Outcome, cluster::write};

/// A program gets this long to end by itself after SIGTERM; usher drains within it.
const END_TIME_MAX: Duration = Duration::from_secs(20);

/// One started program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// What it is called in the cluster's folder.
    pub name: String,
    /// Its process id.
    pub pid: i32,
    /// The file it was started from.
    pub program: PathBuf,
    /// When it was started, in the kernel's ticks since boot: a pid used again has another.
    started: u64,
    /// The cluster's folder.
    folder: PathBuf,
}

impl Process {
    /// Starts `program` in a process group of its own, its output in `logs/NAME.log` of `folder`.
    pub fn start(folder: &Path, name: &str, program: &Path, arguments: &[String]) -> Outcome<Self> {
        let failed = |error: std::io::Error| format!("cannot start {name} ({}): {error}", program.display());
        let program = program.canonicalize().map_err(failed)?;
        let log = File::create(log_path(folder, name)).map_err(failed)?;
        let child = Command::new(&program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let pid = i32::try_from(child.id()).map_err(|_| format!("{name}: pid {}", child.id()))?;
        let started = started(pid).ok_or_else(|| format!("{name} ended at once: {}", tail(folder, name)))?;
        let process = Self { name: name.into(), pid, program, started, folder: folder.into() };
        let record = json!({"pid": pid, "program": process.program, "started": started});
        write(&record_path(folder, name), &record.to_string())?;
        Ok(process)
    }

    /// All programs with a record in `folder`, whether they still run or not, by name.
    pub fn recorded(folder: &Path) -> Vec<Self> {
        let mut names: Vec<String> = fs::read_dir(folder.join("run"))
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".json").map(String::from))
            .collect();
        names.sort();
        names.iter().filter_map(|name| Self::read(folder, name)).collect()
    }

    fn read(folder: &Path, name: &str) -> Option<Self> {
        let record: Value =
            serde_json::from_str(&fs::read_to_string(record_path(folder, name)).ok()?).ok()?;
        Some(Self {
            name: name.into(),
            pid: i32::try_from(record["pid"].as_i64()?).ok()?,
            program: record["program"].as_str()?.into(),
            started: record["started"].as_u64()?,
            folder: folder.into(),
        })
    }

    /// Whether the pid is still this program.
    pub fn runs(&self) -> bool {
        let Ok(running) = fs::read_link(format!("/proc/{}/exe", self.pid)) else { return false };
        // A program that was built anew while it ran is shown with this suffix.
        let running = running.to_string_lossy();
        let running = running.strip_suffix(" (deleted)").unwrap_or(&running);
        Path::new(running) == self.program && started(self.pid) == Some(self.started)
    }

    /// An error with the end of its log if it has ended.
    pub fn check(&self) -> Result<(), Pending> {
        if self.runs() {
            return Ok(());
        }
        let tail = tail(&self.folder, &self.name);
        Err(Pending::Never(format!("{} has ended; the end of its log:\n{tail}", self.name)))
    }

    /// Sends a signal, unless the pid is something else by now.
    pub fn signal(&self, signal: i32) {
        if self.runs() {
            // SAFETY: kill takes two numbers and touches no memory; that the pid is ours was just checked.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    /// Ends it (SIGTERM, then SIGKILL), waits for that, and removes its record.
    pub async fn end(&self) -> Outcome {
        self.signal(libc::SIGTERM);
        if self.gone_within(END_TIME_MAX).await.is_err() {
            self.signal(libc::SIGKILL);
            self.gone_within(END_TIME_MAX).await?;
        }
        let record = record_path(&self.folder, &self.name);
        fs::remove_file(&record).map_err(|error| format!("{}: {error}", record.display()))
    }

    /// Waits until it has ended.
    pub async fn gone_within(&self, time: Duration) -> Outcome {
        clock::until(&format!("the end of {}", self.name), time, async || {
            if self.runs() { Err(Pending::NotYet(format!("pid {} runs", self.pid))) } else { Ok(()) }
        })
        .await
    }
}

/// Start time from `/proc/PID/stat`, its 22nd field; none if there is no such process or it is a zombie. One whose other
/// threads (their number is the 20th field) are still on their way out has everything open that it had: it runs.
fn started(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in brackets and may hold anything: count from behind the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let threads: u64 = fields.nth(16)?.parse().ok()?;
    if state == "Z" && threads <= 1 {
        return None;
    }
    fields.nth(1)?.parse().ok()
}

/// A program's log in the cluster's folder.
pub fn log_path(folder: &Path, name: &str) -> PathBuf {
    folder.join("logs").join(format!("{name}.log"))
}

fn record_path(folder: &Path, name: &str) -> PathBuf {
    folder.join("run").join(format!("{name}.json"))
}

/// Lines of a log shown with a failure.
const TAIL_LINES: usize = 15;

fn tail(folder: &Path, name: &str) -> String {
    let log = fs::read(log_path(folder, name)).unwrap_or_default();
    let log = String::from_utf8_lossy(&log).into_owned();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests;
