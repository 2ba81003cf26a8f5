//! kube-apiserver's own client.
//!
//! kube-apiserver is a client of itself: its controllers and post-start hooks connect to its own port over loopback, and
//! it is not ready before they are through. They expect a certificate that only the apiserver has, made when it starts, and ask for
//! it by a name of its own (SNI `apiserver-loopback-client`, `LoopbackClientServerNameOverride` in k8s.io/apiserver).
//! Under takeover they come to usher, which cannot answer them: such a connection, if it comes from an address of this
//! host, is relayed to the apiserver byte by byte, from its first one on. TLS stays between the two.
//!
//! Any process of this host can ask by that name and so speak to the apiserver past usher; it gains no right by that, only
//! a way without flow control. How many there can be is limited, and counted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use memchr::memmem;
use tokio::io::copy_bidirectional_with_sizes;

use crate::ring::{self, Passage, Stream};
use crate::tls::Greeting;

/// Whom the apiserver's own client asks for.
const NAME: &str = "apiserver-loopback-client";
/// Relayed connections at a time, of all workers. The client shares one connection, over HTTP/2, for each set of
/// credentials and settings: some few.
const RELAYS_MAX: u64 = 64;
/// How long connecting to the apiserver may take: it is on this host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes read at once in each direction.
const BUFFER_BYTES: usize = 16 * 1024;

/// Connections that are relayed, and where to.
#[derive(Debug)]
pub struct Relays {
    /// The apiservers of this host.
    apiservers: Vec<SocketAddr>,
    passage: Arc<dyn Passage>,
    open: AtomicU64,
    relayed: AtomicU64,
    crowded: AtomicU64,
    failed: AtomicU64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relayed {
    /// Open now.
    pub open: u64,
    /// So far.
    pub relayed: u64,
    /// Treated as any other client because too many were open.
    pub crowded: u64,
    /// No apiserver took the connection.
    pub failed: u64,
}

/// One that is to be relayed. Dropped, its place is free.
#[derive(Debug)]
pub struct Place(Arc<Relays>);

// === impl Relays ===

impl Relays {
    /// To these apiservers, by that passage.
    #[must_use]
    pub fn new(apiservers: Vec<SocketAddr>, passage: Arc<dyn Passage>) -> Arc<Self> {
        Arc::new(Self {
            apiservers,
            passage,
            open: AtomicU64::default(),
            relayed: AtomicU64::default(),
            crowded: AtomicU64::default(),
            failed: AtomicU64::default(),
        })
    }

    /// Whether that is the apiserver's own client, and there is room.
    #[must_use]
    pub fn admit(self: &Arc<Self>, greeting: &Greeting, peer: SocketAddr) -> Option<Place> {
        // Most clients do not even spell that name: then nothing is parsed.
        memmem::find(greeting.bytes(), NAME.as_bytes())?;
        let is_it = greeting.server_name().as_deref() == Some(NAME) && ring::is_of_this_host(peer.ip());
        is_it.then(|| self.place()).flatten()
    }

    fn place(self: &Arc<Self>) -> Option<Place> {
        let one_more = |open| (open < RELAYS_MAX).then_some(open + 1);
        if self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
            self.crowded.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.relayed.fetch_add(1, Ordering::Relaxed);
        Some(Place(Arc::clone(self)))
    }

    /// What was counted.
    #[must_use]
    pub fn look(&self) -> Relayed {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Relayed {
            open: read(&self.open),
            relayed: read(&self.relayed),
            crowded: read(&self.crowded),
            failed: read(&self.failed),
        }
    }

