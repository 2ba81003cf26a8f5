//! Whether a connection to an apiserver's own address and port is usher's.
//!
//! The program is attached to the host's network namespace. Its maps:
//!
//! | map | kind | written by | holds |
//! |---|---|---|---|
//! | [`LISTENERS`] | socket map, [`LISTENERS_MAX`] | gateway | usher's listening sockets; the kernel takes out what is closed |
//! | [`PLACES`] | hash of [`Place`] to the index of a listener | gateway | the addresses and ports that are taken over |
//! | [`OWN`] | hash of [`Source`] to `u64` | gateway | where usher's own connections to the apiserver come from: they pass |
//! | [`SWITCH`] | array of [`Switch`], one | gateway | what to do when usher's sockets are gone |
//! | [`TALLY`] | per-CPU array of `u64`, one for each [`Path`] | the program | how many connections went which way |

/// Listening sockets: one an address family and place.
pub const LISTENERS_MAX: u32 = 16;
/// Addresses and ports.
pub const PLACES_MAX: u32 = 16;
/// Connections of usher's own to apiservers, at most.
pub const OWN_MAX: u32 = 64 * 1024;

/// Names of the program and of its maps in the object file.
pub const PROGRAM: &str = "takeover";
/// See the module.
pub const LISTENERS: &str = "LISTENERS";
/// See the module.
pub const PLACES: &str = "PLACES";
/// See the module.
pub const OWN: &str = "OWN";
/// See the module.
pub const SWITCH: &str = "SWITCH";
/// See the module.
pub const TALLY: &str = "TALLY";

/// An address and port that clients connect to. IPv4 as IPv4-mapped IPv6; all zeroes: any address of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Place {
    /// In network order.
    pub address: [u8; 16],
    /// As people write it.
    pub port: u32,
}

/// Where a connection comes from; as [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Source {
    /// In network order.
    pub address: [u8; 16],
    /// As people write it.
    pub port: u32,
}

/// What to do when usher's sockets are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Switch {
    /// 0: the apiserver's own socket gets the connection (fail-open). 1: it is dropped (fail-closed).
    pub closed: u32,
}

/// Which way a connection went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Path {
    /// To usher.
    Taken = 0,
    /// Usher's own, to the apiserver.
    Own = 1,
    /// Usher's sockets are gone: to the apiserver.
    Open = 2,
    /// Usher's sockets are gone: dropped.
    Dropped = 3,
}

impl Path {
    /// All, in order of their numbers.
    pub const ALL: [Self; 4] = [Self::Taken, Self::Own, Self::Open, Self::Dropped];

    /// As a label of a metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Own => "own",
            Self::Open => "open",
            Self::Dropped => "dropped",
        }
    }
}
