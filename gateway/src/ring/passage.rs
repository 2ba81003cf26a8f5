//! Connections of ours that must be known where they come from before they are opened: something between us and the
//! server lets them pass that stops everybody else.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use socket2::Socket;

use super::socket::for_connecting;

/// Who lets them pass. Asked by workers: no waiting here.
pub trait Passage: fmt::Debug + Send + Sync {
    /// Whether a connection to that address needs it.
    fn leads_to(&self, address: SocketAddr) -> bool;

    /// A connection that comes from there is ours, until [`Passage::over`] with the number that is returned.
    ///
    /// # Errors
    /// There are too many.
    fn announce(&self, from: SocketAddr) -> io::Result<u64>;

    /// It has ended, or is about to: whoever comes from there next is somebody else, or has another number.
    fn over(&self, from: SocketAddr, number: u64);
}

/// A connection that was announced. To be dropped before its socket is closed, as long as nobody else can have its port.
///
/// But for one that is refused or reset: then the kernel frees the port at once, whoever has the socket open. Another
/// connection of ours may have it by now and have announced it: so what ends is the announcement of that number. A
/// stranger's may pass in that moment; it gains no more than the apiserver's port without flow control.
#[derive(Debug)]
pub struct Pass {
    passage: Arc<dyn Passage>,
    from: SocketAddr,
    number: u64,
}

/// A socket from which to connect to that address, bound to the address that the kernel would choose and to a port that
/// nobody else on this host has on it, and announced.
///
/// Bound by address as well as by port: the same port of another address of this host may be anybody's. Bound before it
/// connects, the port is taken from all connections of that address (some 28 000: `net.ipv4.ip_local_port_range`), not from
/// those to one server; and since the socket does not share (`SO_REUSEADDR`), the kernel gives the port to nobody else
/// while the connection is.
///
/// # Errors
/// No such way, no port left, or too many were announced.
pub fn bound(address: SocketAddr, passage: &Arc<dyn Passage>) -> io::Result<(Socket, Pass)> {
    let socket = for_connecting(address)?;
    socket.bind(&SocketAddr::new(source(address)?, 0).into())?;
    let from = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let number = passage.announce(from)?;
    Ok((socket, Pass { passage: Arc::clone(passage), from, number }))
}

/// The address of this host from which the kernel would connect to another: asked with a datagram socket, which sends
/// nothing for that.
fn source(to: SocketAddr) -> io::Result<IpAddr> {
    let any = match to {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let asker = UdpSocket::bind((any, 0))?;
    asker.connect(to)?;
    Ok(asker.local_addr()?.ip())
}

/// Whether an address is one of this host's: the kernel would connect to it from itself.
pub(crate) fn is_of_this_host(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || source(SocketAddr::new(address, DISCARD)).is_ok_and(|source| source == address)
}

/// Any port will do to ask for the way (RFC 863); nothing is sent to it.
const DISCARD: u16 = 9;

impl Drop for Pass {
    fn drop(&mut self) {
        self.passage.over(self.from, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::{Listener, bind, connect_by, run};
    use super::*;

    /// Remembers who is announced.
    #[derive(Debug, Default)]
    struct Book(Mutex<Vec<SocketAddr>>);

    impl Passage for Book {
        fn leads_to(&self, address: SocketAddr) -> bool {
            address.port() != 1
        }

        fn announce(&self, from: SocketAddr) -> io::Result<u64> {
            let mut book = self.0.lock().unwrap();
            if book.len() == 2 {
                return Err(io::Error::from_raw_os_error(libc::E2BIG));
            }
            book.push(from);
            Ok(u64::from(from.port()))
        }

        fn over(&self, from: SocketAddr, number: u64) {
            assert_eq!(number, u64::from(from.port()));
            self.0.lock().unwrap().retain(|announced| *announced != from);
        }
    }

    #[test]
    fn a_connection_is_announced_from_before_its_beginning_to_its_end() {
        run(async {
            for local in ["127.0.0.1:0", "[::1]:0"] {
                let book = Arc::new(Book::default());
                let passage = Arc::clone(&book) as Arc<dyn Passage>;
                let listener = bind(local.parse().unwrap()).unwrap();
                let address = listener.local_addr().unwrap();
                let listener = Listener::new(listener).unwrap();
                let first = connect_by(address, Some(&passage)).await.unwrap();
                let (_accepted, peer) = listener.accept().await.unwrap();
                assert_eq!(*book.0.lock().unwrap(), [peer]);
                assert_eq!(peer.ip(), address.ip());
                let clone = first.clone();
                drop(first);
                assert_eq!(*book.0.lock().unwrap(), [peer], "it is the same connection");
                let second = connect_by(address, Some(&passage)).await.unwrap();
                assert_eq!(book.0.lock().unwrap().len(), 2);
                let refused = connect_by(address, Some(&passage)).await.unwrap_err();
                assert_eq!(refused.raw_os_error(), Some(libc::E2BIG));
                drop((clone, second));
                assert!(book.0.lock().unwrap().is_empty());
            }
        })
        .unwrap();
    }

    #[test]
    fn one_that_does_not_come_about_is_forgotten() {
        run(async {
            let book = Arc::new(Book::default());
            let passage = Arc::clone(&book) as Arc<dyn Passage>;
            let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let refused = connect_by(closed, Some(&passage)).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            assert!(book.0.lock().unwrap().is_empty());
            // The passage does not lead there.
            let elsewhere = SocketAddr::new(closed.ip(), 1);
            assert!(connect_by(elsewhere, Some(&passage)).await.is_err());
        })
        .unwrap();
    }

    #[test]
    fn addresses_of_this_host_are_known() {
        for (address, expected) in [
            ("127.0.0.1", true),
            ("127.8.8.8", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("192.0.2.1", false),   // for documentation (RFC 5737)
            ("2001:db8::1", false), // the same (RFC 3849)
        ] {
            assert_eq!(is_of_this_host(address.parse().unwrap()), expected, "{address}");
        }
    }
}
