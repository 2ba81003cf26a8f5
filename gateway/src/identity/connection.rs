//! What a connection's certificate says about its client: may it speak for others, and who is it itself?
//!
//! kube-apiserver verifies the chain at every request. Here it is verified once, and again only when the answer
//! could be another: when a certificate of the path ends, or when a CA bundle has changed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderValue;
use rustls_pki_types::CertificateDer;

use super::certificate::{self, Trust, Window};
use super::front_proxy::{self, Line};
use super::tokens::LastToken;
use super::{FrontProxyOptions, Identity};
use crate::reload::{FileFault, Reload, Reloaded};

/// What a connection says about its client. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The client's address.
    pub address: SocketAddr,
    /// The same as `X-Forwarded-For` tells it.
    pub(super) forwarded_for: HeaderValue,
    /// As sent, end entity first.
    chain: Arc<[CertificateDer<'static>]>,
    judged: Arc<ArcSwap<Judged>>,
    /// That of its requests.
    pub(super) last_token: LastToken,
}

impl Connection {
    /// The standing at the last look.
    pub(super) fn judged(&self) -> Arc<Judged> {
        self.judged.load_full()
    }
}

/// What an authenticator made of a certificate: kube-apiserver's three outcomes.
#[derive(Clone, Debug)]
pub(super) enum Verdict<T> {
    /// Not for this authenticator: the next one is asked, and in the end the request may be anonymous.
    NoOpinion,
    /// The next one is asked, but if nobody knows the caller the answer is 401, not anonymous access.
    Refused,
    /// This is who it is.
    Known(T),
}

impl<T> Verdict<T> {
    fn of(result: Result<Option<T>, String>) -> Verdict<T> {
        match result {
            Ok(Some(known)) => Verdict::Known(known),
            Ok(None) => Verdict::NoOpinion,
            Err(problem) => {
                tracing::debug!(problem, "client certificate refused");
                Verdict::Refused
            }
        }
    }
}

/// What the authorities of a moment say about a chain.
#[derive(Debug)]
pub(super) struct Judged {
    /// Whether it is a trusted front proxy.
    pub(super) front_proxy: Verdict<()>,
    /// Whose certificate it is.
    pub(super) user: Verdict<Arc<Identity>>,
    /// What hands `user` over, ready to be copied into every request. `None` if that cannot be said in headers.
    pub(super) lines: Option<Vec<Line>>,
    /// While it holds and the authorities are the same, so does the rest.
    window: Window,
    front_ca: Option<Arc<Trust>>,
    client_ca: Option<Arc<Trust>>,
}

/// The address as most readers expect it.
pub(super) fn forwarded_for(address: SocketAddr) -> HeaderValue {
    let address = address.ip().to_canonical().to_string();
    HeaderValue::try_from(address).unwrap_or_else(|_| HeaderValue::from_static("unknown")) // never: it is text
}

/// The CA bundles, and whom they make what.
#[derive(Debug)]
pub(super) struct Authorities {
    front_ca: Option<Arc<Reloaded<Trust>>>,
    allowed_names: Vec<String>,
    client_ca: Option<Arc<Reloaded<Trust>>>,
}

impl Authorities {
    pub(super) fn new(
        client_ca: Option<PathBuf>,
        front: &FrontProxyOptions,
    ) -> Result<Authorities, FileFault> {
        Ok(Authorities {
            front_ca: trust("front proxies' CA bundle", front.client_ca_file.clone())?,
            allowed_names: front.allowed_names.clone(),
            client_ca: trust("client CA bundle", client_ca)?,
        })
    }

    pub(super) fn reloads(&self) -> impl Iterator<Item = Arc<dyn Reload>> {
        [&self.front_ca, &self.client_ca]
            .into_iter()
            .flatten()
            .cloned()
            .map(|bundle| bundle as Arc<dyn Reload>)
    }

    pub(super) fn connection(
        &self,
        address: SocketAddr,
        chain: &[CertificateDer<'_>],
        now: i64,
    ) -> Connection {
        let chain: Arc<[_]> = chain.iter().map(|each| each.clone().into_owned()).collect();
        let judged = Arc::new(ArcSwap::from_pointee(self.judge(&chain, now)));
        let last_token = LastToken::default();
        Connection { address, forwarded_for: forwarded_for(address), chain, judged, last_token }
    }

    /// The connection's standing now.
    pub(super) fn judged(&self, connection: &Connection, now: i64) -> Arc<Judged> {
        let judged = connection.judged();
        if judged.window.holds(now)
            && is_current(judged.front_ca.as_ref(), self.front_ca.as_deref())
            && is_current(judged.client_ca.as_ref(), self.client_ca.as_deref())
        {
            return judged;
        }
        let judged = Arc::new(self.judge(&connection.chain, now));
        connection.judged.store(Arc::clone(&judged));
        judged
    }

    fn judge(&self, chain: &[CertificateDer<'_>], now: i64) -> Judged {
        let mut judged = Judged {
            front_proxy: Verdict::NoOpinion,
            user: Verdict::NoOpinion,
            lines: None,
            window: Window::ALWAYS,
            front_ca: self.front_ca.as_ref().map(|bundle| bundle.current()),
            client_ca: self.client_ca.as_ref().map(|bundle| bundle.current()),
        };
        let Some(leaf) = chain.first() else { return judged };
        if let Some(trust) = &judged.front_ca {
            let vouched = vouched(trust, chain, now, &mut judged.window);
            judged.front_proxy = Verdict::of(vouched.and_then(|()| self.front_proxy(leaf)));
        }
        if let Some(trust) = &judged.client_ca {
            let vouched = vouched(trust, chain, now, &mut judged.window);
            let user = vouched.and_then(|()| certificate::user(leaf));
            judged.user = Verdict::of(user.map(|user| user.map(|user| Arc::new(user.authenticated()))));
        }
        if let Verdict::Known(user) = &judged.user {
            judged.lines = front_proxy::write(user);
            if judged.lines.is_none() {
                tracing::warn!(
                    user = user.name,
                    "this certificate's user cannot be handed over in headers: refused"
                );
            }
        }
        judged
    }

    fn front_proxy(&self, leaf: &CertificateDer<'_>) -> Result<Option<()>, String> {
        let name = certificate::common_name(leaf)?;
        if self.allowed_names.is_empty() || self.allowed_names.contains(&name) {
            return Ok(Some(()));
        }
        Err(format!("{name:?} is not among the allowed names of front proxies"))
    }
}

/// Whether the bundle that was asked is the one in force.
fn is_current(asked: Option<&Arc<Trust>>, bundle: Option<&Reloaded<Trust>>) -> bool {
    match (asked, bundle) {
        (Some(asked), Some(bundle)) => Arc::ptr_eq(asked, &bundle.current()),
        _ => true,
    }
}

/// Whether `trust` vouches for `chain`. Narrows `window` to when it will say the same: for a good chain until one of
/// its certificates ends, for a bad one for this second, since it may be about to begin.
fn vouched(trust: &Trust, chain: &[CertificateDer<'_>], now: i64, window: &mut Window) -> Result<(), String> {
    let verdict = trust.vouches(chain, now);
    *window = window.narrowed(*verdict.as_ref().unwrap_or(&Window { from: now, until: now }));
    verdict.map(|_| ())
}

fn trust(what: &'static str, path: Option<PathBuf>) -> Result<Option<Arc<Reloaded<Trust>>>, FileFault> {
    path.map(|path| Reloaded::of_file(what, &path, Trust::parse).map(Arc::new)).transpose()
}
