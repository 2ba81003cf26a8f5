//! The apiservers: which of them is well, connections to them, one request over one of those.
//!
//! A worker has its own [`Upstream`]; nothing is shared between threads. Short requests and upgrades go over
//! HTTP/1.1, the connection used last first; watches share HTTP/2 connections, with another one when the streams of
//! all are taken ([`Http2`] may say otherwise, and has the figures).
//! Requests that usher vouches for and requests that speak for themselves never share a connection
//! ([`Presents`]). A request goes to another server only if nothing of it was sent to the first.

mod connect;
mod download;
mod fault;
mod health;
mod http1;
mod http2;
mod look;
mod pace;
mod upload;

pub use crate::tls::Presents;
pub use connect::{BadServer, Server};
pub use download::Download;
pub use fault::{Cause, Fault};
pub use http1::Switched;
pub use look::Look;
pub use pace::Pace;
pub use upload::{Upload, UploadFault};

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use http::{Request, Response};
use tokio::sync::Mutex;

use crate::http1::Speaker;
use crate::observe::logging::Seldom;
use crate::ring;
use crate::tls;

/// What an [`Upstream`] is made of.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The apiservers, at least one.
    pub servers: Vec<Server>,
    /// TLS towards them; needed if one of them is `https`.
    pub tls: Option<Arc<tls::Client>>,
    /// By which connections get to a server whose port is taken over; `None`: none is.
    pub passage: Option<Arc<dyn ring::Passage>>,
    /// TCP connect: another server is tried after that. 5 s is some three lost SYNs.
    pub connect_timeout: Duration,
    /// TLS handshake. A busy apiserver takes long; a dead one for ever.
    pub handshake_timeout: Duration,
    /// An unused connection is closed after that. Less than the 90 s after which kube-apiserver closes it, so
    /// that requests do not meet a connection that is being closed.
    pub idle_timeout: Duration,
    /// Unused HTTP/1.1 connections kept for a server and identity. More than are ever needed at once cost
    /// memory on both sides; fewer cost handshakes.
    pub idle_connections_max: usize,
    /// Streams of an HTTP/2 connection, if the server allows as many. kube-apiserver's own limit is 100.
    pub streams_per_connection_max: usize,
    /// Who speaks HTTP/1.1 to them.
    pub http1: Speaker,
    /// What goes over HTTP/2.
    pub http2: Http2,
    /// How often each server's `/readyz` is asked.
    pub health_interval: Duration,
    /// How long `/readyz` may take.
    pub health_timeout: Duration,
}

/// What goes over HTTP/2, to servers that have it (by ALPN: only over TLS).
///
/// Measured in front of kube-apiserver v1.36 over TLS, `all` over `watches`, medians of the ratios within five
/// interleaved rounds on a busy machine: usher's CPU for a request 1.04 (get) and 0.95 (list of 20) for clients over
/// HTTP/1.1, 0.67 and 0.79 for clients over HTTP/2; kube-apiserver's 0.90, 1.06, 0.93, 0.90; throughput 1.11, 1.01,
/// 1.12, 1.52. It is not the default all the same: an apiserver that ends a connection (GOAWAY) leaves requests on it
/// unread, and those with a body cannot be sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Http2 {
    /// Watches, which keep their stream for long: the rest goes over HTTP/1.1 connections of its own.
    Watches,
    /// Watches, and reads of clients that speak HTTP/2 themselves: what an apiserver's GOAWAY leaves unread is sent again.
    #[default]
    Reads,
    /// All requests but those of strangers and those that switch protocols.
    All,
}

/// Which connections a request goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its answer comes soon.
    Short,
    /// So does that, and it may be sent again: a safe one without a body, of a client over HTTP/2.
    Read,
    /// Its answer stays open.
    Watch,
    /// HTTP/1.1 whatever [`Settings::http2`] says: kube-apiserver answers strangers with the end of their connection.
    Stranger,
}

/// All apiservers, as one worker sees them.
#[derive(Debug)]
pub struct Upstream {
    settings: Settings,
    servers: Vec<Rc<Pool>>,
    /// Where the next round begins.
    round: Cell<usize>,
    /// Tells of connections that cannot be made.
    starved: Seldom,
}

