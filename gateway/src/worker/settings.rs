//! What a worker is told when it starts.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use usher_flowcontrol::units::Seats;
use usher_shards::Shared;

use super::Bells;
use crate::http1::Speaker;
use crate::identity::Authenticator;
use crate::observe::hdr;
use crate::ring;
use crate::steering::Line;
use crate::takeover::Relays;
use crate::tls;
use crate::upstream;

use super::common::Common;
use super::legacy::Legacy;

/// Everything a worker starts with. What may change later comes as a [`super::Command`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the thread, and of the worker in the log.
    pub name: String,
    /// Its place among the workers, from 0.
    pub index: usize,
    /// What it shares with them.
    pub common: Arc<Common>,
    /// Where it says how it is, for those who send connections.
    pub line: Line,
    /// Where it leaves what it has counted when it ends.
    pub legacy: Arc<Mutex<Legacy>>,
    /// The core to stay on; `None`: wherever the kernel likes.
    pub core: Option<core_affinity::CoreId>,
    /// How its I/O is done.
    pub io: ring::Settings,
    /// Where clients come in: see [`crate::ring::bind`].
    pub listeners: Vec<Listen>,
    /// Who is asking.
    pub authenticator: Arc<Authenticator>,
    /// Who speaks HTTP/1.1 to clients.
    pub http1: Speaker,
    /// The apiservers.
    pub upstream: upstream::Settings,
    /// Where the apiserver's own client goes, if its port is taken over.
    pub relays: Option<Arc<Relays>>,
    /// Who is admitted.
    pub admission: AdmissionSettings,
    /// What clients may take up.
    pub limits: Limits,
    /// `--request-timeout`: the time of a request that is not long-running.
    pub request_timeout: Duration,
    /// How long a watch must be silent after its head to count as initialised, where it did not ask for the
    /// bookmark that says so. The events that a watch begins with come in one burst from memory.
    pub watch_quiet: Duration,
    /// A watch is taken as initialised after that, whatever it does.
    pub watch_initialised_max: Duration,
    /// Where its histograms go; `None`: it keeps none.
    pub hdr: Option<hdr::Feed>,
    /// Whether the apiserver answers lists of the newest state out of its cache (etcd 3.4.31, 3.5.13 and
    /// later): lists are cheaper then.
    pub consistent_reads: bool,
}

/// A socket that listens.
#[derive(Clone, Debug)]
pub struct Listen {
    /// Bound and listening. Whoever holds it keeps the connections that wait in the kernel, if the worker dies.
    pub socket: Arc<TcpListener>,
    /// TLS; `None`: plain HTTP.
    pub tls: Option<Arc<tls::Server>>,
}

/// Who is admitted.
#[derive(Clone, Debug)]
pub enum AdmissionSettings {
    /// API Priority and Fairness.
    FlowControl {
        /// `--max-requests-inflight` and `--max-mutating-requests-inflight` together.
        server_limit: Seats,
        /// With whom the levels are shared; `None`: the worker is alone.
        together: Option<Together>,
    },
    /// `--enable-priority-and-fairness=false`: two limits, 0 for none.
    InFlight {
        /// `--max-requests-inflight`.
        reading_max: usize,
        /// `--max-mutating-requests-inflight`.
        writing_max: usize,
    },
}

/// Levels that workers share. The objects that a worker is told come with its parts of them.
#[derive(Clone, Debug)]
pub struct Together {
    /// What they share.
    pub shared: Shared,
    /// How they wake each other.
    pub bells: Bells,
}

/// What clients may take up. Every limit has a default with a reason. Those of connections, waiting requests, bytes ahead,
/// half-done handshakes and stalled answers are the process's: workers count together ([`Common`]).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections. With more, nobody is accepted until one ends: the kernel's backlog waits. A cluster of
    /// 5 000 nodes has some 15 000 (kubelet, proxy, agents).
    pub connections: usize,
    /// TLS handshakes that we have answered once and that are not complete. With more, the oldest goes. A core
    /// does some thousands a second and a client takes a round trip to go on, so even in a storm of honest ones some
    /// hundreds are half done; each holds 10 to 100 KiB.
    pub handshakes: usize,
    /// From accept to the end of the handshake.
    pub handshake_timeout: Duration,
    /// From a connection's beginning, or a request's first byte, to the end of its header. kube-apiserver: 32 s.
    pub header_timeout: Duration,
    /// How long a request that has its seats may wait for its client's body, all pauses together; every 500 bytes
    /// earn another second. kube-apiserver has only the request's deadline, a minute, for which a trickle holds its
    /// seats. Clients have the body ready when they ask.
    pub body_timeout: Duration,
    /// A connection without requests. kube-apiserver: 90 s.
    pub idle_timeout: Duration,
    /// Bytes of a request's header. kube-apiserver's (Go's) default.
    pub header_bytes: usize,
    /// Header lines of a request. Groups of a front proxy are a line each.
    pub header_lines: usize,
    /// Requests at once on an HTTP/2 connection. kube-apiserver's default.
    pub streams: u32,
    /// Bytes of a request's body that are taken before anybody asks for them. kube-apiserver: 256 KiB.
    pub body_bytes: u32,
    /// The same, for all HTTP/2 connections together: promised to clients as windows, see [`super::ahead`]. Enough for
    /// some hundred busy controllers at full speed. (Over HTTP/1.1 nothing is read of a request that waits.)
    pub body_bytes_total: u64,
    /// How long, all in all, a client may keep an answer waiting before it is stalled: see [`super::readers`]. A large
    /// list over a bad link takes some seconds; a pause of garbage collection or a lost packet less.
    pub slow_reader_grace: Duration,
    /// Stalled answers. kube-apiserver keeps what it has left of each: about as many as it has seats by default.
    pub stalled_streams: usize,
    /// Bytes held for stalled answers. What h2 holds of one (256 KiB) for half of them.
    pub stalled_bytes: u64,
    /// Requests that wait for seats, over all levels. The levels have their own limits; this one is for the
    /// memory of a worker whose configuration is careless.
    pub waiting: usize,
    /// Points that a connection's glitches may add up to, in ten seconds; 0: it is never cut. 1 000 cancelled
    /// requests at once and 100 a second ever after are within it, more than any client-go does with its own limit
    /// on queries.
    pub glitches: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            handshakes: 1024,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(32),
            body_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(90),
            header_bytes: 1 << 20,
            header_lines: 256,
            streams: 100,
            body_bytes: 256 * 1024,
            body_bytes_total: 256 << 20,
            slow_reader_grace: Duration::from_secs(5),
            stalled_streams: 512,
            stalled_bytes: 64 << 20,
            waiting: 20_000,
            glitches: 10_000,
        }
    }
}

impl Settings {
    /// The defaults around what has none.
    #[must_use]
    pub fn new(
        listeners: Vec<Listen>,
        authenticator: Arc<Authenticator>,
        upstream: upstream::Settings,
        admission: AdmissionSettings,
    ) -> Self {
        Self {
            name: "worker-0".to_owned(),
            index: 0,
            common: Common::new(1),
            line: Line::default(),
            legacy: Arc::default(),
            core: None,
            io: ring::Settings::default(),
            listeners,
            authenticator,
            http1: Speaker::default(),
            upstream,
            relays: None,
            admission,
            limits: Limits::default(),
            request_timeout: Duration::from_secs(60),
            watch_quiet: Duration::from_millis(50),
            watch_initialised_max: Duration::from_secs(10),
            hdr: None,
            consistent_reads: true,
        }
    }
}
