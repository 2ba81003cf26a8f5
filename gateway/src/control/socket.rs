//! The socket's file: who has it, who may connect, and how a stale one is replaced.
//!
//! A socket file outlives its process. So whoever wants to listen first tries whether anybody answers, under a lock that
//! keeps two beginners apart, and then puts a new file over the old one in one step.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::Line;

/// In the runtime directory.
const NAME: &str = "control.sock";
/// Where a new socket is made before it takes the place of an old one.
const NEW: &str = "control.sock.new";
/// Locked by who is about to listen.
const LOCK: &str = "control.lock";

/// Somebody listens on it, or will.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// Of the socket's file.
    inode: Option<u64>,
}

/// Why nobody can be asked.
#[derive(Debug, thiserror::Error)]
pub enum Nobody {
    /// There is no socket, or nobody listens on it any more.
    #[error("no usher runs with --runtime-dir={dir}", dir = .0.display())]
    There(PathBuf),
    /// Somebody may be there.
    #[error("{path}: {1}", path = .0.display())]
    Reachable(PathBuf, String),
}

/// A connection to the usher of that runtime directory.
///
/// # Errors
/// Nobody is there, or it is somebody else's.
pub fn connect(dir: &Path) -> Result<Line, Nobody> {
    let path = dir.join(NAME);
    let unreachable = |why: String| Nobody::Reachable(path.clone(), why);
    let stream = UnixStream::connect(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Nobody::There(dir.to_owned()),
        io::ErrorKind::PermissionDenied => {
            unreachable("it is another user's: ask as root, or as the user whose usher it is".into())
        }
        _ => unreachable(error.to_string()),
    })?;
    match is_trusted(&stream) {
        Ok(true) => Ok(Line::new(stream)),
        Ok(false) => Err(unreachable("another user listens there".into())),
        Err(error) => Err(unreachable(error.to_string())),
    }
}

/// Whether the other side is the same user, or root.
pub(super) fn is_trusted(stream: &UnixStream) -> io::Result<bool> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    // rustix has this, too, but for it a process without a number is undefined behaviour, and a peer in another PID
    // namespace (another pod's usher) has none.
    // SAFETY: the call writes `size` bytes at most into `peer`, which are all of it; both live until it is back.
    let failed = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut size,
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call takes nothing and cannot fail.
    let own = unsafe { libc::geteuid() };
    Ok(peer.uid == own || peer.uid == 0)
}

// === impl Socket ===

impl Socket {
    /// Listens in that directory, which is made if it is not there. `None`: somebody else does, and answers.
    ///
    /// # Errors
    /// A sentence that names the directory.
    pub fn bind(dir: &Path) -> Result<Option<Self>, String> {
        Self::locked(dir, |dir| match connect(dir) {
            Err(Nobody::There(_)) => Self::replace(dir).map(Some),
            Err(Nobody::Reachable(_, why)) => Err(io::Error::other(why)),
            Ok(_) => Ok(None),
        })
    }

    /// The same, whoever listens there now: nobody will find him any more.
    ///
    /// # Errors
    /// As there.
    pub fn bind_anyway(dir: &Path) -> Result<Self, String> {
        Self::locked(dir, Self::replace)
    }

    /// The socket of somebody who has handed it over.
    ///
    /// # Errors
    /// It is no listening Unix socket.
    pub fn adopt(dir: &Path, descriptor: OwnedFd) -> io::Result<Self> {
        let listener = UnixListener::from(descriptor);
        listener.local_addr()?; // it is a Unix socket
        Ok(Self::new(listener, dir))
    }

    fn new(listener: UnixListener, dir: &Path) -> Self {
        let path = dir.join(NAME);
        let inode = std::fs::symlink_metadata(&path).ok().map(|file| file.ino());
        Self { listener, path, inode }
    }

    fn locked<T>(dir: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> Result<T, String> {
        let locked = || {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            // Whoever can open it can lock it, and keep an usher from starting: the folder may be open to all.
            let lock =
                File::options().create(true).truncate(false).write(true).mode(0o600).open(dir.join(LOCK))?;
            lock.lock()?;
            act(dir)
        };
        locked().map_err(|error| {
            format!(
                "--runtime-dir={}: {error}; give a folder that usher may write to, or --runtime-dir= for none",
                dir.display()
            )
        })
    }

    fn replace(dir: &Path) -> io::Result<Self> {
        let new = dir.join(NEW);
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&new)?;
        std::fs::set_permissions(&new, Permissions::from_mode(0o600))?;
        std::fs::rename(&new, dir.join(NAME))?;
        Ok(Self::new(listener, dir))
    }

    /// The socket itself.
    #[must_use]
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// The runtime directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// Nobody is to find it any more: its file goes, if it still is this one's.
    pub fn remove(&self) {
        let removed = Self::locked(self.dir(), |_| {
            let there = std::fs::symlink_metadata(&self.path)?;
            if self.inode == Some(there.ino()) { std::fs::remove_file(&self.path) } else { Ok(()) }
        });
        if let Err(problem) = removed {
            tracing::debug!(problem, "the control socket's file stays");
        }
    }
}