/// One apiserver and the connections to it.
#[derive(Debug)]
struct Pool {
    server: Server,
    /// Whether it answered the last question. Believed until shown otherwise.
    healthy: Cell<bool>,
    /// Whether it has answered a question yet.
    answered: Cell<bool>,
    /// It turned out not to speak HTTP/2.
    http1_only: Cell<bool>,
    idle: [RefCell<Vec<http1::Idle>>; 2],
    idle_max: usize,
    /// Who listens to connections that do nothing ([`http1::listen`]).
    listener: RefCell<Waker>,
    /// Connections on which it sent what nobody had asked for.
    unasked: Cell<u64>,
    shared: [RefCell<Vec<Rc<http2::Shared>>>; 2],
    /// HTTP/2 connections are made one after the other: thousands of watches that come at once share some tens, where
    /// each would make one of its own if it did not wait for the one being made.
    making: [Arc<Mutex<()>>; 2],
    /// How many were made.
    made: Cell<u64>,
    /// How many attempts failed. Who waited for one of them need not try again.
    failed: Cell<u64>,
}

/// A request on its way. Boxed: it goes through many hands, and each would have room for it in its future.
pub type Parcel = Box<Request<Upload>>;

/// A request that was not sent, to be sent elsewhere; and why.
type Unsent = (Parcel, Fault);

/// What became of an attempt.
enum Attempt {
    Answered(Box<Response<Download>>),
    /// Nothing of it was sent.
    Unsent(Unsent),
    /// Something may have been.
    Failed(Fault),
}

/// Streams of a connection, whatever they are, beyond which a short request takes another. An apiserver writes all
/// answers of a connection one after the other: with too many they wait for each other, with too few nothing is
/// gained by sharing.
const SHORT_STREAMS_MAX: usize = 16;
/// Attempts beyond one a server: unused connections that turn out to be closed do not count as a server's
/// failure, but they end too.
const ATTEMPTS_EXTRA: usize = 2;

// === impl Http2 ===

impl Http2 {
    fn takes(self, kind: Kind) -> bool {
        match kind {
            Kind::Watch => true,
            Kind::Read => self != Self::Watches,
            Kind::Short => self == Self::All,
            Kind::Stranger => false,
        }
    }
}

// === impl Settings ===

impl Settings {
    /// The defaults, for these servers.
    #[must_use]
    pub fn new(servers: Vec<Server>, tls: Option<Arc<tls::Client>>) -> Self {
        Self {
            servers,
            tls,
            passage: None,
            connect_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            idle_connections_max: 256,
            streams_per_connection_max: 100,
            http1: Speaker::default(),
            http2: Http2::default(),
            health_interval: Duration::from_secs(5),
            health_timeout: Duration::from_secs(5),
        }
    }
}

// === impl Upstream ===

impl Upstream {
    /// Starts watching over the servers, in the ring of this thread, for as long as it is held.
    #[must_use]
    pub fn start(settings: Settings) -> Rc<Self> {
        let pool = |server: &Server| Rc::new(Pool::new(server.clone(), settings.idle_connections_max));
        let servers = settings.servers.iter().map(pool).collect();
        let upstream = Rc::new(Self { settings, servers, round: Cell::new(0), starved: Seldom::default() });
        for pool in &upstream.servers {
            ring::spawn_vital(health::watch_over(Rc::downgrade(&upstream), Rc::downgrade(pool)));
            ring::spawn_vital(http1::listen(Rc::downgrade(pool)));
        }
        ring::spawn_vital(health::sweep(Rc::downgrade(&upstream)));
        upstream
    }

    /// How many servers answered the last question.
    #[must_use]
    pub fn healthy(&self) -> usize {
        self.servers.iter().filter(|pool| pool.healthy.get()).count()
    }

