//! The control thread: what changes while workers work.
//!
//! New flow-control objects are handed to the workers ([`Configuration`]); the keys of service-account tokens and
//! the number of objects are fetched from the apiserver every now and then ([`start`]). Nothing here is on the
//! way of a request, and whatever fails leaves the last good value in force.

mod fetch;
mod keys;
mod patience;
mod seats;
pub mod statistics;

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use crate::config::objects;
use crate::crew::{self, Order, Posts};
use crate::identity::Authenticator;
use crate::ring::Passage;
use crate::tls;
use crate::upstream::Server;
use crate::worker::Objects;
use fetch::Fetcher;

pub use seats::Seats;

/// What the control thread is told.
#[derive(Debug)]
pub struct Settings {
    /// The apiservers to ask.
    pub upstreams: Vec<Server>,
    /// By which connections get to one whose port is taken over; `None`: none is.
    pub passage: Option<Arc<dyn Passage>>,
    /// TLS towards them.
    pub tls: Option<Arc<tls::Client>>,
    /// Whether there is a front-proxy certificate to ask with.
    pub front_proxy: bool,
    /// `--upstream-groups`: groups in which it asks.
    pub groups: Vec<String>,
    /// Who wants the keys; `None`: keys come from files.
    pub keys_for: Option<Arc<Authenticator>>,
    /// Whether the issuer of tokens is to be asked for, too: no flag names it.
    pub issuer_too: bool,
    /// Who wants the number of objects; `None` without flow control.
    pub statistics_for: Option<Posts>,
}

/// User as which usher asks for itself.
const USER: &str = "system:usher";

/// Starts the control thread, for as long as the process lives.
///
/// # Errors
/// No thread, no runtime, or a group that cannot be a header's value.
pub fn start(settings: Settings) -> io::Result<()> {
    let asker = Asker::new(&settings)?;
    let fetcher = Arc::new(Fetcher::new(settings.upstreams, settings.tls, settings.passage));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let run = move || {
        runtime.block_on(async {
            let keys = async {
                if let Some(authenticator) = settings.keys_for {
                    keys::refresh(&fetcher, &asker, &authenticator, settings.issuer_too).await;
                }
            };
            let statistics = async {
                if let Some(posts) = settings.statistics_for {
                    statistics::refresh(&fetcher, &asker, &posts).await;
                }
            };
            tokio::join!(keys, statistics);
        });
    };
    std::thread::Builder::new().name("usher-control".into()).spawn(run)?;
    Ok(())
}

/// As whom to ask.
#[derive(Debug)]
struct Asker {
    presents: tls::Presents,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Asker {
    fn new(settings: &Settings) -> io::Result<Self> {
        if !settings.front_proxy {
            return Ok(Self { presents: tls::Presents::Nothing, headers: Vec::new() });
        }
        let mut headers = vec![(HeaderName::from_static("x-remote-user"), HeaderValue::from_static(USER))];
        for group in &settings.groups {
            let value = HeaderValue::from_str(group)
                .map_err(|_| io::Error::other(format!("--upstream-groups: {group:?} is not a group")))?;
            headers.push((HeaderName::from_static("x-remote-group"), value));
        }
        Ok(Self { presents: tls::Presents::FrontProxy, headers })
    }

    fn question(&self, path: &'static str) -> fetch::Question {
        fetch::Question { path, presents: self.presents, headers: self.headers.clone() }
    }
}

/// Hands new flow-control objects to the workers. Made before they are, because the objects are read first.
#[derive(Clone, Debug, Default)]
pub struct Configuration(Arc<OnceLock<(Posts, Option<Arc<Seats>>)>>);

/// How often handing over is tried while a worker's mailbox is full, and how long apart.
const ATTEMPTS: u32 = 50;
/// See [`ATTEMPTS`].
const PAUSE: Duration = Duration::from_millis(100);

impl Configuration {
    /// From now on these workers are told, and first whoever watches over the levels that they share.
    pub fn connect(&self, posts: Posts, seats: Option<Arc<Seats>>) {
        let _ = self.0.set((posts, seats)); // there is one crew
    }

    /// Tells them. Waits a little for one that is behind: not for workers.
    pub fn put_in_force(&self, objects: &objects::Objects) {
        let Some((posts, seats)) = self.0.get() else { return };
        let objects = match seats {
            Some(seats) => seats.configure(objects),
            None => Arc::new(Objects {
                schemas: objects.schemas.clone(),
                levels: objects.levels.clone(),
                shared: None,
            }),
        };
        let order = Order::Configure(objects);
        let mut untold = posts.tell(&order);
        for _ in 1..ATTEMPTS {
            if untold.is_empty() {
                return;
            }
            std::thread::sleep(PAUSE);
            untold.retain(|worker| !posts.send(*worker, order.clone().into()));
        }
        for worker in untold {
            tracing::error!(
                worker = crew::name(worker),
                "it takes no configuration: it is stuck; the old one stays"
            );
        }
    }
}

#[cfg(test)]
mod tests;
