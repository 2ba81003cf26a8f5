//! Who is asking, as kube-apiserver would see it.
//!
//! A connection is parsed once ([`Authenticator::connection`]), a request in the light of its connection
//! ([`Authenticator::request`]). What comes out decides only the request's *flow* and how the identity is
//! handed to the apiserver; authorisation stays there.

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderMap;
use rustls_pki_types::CertificateDer;

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

/// How the apiserver learns who is asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// `X-Remote-*` over a connection with the front-proxy certificate.
    FrontProxy,
    /// The request's own bearer token, untouched, over a connection without a client certificate.
    Token,
    /// Nothing: over a connection without a client certificate, so that it stays anonymous.
    Anonymous,
    /// Not at all: usher itself answers 401 with kube-apiserver's `Unauthorized` status, before classification
    /// and without a seat. For callers that kube-apiserver would refuse for what only usher sees: a client
    /// certificate that nobody vouches for and no token beside it, or no credentials and no anonymous access.
    Unauthorized,
}

/// What a connection says about its client; parsed once.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The client's address.
    pub address: SocketAddr,
    /// The verified client certificate's user, if it sent one that `--client-ca-file` vouches for.
    pub certificate_user: Option<Arc<Identity>>,
    /// Whether its certificate makes it a trusted front proxy.
    pub front_proxy: bool,
}

/// Who a request is from.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The authenticated user: what the apiserver must come to see.
    pub identity: Arc<Identity>,
    /// Whose flow pays: the impersonated user if the caller is in `system:masters`, else the caller.
    pub flow: Arc<Identity>,
    /// How to hand the identity over.
    pub handover: Handover,
}

/// Decides who is asking. Shared by all workers; its keys and certificates change under it.
#[derive(Debug)]
pub struct Authenticator {}

#[expect(
    unused_variables,
    clippy::unimplemented,
    reason = "signatures first; the identity room fills them in"
)]
impl Authenticator {
    /// What the TLS handshake told: `chain` is the client's certificate chain as sent, end entity first
    /// (empty: none). `now_unix` in seconds.
    pub fn connection(&self, address: SocketAddr, chain: &[CertificateDer<'_>], now_unix: i64) -> Connection {
        unimplemented!()
    }

    /// Who a request is from. Never fails: what cannot be verified is classified as unauthenticated and
    /// passed on for the apiserver to refuse.
    pub fn request(&self, connection: &Connection, headers: &HeaderMap, now_unix: i64) -> Caller {
        unimplemented!()
    }

    /// Makes a request's headers what the apiserver shall see: strips `X-Remote-*` (returns how many
    /// were dropped that a stranger had sent), sets ours when handing over as a front proxy, drops the
    /// `Authorization` header where kube-apiserver would not have looked at it, appends `X-Forwarded-For`.
    pub fn rewrite(&self, connection: &Connection, caller: &Caller, headers: &mut HeaderMap) -> usize {
        unimplemented!()
    }
}
