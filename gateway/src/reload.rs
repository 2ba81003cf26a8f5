//! Values built from files, rebuilt when the files change: certificates, keys, CA bundles, token lists.
//!
//! [`Reloaded`] is one such value. Readers take [`Reloaded::current`] (an atomic load) and keep what they
//! took for as long as they need it, so a connection lives on with the certificate it began with. Whoever
//! notices a change calls [`Reload::check`]: [`Watch`] does so from a thread of its own on file events, and by
//! polling for what events miss; SIGHUP does so through [`Watch::check_now`]. A new content that does not build
//! is refused aloud, once, and the old value stays in force.
//!
//! Content decides, not time stamps: a file is "changed" when its bytes are, however they were swapped
//! (rename, symlink as in a mounted Secret, rewrite in place).

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use aws_lc_rs::digest;
use notify::Watcher as _;

/// Largest file read: a CA bundle of every public authority is 250 kB, a token file of 100 000 users 10 MB.
const FILE_SIZE_MAX: u64 = 16 << 20;

/// How long files must be quiet after an event before they are read: a certificate and its key are
/// usually written one after the other.
const SETTLE: Duration = Duration::from_millis(100);

/// How often files are looked at without an event: network file systems and distant symlinks send none.
pub const POLL_EVERY: Duration = Duration::from_secs(30);

/// Why a file was refused, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}; {remedy}", path.display())]
pub struct FileFault {
    /// The file at fault.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: String,
    /// What the operator can do.
    pub remedy: &'static str,
}

impl FileFault {
    /// A fault of `path`.
    pub fn new(path: &Path, problem: impl fmt::Display, remedy: &'static str) -> FileFault {
        FileFault { path: path.to_owned(), problem: problem.to_string(), remedy }
    }
}

/// What a look at the files came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Same bytes as at the last look, good or bad.
    Unchanged,
    /// A new value is in force.
    Reloaded,
    /// The new content was refused; the old value stays.
    Refused(FileFault),
}

/// Something that follows its files.
pub trait Reload: Send + Sync {
    /// What it is, for logs: "serving certificate".
    fn what(&self) -> &'static str;
    /// The files it follows.
    fn paths(&self) -> &[PathBuf];
    /// Reads the files, and rebuilds the value if they changed. Blocks on file I/O: not for workers.
    fn check(&self) -> Outcome;
    /// How many contents were taken over since the start, the first one not counted.
    fn reloads(&self) -> u64;
    /// How many contents were refused since the start.
    fn refusals(&self) -> u64;
}

/// The bytes of the files a value is built from.
#[derive(Debug)]
pub struct Contents(Vec<(PathBuf, Vec<u8>)>);

impl Contents {
    /// The bytes of one of the value's paths; empty for a path that is not one of them.
    #[must_use]
    pub fn of(&self, path: &Path) -> &[u8] {
        self.0.iter().find(|(known, _)| known == path).map_or(&[], |(_, bytes)| bytes)
    }

    fn read(paths: &[PathBuf]) -> Result<Contents, FileFault> {
        paths.iter().map(|path| Ok((path.clone(), read(path)?))).collect::<Result<_, _>>().map(Contents)
    }
}

type Build<T> = Box<dyn Fn(&Contents) -> Result<T, FileFault> + Send + Sync>;

/// A value and the files it is built from.
pub struct Reloaded<T> {
    what: &'static str,
    paths: Vec<PathBuf>,
    build: Build<T>,
    current: ArcSwap<T>,
    /// Fingerprint of the last content looked at, good or bad, so that a bad one is refused only once.
    seen: Mutex<Vec<u8>>,
    reloads: AtomicU64,
    refusals: AtomicU64,
}

impl<T> Reloaded<T> {
    /// Reads the files and builds the first value.
    ///
    /// # Errors
    /// The first fault found: there is no older value to fall back on.
    pub fn new(
        what: &'static str,
        mut paths: Vec<PathBuf>,
        build: impl Fn(&Contents) -> Result<T, FileFault> + Send + Sync + 'static,
    ) -> Result<Reloaded<T>, FileFault> {
        let mut known = BTreeSet::new();
        paths.retain(|path| known.insert(path.clone()));
        let contents = Contents::read(&paths)?;
        let first = build(&contents)?;
        Ok(Reloaded {
            what,
            paths,
            build: Box::new(build),
            current: ArcSwap::from_pointee(first),
            seen: Mutex::new(fingerprint(&Ok(contents))),
            reloads: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
        })
    }

    /// A value built from one file by `parse`.
    ///
    /// # Errors
    /// As [`Reloaded::new`].
    pub fn of_file(
        what: &'static str,
        path: &Path,
        parse: impl Fn(&Path, &[u8]) -> Result<T, FileFault> + Send + Sync + 'static,
    ) -> Result<Reloaded<T>, FileFault> {
        let own = path.to_owned();
        Reloaded::new(what, vec![path.to_owned()], move |contents| parse(&own, contents.of(&own)))
    }

