//! Whether a connection to an apiserver's own address and port is usher's.
//!
//! The program is attached to the host's network namespace and asked whenever the kernel looks for who listens. Its maps:
//!
//! | map | kind | written by | holds |
//! |---|---|---|---|
//! | [`PLACES`] | hash of [`Place`] to `u32` (not looked at), [`PLACES_MAX`] | gateway | the addresses and ports that are taken over |
//! | [`LISTENERS`] | socket map, [`LISTENERS_MAX`] | gateway | usher's listening socket for IPv4 and for IPv6 ([`listener`]); the kernel takes out what is closed |
//! | [`OWN`] | hash of [`Source`] to `u64`, [`OWN_MAX`] | gateway | where usher's own connections to the apiserver come from, and which process's they are |
//! | [`SWITCH`] | array of [`Switch`], one | gateway | what to do when usher's sockets are gone |
//! | [`TALLY`] | per-CPU array of `u64`, one for each [`Path`] | the program | how many connections went which way |
//!
//! A listener of a group (`SO_REUSEPORT`) stands for the group: the kernel asks the group's own program ([`crate::steer`])
//! which of its sockets it is to be.

/// Listening sockets: one an address family.
pub const LISTENERS_MAX: u32 = 2;
/// Addresses and ports.
pub const PLACES_MAX: u32 = 64;
/// Connections of usher's own to apiservers, at most. A source address has 65 535 ports, less than half of them for such
/// use (`net.ipv4.ip_local_port_range`): those run out first.
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
/// All maps, in the order in which one process hands them to the next.
pub const MAPS: [&str; 5] = [LISTENERS, PLACES, OWN, SWITCH, TALLY];
/// Counts the changes of what program and maps mean: a process takes over only what it understands.
pub const FORM: u32 = 1;

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
    /// 0: the apiserver's own socket gets the connection (fail-open). 1: it is refused (fail-closed).
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
    /// Usher's sockets are gone: refused.
    Dropped = 3,
}

/// A connection that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Where it comes from.
    pub from: Source,
    /// Where it goes.
    pub to: Place,
    /// It is IPv6.
    pub v6: bool,
}

/// What the decision can see and do: the program by its maps, a test by a model of them.
pub trait View {
    /// Connections to that address and port are taken over.
    fn is_taken(&self, place: &Place) -> bool;
    /// A connection from there is usher's own.
    fn is_own(&self, source: &Source) -> bool;
    /// Usher's listening socket with that index is open.
    fn listens(&self, listener: u32) -> bool;
    /// Connections are refused when usher's sockets are gone.
    fn is_closed(&self) -> bool;
    /// The connection is for usher's listening socket with that index. False: it is gone.
    fn give(&self, listener: u32) -> bool;
}

/// Decides about a connection, and hands it to usher if it is usher's. `None`: it goes somewhere else and is no business of
/// ours.
///
/// Usher's own connections pass only while usher listens: a process that has died may have left its own in the map, and who
/// then comes from the same port must not get past a door that is to be closed.
#[inline(always)]
pub fn decide(view: &impl View, connection: &Connection) -> Option<Path> {
    let anywhere = Place { address: [0; 16], port: connection.to.port };
    if !view.is_taken(&connection.to) && !view.is_taken(&anywhere) {
        return None;
    }
    let listener = listener(connection.v6);
    if view.is_own(&connection.from) {
        if view.listens(listener) {
            return Some(Path::Own);
        }
    } else if view.give(listener) {
        return Some(Path::Taken);
    }
    Some(if view.is_closed() { Path::Dropped } else { Path::Open })
}

/// The index of the listening socket for connections over IPv6, or IPv4.
#[must_use]
#[inline(always)]
pub const fn listener(v6: bool) -> u32 {
    if v6 { 1 } else { 0 }
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

impl Place {
    /// That address, or all if it is unspecified, and port.
    #[must_use]
    pub const fn new(address: core::net::IpAddr, port: u16) -> Self {
        let any = address.is_unspecified();
        Self { address: if any { [0; 16] } else { octets(address) }, port: port as u32 }
    }
}

impl Source {
    /// That address and port.
    #[must_use]
    pub const fn new(address: core::net::SocketAddr) -> Self {
        Self { address: octets(address.ip()), port: address.port() as u32 }
    }
}

const fn octets(address: core::net::IpAddr) -> [u8; 16] {
    match address {
        core::net::IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        core::net::IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests;
