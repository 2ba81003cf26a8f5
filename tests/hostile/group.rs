//! A control group that kills, for those who can make one: `USHER_TEST_MEMORY_GROUP` names the folder to make it in, such
//! as a test's own group under `/sys/fs/cgroup/memory` (version 1) or a delegated one of version 2.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// A group of our own with a limit on memory. It goes with the value, when nobody is in it any more.
pub(crate) struct Group {
    folder: PathBuf,
    files: &'static Files,
}

/// What the files are called.
struct Files {
    limit: &'static str,
    peak: &'static str,
    /// Holds a line `oom_kill N`.
    events: &'static str,
}

const ONE: Files =
    Files { limit: "memory.limit_in_bytes", peak: "memory.max_usage_in_bytes", events: "memory.oom_control" };
const TWO: Files = Files { limit: "memory.max", peak: "memory.peak", events: "memory.events" };

impl Group {
    /// One of so many bytes; `None`: nobody has said where.
    pub(crate) fn of_environment(bytes: u64) -> Option<Self> {
        let parent = PathBuf::from(std::env::var_os("USHER_TEST_MEMORY_GROUP")?);
        let folder = parent.join(format!("usher-test-{}", std::process::id()));
        fs::create_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let files = if folder.join(ONE.limit).exists() { &ONE } else { &TWO };
        let group = Self { folder, files };
        let limit = group.path(files.limit);
        fs::write(&limit, bytes.to_string()).unwrap_or_else(|error| panic!("{}: {error}", limit.display()));
        Some(group)
    }

    /// Whoever writes `0` to it is in the group.
    pub(crate) fn entrance(&self) -> File {
        File::options().write(true).open(self.path("cgroup.procs")).expect("a group that can be entered")
    }

    /// The most that was ever charged to it.
    pub(crate) fn peak(&self) -> u64 {
        self.read(self.files.peak).trim().parse().expect("a number")
    }

    /// Processes that the kernel killed for it.
    pub(crate) fn kills(&self) -> u64 {
        let events = self.read(self.files.events);
        let kills = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.expect("a count of kills").parse().expect("a number")
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.folder) {
            eprintln!("{} stays: {error}", self.folder.display());
        }
    }
}
