//! Hand-over: a new usher takes the listening sockets of the one that runs, which then drains and ends.
//!
//! ```text
//!  new: reads every file, tries its ring ─► "hand-over" ─────────► old: serves on
//!       takes what it can use, binds the rest ◄── sockets ────────
//!       its workers are at work ────────────────► "ready" ───────► stops accepting, and drains
//!       accepts, and serves ◄──────────────────── how it drains ── until it ends
//! ```
//!
//! The sockets are the same in both processes, so no connection is refused in between: what the kernel has ready waits for
//! whoever accepts. What the old one has accepted it serves to the end. The new one accepts nothing before the old one has
//! let go: if it ends until then, or takes too long, it loses nobody, and the old one goes on and puts right what it has
//! changed. Over the control socket ([`crate::control`]): same user, or root.

mod give;
mod take;

pub use give::{Belonging, Besides, Giver};
pub use take::{Follower, Taken, ask};

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::control::Section;
use crate::ring::Io;

/// The verb.
pub const VERB: &str = "hand-over";
/// From the sockets to "ready": workers start in milliseconds; with hundreds of levels and a busy machine it may be
/// seconds. Meanwhile the old one serves.
const READY_MAX: Duration = Duration::from_secs(30);
/// Between two reports of the one that drains.
const REPORT_EVERY: Duration = Duration::from_millis(200);
/// A report that is so late means that the old one hangs.
const REPORT_MAX: Duration = Duration::from_secs(30);

/// What a descriptor is for.
pub mod what {
    /// Listens for clients with TLS; one for each worker.
    pub const SECURE: &str = "secure";
    /// Without.
    pub const INSECURE: &str = "insecure";
    /// The admin port.
    pub const ADMIN: &str = "admin";
    /// The control socket.
    pub const CONTROL: &str = "control";
    /// Listens for clients with TLS where only takeover brings connections; one for each worker.
    pub const SPARE: &str = "takeover-listener";
    /// Takeover's program and maps, in their order; the number is that of their form.
    pub const TAKEOVER: &str = "takeover-1";
    /// What attaches that program, if it is attached.
    pub const TAKEOVER_LINK: &str = "takeover-link";
    const _: () = assert!(usher_ebpf::takeover::FORM == 1, "the name above tells the form");
}

/// Who hands over, and what: its first line. The descriptors come beside it, in this order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// Its process, in its own PID namespace.
    pub pid: u32,
    /// Of the program.
    pub version: String,
    /// How its workers do their I/O.
    pub io: String,
    /// What each descriptor is for ([`what`]).
    pub items: Vec<String>,
    /// Since when the apiserver's port is whose it is, in seconds since 1970. `None`: it has none to hand over, or is of a
    /// version that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takeover_since: Option<u64>,
}

/// The new one's workers are at work, and wait for nothing but that the old one lets go.
#[derive(Debug, Serialize, Deserialize)]
struct Ready {
    ready: bool,
}

/// How the old one drains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// It accepts no more.
    pub stopped: bool,
    /// Connections that are left.
    pub connections: u64,
    /// Requests that execute.
    pub executing: u64,
    /// Requests that wait.
    pub waiting: u64,
}

/// What has happened here, for metrics and status.
#[derive(Debug, Default)]
pub struct Ledger {
    taken: AtomicBool,
    given_up: AtomicU64,
    under_way: AtomicBool,
    former: std::sync::Mutex<Option<Former>>,
}

/// The one that was here before.
#[derive(Clone, Debug)]
struct Former {
    offer: (u32, String),
    /// `None`: it has ended.
    report: Option<Report>,
}

impl Ledger {
    /// This process has taken over from another.
    #[must_use]
    pub fn has_taken_over(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }

    /// How often somebody has begun to take over from this one, and came to nothing.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    /// How the former one drains; `None`: there is none, or it has ended.
    #[must_use]
    pub fn former(&self) -> Option<Report> {
        self.lock().as_ref().and_then(|former| former.report)
    }

    /// For the status.
    #[must_use]
    pub fn section(&self) -> Section {
        let under_way = self.under_way.load(Ordering::Relaxed);
        let former = self.lock().clone();
        let mut section = Section::says(match &former {
            _ if under_way => "another usher is taking over".to_owned(),
            None => "none".to_owned(),
            Some(Former { offer: (pid, version), report: None }) => {
                format!("this one took over from process {pid} ({version}), which has ended")
            }
            Some(Former { offer: (pid, version), report: Some(report) }) => format!(
                "this one took over from process {pid} ({version}), which drains: {} connections, {} requests executing, \
                 {} waiting",
                report.connections, report.executing, report.waiting
            ),
        });
        section.more.insert("under_way".into(), under_way.into());
        let draining = former.and_then(|former| former.report);
        section.more.insert("former".into(), serde_json::to_value(draining).unwrap_or_default());
        section
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Former>> {
        self.former.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Sockets that two processes accept on must be set for both: a ring waits for a socket only if that blocks, epoll's
/// accept must not wait. While they differ, accepting waits for a moment at most; the ring puts it right for itself.
///
/// # Errors
/// It is no socket.
fn suit_both(socket: &std::net::TcpListener) -> std::io::Result<()> {
    socket2::SockRef::from(socket).set_read_timeout(Some(Duration::from_micros(1))) // the least there is: a tick of the kernel's
}

/// Only this process accepts on it from now on.
///
/// # Errors
/// It is no socket.
pub fn suit(socket: &std::net::TcpListener, io: Io) -> std::io::Result<()> {
    socket2::SockRef::from(socket).set_read_timeout(None)?;
    socket.set_nonblocking(io != Io::Uring)
}

#[cfg(test)]
mod tests;
