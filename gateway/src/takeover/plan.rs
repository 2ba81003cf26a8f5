//! What is to be taken over: from options to addresses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;

use crate::config::options::Options;
use crate::ring;
use crate::upstream::Server;

/// `--takeover`: whose the port is without usher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// No port is taken over.
    #[default]
    Off,
    /// The apiserver's, at once.
    FailOpen,
    /// Nobody's, until usher is back or `usher release` is said: no request gets past flow control.
    FailClosed,
}

/// What is to be taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(super) mode: Mode,
    /// Addresses and ports that clients connect to; unspecified: any address of this host, IPv4 and IPv6.
    pub(super) places: Vec<SocketAddr>,
    /// Apiservers of this host whose ports those are.
    pub(super) apiservers: Vec<SocketAddr>,
    /// Folder on the bpf filesystem.
    pub(super) pins: PathBuf,
}

impl Mode {
    /// As the flag has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::FailOpen => "fail-open",
            Self::FailClosed => "fail-closed",
        }
    }
}

impl Plan {
    /// Looks at the options; host names of upstreams are asked of the system's resolver. `None`: nothing is to be taken over.
    ///
    /// # Errors
    /// No apiserver of this host is behind usher.
    pub fn of(options: &Options) -> Result<Option<Self>, String> {
        let (given, upstreams) = (&options.takeover, &options.upstream.upstream);
        if given.takeover == Mode::Off {
            return Ok(None);
        }
        let places = places(&given.takeover_address, upstreams);
        let ports: Vec<u16> = places.iter().map(SocketAddr::port).collect();
        let mut apiservers = Vec::new();
        for upstream in upstreams.iter().filter(|upstream| ports.contains(&upstream.port)) {
            let addresses = (upstream.host.as_str(), upstream.port).to_socket_addrs();
            let addresses = addresses.map_err(|error| format!("--upstream={upstream}: {error}"))?;
            apiservers.extend(addresses.filter(|address| ring::is_of_this_host(address.ip())));
        }
        if apiservers.is_empty() {
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            return Err(format!(
                "--takeover: no --upstream is an apiserver of this host on port {}: usher would take a port and have \
                 nowhere to go; give --upstream=https://127.0.0.1:{}",
                ports.join(" or "),
                ports.first().map_or("6443", String::as_str),
            ));
        }
        Ok(Some(Self { mode: given.takeover, places, apiservers, pins: given.takeover_pin_dir.clone() }))
    }

    /// Connections are refused when usher is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.mode == Mode::FailClosed
    }
}

/// What was named; else the upstreams' ports on any address.
pub(crate) fn places(named: &[SocketAddr], upstreams: &[Server]) -> Vec<SocketAddr> {
    let mut places = named.to_vec();
    if places.is_empty() {
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        places.extend(upstreams.iter().map(|upstream| SocketAddr::new(any, upstream.port)));
    }
    places.sort_unstable();
    places.dedup();
    places
}
