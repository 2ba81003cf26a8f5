//! Two network namespaces and a cable: a server's, and one that has all addresses of two networks.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::process::Command;

use crate::privileges;

/// Where the server listens.
pub(crate) const SERVER_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 8, 0, 1));
/// Where the server listens.
pub(crate) const SERVER_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd08, 0, 0, 0, 0, 0, 0, 1));

/// The namespaces, which end with the last of their threads, sockets and this.
pub(crate) struct Network {
    server: File,
    clients: File,
}

impl Network {
    /// Runs `test` in a thread that is in the clients' namespace; on a machine that forbids namespaces or programs it tells
    /// so, and fails if that is CI.
    pub(crate) fn with(test: impl FnOnce(&Self) + Send + 'static) {
        let thread = std::thread::spawn(|| {
            let network = match Self::new() {
                Ok(network) => network,
                Err(reason) => return privileges::not_tried(reason),
            };
            test(&network);
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }

    fn new() -> io::Result<Self> {
        if let Some(reason) = privileges::missing() {
            return Err(reason);
        }
        let server = unshare()?;
        ip("link set lo up")?;
        let clients = unshare()?;
        ip("link set lo up")?;
        ip("link add clients type veth peer name server")?;
        ip(&format!("link set server netns /proc/{}/fd/{}", std::process::id(), server.as_raw_fd()))?;
        ip("addr add 10.8.0.2/24 dev clients")?;
        ip("addr add fd08::2/64 dev clients nodad")?;
        ip("link set clients up")?;
        // Any address of these networks is one of ours, without a thousand entries.
        ip("route add local 10.9.0.0/16 dev lo")?;
        ip("-6 route add local fd09::/64 dev lo")?;
        let network = Self { server, clients };
        network.at_server(|| {
            ip("addr add 10.8.0.1/24 dev server")?;
            ip("addr add fd08::1/64 dev server nodad")?;
            ip("link set server up")?;
            ip("route add 10.9.0.0/16 via 10.8.0.2")?;
            ip("-6 route add fd09::/64 via fd08::2")
        })?;
        Ok(network)
    }

    /// Does something in the server's namespace: sockets that are made there are the server's.
    pub(crate) fn at_server<T>(&self, what: impl FnOnce() -> T) -> T {
        enter(&self.server);
        let result = what();
        enter(&self.clients);
        result
    }
}

/// A client's address, of the same family as the server's.
pub(crate) fn client(server: &SocketAddr, number: usize) -> IpAddr {
    let [.., high, low] = number.to_be_bytes();
    match server.ip() {
        IpAddr::V4(_) => IpAddr::from([10, 9, high, low]),
        IpAddr::V6(_) => IpAddr::from([0xfd09, 0, 0, 0, 0, 0, u16::from(high), u16::from(low)]),
    }
}

/// A new network namespace for this thread.
fn unshare() -> io::Result<File> {
    // SAFETY: takes a flag, touches no memory.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    File::open("/proc/thread-self/ns/net")
}

fn enter(namespace: &File) {
    // SAFETY: takes a descriptor, which is open, and touches no memory.
    let result = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// `ip ARGUMENTS`, in this thread's namespace.
fn ip(arguments: &str) -> io::Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}
