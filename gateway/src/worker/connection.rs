//! One client's connection, from accept to its end: handshake, choice of protocol, requests, time-outs, drain.

mod http2;
mod own;
mod pulse;
mod stream;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use http::Request;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use usher_flowcontrol::units::Nanos;

use super::familiar::Familiar;
use super::glitches::{Glitch, Glitches};
use super::host::Hosted;
use super::quiet::{Quiet, TooQuiet};
use super::roster::Member;
use super::{Worker, request, upgrade};
use crate::http1::Speaker;
use crate::identity;
use crate::ring::{self, Stream};
use crate::tls;
use crate::upstream::Upload;
use crate::wire::Wire;

/// A client, as long as its connection lasts.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) worker: Rc<Worker>,
    pub(super) who: identity::Connection,
    /// What it did that honest ones do not.
    pub(super) glitches: Rc<Glitches>,
    /// What its requests have in common.
    pub(super) familiar: RefCell<Familiar>,
    /// The apiserver's side of a switched connection, until the 101 is written.
    pub(super) switched: RefCell<Option<Wire>>,
    /// Its bytes, if it has one request at a time.
    pub(super) stream: Option<Stream>,
    /// Its place among the open connections.
    member: Member,
    /// Requests whose answer is not complete.
    busy: Cell<usize>,
    /// It has sent a request.
    asked: Cell<bool>,
}

/// A request whose answer is not complete.
#[derive(Debug)]
pub(super) struct Busy(Rc<Client>);

/// How far a request has come. Dropped before it is answered, its client has left.
#[derive(Debug)]
pub(super) struct Progress {
    busy: Busy,
    stage: Cell<Stage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Arriving,
    Waiting,
    Executing,
    Answered,
}

/// How an HTTP/2 connection begins; no HTTP/1 request does.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// While a worker drains, a client whose answer began before, without `Connection: close`, may use its connection
/// once more: it has sent the next request before it can see that we close. That one is answered, as the last.
const DRAIN_LINGER: Nanos = Nanos::from_millis(500);
/// For what a closed connection's client has not read yet: closing with unread bytes of its own would
/// make the kernel throw our last answer away.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// Bytes of its own that a closed connection's client may still send.
const CLOSE_BYTES: u64 = 256 * 1024;

/// What HTTP without TLS hears on a port with TLS: Go's words.
const NOT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Serves a connection to its end.
pub(super) async fn serve(
    worker: Rc<Worker>,
    stream: Stream,
    peer: SocketAddr,
    tls: Option<Arc<tls::Server>>,
) {
    let drain = worker.drain.lookout();
    let glitches = Rc::new(Glitches::new(&worker.glitches, peer));
    let member = worker.roster.join();
    let begun = tokio::select! {
        biased;
        begun = Box::pin(begin(&worker, &glitches, &member, stream, peer, tls.as_deref())) => begun,
        () = async {
            drain.wait().await;
            if let Some(linger) = worker.linger.get() {
                ring::sleep_until(ring::now() + linger).await;
            }
        } => return, // nothing has been asked yet; the apiserver's own client comes anew
        () = member.told() => return,
    };
    let Some((mut wire, is_http2)) = begun else { return };
    let who = worker.settings.authenticator.connection(peer, wire.peer_certificates(), ring::wall());
    wire.forget_peer_certificates();
    let client = Rc::new(Client {
        worker,
        who,
        glitches,
        familiar: RefCell::default(),
        switched: RefCell::default(),
        stream: (!is_http2).then(|| wire.stream().clone()),
        member,
        busy: Cell::new(0),
        asked: Cell::new(false),
    });
    match client.worker.settings.http1 {
        _ if is_http2 => http2::serve(&client, wire).await,
        Speaker::Own => own::serve(&client, wire).await,
        Speaker::Hyper => serve_http1(&client, wire).await,
    }
}

/// Bytes in the clear, and whether they are HTTP/2's.
async fn begin(
    worker: &Worker,
    glitches: &Rc<Glitches>,
    member: &Member,
    stream: Stream,
    peer: SocketAddr,
    tls: Option<&tls::Server>,
) -> Option<(Wire, bool)> {
    let Some(tls) = tls else { return sniff(worker, glitches, Wire::plain(stream)).await };
    let wire = handshake(worker, glitches, member, stream, peer, tls).await?;
    let is_http2 = wire.protocol() == Some(b"h2");
    Some((wire, is_http2))
}