    /// Sends a request and returns the head of the answer. The connection is given back when the answer's body
    /// has been read to its end; dropping it (or this future) earlier ends the work there.
    ///
    /// # Errors
    /// [`Fault`]; none of them is the client's.
    pub async fn send(
        &self,
        presents: Presents,
        kind: Kind,
        mut request: Parcel,
    ) -> Result<Box<Response<Download>>, Fault> {
        let attempts_max = self.servers.len() + ATTEMPTS_EXTRA;
        let mut last = Fault::NoServer;
        for attempt in 0..attempts_max {
            let Some(pool) = self.choose(attempt) else { break };
            match pool.attempt(&self.settings, presents, kind, request, attempt > 0).await {
                Attempt::Answered(response) => return Ok(response),
                Attempt::Failed(fault) => return Err(fault),
                Attempt::Unsent(unsent) => {
                    (request, last) = unsent;
                    if last.is_of_server() {
                        pool.healthy.set(false); // until the next question is answered
                    }
                    if matches!(last, Fault::Starved(_)) && !self.make_room(&last) {
                        break;
                    }
                    let had_their_turn = attempt + 1 >= self.servers.len() && last.is_of_server();
                    if had_their_turn || !last.is_worth_another() {
                        break;
                    }
                }
            }
        }
        Err(last)
    }

    /// Sends a request that asks to switch protocols, over a connection of its own.
    ///
    /// # Errors
    /// [`Fault`]; none of them is the client's.
    pub async fn switch(&self, presents: Presents, request: Request<Upload>) -> Result<Switched, Fault> {
        let mut last = Fault::NoServer;
        for attempt in 0..self.servers.len() {
            let Some(pool) = self.choose(attempt) else { break };
            match connect::connect(&self.settings, &pool.server, presents, tls::Protocol::Http1).await {
                Ok(wire) => return http1::hyper::switch(wire, request).await,
                Err(fault) => {
                    if fault.is_of_server() {
                        pool.healthy.set(false);
                    }
                    if matches!(fault, Fault::Starved(_)) {
                        self.make_room(&fault);
                    }
                    last = fault;
                }
            }
        }
        Err(last)
    }

    /// Descriptors have run out: unused connections are closed. Returns whether there were any, so that another
    /// attempt makes sense.
    fn make_room(&self, fault: &Fault) -> bool {
        if self.starved.is_due(ring::now()) {
            tracing::warn!(%fault, "no connection to an apiserver can be made: requests are answered 503");
        }
        let unused: Vec<_> =
            self.servers.iter().flat_map(|pool| pool.idle.each_ref().map(RefCell::take)).collect();
        unused.iter().any(|unused| !unused.is_empty())
    }

    /// The next server in turn: a healthy one, or any if none is (the last check may be out of date, and
    /// refusing everything is no better than trying).
    fn choose(&self, attempt: usize) -> Option<Rc<Pool>> {
        let count = self.servers.len();
        if attempt == 0 {
            self.round.set(self.round.get().wrapping_add(1));
        }
        let round = self.round.get();
        let in_turn = |offset| self.servers.get((round.wrapping_add(offset)) % count.max(1));
        let healthy = (0..count).filter_map(in_turn).find(|pool| pool.healthy.get());
        healthy.or_else(|| in_turn(attempt)).cloned()
    }
}

// === impl Pool ===

impl Pool {
    fn new(server: Server, idle_max: usize) -> Self {
        Self {
            server,
            idle_max,
            listener: RefCell::new(Waker::noop().clone()),
            unasked: Cell::new(0),
            healthy: Cell::new(true),
            answered: Cell::new(false),
            http1_only: Cell::new(false),
            idle: Default::default(),
            shared: Default::default(),
            making: Default::default(),
            made: Cell::new(0),
            failed: Cell::new(0),
        }
    }

