//! Who is asking, as kube-apiserver would see it.
//!
//! A connection is judged once ([`Authenticator::connection`]), a request in the light of its connection
//! ([`Authenticator::request`]). What comes out decides only the request's *flow* and how the identity is
//! handed to the apiserver ([`Authenticator::rewrite`]); authorisation stays there.
//!
//! The authenticators are asked in kube-apiserver's order: front-proxy headers, client certificate, bearer
//! token (token file, then service accounts). The first that knows the caller wins. If none does, a certificate
//! that somebody should have vouched for means 401, a token that usher does not know goes to the apiserver
//! for it to judge, and otherwise the caller is anonymous. All of this was tried on v1.36.2.
//!
//! Nothing here waits: files are read elsewhere ([`crate::reload`]), tables are of fixed size and without locks.

mod bearer;
mod cache;
mod certificate;
mod connection;
mod front_proxy;
mod impersonation;
mod keys;
mod service_account;
mod token_file;
mod tokens;

pub use connection::Connection;
pub use front_proxy::FrontProxyOptions;
pub use keys::Keys;
pub use tokens::TOKEN_BYTES_MAX;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use http::header::{AUTHORIZATION, Entry, HeaderName, HeaderValue};
use rustls_pki_types::CertificateDer;

use crate::reload::{FileFault, Reload};
use bearer::Found;
use connection::{Authorities, Verdict};
use front_proxy::{Line, NotText};
use impersonation::OldWay;
use tokens::Tokens;

const ANONYMOUS: &str = "system:anonymous";
const AUTHENTICATED: &str = "system:authenticated";
const MASTERS: &str = "system:masters";
const NODES: &str = "system:nodes";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// A user as in `authentication.k8s.io/v1` `UserInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// User name.
    pub name: String,
    /// UID, empty if it has none.
    pub uid: String,
    /// Groups in kube-apiserver's order, `system:authenticated` or `system:unauthenticated` included.
    pub groups: Vec<String>,
    /// Extra keys and values.
    pub extra: Vec<(String, Vec<String>)>,
}

impl Identity {
    /// Nobody in particular.
    #[must_use]
    pub fn anonymous() -> Identity {
        Identity {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Identity::default()
        }
    }

    /// With `system:authenticated` behind its groups, unless it is the anonymous user or its groups already say
    /// which of the two it is.
    fn authenticated(mut self) -> Identity {
        let says = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
        if self.name != ANONYMOUS && !self.groups.iter().any(says) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

/// How the apiserver learns who is asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// `X-Remote-*` over a connection with the front-proxy certificate.
    FrontProxy,
    /// The request's own bearer token, untouched, over a connection without a client certificate.
    Token,
    /// Nothing: over a connection without a client certificate, so that it stays anonymous. Never over HTTP/2:
    /// kube-apiserver sends GOAWAY after every anonymous request.
    Anonymous,
    /// Not at all: usher itself answers 401 with kube-apiserver's `Unauthorized` status, before classification
    /// and without a seat. For callers that kube-apiserver would refuse for what only usher sees: a client
    /// certificate that nobody vouches for and no token beside it, or no credentials and no anonymous access.
    /// And for the few whose name cannot be said in a header (blanks at its ends, control characters).
    Unauthorized,
}

/// Who a request is from.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The authenticated user: what the apiserver must come to see. With [`Handover::Token`] it is anonymous if
    /// usher could not verify the token.
    pub identity: Arc<Identity>,
    /// Whose flow pays: the impersonated user if the caller is in `system:masters`, else the caller.
    pub flow: Arc<Identity>,
    /// How to hand the identity over.
    pub handover: Handover,
}

impl Caller {
    /// Whether usher could tell who it is, and kube-apiserver will not take it for a stranger by its groups.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.identity.name != ANONYMOUS && !self.identity.groups.iter().any(|group| group == UNAUTHENTICATED)
    }
}

/// Which credentials are known. Flags have kube-apiserver's names.
#[derive(Clone, Debug)]
pub struct Options {
    /// `--client-ca-file`: who vouches for client certificates. `None`: no user comes with one.
    pub client_ca_file: Option<PathBuf>,
    /// `--requestheader-*`.
    pub front_proxy: FrontProxyOptions,
    /// `--token-auth-file`.
    pub token_auth_file: Option<PathBuf>,
    /// `--service-account-key-file`, all of them. Empty: keys come by [`Authenticator::set_fetched_keys`].
    pub service_account_key_files: Vec<PathBuf>,
    /// `--service-account-issuer`, all of them.
    pub service_account_issuers: Vec<String>,
    /// `--api-audiences`; empty: the issuers, as kube-apiserver has it.
    pub api_audiences: Vec<String>,
    /// `--anonymous-auth`.
    pub anonymous_auth: bool,
}