/// TLS, within its time, when it is its turn. An apiserver's own client, whose port was taken over, is relayed to its
/// end.
async fn handshake(
    worker: &Worker,
    glitches: &Rc<Glitches>,
    member: &Member,
    stream: Stream,
    peer: SocketAddr,
    server: &tls::Server,
) -> Option<Wire> {
    let observer = Rc::clone(glitches) as Rc<dyn tls::Observer>;
    let relays = worker.settings.relays.as_ref();
    let accepting = async {
        let greeting = tls::greet(&stream).await?;
        match relays.and_then(|relays| relays.admit(&greeting, peer)) {
            Some(place) => Ok(Err((place, greeting))),
            None => {
                let accepting =
                    tls::accept(stream.clone(), greeting, server, &worker.handshakes, Some(observer));
                accepting.await.map(Ok)
            }
        }
    };
    match ring::within(worker.settings.limits.handshake_timeout, Box::pin(accepting)).await {
        Some(Ok(Ok(stream))) => return Some(Wire::tls(stream)),
        Some(Ok(Err((place, greeting)))) => {
            member.busy(); // as far as can be seen: not to be sent away as idle when memory is tight
            Box::pin(place.relay(stream, greeting)).await;
        }
        Some(Err(failed)) => {
            worker.counters.handshake_failed(failed.reason());
            glitches.note(Glitch::HandshakeFailed);
            tracing::debug!(worker = worker.settings.name, %failed, "a TLS handshake failed");
            if matches!(failed, tls::Failed::PlainHttp) {
                stream.put(NOT_TLS);
                close(Wire::plain(stream)).await;
            }
        }
        None => {
            worker.counters.handshakes_timed_out.add();
            glitches.note(Glitch::HandshakeTimeout);
        }
    }
    None
}

/// Plain HTTP: whether it begins like HTTP/2.
async fn sniff(worker: &Worker, glitches: &Glitches, mut wire: Wire) -> Option<(Wire, bool)> {
    let mut read = BytesMut::with_capacity(PREFACE.len());
    let reading = async {
        while read.len() < PREFACE.len() && PREFACE.starts_with(&read) {
            let missing = (PREFACE.len() - read.len()) as u64;
            if (&mut wire).take(missing).read_buf(&mut read).await.ok()? == 0 {
                return (!read.is_empty()).then_some(());
            }
        }
        Some(())
    };
    match ring::within(worker.settings.limits.header_timeout, reading).await {
        Some(read_something) => read_something?,
        None => {
            TooQuiet::Header.count(worker, glitches);
            return None;
        }
    }
    let is_http2 = read == PREFACE;
    Some((wire.unread(read.freeze()), is_http2))
}

async fn serve_http1(client: &Rc<Client>, wire: Wire) {
    let worker = &client.worker;
    let limits = &worker.settings.limits;
    let stream = wire.stream().clone();
    let of_request = Rc::clone(client);
    let service = service_fn(move |request: Request<_>| {
        let answer = request::serve(Rc::clone(&of_request), Box::new(request.map(Upload::new)));
        Box::pin(async { Ok::<_, Infallible>(*answer.await) })
    });
    let mut connection = http1::Builder::new()
        .max_headers(limits.header_lines)
        .max_header_size(limits.header_bytes)
        .header_read_timeout(None) // ours tells idle from slow
        .auto_date_header(false)
        .title_case_headers(true) // as Go spells them
        .serve_connection(TokioIo::new(wire), service);
    let drain = worker.drain.lookout();
    let (mut last, mut quiet) = (Last::default(), Quiet::new(limits));
    let polled = poll_fn(|cx| {
        loop {
            if let Poll::Ready(done) = connection.poll_without_shutdown(cx) {
                return Poll::Ready(Ended::ByItself(done));
            }
            if drain.poll(cx).is_pending() {
                break;
            }
            if last.poll(cx, client).is_pending() {
                break;
            }
            if !client.asked.get() {
                return Poll::Ready(Ended::Drained); // hyper would wait for a first request
            }
            Pin::new(&mut connection).graceful_shutdown();
        }
        let busy = client.busy.get() > 0;
        if busy && stream.poll_hangup(cx).is_ready() {
            return Poll::Ready(Ended::HungUp);
        }
        if !busy && client.member.poll_told(cx).is_ready() {
            return Poll::Ready(Ended::Shed);
        }
        quiet.poll(cx, busy, stream.received()).map(Ended::TooQuiet)
    });
    let overrun = Rc::clone(worker);
    let ended = Hosted::new(polled, move || overrun.counters.timed_out_answering.add()).await;
    match ended {
        Some(Ended::ByItself(result)) => {
            note(client, result);
            let parts = connection.into_parts();
            let wire = parts.io.into_inner();
            let switched = client.switched.take();
            match switched {
                Some(apiserver) => {
                    let _in_use = client.busy();
                    upgrade::relay(worker, wire.unread(parts.read_buf), apiserver).await;
                }
                None => close(wire).await,
            }
        }
        Some(Ended::TooQuiet(why)) => why.count(worker, &client.glitches),
        Some(Ended::HungUp | Ended::Drained | Ended::Shed) => {}
        None => stream.abort(), // or the kernel would go on trying to deliver what nobody takes
    }
}

