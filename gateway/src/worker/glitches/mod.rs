//! What a connection does that honest clients do seldom or never, added up: its score. Past `--max-glitches` it is
//! cut, as HAProxy does with `tune.h2.fe.glitches-threshold`.
//!
//! Every kind of trouble is a [`Glitch`] with a weight. A connection's score leaks: at the limit of 10 000 points it
//! may do 10 000 points of mischief at once, and 1 000 a second for as long as it likes. What is below that costs us
//! less than the requests that it could send instead; what is above is an attack, or a client that is broken.
//!
//! [`judge`] says who holds which attack over HTTP/2: h2's own limits, the score, or time.
//!
//! Whoever sees something calls [`Glitches::note`]; whoever owns the connection asks [`Glitches::is_over`] in its
//! turn and ends it. Nothing here allocates, and nothing is kept of a connection that is gone: that a peer comes back
//! is left to the limits on connections and handshakes.

mod blame;
mod frames;
mod judge;
mod lines;
mod watched;

pub(super) use watched::Watched;

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use usher_flowcontrol::units::Nanos;

use crate::{ring, tls};

macro_rules! glitches {
    ($($(#[doc = $doc:literal])+ $glitch:ident = $name:literal, $weight:literal;)+) => {
        /// A kind of trouble. Its doc says why it weighs what it does, in points of `--max-glitches`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Glitch { $($(#[doc = $doc])+ $glitch,)+ }

        impl Glitch {
            /// Every kind.
            pub const ALL: [Self; [$($weight),+].len()] = [$(Self::$glitch),+];

            /// As metrics and log lines call it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$glitch => $name,)+ }
            }

            /// Points.
            const fn weight(self) -> i64 {
                match self { $(Self::$glitch => $weight,)+ }
            }
        }
    };
}

glitches! {
    /// A TLS handshake failed. Ends its connection anyway: counted, not judged.
    HandshakeFailed = "handshake-failed", 0;
    /// A TLS handshake took too long. Ends its connection anyway.
    HandshakeTimeout = "handshake-time-out", 0;
    /// TLS 1.3 KeyUpdate: some microseconds of key derivation for 27 bytes. Honest peers send one every 2^24 records.
    KeyUpdate = "key-update", 100;
    /// A TLS record without a byte. Padding against traffic analysis looks like that, and nobody is known to do it.
    EmptyRecord = "empty-record", 10;
    /// A TLS warning that ends nothing. More than four end the connection anyway.
    TlsWarning = "tls-warning", 100;
    /// A TLS record that is not the client's, or that may not come now: renegotiation, for one. Ends the connection
    /// anyway.
    TlsFault = "tls-fault", 0;
    /// A request that is no HTTP/1.1. Ends its connection anyway.
    BadSyntax = "bad-syntax", 0;
    /// A header that took longer than `--header-timeout`. Ends its connection anyway.
    SlowHeader = "slow-header", 0;
    /// A body that came slower than `--request-body-timeout` allows. Ends its request; ten at once end the connection.
    SlowBody = "slow-body", 1000;
    /// A chunk whose extension is longer than any that means something. Nobody has a use for one.
    ChunkExtension = "chunk-extension", 100;
    /// Trailers larger than a gRPC client's. kube-apiserver reads none at all.
    Trailers = "trailers", 1000;
    /// A request sent before the answers to many others. HTTP/1.1 clients of Kubernetes do not pipeline.
    Pipelining = "pipelining", 10;
    /// RST_STREAM: CVE-2023-44487, rapid reset. Clients cancel watches and lists that took too long, all of a
    /// connection's at once when a controller restarts: 1 000 in a burst, 100 a second for ever.
    Reset = "reset", 10;
    /// CONTINUATION that is nearly empty and not the last: CVE-2024-27316 and its kin. Honest ones are full.
    Continuation = "continuation", 200;
    /// PING that measures nothing, because we have sent nothing since the last: CVE-2019-9512. Keep-alives come
    /// every some seconds.
    Ping = "ping", 10;
    /// SETTINGS after the first: CVE-2019-9515. Clients that tune their windows send some at the start.
    Settings = "settings", 50;
    /// PRIORITY and PRIORITY_UPDATE: CVE-2019-9513. A browser sends one or two a request; we ignore them.
    Priority = "priority", 2;
    /// HEADERS beyond what fits into the time that our SETTINGS take to be acknowledged: until then the HTTP/2 library
    /// holds the client to no limit of ours.
    Unsettled = "unsettled", 1000;
    /// An answer to a PING that nobody sent. No client does that; the HTTP/2 library logs each.
    UnaskedAck = "unasked-ack", 1000;
    /// A frame of a type that we have no use for. Browsers send one now and then, so that servers stay tolerant.
    UselessFrame = "useless-frame", 10;
    /// DATA without a byte that does not end its stream: CVE-2019-9518.
    EmptyData = "empty-data", 200;
    /// DATA of a few bytes that does not end its stream. A body written in little pieces has some thousands.
    TinyData = "tiny-data", 1;
    /// WINDOW_UPDATE for which nothing was sent: CVE-2019-9511's tiny increments, and plain floods.
    WindowUpdate = "window-update", 2;
    /// SETTINGS that shrinks the window of streams after the first: CVE-2019-9517. It holds back what is on its way.
    ShrunkWindow = "shrunk-window", 1000;
    /// RST_STREAM that the client made us send: CVE-2025-8671, MadeYouReset. Each is an error in its protocol.
    ProvokedReset = "provoked-reset", 100;
    /// A stream beyond the limit on streams. Before it knows the limit, a client may open a hundred too many.
    RefusedStream = "refused-stream", 10;
    /// A header list beyond the limit that was announced, or of too many lines: answered with 431. CVE-2016-6581.
    HeaderList = "header-list", 100;
    /// A thousand header lines more than `--max-header-lines`, of one request: a byte each, a hundred in memory.
    HeaderLines = "header-lines", 500;
    /// A request that was answered before it had ended. So are those with a body that are turned away.
    Unfinished = "unfinished", 2;
    /// An error of the whole HTTP/2 connection. Ends it anyway.
    ConnectionError = "connection-error", 0;
    /// One of the HTTP/2 library's own limits is past, before ours was. Ends the connection anyway.
    LibraryLimit = "library-limit", 0;
}

/// The time in which a full score is empty again.
const WINDOW: Nanos = Nanos::from_millis(10_000);
/// A worker names one connection that it cuts in so long: an attack must not fill the log.
const WARN_INTERVAL: Nanos = Nanos::from_millis(10_000);

/// The score of one connection.
#[derive(Debug)]
pub struct Glitches {
    tally: Rc<Tally>,
    peer: SocketAddr,
    /// When it will be empty if nothing more happens. In the past: it is.
    empty_at: Cell<Nanos>,
    over: Cell<bool>,
}

/// What a worker's connections have done together.
#[derive(Debug)]
pub(super) struct Tally {
    /// What a point is worth; `None`: nobody is cut.
    point: Option<Nanos>,
    counts: Cell<Glitched>,
    warned: Cell<Option<Nanos>>,
    unnamed: Cell<u64>,
}

/// Counts of glitches, and of connections cut for them, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Glitched {
    glitches: [u64; Glitch::ALL.len()],
    cuts: [u64; Glitch::ALL.len()],
}

