//! A new connection to an apiserver: name, TCP, TLS, each within its time.

use std::fmt;
use std::str::FromStr;

use http::uri::{Authority, Scheme, Uri};

use super::{Fault, Presents, Settings};
use crate::ring;
use crate::tls::{self, Protocol};
use crate::wire::Wire;

/// Where an apiserver is: `https://HOST:PORT`, or `http://HOST:PORT` for tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Under TLS.
    pub tls: bool,
    /// DNS name or address, IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Host and port as given.
    pub authority: Authority,
}

/// An `--upstream` that cannot be used; says what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadServer(String);

// === impl Server ===

impl FromStr for Server {
    type Err = BadServer;

    fn from_str(text: &str) -> Result<Self, BadServer> {
        let wrong = |what: &str| BadServer(format!("{text:?}: {what}; give https://HOST:PORT"));
        let uri: Uri = text.parse().map_err(|_| wrong("not a URL"))?;
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(wrong("neither https:// nor http://")),
        };
        if uri.path() != "/" && !uri.path().is_empty() || uri.query().is_some() {
            return Err(wrong("a path or query has no use here"));
        }
        let authority = uri.authority().cloned().ok_or_else(|| wrong("no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("user names and passwords have no use here"));
        }
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { tls, host, port, authority })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://{}", if self.tls { "https" } else { "http" }, self.authority)
    }
}

impl fmt::Display for BadServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for BadServer {}

/// Opens a connection, ready for the first request.
pub(super) async fn connect(
    settings: &Settings,
    server: &Server,
    presents: Presents,
    protocol: Protocol,
) -> Result<Wire, Fault> {
    let stream = ring::within(settings.connect_timeout, reach(server, settings))
        .await
        .ok_or(Fault::ConnectTimeout)?
        .map_err(Fault::of_connect)?;
    if !server.tls {
        return Ok(Wire::plain(stream));
    }
    let client = settings.tls.as_ref().ok_or(Fault::NoTls)?;
    let config = client.current(presents, protocol).ok_or(Fault::NoCertificate)?;
    let name = client.server_name(&server.host).ok_or(Fault::NoTls)?;
    let stream = ring::within(settings.handshake_timeout, tls::connect(stream, config, name))
        .await
        .ok_or(Fault::HandshakeTimeout)?
        .map_err(|failed| Fault::Handshake(failed.into()))?;
    Ok(Wire::tls(stream))
}

/// TCP to the first of the host's addresses that takes it.
async fn reach(server: &Server, settings: &Settings) -> std::io::Result<ring::Stream> {
    let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "the host has no address");
    for address in ring::resolve(&server.host, server.port).await? {
        match ring::connect_by(address, settings.passage.as_ref()).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
