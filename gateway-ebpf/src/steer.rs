//! Which worker a new connection goes to.
//!
//! One copy of the program, with maps of its own, serves one listening address: one reuseport group. Its maps:
//!
//! | map | kind | written by | holds |
//! |---|---|---|---|
//! | [`SOCKETS`] | socket map, [`SLOTS`] | gateway | each worker's listening socket, by slot; the kernel takes out what is closed |
//! | [`LOADS`] | array of [`Load`], [`SLOTS`], mapped into the gateway's memory | workers, by plain stores | how each worker is |
//! | [`RULES`] | array of [`Rules`], one | gateway | what holds for all connections |
//! | [`CLIENTS`] | LRU hash of [`Client`] to [`Record`] | the program | who came lately, and where to |
//! | [`ARRIVALS`] | array of [`Arrivals`], one for each slot and one for all of them | the program | how many connections went there lately |
//! | [`TALLY`] | per-CPU array of `u64`, one for each [`Path`] | the program | how many connections took which path |
//!
//! [`choose`] decides; the words are here. A socket map instead of a reuseport socket array, because a socket can be in one
//! such array only and then in no socket map, and takeover and a hand-over need it in several.
//!
//! Events: the program tells each choice through aya-log at debug level. [`EVENTS`] says whether; set to 0 before the
//! object is loaded, the kernel's verifier removes all of it. Whoever does not set it pays for them.

mod choice;

pub use choice::{ARRIVALS_ALL, Arrival, Arrivals, Choice, Kind, NOBODY, Record, View, choose, next};

/// Workers of one listening address at a time, those that drain included. A host has fewer cores than that.
pub const SLOTS: u32 = 256;
/// Clients that are remembered; the least recent one gives way. 5 000 nodes with some processes each fit.
pub const CLIENTS_MAX: u32 = 16 * 1024;

/// Names of the program and of its maps in the object file.
pub const PROGRAM: &str = "steer";
/// See the module.
pub const SOCKETS: &str = "SOCKETS";
/// See the module.
pub const LOADS: &str = "LOADS";
/// See the module.
pub const RULES: &str = "RULES";
/// See the module.
pub const CLIENTS: &str = "CLIENTS";
/// See the module.
pub const ARRIVALS: &str = "ARRIVALS";
/// See the module.
pub const TALLY: &str = "TALLY";
/// A global `u8` of aya-log's: 0 for no events, 4 (debug) for all.
pub const EVENTS: &str = "AYA_LOG_LEVEL";

/// How a worker is, as it says itself. A cache line each: workers do not disturb each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Load {
    /// One of [`ABSENT`], [`SERVING`], [`DRAINING`].
    pub state: u32,
    /// Open connections.
    pub connections: u32,
    /// Requests that run or wait here.
    pub busy: u32,
    /// The rest of the line, 0.
    pub reserved: [u32; 13],
}

/// Nobody is there: a slot never used, or its worker has died.
pub const ABSENT: u32 = 0;
/// Takes connections.
pub const SERVING: u32 = 1;
/// Takes none any more.
pub const DRAINING: u32 = 2;

/// What holds for all connections of the address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Rules {
    /// Slots from 0 on that may be in use; at most [`SLOTS`].
    pub slots: u32,
    /// New connections a second that one source address may open in the long run; 0: as many as it likes.
    pub budget: u32,
    /// How many of them at once.
    pub burst: u32,
    /// Reserved, 0.
    pub reserved: u32,
}

/// A source address. IPv4 as IPv4-mapped IPv6 (RFC 4291, 2.5.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Client(pub [u8; 16]);

impl Client {
    /// An IPv4 address as a key.
    #[must_use]
    pub const fn from_v4(address: [u8; 4]) -> Self {
        let [a, b, c, d] = address;
        Self([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
    }
}

/// How a connection came to its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Path {
    /// Where its client's connections went before, or the first of the client's two candidates.
    Affinity = 0,
    /// The other candidate, which has less to do.
    Load = 1,
    /// Anywhere: its address hides many clients.
    Spread = 2,
    /// Neither candidate serves: the next one that does. Or the chosen worker's socket was gone: the second best.
    Fallback = 3,
    /// Left to the kernel's own hash: no worker serves, or no chosen socket was there.
    Kernel = 4,
    /// Refused: its source is over its budget.
    Refused = 5,
    /// Was another worker's, which closed its socket before it accepted it.
    Migrated = 6,
    /// Not a new connection: the end of a handshake by SYN cookies, or a segment nobody waits for.
    Later = 7,
}

impl Path {
    /// All, in order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Affinity,
        Self::Load,
        Self::Spread,
        Self::Fallback,
        Self::Kernel,
        Self::Refused,
        Self::Migrated,
        Self::Later,
    ];

    /// As a label of a metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Affinity => "affinity",
            Self::Load => "load",
            Self::Spread => "spread",
            Self::Fallback => "fallback",
            Self::Kernel => "kernel",
            Self::Refused => "refused",
            Self::Migrated => "migrated",
            Self::Later => "later",
        }
    }
}
