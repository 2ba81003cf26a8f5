//! `usher seccomp`: the profile of system calls that a container of usher needs.
//!
//! The program brings its own profile, so that the two never disagree. A kubelet reads profiles from a folder of the
//! host: the DaemonSet's first container puts this one there.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

/// What the runtime allows: io_uring, bpf, and what a server needs anyway.
const PROFILE: &str = include_str!("../../../deploy/seccomp/usher.json");

/// The profile's name in the folder; the DaemonSet's `localhostProfile`.
const NAME: &str = "usher.json";

/// What `usher seccomp` is told.
#[derive(Args, Debug)]
pub struct Seccomp {
    /// Folder to write the profile to, as usher.json; without it it is printed. The kubelet's is /var/lib/kubelet/seccomp
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

/// Prints or writes the profile.
pub(super) fn run(seccomp: &Seccomp) -> ExitCode {
    let Some(folder) = &seccomp.into else {
        print!("{PROFILE}");
        return ExitCode::SUCCESS;
    };
    match write(folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::failed(&format!("{}: {error}", folder.join(NAME).display())),
    }
}

/// Whole or not at all: a container may be starting with it.
fn write(folder: &Path) -> std::io::Result<()> {
    let beside = folder.join(format!(".{NAME}.{}", std::process::id()));
    std::fs::write(&beside, PROFILE)?;
    std::fs::rename(&beside, folder.join(NAME)).inspect_err(|_| {
        let _ = std::fs::remove_file(&beside);
    })
}

#[cfg(test)]
mod tests {
    use super::{NAME, PROFILE, write};

    #[test]
    fn the_profile_is_put_in_place_of_the_former_one() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(NAME), "former").unwrap();
        write(folder.path()).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join(NAME)).unwrap(), PROFILE);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
        assert!(write(&folder.path().join("nowhere")).is_err());
    }

    #[test]
    fn it_allows_what_the_rings_and_the_programs_need() {
        let profile: serde_json::Value = serde_json::from_str(PROFILE).unwrap();
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
        let allowed = |name: &str| {
            let rules = profile["syscalls"].as_array().into_iter().flatten();
            rules
                .filter(|rule| rule["action"] == "SCMP_ACT_ALLOW")
                .any(|rule| rule["names"].as_array().is_some_and(|names| names.iter().any(|one| one == name)))
        };
        for name in ["io_uring_setup", "io_uring_enter", "io_uring_register", "bpf", "socket", "clone"] {
            assert!(allowed(name), "{name}");
        }
        for name in
            ["mount", "setns", "unshare", "ptrace", "init_module", "clone3", "fork", "perf_event_open"]
        {
            assert!(!allowed(name), "{name}");
        }
    }
}