    /// The value in force.
    #[must_use]
    pub fn current(&self) -> Arc<T> {
        self.current.load_full()
    }
}

impl<T: Send + Sync> Reload for Reloaded<T> {
    fn what(&self) -> &'static str {
        self.what
    }

    fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    fn check(&self) -> Outcome {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let contents = Contents::read(&self.paths);
        let now = fingerprint(&contents);
        if *seen == now {
            return Outcome::Unchanged;
        }
        *seen = now;
        match contents.and_then(|contents| (self.build)(&contents)) {
            Ok(value) => {
                self.current.store(Arc::new(value));
                self.reloads.fetch_add(1, Ordering::Release);
                tracing::info!(what = self.what, "reloaded");
                Outcome::Reloaded
            }
            Err(fault) => {
                self.refusals.fetch_add(1, Ordering::Relaxed);
                tracing::error!(
                    what = self.what,
                    file = %fault.path.display(),
                    problem = fault.problem,
                    remedy = fault.remedy,
                    "new content refused, the old one stays in force"
                );
                Outcome::Refused(fault)
            }
        }
    }

    fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Acquire)
    }

    fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }
}

impl<T> fmt::Debug for Reloaded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloaded")
            .field("what", &self.what)
            .field("paths", &self.paths)
            .finish_non_exhaustive()
    }
}

/// The thread that follows files. Dropping it ends the thread.
#[derive(Debug)]
pub struct Watch {
    // Senders of nudges: the thread ends when both are gone.
    nudge: Option<mpsc::Sender<()>>,
    watcher: Option<notify::RecommendedWatcher>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Follows everything in `followed`: at once on events, every `poll` (usually [`POLL_EVERY`]) without.
    ///
    /// # Errors
    /// If the thread cannot be started. A refused inotify is no error: a warning, and polling alone.
    pub fn start(followed: Vec<Arc<dyn Reload>>, poll: Duration) -> std::io::Result<Watch> {
        let (nudge, nudges) = mpsc::channel();
        let watcher = watcher(&followed, nudge.clone());
        let thread = std::thread::Builder::new()
            .name("usher-reload".into())
            .spawn(move || follow(&followed, &nudges, poll))?;
        Ok(Watch { nudge: Some(nudge), watcher, thread: Some(thread) })
    }

    /// Looks at the files soon, event or not (SIGHUP).
    pub fn check_now(&self) {
        if let Some(nudge) = &self.nudge {
            let _ = nudge.send(());
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop((self.nudge.take(), self.watcher.take()));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn follow(followed: &[Arc<dyn Reload>], nudges: &mpsc::Receiver<()>, poll: Duration) {
    loop {
        match nudges.recv_timeout(poll) {
            Ok(()) => while nudges.recv_timeout(SETTLE).is_ok() {},
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
        for each in followed {
            each.check();
        }
    }
}

/// Watches the folders of the files, and the folders behind their symlinks: files are replaced by renaming.
fn watcher(followed: &[Arc<dyn Reload>], nudge: mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
    let on_event = move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            let _ = nudge.send(());
        }
    };
    let mut watcher = match notify::recommended_watcher(on_event) {
        Ok(watcher) => watcher,
        Err(problem) => {
            tracing::warn!(%problem, "file events are not to be had; files are looked at by polling alone");
            return None;
        }
    };
    for folder in folders(followed) {
        if let Err(problem) = watcher.watch(&folder, notify::RecursiveMode::NonRecursive) {
            tracing::warn!(folder = %folder.display(), %problem, "no file events here; polled instead");
        }
    }
    Some(watcher)
}

fn folders(followed: &[Arc<dyn Reload>]) -> BTreeSet<PathBuf> {
    let paths = followed.iter().flat_map(|each| each.paths());
    let places = paths.flat_map(|path| [Some(path.clone()), path.canonicalize().ok()]).flatten();
    places
        .filter_map(|place| match place.parent() {
            Some(folder) if folder.as_os_str().is_empty() => Some(PathBuf::from(".")),
            folder => folder.map(Path::to_owned),
        })
        .collect()
}

fn read(path: &Path) -> Result<Vec<u8>, FileFault> {
    let refuse = |problem: String| FileFault::new(path, problem, "give a readable file");
    let file = File::open(path).map_err(|error| refuse(format!("cannot be opened: {error}")))?;
    let mut bytes = Vec::new();
    file.take(FILE_SIZE_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| refuse(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > FILE_SIZE_MAX {
        return Err(refuse(format!("is larger than {FILE_SIZE_MAX} bytes")));
    }
    Ok(bytes)
}

fn fingerprint(contents: &Result<Contents, FileFault>) -> Vec<u8> {
    match contents {
        Ok(Contents(files)) => files
            .iter()
            .flat_map(|(_, bytes)| digest::digest(&digest::SHA256, bytes).as_ref().to_vec())
            .collect(),
        Err(fault) => fault.to_string().into_bytes(),
    }
}

#[cfg(test)]
mod tests;