/// The last time for a connection's next request, while the worker drains.
#[derive(Default)]
struct Last {
    alarm: Option<Pin<Box<ring::Sleep>>>,
    over: bool,
}

impl Last {
    /// Ready once, when nothing more is to come.
    fn poll(&mut self, cx: &mut Context<'_>, client: &Client) -> Poll<()> {
        if self.over || client.busy.get() > 0 {
            self.alarm = None;
            return Poll::Pending;
        }
        let linger = match client.worker.linger.get() {
            Some(linger) => linger,
            None if client.asked.get() => DRAIN_LINGER,
            None => Nanos::ZERO,
        };
        if linger > Nanos::ZERO {
            let alarm = self.alarm.get_or_insert_with(|| Box::pin(ring::sleep_until(ring::now() + linger)));
            ready!(alarm.as_mut().poll(cx));
        }
        self.over = true;
        Poll::Ready(())
    }
}

/// How a connection ended.
enum Ended {
    ByItself(hyper::Result<()>),
    HungUp,
    Drained,
    /// Idle when memory was tight.
    Shed,
    TooQuiet(TooQuiet),
}

fn note(client: &Client, result: hyper::Result<()>) {
    let (Err(error), worker) = (result, &client.worker) else { return };
    if error.is_parse() || error.is_parse_too_large() {
        worker.counters.connections_broken.add();
        client.glitches.note(Glitch::BadSyntax);
    }
    tracing::debug!(worker = worker.settings.name, %error, "a connection ended early");
}

/// Closes so that the client gets to read what was written last. Boxed: a connection that lasts keeps no room for its
/// end.
fn close(wire: Wire) -> Pin<Box<impl Future<Output = ()>>> {
    Box::pin(drain(wire))
}

async fn drain(mut wire: Wire) {
    let closing = async {
        if wire.shutdown().await.is_ok() {
            let mut rest = wire.take(CLOSE_BYTES);
            let mut ignored = [0; 4096];
            while rest.read(&mut ignored).await.is_ok_and(|read| read > 0) {}
        }
    };
    ring::within(CLOSE_TIMEOUT, closing).await;
}

// === impl Client ===

impl Client {
    /// A request has arrived.
    pub(super) fn begin(self: &Rc<Self>) -> Progress {
        self.worker.counters.requests.add();
        self.asked.set(true);
        Progress { busy: self.busy(), stage: Cell::new(Stage::Arriving) }
    }

    /// Counts as a request whose answer is not complete.
    pub(super) fn busy(self: &Rc<Self>) -> Busy {
        self.busy.set(self.busy.get() + 1);
        self.member.busy();
        Busy(Rc::clone(self))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.set(self.0.busy.get() - 1);
        if self.0.busy.get() == 0 {
            self.0.member.idle();
        }
    }
}

// === impl Progress ===

impl Progress {
    /// It waits for its seats, or is about to.
    pub(super) fn waits(&self) {
        self.stage.set(Stage::Waiting);
    }

    /// It is on its way to an apiserver.
    pub(super) fn executes(&self) {
        self.stage.set(Stage::Executing);
    }

    /// It is answered.
    pub(super) fn answered(self) {
        self.stage.set(Stage::Answered);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return; // counted by whoever contains it
        }
        let counters = &self.busy.0.worker.counters;
        match self.stage.get() {
            Stage::Waiting => counters.cancelled_waiting.add(),
            Stage::Arriving | Stage::Executing => counters.clients_gone.add(),
            Stage::Answered => {}
        }
    }
}
