//! Following the folder: a new set when its content changed, the last good one while it is bad.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use aws_lc_rs::digest;

use super::folder::{self, File};
use super::{Objects, Refusal, Source};
use crate::reload::{FileFault, Outcome, Reload, Watch};

/// How often the folder is looked at without an event: events may be missing (no inotify, network file
/// systems, distant symlinks), and an operator who has just saved a file looks at the log within seconds.
pub const FOLDER_POLL: Duration = Duration::from_secs(5);

/// Told of every new set, and of every refusal. Runs on the thread that follows.
type OnChange = Box<dyn Fn(Result<&Arc<Objects>, &Refusal>) + Send + Sync>;

/// The objects of a [`Source`], following its folder.
///
/// It is looked at whenever [`Reload::check`] is called; [`watch`] or [`Watch::start`] see to that.
pub struct Followed {
    source: Source,
    paths: Vec<PathBuf>,
    current: ArcSwap<Objects>,
    seen: Mutex<Seen>,
    on_change: OnChange,
    reloads: AtomicU64,
    refusals: AtomicU64,
}

/// The last look at the folder.
struct Seen {
    /// Fingerprint of what was found, good or bad.
    fingerprint: Vec<u8>,
    /// Whether it was refused.
    refused: bool,
}

impl Followed {
    /// Reads the first set. `on_change` is told of what comes later.
    ///
    /// # Errors
    /// All that is wrong: there is no older set to fall back on.
    pub fn new(
        source: Source,
        on_change: impl Fn(Result<&Arc<Objects>, &Refusal>) + Send + Sync + 'static,
    ) -> Result<Self, Refusal> {
        let files = source.folder.as_deref().map(folder::read).transpose()?.unwrap_or_default();
        let first = source.check(&files)?;
        // A file in the folder, because it is the folder of each path whose events are listened to.
        let paths = source.folder.iter().map(|folder| folder.join("..data")).collect();
        Ok(Self {
            source,
            paths,
            current: ArcSwap::from_pointee(first),
            seen: Mutex::new(Seen { fingerprint: fingerprint(&Ok(files)), refused: false }),
            on_change: Box::new(on_change),
            reloads: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
        })
    }

    /// The set in force.
    #[must_use]
    pub fn current(&self) -> Arc<Objects> {
        self.current.load_full()
    }

    fn refuse(&self, refusal: &Refusal) -> Outcome {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        for finding in &refusal.findings {
            tracing::error!(what = self.what(), %finding, "refused");
        }
        let unlisted = refusal.unlisted;
        tracing::error!(what = self.what(), unlisted, "the last good objects stay in force");
        (self.on_change)(Err(refusal));
        let folder = self.source.folder.clone().unwrap_or_default();
        Outcome::Refused(FileFault::new(&folder, refusal, "correct the files; usher reads them again"))
    }

    fn take(&self, objects: Objects) -> Outcome {
        self.reloads.fetch_add(1, Ordering::Relaxed);
        for warning in &objects.warnings {
            tracing::warn!(what = self.what(), %warning, "odd");
        }
        let (schemas, levels) = (objects.schemas.len(), objects.levels.len());
        tracing::info!(what = self.what(), schemas, levels, "reloaded");
        let objects = Arc::new(objects);
        self.current.store(objects.clone());
        (self.on_change)(Ok(&objects));
        Outcome::Reloaded
    }
}

impl Reload for Followed {
    fn what(&self) -> &'static str {
        "flow-control objects"
    }

    fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    fn check(&self) -> Outcome {
        let Some(folder) = &self.source.folder else { return Outcome::Unchanged };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let files = folder::read(folder);
        let fingerprint = fingerprint(&files);
        if seen.fingerprint == fingerprint {
            return Outcome::Unchanged;
        }
        seen.fingerprint = fingerprint;
        let was_refused = seen.refused;
        let objects = files.and_then(|files| self.source.check(&files));
        seen.refused = objects.is_err();
        match objects {
            Err(refusal) => self.refuse(&refusal),
            // Other bytes, same objects: a comment, a file renamed. After a refusal it is news all the same.
            Ok(objects) if !was_refused && objects == *self.current() => Outcome::Unchanged,
            Ok(objects) => self.take(objects),
        }
    }

    fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }

    fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Followed {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Followed").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Follows a source from a thread of its own, on events and every [`FOLDER_POLL`], until the [`Watch`] is
/// dropped. To follow it from the thread that follows the other files, give it to [`Watch::start`] there.
///
/// # Errors
/// If the thread cannot be started.
pub fn watch(followed: Arc<Followed>) -> std::io::Result<Watch> {
    Watch::start(vec![followed], FOLDER_POLL)
}

fn fingerprint(files: &Result<Vec<File>, Refusal>) -> Vec<u8> {
    let files = match files {
        Ok(files) => files,
        Err(refusal) => return refusal.to_string().into_bytes(),
    };
    let mut context = digest::Context::new(&digest::SHA256);
    for file in files {
        for part in [file.name.as_bytes(), &file.bytes] {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
    }
    context.finish().as_ref().to_vec()
}
