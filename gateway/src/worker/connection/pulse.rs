//! Whether the client of an HTTP/2 connection is still there. One that vanished must not keep its watches.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use h2::{Ping, PingPong};
use usher_flowcontrol::units::Nanos;

use crate::ring;

/// A client that has said nothing for so long is asked whether it is there.
const INTERVAL: Nanos = Nanos::from_millis(60_000);
/// And is gone if it does not answer in that time.
const TIMEOUT: Nanos = Nanos::from_millis(20_000);

/// Listens to one connection.
pub(super) struct Pulse {
    pings: PingPong,
    interval: Nanos,
    timeout: Nanos,
    /// Bytes heard, and when the last of them.
    heard: u64,
    heard_at: Nanos,
    asked: bool,
    alarm: Pin<Box<ring::Sleep>>,
}

impl Pulse {
    /// A client that was just heard.
    pub(super) fn new(pings: PingPong) -> Self {
        Self::with(pings, INTERVAL, TIMEOUT)
    }

    fn with(pings: PingPong, interval: Nanos, timeout: Nanos) -> Self {
        let now = ring::now();
        let alarm = Box::pin(ring::sleep_until(now + interval));
        Self { pings, interval, timeout, heard: 0, heard_at: now, asked: false, alarm }
    }

    /// Ready when it is gone; to be polled whenever something was heard, of which there are `heard` bytes so far.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, heard: u64) -> Poll<()> {
        if heard != self.heard {
            (self.heard, self.heard_at) = (heard, ring::now());
        }
        if self.asked && self.pings.poll_pong(cx).is_ready() {
            (self.asked, self.heard_at) = (false, ring::now());
            self.alarm.as_mut().reset(self.heard_at + self.interval);
        }
        loop {
            ready!(self.alarm.as_mut().poll(cx));
            if self.asked {
                return Poll::Ready(());
            }
            let (now, due) = (ring::now(), self.heard_at + self.interval);
            if now < due {
                self.alarm.as_mut().reset(due);
                continue;
            }
            self.asked = self.pings.send_ping(Ping::opaque()).is_ok();
            if self.asked {
                self.alarm.as_mut().reset(now + self.timeout);
                let _ = self.pings.poll_pong(cx); // to be woken by it
            } else {
                self.alarm.as_mut().reset(now + self.interval); // the connection is about to end
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const SHORT: Nanos = Nanos::from_millis(1);
    const LONG: Nanos = Nanos::from_millis(3_600_000);

    /// A server's side of a connection, polled with its pulse until that stops or ten questions were answered (then it
    /// is false); its client is there or not.
    fn stops(timeout: Nanos, is_there: bool) -> bool {
        let exchange = async {
            let (near, far) = tokio::io::duplex(4096);
            let greeting =
                futures_util::future::join(h2::client::handshake(far), h2::server::handshake(near));
            let (Ok((_sender, client)), Ok(mut server)) = greeting.await else { panic!("no connection") };
            let (gone, client) = if is_there { (None, Some(client)) } else { (Some(client), None) };
            ring::spawn(async {
                if let Some(client) = client {
                    let _ = client.await;
                }
            });
            let mut pulse = Pulse::with(server.ping_pong().unwrap(), SHORT, timeout);
            let mut answered = 0;
            let stopped = poll_fn(|cx| {
                let was_asked = pulse.asked;
                let stopped = pulse.poll(cx, 0).is_ready();
                answered += u32::from(was_asked && !pulse.asked);
                assert!(server.poll_accept(cx).is_pending());
                if stopped || answered == 10 { Poll::Ready(stopped) } else { Poll::Pending }
            })
            .await;
            drop(gone);
            stopped
        };
        ring::run(exchange).unwrap()
    }

    #[test]
    fn who_answers_is_there() {
        assert!(!stops(LONG, true));
    }

    #[test]
    fn who_does_not_answer_is_gone() {
        assert!(stops(SHORT, false));
    }
}
