//! The link that attaches the program to the network namespace, by the system call itself: aya keeps the descriptor of a
//! link to itself, and ours is handed from one process to the next.
#![expect(unsafe_code, reason = "bpf(2) has no safe face that gives the descriptor")]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Commands of bpf(2), and the kind of attachment (`BPF_SK_LOOKUP`): linux/bpf.h.
const OBJ_PIN: libc::c_long = 6;
const OBJ_GET: libc::c_long = 7;
const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const LINK_CREATE: libc::c_long = 28;
const LINK_DETACH: libc::c_long = 34;
const SK_LOOKUP: u32 = 36;

/// `bpf_attr.link_create`, as far as it is needed.
#[repr(C)]
struct Create {
    program: i32,
    target: i32,
    kind: u32,
    flags: u32,
}

/// `bpf_attr` of pinning and of getting what is pinned.
#[repr(C)]
struct Object {
    path: u64,
    descriptor: i32,
    flags: u32,
}

/// `bpf_attr.link_detach`.
#[repr(C)]
struct Detach {
    link: i32,
}

/// `bpf_attr.info`.
#[repr(C)]
struct Ask {
    descriptor: i32,
    length: u32,
    info: u64,
}

/// `bpf_link_info` of a network namespace's link.
#[repr(C)]
#[derive(Default)]
struct Info {
    kind: u32,
    id: u32,
    program: u32,
    gap: u32,
    /// Number of the namespace; 0: it attaches nothing any more.
    namespace: u32,
    attachment: u32,
}

const INFO_BYTES: u32 = 24;
const _: () = assert!(size_of::<Info>() == INFO_BYTES as usize);

/// Attaches the program to the network namespace of this process, for as long as the link is open or pinned.
///
/// # Errors
/// As bpf(2).
pub(super) fn attach(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let namespace = File::open("/proc/self/ns/net")?;
    let create = Create {
        program: program.as_raw_fd(),
        target: namespace.as_fd().as_raw_fd(),
        kind: SK_LOOKUP,
        flags: 0,
    };
    // SAFETY: `create` is what this command reads.
    let made = unsafe { call(LINK_CREATE, create) }?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// Detaches it at once, whoever else has the link open.
///
/// # Errors
/// As bpf(2).
pub(super) fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a `Detach` is what this command reads.
    unsafe { call(LINK_DETACH, Detach { link: link.as_raw_fd() }) }.map(drop)
}

/// Whether it still attaches the program: somebody else may have detached it. A kernel that does not say so has not been seen.
pub(super) fn is_attached(link: BorrowedFd<'_>) -> bool {
    let mut info = Info::default();
    let place = std::ptr::from_mut(&mut info).expose_provenance() as u64;
    // SAFETY: an `Ask` is what this command reads; it writes into `info`, as many bytes as that has, and `info` lives until the
    // call is back.
    let asked = unsafe {
        call(OBJ_GET_INFO_BY_FD, Ask { descriptor: link.as_raw_fd(), length: INFO_BYTES, info: place })
    };
    asked.is_err() || info.namespace != 0
}

/// Gives a link a name on the bpf filesystem, which holds it.
///
/// # Errors
/// As bpf(2): there is something, or it is no bpf filesystem.
pub(super) fn pin(link: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: an `Object` is what this command reads; its path lives until the call is back.
    unsafe { call(OBJ_PIN, Object { path: address(&path), descriptor: link.as_raw_fd(), flags: 0 }) }
        .map(drop)
}

/// The link of that name.
///
/// # Errors
/// As bpf(2): there is none.
pub(super) fn pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    // SAFETY: an `Object` is what this command reads; its path lives until the call is back.
    let got = unsafe { call(OBJ_GET, Object { path: address(&path), descriptor: 0, flags: 0 }) }?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(got) })
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn address(path: &CStr) -> u64 {
    path.as_ptr().expose_provenance() as u64
}

/// # Safety
/// `attribute` is what the command takes; what it points to lives until the call is back, and may be written to if the command
/// does so. The kernel takes what is beyond the attribute's size as 0, and writes into this copy of it at most.
unsafe fn call<A>(command: libc::c_long, mut attribute: A) -> io::Result<i32> {
    // SAFETY: the caller's promise.
    let answer =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(&mut attribute), size_of::<A>()) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    i32::try_from(answer).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::super::kernel::{Kernel, Problem};
    use super::*;

    #[test]
    fn whoever_detaches_a_link_it_is_seen() {
        let kernel = match Kernel::load() {
            Ok(kernel) => kernel,
            Err(Problem::Privileges(missing)) => {
                assert!(std::env::var_os("CI").is_none(), "this must be tried where CI is set: {missing}");
                return eprintln!("NOT TRIED: {missing}");
            }
            Err(problem) => panic!("{problem}"),
        };
        let link = attach(kernel.program()).unwrap(); // its map of places is empty: it takes nothing
        let other = link.try_clone().unwrap();
        assert!(is_attached(link.as_fd()) && is_attached(other.as_fd()));
        drop(link);
        assert!(is_attached(other.as_fd()));
        detach(other.try_clone().unwrap().as_fd()).unwrap();
        assert!(!is_attached(other.as_fd()));
        detach(other.as_fd()).unwrap(); // does no harm
    }
}