    /// The first apiserver that takes a connection.
    async fn connect(&self) -> Option<Stream> {
        for address in &self.apiservers {
            let connecting = ring::connect_by(*address, Some(&self.passage));
            match ring::within(CONNECT_TIMEOUT, connecting).await {
                Some(Ok(stream)) => return Some(stream),
                Some(Err(error)) => {
                    tracing::debug!(%address, %error, "the apiserver's own client cannot be relayed");
                }
                None => tracing::debug!(%address, "the apiserver's own client cannot be relayed: time-out"),
            }
        }
        None
    }
}

// === impl Place ===

impl Place {
    /// Relays until both sides have ended, or one is broken; what the client has said already goes first.
    pub async fn relay(self, mut client: Stream, greeting: Greeting) {
        let Some(mut apiserver) = self.0.connect().await else {
            self.0.failed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        apiserver.put(greeting.bytes());
        drop(greeting);
        let relayed =
            copy_bidirectional_with_sizes(&mut client, &mut apiserver, BUFFER_BYTES, BUFFER_BYTES).await;
        if let Err(error) = relayed {
            tracing::debug!(%error, "a connection of the apiserver's own client broke");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Anywhere;

    impl Passage for Anywhere {
        fn leads_to(&self, _address: SocketAddr) -> bool {
            false
        }

        fn announce(&self, _from: SocketAddr) -> std::io::Result<u64> {
            Ok(0)
        }

        fn over(&self, _from: SocketAddr, _number: u64) {}
    }

    /// A client that greets a server by a name, on a listener of ours.
    fn greet_by(name: &'static str, to: SocketAddr) -> std::thread::JoinHandle<std::io::Result<()>> {
        std::thread::spawn(move || {
            use std::io::Write as _;
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let config = rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth();
            let name = rustls_pki_types::ServerName::try_from(name).unwrap();
            let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
            let mut stream = std::net::TcpStream::connect(to)?;
            client.write_tls(&mut stream)?;
            stream.flush()?;
            let mut answer = [0; 5];
            std::io::Read::read_exact(&mut stream, &mut answer)?;
            assert_eq!(&answer, b"hello", "the apiserver's answer, as it is");
            Ok(())
        })
    }

    #[test]
    fn the_apiservers_own_client_is_relayed_with_its_first_word() {
        ring::run(async {
            let bind = || ring::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let (usher, apiserver) = (bind(), bind());
            let addresses = [&usher, &apiserver].map(|socket| socket.local_addr().unwrap());
            let (usher, apiserver) =
                (ring::Listener::new(usher).unwrap(), ring::Listener::new(apiserver).unwrap());
            let relays = Relays::new(vec![addresses[1]], Arc::new(Anywhere));
            let client = greet_by(NAME, addresses[0]);
            let (stream, peer) = usher.accept().await.unwrap();
            let greeting = crate::tls::greet(&stream).await.unwrap();
            let said = greeting.bytes().to_vec();
            let far: SocketAddr = "192.0.2.1:40000".parse().unwrap();
            assert!(relays.admit(&greeting, far).is_none(), "not from this host");
            let place = relays.admit(&greeting, peer).unwrap();
            assert_eq!(relays.look(), Relayed { open: 1, relayed: 1, ..Relayed::default() });
            ring::spawn(place.relay(stream, greeting));
            let (behind, _) = apiserver.accept().await.unwrap();
            let mut heard = Vec::new();
            while heard.len() < said.len() {
                heard.extend_from_slice(&std::future::poll_fn(|cx| behind.poll_recv(cx)).await.unwrap());
            }
            assert_eq!(heard, said);
            behind.put(b"hello");
            let _ = std::future::poll_fn(|cx| behind.poll_hangup(cx)).await;
            drop(behind);
            while relays.look().open > 0 {
                ring::sleep_until(ring::now() + usher_flowcontrol::units::Nanos::from_millis(1)).await;
            }
            client.join().unwrap().unwrap();
        })
        .unwrap();
    }

    #[test]
    fn others_are_not_and_there_is_a_limit() {
        ring::run(async {
            let usher = ring::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let address = usher.local_addr().unwrap();
            let usher = ring::Listener::new(usher).unwrap();
            let relays = Relays::new(Vec::new(), Arc::new(Anywhere));
            for name in ["kubernetes.default", "not.apiserver-loopback-client"] {
                let client = greet_by(name, address);
                let (stream, peer) = usher.accept().await.unwrap();
                let greeting = crate::tls::greet(&stream).await.unwrap();
                assert!(relays.admit(&greeting, peer).is_none(), "{name}");
                drop(stream);
                while !client.is_finished() {
                    ring::sleep_until(ring::now() + usher_flowcontrol::units::Nanos::from_millis(1)).await;
                }
                client.join().unwrap().unwrap_err();
            }
            let places: Vec<_> = (0..RELAYS_MAX).map(|_| relays.place().unwrap()).collect();
            assert!(relays.place().is_none());
            drop(places);
            assert_eq!(relays.look().open, 0);
            assert_eq!((relays.look().relayed, relays.look().crowded), (RELAYS_MAX, 1));
        })
        .unwrap();
    }
}
