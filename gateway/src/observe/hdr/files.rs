//! The log's files: appended to interval by interval, begun anew by size and age, the oldest thrown away.
//!
//! An interval is one write of whole lines, followed by `fdatasync`: a kill of usher loses the interval under way,
//! a loss of power at most the one before too. A write that fails is cut off the file again, so that the lines after it are
//! whole; what it held is missing in the log. Every start of usher and every rotation begins a new file.

mod disk;

pub use disk::Medium;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use time::OffsetDateTime;

use super::hlog;
use disk::File;

/// Where the log is kept, and how much of it.
#[derive(Clone, Debug)]
pub struct Keep {
    /// The folder; other files in it are left alone.
    pub folder: PathBuf,
    /// A file that would become larger is ended.
    pub size_max: u64,
    /// A file that is older is ended.
    pub age_max: Duration,
    /// Files that are kept, the one that is written to included.
    pub files_max: usize,
}

/// What became of the log, for the metrics.
#[derive(Debug, Default)]
pub struct Counts {
    /// Intervals that could not be written, files that could not be removed.
    pub errors: AtomicU64,
    /// Intervals written.
    pub written: AtomicU64,
}

/// The log.
#[derive(Debug)]
pub struct Files {
    keep: Keep,
    medium: Medium,
    /// The medium has written something.
    proven: bool,
    open: Option<Open>,
    /// Files begun by this process: two in the same second differ.
    begun: u32,
    failing: bool,
    counts: Arc<Counts>,
}

/// The file that is written to.
#[derive(Debug)]
struct Open {
    path: PathBuf,
    file: File,
    /// Bytes in whole lines.
    len: u64,
    since: Duration,
}

impl Keep {
    /// Makes the folder if it is not there.
    ///
    /// # Errors
    /// A sentence that names the flag.
    pub fn prepare(&self) -> Result<(), String> {
        fs::create_dir_all(&self.folder).map_err(|error| {
            format!("--hdr-log-dir={}: {error}; give a folder that usher may write to", self.folder.display())
        })
    }
}

impl Files {
    /// Nothing is opened before there is something to write.
    #[must_use]
    pub fn new(keep: Keep, medium: Medium, counts: Arc<Counts>) -> Self {
        Self { keep, medium, proven: false, open: None, begun: 0, failing: false, counts }
    }

    /// Appends the lines of an interval that began at `start`. A failure is said once, until it works again, and
    /// counted each time.
    pub async fn append(&mut self, start: Duration, lines: &str) {
        let result = self.try_append(start, lines).await;
        let folder = self.keep.folder.display();
        match result {
            Ok(()) => {
                self.counts.written.fetch_add(1, Ordering::Relaxed);
                if std::mem::take(&mut self.failing) {
                    tracing::info!(%folder, "histograms are logged again");
                }
            }
            Err(error) => {
                self.counts.errors.fetch_add(1, Ordering::Relaxed);
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::error!(%folder, %error, "histograms cannot be logged; serving goes on, /debug/hdr has the latest");
                }
            }
        }
    }

    async fn try_append(&mut self, start: Duration, lines: &str) -> io::Result<()> {
        if self.open.as_ref().is_some_and(|open| open.is_over(&self.keep, start, lines.len())) {
            self.open = None;
        }
        if self.open.is_none() {
            self.begin(start)?;
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        let mut bytes = if open.len == 0 { hlog::header(start) } else { String::new() };
        bytes.push_str(lines);
        let len = bytes.len() as u64;
        let mut written = open.file.append(bytes.as_bytes(), open.len).await;
        if let (Err(error), false, Medium::Uring) = (&written, self.proven, self.medium) {
            tracing::warn!(%error, "io_uring does not write files here; histograms are logged with plain writes");
            self.medium = Medium::Plain;
            open.file.be_plain();
            written = open.file.append(bytes.as_bytes(), open.len).await;
        }
        if let Err(error) = written {
            if open.file.cut(open.len).is_err() {
                self.open = None; // it ends with a torn line: a new one is begun
            }
            return Err(error);
        }
        self.proven = true;
        open.len += len;
        open.file.sync().await
    }

    /// A file whose first interval begins at `start`.
    fn begin(&mut self, start: Duration) -> io::Result<()> {
        self.begun += 1;
        let date_time = OffsetDateTime::UNIX_EPOCH + start;
        let ((year, month, day), (hour, minute, second)) = (date_time.to_calendar_date(), date_time.to_hms());
        let month = u8::from(month);
        let stamp = format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z");
        let name = format!("{PREFIX}{stamp}-{}-{:04}{SUFFIX}", std::process::id(), self.begun);
        let path = self.keep.folder.join(name);
        let file = File::create(&path, self.medium)?;
        tracing::info!(file = %path.display(), medium = self.medium.name(), "histograms are logged");
        self.open = Some(Open { path, file, len: 0, since: start });
        if let Err(error) = self.throw_away() {
            self.counts.errors.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(folder = %self.keep.folder.display(), %error, "old logs of histograms cannot be removed");
        }
        Ok(())
    }

    /// Removes the oldest files of ours, so that no more than asked for are left. Their names sort by age.
    fn throw_away(&self) -> io::Result<()> {
        let mut ours: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(&self.keep.folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
                ours.push(path);
            }
        }
        ours.sort_unstable();
        let surplus = ours.len().saturating_sub(self.keep.files_max);
        let open = self.open.as_ref().map(|open| &open.path);
        ours.iter().take(surplus).filter(|path| Some(*path) != open).try_for_each(fs::remove_file)
    }
}

/// How the names of the log's files begin and end.
const PREFIX: &str = "usher-";
const SUFFIX: &str = ".hlog";

impl Open {
    /// So many bytes more do not belong into it.
    fn is_over(&self, keep: &Keep, start: Duration, more: usize) -> bool {
        let too_large = self.len > 0 && self.len.saturating_add(more as u64) > keep.size_max;
        too_large || start.saturating_sub(self.since) >= keep.age_max || self.file.is_removed()
    }
}

#[cfg(test)]
mod tests;