// === impl Glitches ===

impl Glitches {
    /// Nothing yet.
    pub(super) fn new(tally: &Rc<Tally>, peer: SocketAddr) -> Self {
        Self { tally: Rc::clone(tally), peer, empty_at: Cell::new(Nanos(i64::MIN)), over: Cell::new(false) }
    }

    /// It has done that.
    pub fn note(&self, glitch: Glitch) {
        self.tally.count(|counts| counts.glitches[glitch as usize] += 1);
        let Some(point) = self.tally.point else { return };
        let now = ring::now();
        let worth = Nanos(point.0.saturating_mul(glitch.weight()));
        let empty_at = Nanos(self.empty_at.get().max(now).0.saturating_add(worth.0));
        self.empty_at.set(empty_at);
        if empty_at > now + WINDOW && !self.over.replace(true) {
            self.tally.cut(glitch, self.peer, now);
        }
    }

    /// It has done that, and is cut for it whatever its score.
    pub fn note_last(&self, glitch: Glitch) {
        self.note(glitch);
        if !self.over.replace(true) {
            self.tally.cut(glitch, self.peer, ring::now());
        }
    }

    /// Whether it is to be cut. Once over, for ever over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.get()
    }
}

impl tls::Observer for Glitches {
    fn saw(&self, trouble: tls::Trouble) -> bool {
        self.note(match trouble {
            tls::Trouble::KeyUpdate => Glitch::KeyUpdate,
            tls::Trouble::EmptyRecord => Glitch::EmptyRecord,
            tls::Trouble::Warning => Glitch::TlsWarning,
            tls::Trouble::Fault => Glitch::TlsFault,
        });
        !self.is_over()
    }
}

// === impl Tally ===

impl Tally {
    /// Connections are cut past so many points; 0: never.
    pub(super) fn new(glitches_max: u32) -> Rc<Self> {
        let point = (glitches_max > 0).then(|| Nanos((WINDOW.0 / i64::from(glitches_max)).max(1)));
        Rc::new(Self { point, counts: Cell::default(), warned: Cell::default(), unnamed: Cell::default() })
    }

    /// A copy.
    pub(super) fn copy(&self) -> Glitched {
        self.counts.get()
    }

    fn count(&self, add: impl FnOnce(&mut Glitched)) {
        let mut counts = self.counts.get();
        add(&mut counts);
        self.counts.set(counts);
    }

    fn cut(&self, glitch: Glitch, peer: SocketAddr, now: Nanos) {
        self.count(|counts| counts.cuts[glitch as usize] += 1);
        let kind = glitch.name();
        if self.warned.get().is_some_and(|warned| now < warned + WARN_INTERVAL) {
            self.unnamed.set(self.unnamed.get() + 1);
            tracing::debug!(%peer, kind, "a connection is cut for its glitches");
            return;
        }
        self.warned.set(Some(now));
        let unnamed = self.unnamed.take();
        tracing::warn!(%peer, kind, unnamed, "a connection is cut for its glitches (--max-glitches)");
    }
}

// === impl Glitched ===

impl Glitched {
    /// With another worker's.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.glitches.iter_mut().zip(other.glitches) {
            *sum += more;
        }
        for (sum, more) in self.cuts.iter_mut().zip(other.cuts) {
            *sum += more;
        }
    }

    /// Every kind with how often it happened, and how many connections it was the last straw for.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u64, u64)> + '_ {
        Glitch::ALL
            .into_iter()
            .map(|glitch| (glitch.name(), self.glitches[glitch as usize], self.cuts[glitch as usize]))
    }
}

#[cfg(test)]
mod tests;
