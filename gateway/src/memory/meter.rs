//! How much memory is used. Its files stay open: there may be no descriptor left when it matters most.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// What is compared with the limit.
#[derive(Debug)]
pub(super) enum Meter {
    /// Resident bytes of this process.
    Process { statm: File },
    /// All that a control group is charged for, sockets too, without the cached files that the kernel drops
    /// before it kills; kubelet's "working set".
    Group { usage: File, stat: File, inactive: &'static str },
}

/// More than `memory.stat` has before the line that is looked for (some 3 KiB in Linux 6.18).
const STAT_BYTES_MAX: usize = 16 * 1024;

impl Meter {
    pub(super) fn of_process(root: &Path) -> io::Result<Self> {
        Ok(Self::Process { statm: File::open(root.join("proc/self/statm"))? })
    }

    pub(super) fn of_group(usage: &Path, folder: &Path, inactive: &'static str) -> io::Result<Self> {
        let stat = File::open(folder.join("memory.stat"))?;
        Ok(Self::Group { usage: File::open(usage)?, stat, inactive })
    }

    /// Bytes used now.
    ///
    /// # Errors
    /// The kernel does not say.
    pub(super) fn read(&self) -> io::Result<u64> {
        let number = |word: Option<&str>| -> io::Result<u64> {
            word.and_then(|word| word.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
        };
        let mut buffer = [0; STAT_BYTES_MAX];
        match self {
            Self::Process { statm } => {
                let pages = number(read(statm, &mut buffer)?.split(' ').nth(1))?;
                Ok(pages.saturating_mul(Self::page_bytes()))
            }
            Self::Group { usage, stat, inactive } => {
                let used = number(Some(read(usage, &mut buffer)?.trim()))?;
                let line = |line: &str| Some(line.strip_prefix(inactive)?.strip_prefix(' ')?.to_owned());
                let cached = read(stat, &mut buffer)?.lines().find_map(line);
                Ok(used.saturating_sub(number(cached.as_deref())?))
            }
        }
    }

    pub(super) fn page_bytes() -> u64 {
        // SAFETY: asks for a constant of the system; no memory is involved.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        u64::try_from(bytes).unwrap_or(4096)
    }
}

fn read<'a>(file: &File, buffer: &'a mut [u8]) -> io::Result<&'a str> {
    let length = file.read_at(buffer, 0)?;
    std::str::from_utf8(&buffer[..length]).map_err(|_| io::ErrorKind::InvalidData.into())
}
