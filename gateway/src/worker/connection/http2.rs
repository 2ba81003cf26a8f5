//! A client over HTTP/2. h2 does frames, windows and header tables; each request has a task ([`super::stream`]).

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::Reason;
use h2::server::{Builder, Connection, Handshake};
use usher_flowcontrol::units::Nanos;

use super::pulse::Pulse;
use super::{Client, Last, close, stream};
use crate::memory::Rung;
use crate::ring::{self, Stream};
use crate::wire::Wire;
use crate::worker::glitches::Watched;
use crate::worker::quiet::Quiet;

/// Body bytes taken ahead on all streams of a connection together, in streams' worth. Enough for the writes of a
/// busy controller; a hundred would be 25 MB for every connection.
const STREAMS_AHEAD: u32 = 16;
/// Errors of a client's streams that we answer with a reset, until the connection ends ("MadeYouReset", CVE-2025-8671).
/// h2's own default.
const RESETS_OF_OURS_MAX: usize = 1024;
/// After GOAWAY to a connection without requests. A client that keeps it all the same, or does not take the end of
/// an answer, must not keep our memory.
const GOAWAY_TIMEOUT: Nanos = Nanos::from_millis(5_000);

/// How a connection ended.
enum Ended {
    ByItself(Result<(), h2::Error>),
    /// Told to go, it had its time to.
    Left,
    /// For its glitches.
    Cut,
    /// Its client has taken nothing for as long as a request may take: answers that are complete here, and hold nothing
    /// else any more, must not wait for ever (25 MB of them).
    Stuck,
}

/// A connection as h2 sees it.
struct Session {
    client: Rc<Client>,
    stream: Stream,
    state: State,
    /// No new requests are wanted.
    closing: bool,
}

/// How far it has come.
enum State {
    /// Until the client's preface is there.
    Greeting(Handshake<Watched, Bytes>),
    /// The pulse is gone once it has stopped.
    Open(Connection<Watched, Bytes>, Option<Pulse>),
}

/// Serves a connection to its end.
pub(super) async fn serve(client: &Rc<Client>, wire: Wire) {
    let worker = &client.worker;
    let limits = &worker.settings.limits;
    let ahead = limits.body_bytes.saturating_mul(STREAMS_AHEAD);
    let window = worker.ahead.window(ahead, worker.scarcity.is_at(Rung::Bodies));
    let stream = wire.stream().clone();
    let wire = Watched::new(wire, limits.header_lines, &client.glitches);
    let handshake = Builder::new()
        .max_concurrent_streams(limits.streams)
        // What a client may have open it may cancel all at once, before we have looked: Go's clients do when a context
        // ends. h2's own limit of 20 would end all their watches for it; "rapid reset" (CVE-2023-44487) is the score's.
        .max_pending_accept_reset_streams(limits.streams as usize)
        .max_local_error_reset_streams(Some(RESETS_OF_OURS_MAX))
        .max_send_buffer_size(usize::try_from(limits.body_bytes).unwrap_or(usize::MAX))
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .initial_window_size(limits.body_bytes)
        .initial_connection_window_size(window.bytes())
        .handshake(wire.clone());
    let state = State::Greeting(handshake);
    let mut session =
        Box::new(Session { client: Rc::clone(client), stream: stream.clone(), state, closing: false });
    let drain = worker.drain.lookout();
    let mut quiet = Quiet::new(limits);
    let mut last = Last::default();
    // While another process serves, who has just come may ask first: a GOAWAY would cross it.
    let mut is_last = |cx: &mut Context<'_>| {
        client.asked.get() || worker.linger.get().is_none() || last.poll(cx, client).is_ready()
    };
    let mut going: Option<Pin<Box<ring::Sleep>>> = None;
    let ended = poll_fn(|cx| {
        if !session.closing && drain.poll(cx).is_ready() && is_last(cx) {
            session.close();
        }
        let done = session.poll(cx);
        if !session.closing && client.asked.get() && worker.drain.is_raised() {
            cx.waker().wake_by_ref(); // for GOAWAY, after the first request
        }
        if client.glitches.is_over() {
            return Poll::Ready(Ended::Cut);
        }
        if let Poll::Ready(done) = done {
            return Poll::Ready(Ended::ByItself(done));
        }
        // A client that says nothing either is found by our PING; one that talks on gets us here.
        if stream.stalled_since().is_some_and(|since| ring::now() > since + worker.request_timeout()) {
            return Poll::Ready(Ended::Stuck);
        }
        let busy = client.busy.get() > 0;
        // Bytes say nothing here: pings are no requests.
        if !session.closing && quiet.poll(cx, busy, 0).is_ready() {
            worker.counters.idle_timeouts.add();
            session.close();
            cx.waker().wake_by_ref(); // for GOAWAY to be written
        }
        if !session.closing && !busy && client.member.poll_told(cx).is_ready() {
            session.close();
            cx.waker().wake_by_ref();
        }
        if !session.closing || busy {
            going = None;
            return Poll::Pending;
        }
        let going = going.get_or_insert_with(|| Box::pin(ring::sleep_until(ring::now() + GOAWAY_TIMEOUT)));
        going.as_mut().poll(cx).map(|()| Ended::Left)
    })
    .await;
    let is_closing = session.closing;
    drop(session); // and with it what its requests hold
    match ended {
        Ended::ByItself(Err(error)) => {
            tracing::debug!(worker = worker.settings.name, %error, "a connection ended early");
        }
        Ended::Cut => {
            if let Some(wire) = wire.cut() {
                close(wire).await;
            }
        }
        Ended::Stuck => {
            worker.counters.timed_out_answering.add();
            stream.abort();
        }
        Ended::ByItself(Ok(())) => {
            // Closed with bytes of the client's unread, the connection would be reset under its last answers.
            if let Some(wire) = wire.take().filter(|_| is_closing) {
                close(wire).await;
            }
        }
        Ended::Left => {}
    }
}

impl Session {
    /// Says GOAWAY; requests that are under way are answered.
    fn close(&mut self) {
        self.closing = true;
        if let State::Open(connection, _) = &mut self.state {
            connection.graceful_shutdown();
        }
    }

    /// Reads and writes frames, and begins what is asked, until the connection has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        if let State::Greeting(handshake) = &mut self.state {
            let mut connection = ready!(Pin::new(handshake).poll(cx))?;
            if self.closing {
                connection.graceful_shutdown();
            }
            let pulse = connection.ping_pong().map(Pulse::new);
            self.state = State::Open(connection, pulse);
        }
        let State::Open(connection, pulse) = &mut self.state else { return Poll::Pending };
        let heard = self.stream.received();
        if pulse.take_if(|pulse| pulse.poll(cx, heard).is_ready()).is_some() {
            connection.abrupt_shutdown(Reason::NO_ERROR);
        }
        loop {
            match ready!(connection.poll_accept(cx)) {
                Some(Ok((request, reply))) => stream::begin(&self.client, request, reply),
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Ready(Ok(())),
            }
        }
    }
}
