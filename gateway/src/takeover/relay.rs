//! kube-apiserver's own client.
//!
//! kube-apiserver is a client of itself: its controllers and post-start hooks connect to its own port over loopback, and
//! it is not ready before they are through. They expect a certificate that only the apiserver has, made when it starts, and ask for
//! it by a name of its own (SNI `apiserver-loopback-client`, `LoopbackClientServerNameOverride` in k8s.io/apiserver).
//! Under takeover they come to usher, which cannot answer them: such a connection, if it comes from an address of this
//! host, is relayed to the apiserver byte by byte, from its first one on. TLS stays between the two.
//!
//! Any process of this host can ask by that name and so speak to the apiserver past usher; it gains no right by that, only
//! a way without flow control. How many there can be is limited, and whoever comes gets a place: if there is none, the
//! connection on which the apiserver has been silent for the longest gives its own up. So nobody keeps the apiserver from
//! getting ready by holding places and saying nothing. A limit on silence instead would be a guess at what is idle (the
//! real client asks an idle connection for a sign of life after 30 s, or never: `HTTP2_READ_IDLE_TIMEOUT_SECONDS` in
//! k8s.io/apimachinery), and who comes back at once would have the place again. Silence is the apiserver's, not the
//! client's: anybody can send bytes, the apiserver answers only who knows what to say.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use memchr::memmem;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::sync::oneshot;

use crate::ring::{self, Passage, Stream};
use crate::tls::Greeting;

/// Whom the apiserver's own client asks for.
const NAME: &str = "apiserver-loopback-client";
/// Relayed connections at a time, of all workers. The client shares one connection, over HTTP/2, for each set of
/// credentials and settings: some few.
const RELAYS_MAX: usize = 64;
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
    /// Who has a place, in the order of coming; never more than [`RELAYS_MAX`]. Locked for a look at them, when one comes
    /// or goes.
    open: Mutex<Vec<Entry>>,
    relayed: AtomicU64,
    displaced: AtomicU64,
    failed: AtomicU64,
}

/// A connection that has a place.
#[derive(Debug)]
struct Entry {
    heard: Heard,
    /// Dropped, it tells the connection that the place is another's.
    _place: oneshot::Sender<()>,
}

/// When the apiserver last said something on a connection, or since when that is waited for, by [`ring::now`].
type Heard = Arc<AtomicI64>;

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relayed {
    /// Open now.
    pub open: u64,
    /// An apiserver took the connection, so far.
    pub relayed: u64,
    /// Ended because another one needed the place.
    pub displaced: u64,
    /// No apiserver took the connection.
    pub failed: u64,
}

/// One that is to be relayed, as long as nobody else needs its place.
#[derive(Debug)]
pub struct Place {
    held: Held,
    lost: oneshot::Receiver<()>,
}

/// Dropped, its place is free.
#[derive(Debug)]
struct Held {
    relays: Arc<Relays>,
    heard: Heard,
}

// === impl Relays ===

impl Relays {
    /// To these apiservers, by that passage.
    #[must_use]
    pub fn new(apiservers: Vec<SocketAddr>, passage: Arc<dyn Passage>) -> Arc<Self> {
        Arc::new(Self {
            apiservers,
            passage,
            open: Mutex::default(),
            relayed: AtomicU64::default(),
            displaced: AtomicU64::default(),
            failed: AtomicU64::default(),
        })
    }

    /// A place, if that is the apiserver's own client.
    #[must_use]
    pub fn admit(self: &Arc<Self>, greeting: &Greeting, peer: SocketAddr) -> Option<Place> {
        // Most clients do not even spell that name: then nothing is parsed.
        memmem::find(greeting.bytes(), NAME.as_bytes())?;
        let is_it = greeting.server_name().as_deref() == Some(NAME) && ring::is_of_this_host(peer.ip());
        is_it.then(|| self.place())
    }