impl Default for Options {
    /// Nobody known, anonymous access allowed.
    fn default() -> Options {
        Options {
            client_ca_file: None,
            front_proxy: FrontProxyOptions::default(),
            token_auth_file: None,
            service_account_key_files: Vec::new(),
            service_account_issuers: Vec::new(),
            api_audiences: Vec::new(),
            anonymous_auth: true,
        }
    }
}

/// What identity has met since the start; ever growing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tokens judged from the table.
    pub tokens_remembered: u64,
    /// Tokens verified anew and found good.
    pub tokens_verified: u64,
    /// Tokens verified anew and not known here: passed on.
    pub tokens_unknown: u64,
    /// Requests answered 401 by usher itself.
    pub unauthorized: u64,
    /// `X-Remote-*` lines dropped that strangers had sent.
    pub forged_lines: u64,
}

/// Decides who is asking. Shared by all workers; its keys and certificates change under it.
#[derive(Debug)]
pub struct Authenticator {
    authorities: Authorities,
    headers: front_proxy::Headers,
    tokens: Tokens,
    anonymous_auth: bool,
    anonymous: Arc<Identity>,
    old_way: OldWay,
    unauthorized: AtomicU64,
    forged_lines: AtomicU64,
}

impl Authenticator {
    /// Reads the files.
    ///
    /// # Errors
    /// The first file that is not what it should be, or header name that is none (`path` is then the flag).
    pub fn new(options: &Options) -> Result<Authenticator, FileFault> {
        let headers = front_proxy::Headers::parse(&options.front_proxy).map_err(|name| {
            let problem = format!("{name:?} cannot be the name of a header");
            FileFault::new(Path::new("--requestheader-*"), problem, "give names such as X-Remote-User")
        })?;
        Ok(Authenticator {
            authorities: Authorities::new(options.client_ca_file.clone(), &options.front_proxy)?,
            headers,
            tokens: Tokens::new(options)?,
            anonymous_auth: options.anonymous_auth,
            anonymous: Arc::new(Identity::anonymous()),
            old_way: OldWay::new(),
            unauthorized: AtomicU64::new(0),
            forged_lines: AtomicU64::new(0),
        })
    }

    /// Everything here that follows files, for [`crate::reload::Watch`].
    #[must_use]
    pub fn reloads(&self) -> Vec<Arc<dyn Reload>> {
        self.authorities.reloads().chain(self.tokens.reloads()).collect()
    }

    /// Takes over the service-account keys fetched from the apiserver; they count beside those from files.
    /// Returns whether they are other keys than before (if so, nothing remembered about tokens holds).
    pub fn set_fetched_keys(&self, keys: Keys) -> bool {
        self.tokens.set_fetched_keys(keys)
    }

    /// Takes over the issuer of service-account tokens that the apiserver names, where no flag does. Returns whether
    /// it is another than before.
    pub fn set_fetched_issuer(&self, issuer: String) -> bool {
        self.tokens.set_fetched_issuer(issuer)
    }

