//! How much memory there is: told by a flag, by the control group that would kill us, or by the machine.

use std::fs;
use std::path::{Path, PathBuf};

use super::meter::Meter;

/// A ceiling, and how to tell how near it is.
#[derive(Debug)]
pub struct Limit {
    /// Bytes.
    pub bytes: u64,
    /// Who says so, for the log.
    pub source: String,
    /// What is compared with it.
    pub(super) meter: Meter,
}

/// Of a control group's limit this much is not ours: what the kernel charges late (page tables, sockets), and
/// another process that somebody starts inside (a shell of `kubectl exec`).
const GROUP_RESERVE_PERCENT: u64 = 5;
/// Of a machine without limits, usher takes as much: it usually runs beside kube-apiserver and etcd.
const MACHINE_PERCENT: u64 = 50;

/// A control group that has a limit.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    folder: PathBuf,
    bytes: u64,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Limit {
    /// The limit of this process. `told`: `--memory-limit`; 0 is none. `None` if there is none.
    #[must_use]
    pub fn find(told: Option<u64>) -> Option<Self> {
        Self::find_under(Path::new("/"), told)
    }

    /// The same with the system's files under another folder.
    fn find_under(root: &Path, told: Option<u64>) -> Option<Self> {
        if let Some(bytes) = told {
            let meter = Meter::of_process(root).ok().filter(|_| bytes > 0)?;
            return Some(Self { bytes, source: "--memory-limit".into(), meter });
        }
        let machine = machine(root);
        let is_limit = |group: &Group| machine.is_none_or(|machine| group.bytes < machine);
        if let Some(group) = lowest_group(root).filter(is_limit)
            && let Ok(meter) = group.meter()
        {
            let bytes = group.bytes / 100 * (100 - GROUP_RESERVE_PERCENT);
            return Some(Self { bytes, source: group.folder.display().to_string(), meter });
        }
        let bytes = machine? / 100 * MACHINE_PERCENT;
        Some(Self { bytes, source: "the machine's memory".into(), meter: Meter::of_process(root).ok()? })
    }
}

impl Group {
    fn meter(&self) -> std::io::Result<Meter> {
        match self.version {
            Version::Two => {
                Meter::of_group(&self.folder.join("memory.current"), &self.folder, "inactive_file")
            }
            Version::One => Meter::of_group(
                &self.folder.join("memory.usage_in_bytes"),
                &self.folder,
                "total_inactive_file",
            ),
        }
    }
}

/// The lowest limit on the way from our own group to the top: a parent's kills as well.
fn lowest_group(root: &Path) -> Option<Group> {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let mut lowest: Option<Group> = None;
    for (version, path) in own.lines().filter_map(own_path) {
        let Some((top, folder)) = mounts.lines().find_map(|line| mounted(line, version, path)) else {
            continue;
        };
        let top = root.join(top.trim_start_matches('/'));
        let own: PathBuf = top.join(folder.trim_start_matches('/')).components().collect(); // no `/` at its end
        for folder in own.ancestors().take_while(|folder| folder.starts_with(&top)) {
            let Some(bytes) = limit_of(folder, version) else { continue };
            if lowest.as_ref().is_none_or(|lowest| bytes < lowest.bytes) {
                lowest = Some(Group { folder: folder.to_owned(), bytes, version });
            }
        }
    }
    lowest
}

/// A line of `/proc/self/cgroup`: `0::/path` (version 2), or `4:memory:/path`.
fn own_path(line: &str) -> Option<(Version, &str)> {
    let (number, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    match (number, controllers) {
        ("0", "") => Some((Version::Two, path)),
        _ if controllers.split(',').any(|name| name == "memory") => Some((Version::One, path)),
        _ => None,
    }
}

/// Where that hierarchy is mounted, and our group's path there; by a line of `/proc/self/mountinfo` (proc(5)).
fn mounted<'a>(line: &'a str, version: Version, path: &'a str) -> Option<(&'a str, &'a str)> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (top, at) = (mount.next()?, mount.next()?);
    let mut kind = kind.split(' ');
    let (name, options) = (kind.next()?, kind.nth(1)?);
    let fits = match version {
        Version::Two => name == "cgroup2",
        Version::One => name == "cgroup" && options.split(',').any(|option| option == "memory"),
    };
    // A container may see the group it is in as the top of the mount, under its name outside.
    let below = if top == "/" { path } else { path.strip_prefix(top).unwrap_or_default() };
    fits.then_some((at, below))
}

/// A group's own limit. Beyond `memory.high` the kernel does not kill but slows down until nothing moves.
fn limit_of(folder: &Path, version: Version) -> Option<u64> {
    let files: &[&str] = match version {
        Version::Two => &["memory.max", "memory.high"],
        Version::One => &["memory.limit_in_bytes"],
    };
    let number = |file: &&str| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok(); // "max": none
    files.iter().filter_map(number).min()
}

/// All memory of the machine.
fn machine(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests;