    /// One try, over a connection at hand (unless `fresh`) or a new one. What is rare is boxed: the future of every
    /// request has room for all that may happen to it.
    async fn attempt(
        self: &Rc<Self>,
        settings: &Settings,
        presents: Presents,
        kind: Kind,
        mut request: Parcel,
        fresh: bool,
    ) -> Attempt {
        if settings.http2.takes(kind) && self.server.tls && !self.http1_only.get() {
            let at_hand = if fresh { None } else { self.with_room(settings, presents, kind, 0) };
            let shared = match at_hand {
                Some(shared) => Ok(Some(shared)),
                None => Box::pin(self.shared_connection(settings, presents, kind, fresh)).await,
            };
            match shared {
                Ok(Some(shared)) => return Box::pin(http2::send(shared, &self.server, request)).await,
                Ok(None) => {} // HTTP/1.1 after all
                Err(fault) => return Attempt::Unsent((request, fault)),
            }
        }
        let idle = if fresh { None } else { self.take_idle(presents) };
        let connection = match idle {
            Some(connection) => connection,
            None => match Box::pin(self.connect_http1(settings, presents)).await {
                Ok(connection) => connection,
                Err(fault) => return Attempt::Unsent((request, fault)),
            },
        };
        http1::origin_form(&mut request, &self.server);
        http1::send(connection, request).await
    }

    async fn connect_http1(
        self: &Rc<Self>,
        settings: &Settings,
        presents: Presents,
    ) -> Result<http1::Idle, Fault> {
        let wire = connect::connect(settings, &self.server, presents, tls::Protocol::Http1).await?;
        http1::start(wire, self, presents, settings.http1).await
    }

    /// The unused connection that was used last.
    fn take_idle(&self, presents: Presents) -> Option<http1::Idle> {
        let mut idle = self.idle[lane(presents)].borrow_mut();
        while let Some(mut connection) = idle.pop() {
            if connection.is_ready(self) {
                return Some(connection);
            }
        }
        None
    }

    /// A connection with a stream to spare, made after the first so many.
    fn with_room(
        &self,
        settings: &Settings,
        presents: Presents,
        kind: Kind,
        after: u64,
    ) -> Option<Rc<http2::Shared>> {
        let streams_max = match kind {
            Kind::Watch => settings.streams_per_connection_max,
            Kind::Short | Kind::Read | Kind::Stranger => {
                settings.streams_per_connection_max.min(SHORT_STREAMS_MAX)
            }
        };
        let shared = self.shared[lane(presents)].borrow();
        shared.iter().find(|shared| shared.number > after && shared.has_room(streams_max)).cloned()
    }

    /// A new connection, or one that was made meanwhile; `None` if this server has no HTTP/2.
    async fn shared_connection(
        self: &Rc<Self>,
        settings: &Settings,
        presents: Presents,
        kind: Kind,
        fresh: bool,
    ) -> Result<Option<Rc<http2::Shared>>, Fault> {
        let (made, failed) = (self.made.get(), self.failed.get());
        let turn = Arc::clone(&self.making[lane(presents)]).lock_owned().await;
        if self.http1_only.get() {
            return Ok(None);
        }
        // An apiserver that ends one connection ends all: another try over one of those would fail like the first.
        let after = if fresh { made } else { 0 };
        if let Some(shared) = self.with_room(settings, presents, kind, after) {
            return Ok(Some(shared));
        }
        if self.failed.get() != failed {
            let same = io::Error::other("so did an attempt that this one waited for");
            return Err(Fault::Connect(same));
        }
        let wire = connect::connect(settings, &self.server, presents, tls::Protocol::Http2).await;
        let wire = wire.inspect_err(|_| self.failed.set(self.failed.get() + 1))?;
        self.made.set(self.made.get() + 1);
        if wire.protocol() != Some(b"h2") {
            self.http1_only.set(true);
            return Ok(None);
        }
        let shared = http2::start(wire, self, presents, settings.streams_per_connection_max).await?;
        let told = shared.clone();
        ring::spawn(async move {
            told.told().await;
            drop(turn); // those who wait know how many of them fit
        });
        Ok(Some(shared))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.listener.get_mut().wake_by_ref(); // to its end
    }
}

/// Index of the connections of requests that go with, or without, the front-proxy certificate.
fn lane(presents: Presents) -> usize {
    match presents {
        Presents::Nothing => 0,
        Presents::FrontProxy => 1,
    }
}

#[cfg(test)]
mod tests;