    /// What has been met so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            tokens_remembered: self.tokens.remembered.load(Ordering::Relaxed),
            tokens_verified: self.tokens.verified.load(Ordering::Relaxed),
            tokens_unknown: self.tokens.unknown.load(Ordering::Relaxed),
            unauthorized: self.unauthorized.load(Ordering::Relaxed),
            forged_lines: self.forged_lines.load(Ordering::Relaxed),
        }
    }

    /// What the TLS handshake told: `chain` is the client's certificate chain as sent, end entity first
    /// (empty: none, or plain HTTP). `now_unix` in seconds.
    pub fn connection(&self, address: SocketAddr, chain: &[CertificateDer<'_>], now_unix: i64) -> Connection {
        self.authorities.connection(address, chain, now_unix)
    }

    /// Who a request is from. `headers`: those that will go on to the apiserver; `upgrade`: the protocol that it asks to
    /// speak on this connection. Never fails: what cannot be verified is classified as unauthenticated and passed on
    /// for the apiserver to refuse.
    pub fn request(
        &self,
        connection: &Connection,
        headers: &HeaderMap,
        upgrade: Option<&HeaderValue>,
        now_unix: i64,
    ) -> Caller {
        let (identity, handover) = self.authenticate(connection, headers, upgrade, now_unix);
        if handover == Handover::Unauthorized {
            self.unauthorized.fetch_add(1, Ordering::Relaxed);
            return Caller { flow: Arc::clone(&identity), identity, handover };
        }
        let impersonated = impersonation::impersonated(headers, &identity, &self.old_way);
        let flow = impersonated.map_or_else(|| Arc::clone(&identity), Arc::new);
        Caller { identity, flow, handover }
    }

    /// Makes a request's headers what the apiserver shall see: strips `X-Remote-*` (returns how many lines
    /// were dropped that a stranger had sent), sets ours when handing over as a front proxy, and appends to
    /// `X-Forwarded-For`.
    ///
    /// When handing over as a front proxy `Authorization` goes too: the apiserver would not look at it, and one that
    /// does not trust our certificate after all must answer 401 rather than take the token's user for the caller.
    /// Otherwise it stays as it is.
    ///
    /// To be called after the headers that `Connection` names are gone: a client must not have ours removed.
    pub fn rewrite(&self, connection: &Connection, caller: &Caller, headers: &mut HeaderMap) -> usize {
        let judged = connection.judged();
        let lines = self.headers.strip(headers);
        let forged = if matches!(judged.front_proxy, Verdict::Known(())) { 0 } else { lines };
        self.forged_lines.fetch_add(forged as u64, Ordering::Relaxed);
        if caller.handover == Handover::FrontProxy {
            headers.remove(AUTHORIZATION);
            match (&judged.user, &judged.lines) {
                (Verdict::Known(user), Some(ready)) if Arc::ptr_eq(user, &caller.identity) => {
                    append(headers, ready)
                }
                _ => append(headers, &front_proxy::write(&caller.identity).unwrap_or_default()),
            }
        }
        append_forwarded_for(headers, &connection.forwarded_for);
        forged
    }

    fn authenticate(
        &self,
        connection: &Connection,
        headers: &HeaderMap,
        upgrade: Option<&HeaderValue>,
        now: i64,
    ) -> (Arc<Identity>, Handover) {
        let judged = self.authorities.judged(connection, now);
        if let Verdict::Known(()) = judged.front_proxy {
            match self.headers.read(headers) {
                Ok(Some(user)) => return handed_over(user.authenticated()),
                Ok(None) => {}
                Err(NotText) => return (Arc::clone(&self.anonymous), Handover::Unauthorized),
            }
        }
        if let Verdict::Known(user) = &judged.user {
            let handover = if judged.lines.is_some() { Handover::FrontProxy } else { Handover::Unauthorized };
            return (Arc::clone(user), handover);
        }
        let places = [bearer::authorization(headers), bearer::web_socket(headers, upgrade)];
        let tokens = places.iter().filter_map(|place| match place {
            Found::Token(token) => Some(token),
            Found::Nothing | Found::Unusable => None,
        });
        if let Some(user) =
            tokens.into_iter().find_map(|token| self.tokens.user(token, &connection.last_token, now))
        {
            return (user, Handover::Token);
        }
        let refused =
            matches!(judged.front_proxy, Verdict::Refused) || matches!(judged.user, Verdict::Refused);
        let handover = if places.iter().any(|place| *place != Found::Nothing) {
            Handover::Token // the apiserver may know it; if not, its 401 is the right one
        } else if refused || !self.anonymous_auth {
            Handover::Unauthorized
        } else {
            Handover::Anonymous
        };
        (Arc::clone(&self.anonymous), handover)
    }
}

fn handed_over(user: Identity) -> (Arc<Identity>, Handover) {
    let handover =
        if front_proxy::write(&user).is_some() { Handover::FrontProxy } else { Handover::Unauthorized };
    (Arc::new(user), handover)
}

/// All lines or, in a map that is full, none: without a name the apiserver answers 401, with half of the groups it
/// would see somebody else.
fn append(headers: &mut HeaderMap, lines: &[Line]) {
    let full = lines.iter().any(|(name, value)| headers.try_append(name.clone(), value.clone()).is_err());
    if full {
        lines.iter().for_each(|(name, _)| drop(headers.remove(name)));
    }
}

/// One line, as most readers expect it: what was there, then the address that we see.
fn append_forwarded_for(headers: &mut HeaderMap, address: &HeaderValue) {
    const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
    match headers.try_entry(X_FORWARDED_FOR) {
        Ok(Entry::Vacant(entry)) => drop(entry.try_insert(address.clone())),
        Ok(Entry::Occupied(mut entry)) => {
            let mut line = Vec::new();
            for value in entry.iter() {
                line.extend_from_slice(value.as_bytes());
                line.extend_from_slice(b", ");
            }
            line.extend_from_slice(address.as_bytes());
            if let Ok(whole) = HeaderValue::from_maybe_shared(bytes::Bytes::from(line)) {
                entry.insert(whole);
            }
        }
        Err(_) => {} // a map that is full goes without
    }
}

#[cfg(test)]
mod tests;