    /// A free one, or that of the connection on which the apiserver has been silent for the longest.
    fn place(self: &Arc<Self>) -> Place {
        let heard: Heard = Arc::new(AtomicI64::new(ring::now().0));
        let (place, lost) = oneshot::channel();
        let mut open = self.open();
        if open.len() >= RELAYS_MAX {
            let silent = open.iter().enumerate().min_by_key(|(_, it)| it.heard.load(Ordering::Relaxed));
            let silent = silent.map_or(0, |(index, _)| index);
            open.remove(silent);
            self.displaced.fetch_add(1, Ordering::Relaxed);
        }
        open.push(Entry { heard: Arc::clone(&heard), _place: place });
        drop(open);
        Place { held: Held { relays: Arc::clone(self), heard }, lost }
    }

    /// What was counted.
    #[must_use]
    pub fn look(&self) -> Relayed {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Relayed {
            open: self.open().len() as u64,
            relayed: read(&self.relayed),
            displaced: read(&self.displaced),
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

    fn open(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Place ===

impl Place {
    /// Relays until both sides have ended, one is broken, or the place is another's; what the client has said already goes
    /// first.
    pub async fn relay(self, client: Stream, greeting: Greeting) {
        let Self { held, lost } = self;
        tokio::select! {
            biased;
            _ = lost => tracing::debug!("a connection of the apiserver's own client gives way to another one"),
            () = held.relay(client, greeting) => {}
        }
    }
}

impl Held {
    async fn relay(&self, mut client: Stream, greeting: Greeting) {
        let Some(mut apiserver) = self.relays.connect().await else {
            self.relays.failed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.relays.relayed.fetch_add(1, Ordering::Relaxed);
        apiserver.put(greeting.bytes());
        drop(greeting);
        let (source, mut received) = (apiserver.clone(), 0);
        let mut relaying =
            pin!(copy_bidirectional_with_sizes(&mut client, &mut apiserver, BUFFER_BYTES, BUFFER_BYTES));
        let relayed = poll_fn(|cx| {
            let polled = relaying.as_mut().poll(cx);
            if source.received() != received {
                received = source.received();
                self.heard.store(ring::now().0, Ordering::Relaxed);
            }
            polled
        });
        if let Err(error) = relayed.await {
            tracing::debug!(%error, "a connection of the apiserver's own client broke");
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.relays.open().retain(|entry| !Arc::ptr_eq(&entry.heard, &self.heard));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

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

    /// A client's first word to a server of that name.
    fn hello(name: &'static str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let name = rustls_pki_types::ServerName::try_from(name).unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut hello = Vec::new();
        client.write_tls(&mut hello).unwrap();
        hello
    }

    /// A client that greets a server by a name, on a listener of ours.
    fn greet_by(name: &'static str, to: SocketAddr) -> std::thread::JoinHandle<std::io::Result<()>> {
        std::thread::spawn(move || {
            let mut stream = std::net::TcpStream::connect(to)?;
            stream.write_all(&hello(name))?;
            let mut answer = [0; 5];
            stream.read_exact(&mut answer)?;
            assert_eq!(&answer, b"hello", "the apiserver's answer, as it is");
            Ok(())
        })
    }

    /// usher and an apiserver, on listeners of this thread.
    struct World {
        usher: ring::Listener,
        address: SocketAddr,
        apiserver: ring::Listener,
        relays: Arc<Relays>,
    }

    impl World {
        fn new() -> Self {
            let bind = || ring::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let (usher, apiserver) = (bind(), bind());
            let address = usher.local_addr().unwrap();
            let relays = Relays::new(vec![apiserver.local_addr().unwrap()], Arc::new(Anywhere));
            let [usher, apiserver] = [usher, apiserver].map(|it| ring::Listener::new(it).unwrap());
            Self { usher, address, apiserver, relays }
        }

        /// One that has greeted and is relayed: the client's end, and the apiserver's.
        async fn client(&self) -> (std::net::TcpStream, Stream) {
            let mut client = std::net::TcpStream::connect(self.address).unwrap();
            client.write_all(&hello(NAME)).unwrap();
            client.set_nonblocking(true).unwrap();
            let (stream, peer) = self.usher.accept().await.unwrap();
            let greeting = crate::tls::greet(&stream).await.unwrap();
            let place = self.relays.admit(&greeting, peer).unwrap();
            ring::spawn(place.relay(stream, greeting));
            let (behind, _) = self.apiserver.accept().await.unwrap();
            (client, behind)
        }
    }

    /// What comes next on a connection; nothing: its end.
    async fn heard(mut client: &std::net::TcpStream) -> Vec<u8> {
        let mut bytes = [0; 64];
        for _ in 0..MOMENTS_MAX {
            match client.read(&mut bytes) {
                Ok(count) => return bytes[..count].to_vec(),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => moment().await,
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
                    return Vec::new();
                }
            }
        }
        panic!("neither bytes nor an end");
    }

    /// Longer than anything here takes, on a busy machine.
    const MOMENTS_MAX: usize = 30_000;

    async fn moment() {
        ring::sleep_until(ring::now() + usher_flowcontrol::units::Nanos::from_millis(1)).await;
    }

    #[test]
    fn the_apiservers_own_client_is_relayed_with_its_first_word() {
        ring::run(async {
            let World { usher, address, apiserver, relays } = World::new();
            let client = greet_by(NAME, address);
            let (stream, peer) = usher.accept().await.unwrap();
            let greeting = crate::tls::greet(&stream).await.unwrap();
            let said = greeting.bytes().to_vec();
            let far: SocketAddr = "192.0.2.1:40000".parse().unwrap();
            assert!(relays.admit(&greeting, far).is_none(), "not from this host");
            let place = relays.admit(&greeting, peer).unwrap();
            assert_eq!(relays.look(), Relayed { open: 1, ..Relayed::default() });
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
                moment().await;
            }
            client.join().unwrap().unwrap();
            assert_eq!(relays.look(), Relayed { relayed: 1, ..Relayed::default() });
        })
        .unwrap();
    }

    #[test]
    fn others_are_not() {
        ring::run(async {
            let World { usher, address, relays, .. } = World::new();
            for name in ["kubernetes.default", "not.apiserver-loopback-client"] {
                let client = greet_by(name, address);
                let (stream, peer) = usher.accept().await.unwrap();
                let greeting = crate::tls::greet(&stream).await.unwrap();
                assert!(relays.admit(&greeting, peer).is_none(), "{name}");
                drop(stream);
                while !client.is_finished() {
                    moment().await;
                }
                client.join().unwrap().unwrap_err();
            }
            assert_eq!(relays.look(), Relayed::default());
        })
        .unwrap();
    }

    /// Somebody has taken all places and says nothing.
    #[test]
    fn who_comes_gets_the_place_of_the_longest_silent() {
        ring::run(async {
            let world = World::new();
            let mut all = Vec::new();
            for _ in 0..RELAYS_MAX {
                all.push(world.client().await);
            }
            // The oldest is no longer the longest silent once the apiserver has said something to it.
            all[0].1.put(b"event");
            assert_eq!(heard(&all[0].0).await, b"event");
            let (genuine, behind) = world.client().await;
            behind.put(b"hello");
            assert_eq!(heard(&genuine).await, b"hello", "the apiserver's own client gets through");
            assert_eq!(heard(&all[1].0).await, b"", "the second had to go");
            all[0].1.put(b"event");
            assert_eq!(heard(&all[0].0).await, b"event", "the first had not");
            let (open, relayed) = (RELAYS_MAX as u64, RELAYS_MAX as u64 + 1);
            assert_eq!(world.relays.look(), Relayed { open, relayed, displaced: 1, failed: 0 });
            // However many come, there are not more.
            for _ in 0..RELAYS_MAX {
                all.push(world.client().await);
            }
            assert_eq!(world.relays.look().open, open);
            assert_eq!(world.relays.look().displaced, 1 + open);
        })
        .unwrap();
    }

    #[test]
    fn a_place_that_was_lost_frees_no_other() {
        let relays = Relays::new(Vec::new(), Arc::new(Anywhere));
        let mut places: Vec<_> = (0..=RELAYS_MAX).map(|_| relays.place()).collect();
        assert_eq!(relays.look().open, RELAYS_MAX as u64);
        let mut first = places.remove(0);
        assert_eq!(first.lost.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert_eq!(places[0].lost.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        drop(first);
        assert_eq!(relays.look().open, RELAYS_MAX as u64);
        drop(places);
        assert_eq!(relays.look(), Relayed { displaced: 1, ..Relayed::default() });
    }
}
