//! Programs under measurement: started on cores of their own, ended by their id, their use read from `/proc`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use crate::Failure;

/// A program that ends when this is dropped, and when this process ends however it does.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    pid: u32,
}

/// What a program has used since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// CPU time of all threads, from the scheduler.
    pub(crate) cpu_ns: u64,
    /// The same by who spent it, in the kernel's ticks: good for a split, too coarse for a sum.
    user_ticks: u64,
    kernel_ticks: u64,
}

/// `Command` for a program that is killed when the thread that started it, the bench's only one, is gone: also
/// after a panic or a `kill -9`, where nobody is left to end it by its id.
/// It runs on these `cores`; on those of the bench if there are none.
pub(crate) fn bound(cores: &[usize]) -> Command {
    let [program, flags @ ..] = BINDING;
    let mut command = Command::new(program);
    // Debian keeps servers where an ordinary user does not look.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command.args(flags);
    if !cores.is_empty() {
        let cores: Vec<String> = cores.iter().map(ToString::to_string).collect();
        command.args(["taskset", "-c", &cores.join(",")]);
    }
    command.stdin(Stdio::null()).kill_on_drop(true).process_group(0);
    command
}

/// What binds the life of the program after it to that of the thread that starts it.
pub(crate) const BINDING: [&str; 4] = ["setpriv", "--pdeathsig", "KILL", "--"];

/// Keeps this thread, and all that it starts, on a core.
pub(crate) fn pin(core: usize) -> Result<(), Failure> {
    let known = core_affinity::get_core_ids().unwrap_or_default();
    match known.iter().find(|one| one.id == core) {
        Some(one) if core_affinity::set_for_current(*one) => Ok(()),
        _ => {
            Err(format!("core {core} cannot be used; the bench wants two, see --proxy-core and --load-core")
                .into())
        }
    }
}

impl Process {
    /// Starts `program` on these `cores`, what it prints in a file.
    pub(crate) fn start(
        name: &str,
        cores: &[usize],
        program: &Path,
        arguments: &[String],
        log: &Path,
    ) -> Result<Self, Failure> {
        let log = fs::File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
        let mut command = bound(cores);
        command.arg(program).args(arguments).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().map_err(|error| format!("cannot start {name}: {error}"))?;
        let pid = child.id().ok_or_else(|| format!("{name} ended at once"))?;
        Ok(Self { name: name.to_owned(), child, pid })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// An error if it has ended.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("{} has ended with {status}; see its log", self.name).into()),
        }
    }

    /// What it has used: see [`usage`].
    pub(crate) fn usage(&self) -> Result<Usage, Failure> {
        usage(self.pid)
    }

    /// Resident memory in bytes.
    pub(crate) fn resident(&self) -> Result<u64, Failure> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib * 1024)
    }

    /// Waits until `ready` says so; an error if it ends before or takes too long.
    pub(crate) async fn wait_for(&mut self, mut ready: impl AsyncFnMut() -> bool) -> Result<(), Failure> {
        for _ in 0..READY_TRIES {
            self.check()?;
            if ready().await {
                return Ok(());
            }
            tokio::time::sleep(READY_PAUSE).await;
        }
        Err(format!("{} was not ready within {:?}; see its log", self.name, READY_PAUSE * READY_TRIES).into())
    }
}

/// What a program has used, over all its threads. A thread that has ended is not seen any more: none of the programs
/// here ends one while it serves.
pub(crate) fn usage(pid: u32) -> Result<Usage, Failure> {
    let mut usage = Usage::default();
    for task in fs::read_dir(format!("/proc/{}/task", pid))? {
        let task = task?.path();
        // One that ends right now has nothing more to tell.
        let (Ok(scheduled), Ok(stat)) =
            (fs::read_to_string(task.join("schedstat")), fs::read_to_string(task.join("stat")))
        else {
            continue;
        };
        let cpu: Option<u64> = scheduled.split(' ').next().and_then(|number| number.parse().ok());
        usage.cpu_ns += cpu.ok_or("schedstat: no number")?;
        let (user, kernel) = ticks(&stat).ok_or("stat: no ticks")?;
        usage.user_ticks += user;
        usage.kernel_ticks += kernel;
    }
    Ok(usage)
}

/// How long to wait between two looks whether a program is ready.
const READY_PAUSE: Duration = Duration::from_millis(50);
/// How many looks: 20 s, above anything that a busy machine needs.
const READY_TRIES: u32 = 400;

/// User and kernel ticks of a thread: the 14th and 15th field of its `stat`.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    // The second field is the name in brackets and may hold anything: count from behind the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

impl Usage {
    /// From `earlier` until this.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            user_ticks: self.user_ticks.saturating_sub(earlier.user_ticks),
            kernel_ticks: self.kernel_ticks.saturating_sub(earlier.kernel_ticks),
        }
    }

    /// CPU time in microseconds.
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a run are exact in f64")]
    pub(crate) fn cpu_us(self) -> f64 {
        self.cpu_ns as f64 / 1000.0
    }

    /// Which part of it was spent in the kernel.
    #[expect(clippy::cast_precision_loss, reason = "ticks of a run are exact in f64")]
    pub(crate) fn kernel_share(self) -> f64 {
        self.kernel_ticks as f64 / (self.user_ticks + self.kernel_ticks).max(1) as f64
    }
}

/// Whether a program is found on the search path.
pub(crate) fn found(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(std::path::PathBuf::from);
    let folders: BTreeSet<_> = std::env::split_paths(&path).chain(usual).collect();
    folders.iter().any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Process, ticks};

    #[test]
    fn ticks_are_found_behind_any_name() {
        let stat = "12 (a ) b) S 1 12 12 0 -1 4194304 90 0 1 0 77 33 0 0 20 0 1 0";
        assert_eq!(ticks(stat), Some((77, 33)));
        assert_eq!(ticks("12 (short) S 1"), None);
    }

    #[tokio::test]
    async fn what_was_started_ends_when_it_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let core = core_affinity::get_core_ids().expect("cores")[0].id;
        let arguments = ["600".to_owned()];
        let log = folder.path().join("log");
        let mut process =
            Process::start("sleep", &[core], Path::new("sleep"), &arguments, &log).expect("sleep starts");
        process.wait_for(async || true).await.expect("it runs");
        assert!(process.resident().expect("it runs") > 0);
        let pid = process.pid();
        assert!(Path::new(&format!("/proc/{pid}")).exists());
        drop(process);
        while Path::new(&format!("/proc/{pid}")).exists() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}
