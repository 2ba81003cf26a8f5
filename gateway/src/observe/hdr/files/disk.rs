//! One file, written through io_uring (tokio-uring), or plainly where that is forbidden.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

/// How files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// By tokio-uring: only within its runtime.
    Uring,
    /// By system calls that block the thread that writes, which has nothing more urgent to do.
    Plain,
}

/// An open file.
pub(super) struct File {
    plain: fs::File,
    /// A second descriptor of the same file.
    uring: Option<tokio_uring::fs::File>,
}

impl Medium {
    /// For the log and for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Uring => "io_uring",
            Self::Plain => "plain",
        }
    }
}

impl File {
    /// A new one; it must not be there.
    pub(super) fn create(path: &Path, medium: Medium) -> io::Result<Self> {
        let plain = OpenOptions::new().write(true).create_new(true).open(path)?;
        let uring = match medium {
            Medium::Uring => Some(tokio_uring::fs::File::from_std(plain.try_clone()?)),
            Medium::Plain => None,
        };
        Ok(Self { plain, uring })
    }

    /// From now on without io_uring.
    pub(super) fn be_plain(&mut self) {
        self.uring = None;
    }

    /// Writes all bytes at that place.
    pub(super) async fn append(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        match &self.uring {
            // The kernel reads the bytes while nobody here waits for them: they must be its own.
            Some(file) => file.write_all_at(bytes.to_vec(), at).await.0,
            None => self.plain.write_all_at(bytes, at),
        }
    }

    /// What is written is on the disk.
    pub(super) async fn sync(&self) -> io::Result<()> {
        match &self.uring {
            Some(file) => file.sync_data().await,
            None => self.plain.sync_data(),
        }
    }

    /// Throws away what is beyond.
    pub(super) fn cut(&self, len: u64) -> io::Result<()> {
        self.plain.set_len(len)
    }

    /// Somebody has removed it.
    pub(super) fn is_removed(&self) -> bool {
        self.plain.metadata().is_ok_and(|file| file.nlink() == 0)
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("File").field(&self.plain).finish()
    }
}
