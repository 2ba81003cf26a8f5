//! The new one's side: asks, takes what it can use, says that it is ready, watches the old one drain.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;
use socket2::SockRef;

use super::{Former, Ledger, Offer, REPORT_MAX, Ready, Report, VERB, suit_both};
use crate::control::{self, ANSWER_TIMEOUT, Broken, Line};

/// What the old one has handed over. Dropped before [`Taken::ready`], it has handed over nothing.
#[derive(Debug)]
pub struct Taken {
    line: Line,
    offer: Offer,
    descriptors: Vec<(String, OwnedFd)>,
}

/// Watches the old one drain.
#[derive(Debug)]
pub struct Follower {
    line: Line,
    offer: Offer,
}

/// Asks the usher at the other end of this line to hand over.
///
/// # Errors
/// It cannot, or does not answer in time.
pub fn ask(mut line: Line) -> Result<Taken, String> {
    let request = control::Request { verb: VERB.to_owned(), with: Value::Null };
    line.send(&request, &[]).map_err(|broken| broken.to_string())?;
    let letter = line.receive(ANSWER_TIMEOUT).map_err(|broken| broken.to_string())?;
    let mut letter = letter.ok_or("it hung up")?;
    let descriptors = std::mem::take(&mut letter.descriptors);
    let offer: Offer = serde_json::from_value(letter.reply()?).map_err(|error| error.to_string())?;
    if offer.items.len() != descriptors.len() {
        let (items, came) = (offer.items.len(), descriptors.len());
        return Err(format!("it has handed over {came} descriptors and speaks of {items}"));
    }
    let descriptors = offer.items.iter().cloned().zip(descriptors).collect();
    Ok(Taken { line, offer, descriptors })
}

impl Taken {
    /// The old one's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.offer.pid
    }

    /// Since when the apiserver's port is whose it is: time since 1970. `None`: the old one does not say.
    #[must_use]
    pub fn takeover_since(&self) -> Option<Duration> {
        self.offer.takeover_since.map(Duration::from_secs)
    }

    /// Everything that is for this.
    pub fn all(&mut self, what: &str) -> Vec<OwnedFd> {
        let (those, others) =
            std::mem::take(&mut self.descriptors).into_iter().partition(|(name, _)| name == what);
        self.descriptors = others;
        let those: Vec<(String, OwnedFd)> = those;
        those.into_iter().map(|(_, descriptor)| descriptor).collect()
    }

    /// Sockets for this that listen where this process is to listen; port 0: wherever they do. Others are closed, and
    /// nobody listens there once the old one does not.
    pub fn listeners(&mut self, what: &str, wanted: SocketAddr) -> Vec<TcpListener> {
        let mut suitable = Vec::new();
        for socket in self.all(what).into_iter().map(TcpListener::from) {
            match listens_at(&socket) {
                Some(address) if is_it(address, wanted) && suit_both(&socket).is_ok() => {
                    suitable.push(socket);
                }
                address => tracing::warn!(
                    what,
                    former = address.map(|address| address.to_string()),
                    wanted = %wanted,
                    "the former usher listens elsewhere: that address is given up"
                ),
            }
        }
        suitable
    }

    /// Its workers are at work, and accept as soon as this is back: from now on the old one does not.
    ///
    /// # Errors
    /// The old one has lost patience, and goes on: this one must end.
    pub fn ready(self) -> Result<Follower, String> {
        let Self { mut line, offer, descriptors } = self;
        for (what, _) in &descriptors {
            tracing::info!(what, "the former usher had what this one has no use for");
        }
        drop(descriptors);
        let _ = line.send(&Ready { ready: true }, &[]); // who has lost patience has said so before he hung up
        match line.receive(ANSWER_TIMEOUT) {
            Ok(Some(letter)) => {
                letter.reply().map_err(|why| format!("the usher that runs does not hand over: {why}"))?;
            }
            // It has ended or hangs in the midst of it; its sockets are here, and somebody must serve.
            Ok(None) => {
                tracing::warn!(former = offer.pid, "the former usher has ended before it could drain")
            }
            Err(broken) => {
                tracing::warn!(former = offer.pid, %broken, "the former usher does not say that it drains")
            }
        }
        tracing::info!(
            former = offer.pid,
            version = offer.version,
            "has taken over; the former usher drains"
        );
        Ok(Follower { line, offer })
    }
}

/// Where it listens, if it does.
fn listens_at(socket: &TcpListener) -> Option<SocketAddr> {
    let listens = SockRef::from(socket).is_listener().unwrap_or(false);
    socket.local_addr().ok().filter(|_| listens)
}

fn is_it(address: SocketAddr, wanted: SocketAddr) -> bool {
    address.ip() == wanted.ip() && (address.port() == wanted.port() || wanted.port() == 0)
}

impl Follower {
    /// Watches, in a thread of its own. `alone` is called when the old one accepts no more, `ended` when it has ended.
    ///
    /// # Errors
    /// No thread.
    pub fn start(
        self,
        ledger: Arc<Ledger>,
        alone: impl FnOnce() + Send + 'static,
        ended: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        let Self { mut line, offer } = self;
        ledger.taken.store(true, Ordering::Relaxed);
        let former = (offer.pid, offer.version);
        let note = move |report| *ledger.lock() = Some(Former { offer: former.clone(), report });
        note(Some(Report::default()));
        std::thread::Builder::new().name("usher-former".into()).spawn(move || {
            let (mut alone, mut ended) = (Some(alone), Some(ended));
            loop {
                let report = match line.receive(REPORT_MAX) {
                    Ok(Some(letter)) => letter.read::<Report>().ok(),
                    Err(Broken::Late(_)) => continue, // it hangs, but it is there
                    Ok(None) | Err(_) => None,
                };
                if report.is_none_or(|report| report.stopped)
                    && let Some(alone) = alone.take()
                {
                    alone();
                }
                note(report);
                if report.is_none() {
                    ended.take().into_iter().for_each(|ended| ended());
                    return tracing::info!(former = offer.pid, "the former usher has ended");
                }
            }
        })?;
        Ok(())
    }
}
