//! A client over our own HTTP/1.1: its requests, their answers and the bytes of both in one task.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use super::{Client, Last, close};
use crate::http1::{Connection, End, Limits, Oddities, RequestHead};
use crate::upstream::Upload;
use crate::wire::Wire;
use crate::worker::glitches::{Glitch, Glitches};
use crate::worker::host::Hosted;
use crate::worker::quiet::{Quiet, TooQuiet};
use crate::worker::{request, upgrade};

/// Why a connection is served no more.
enum Ended {
    ByItself(End),
    /// There is no reason to say anything more to it.
    Left,
    TooQuiet(TooQuiet),
    /// Past its limit of glitches.
    Cut,
}

/// Serves a connection to its end.
pub(super) async fn serve(client: &Rc<Client>, wire: Wire) {
    let worker = &client.worker;
    let limits = &worker.settings.limits;
    let stream = wire.stream().clone();
    let of_request = Rc::clone(client);
    let service = move |head: RequestHead, body| {
        request::serve(Rc::clone(&of_request), head.with_body(Upload::own(body)))
    };
    let heads = Limits { bytes: limits.header_bytes, lines: limits.header_lines };
    let mut connection = Connection::new(wire, heads, service);
    let drain = worker.drain.lookout();
    let (mut last, mut quiet) = (Last::default(), Quiet::new(limits));
    let polled = poll_fn(|cx| {
        loop {
            let polled = connection.poll(cx);
            note(&client.glitches, connection.take_oddities());
            if client.glitches.is_over() {
                return Poll::Ready(Ended::Cut);
            }
            if let Poll::Ready(end) = polled {
                return Poll::Ready(Ended::ByItself(end));
            }
            if drain.poll(cx).is_pending() {
                break;
            }
            if last.poll(cx, client).is_pending() {
                break;
            }
            if !client.asked.get() {
                return Poll::Ready(Ended::Left);
            }
            connection.graceful_shutdown();
        }
        let busy = client.busy.get() > 0;
        if !busy && client.member.poll_told(cx).is_ready() {
            return Poll::Ready(Ended::Left);
        }
        quiet.poll(cx, busy, connection.heads_begun()).map(Ended::TooQuiet)
    });
    let overrun = Rc::clone(worker);
    match Hosted::new(polled, move || overrun.counters.timed_out_answering.add()).await {
        Some(Ended::ByItself(end)) => {
            let switched = matches!(end, End::Switched).then(|| client.switched.take()).flatten();
            let hung_up = matches!(end, End::HungUp);
            note_end(client, end);
            let Some((wire, ahead)) = connection.into_wire().filter(|_| !hung_up) else { return };
            let Some(apiserver) = switched else { return close(wire).await };
            let _in_use = client.busy();
            upgrade::relay(worker, wire.unread(ahead), apiserver).await;
        }
        Some(Ended::TooQuiet(why)) => why.count(worker, &client.glitches),
        Some(Ended::Left | Ended::Cut) => {}
        None => stream.abort(), // or the kernel would go on trying to deliver what nobody takes
    }
}

fn note_end(client: &Client, end: End) {
    let worker = &client.worker;
    match end {
        End::Done | End::Switched | End::HungUp => {}
        End::Refused(fault) => {
            worker.counters.connections_broken.add();
            client.glitches.note(Glitch::BadSyntax);
            tracing::debug!(worker = worker.settings.name, %fault, "what came is no request");
        }
        End::Broken(error) => {
            tracing::debug!(worker = worker.settings.name, %error, "a connection ended early");
        }
    }
}

fn note(glitches: &Glitches, odd: Oddities) {
    if odd == Oddities::default() {
        return;
    }
    for (count, glitch) in [
        (odd.pipelined, Glitch::Pipelining),
        (odd.unfinished, Glitch::Unfinished),
        (odd.extensions, Glitch::ChunkExtension),
        (odd.trailers, Glitch::Trailers),
        (odd.tiny_chunks, Glitch::TinyData),
    ] {
        (0..count).for_each(|_| glitches.note(glitch));
    }
}
