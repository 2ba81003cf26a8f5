//! A fixed share of the machine's CPU for a process: a control group with a quota (version 1 or 2).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Failure;

/// Out of how many microseconds a share is taken: short, so that who has used up his share is not gone for long.
const PERIOD_US: u32 = 10_000;

/// Where Linux distributions have control groups.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// How often and how long a group that goes waits for its process's end: half a second in all.
const GONE_TRIES: u32 = 50;
const GONE_PAUSE: Duration = Duration::from_millis(10);

/// A group with one process in it; it goes when this is dropped after the process has ended.
#[derive(Debug)]
pub(super) struct Share(PathBuf);

impl Share {
    /// `percent` of a core for all threads of `pid` together; more than 100 is more than one core.
    pub(super) fn new(percent: u32, pid: u32) -> Result<Self, Failure> {
        let share = Self::empty(&format!("usher-bench-{pid}"))?;
        let quota = PERIOD_US / 100 * percent;
        if share.0.join("cpu.max").exists() {
            share.put("cpu.max", &format!("{quota} {PERIOD_US}"))?;
        } else {
            share.put("cpu.cfs_period_us", &PERIOD_US.to_string())?;
            share.put("cpu.cfs_quota_us", &quota.to_string())?;
        }
        share.put("cgroup.procs", &pid.to_string())?;
        Ok(share)
    }

    /// Whether this user may make such groups here; if not, why.
    pub(super) fn possible() -> Result<(), Failure> {
        Self::empty(&format!("usher-bench-try-{}", std::process::id())).map(drop)
    }

    fn empty(name: &str) -> Result<Self, Failure> {
        let root = Path::new(CONTROL_GROUPS);
        let version_2 = root.join("cgroup.controllers").exists();
        let share = Self(if version_2 { root.join(name) } else { root.join("cpu").join(name) });
        fs::create_dir(&share.0).map_err(|error| format!("{}: {error}", share.0.display()))?;
        if share.0.join("cpu.max").exists() || share.0.join("cpu.cfs_quota_us").exists() {
            Ok(share)
        } else {
            Err(format!("{}: no quota of CPU can be set there", share.0.display()).into())
        }
    }

    fn put(&self, file: &str, text: &str) -> Result<(), Failure> {
        let path = self.0.join(file);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()).into())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // A process that was just killed is in it until it is gone. If it stays, it is an empty shell that costs nothing.
        for _ in 0..GONE_TRIES {
            if fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(GONE_PAUSE);
        }
    }
}
