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
    let made = unsafe { call(LINK_CREATE, &create) }?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// Detaches it at once, whoever else has the link open.
///
/// # Errors
/// As bpf(2).
pub(super) fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a `Detach` is what this command reads.
    unsafe { call(LINK_DETACH, &Detach { link: link.as_raw_fd() }) }.map(drop)
}

/// Gives a link a name on the bpf filesystem, which holds it.
///
/// # Errors
/// As bpf(2): there is something, or it is no bpf filesystem.
pub(super) fn pin(link: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: an `Object` is what this command reads; its path lives until the call is back.
    unsafe { call(OBJ_PIN, &Object { path: address(&path), descriptor: link.as_raw_fd(), flags: 0 }) }
        .map(drop)
}

/// The link of that name.
///
/// # Errors
/// As bpf(2): there is none.
pub(super) fn pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    // SAFETY: an `Object` is what this command reads; its path lives until the call is back.
    let got = unsafe { call(OBJ_GET, &Object { path: address(&path), descriptor: 0, flags: 0 }) }?;
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
/// `attribute` is what the command takes; the kernel reads no more of it than its size, takes the rest as 0, and writes
/// nothing.
unsafe fn call<A>(command: libc::c_long, attribute: &A) -> io::Result<i32> {
    // SAFETY: the caller's promise.
    let answer =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attribute), size_of::<A>()) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    i32::try_from(answer).map_err(|_| io::ErrorKind::InvalidData.into())
}
