//! What can go wrong on the way to an apiserver, and what the client hears of it.

use std::error::Error;
use std::fmt;
use std::io;

use http::StatusCode;

use super::UploadFault;

/// What the connection says of it: hyper's words, the operating system's, or those of our own HTTP/1.1.
pub type Cause = Box<dyn Error + Send + Sync>;

/// What went wrong: the client's fault only if its body failed ([`Fault::of_client`]).
#[derive(Debug)]
pub enum Fault {
    /// No server is configured.
    NoServer,
    /// No TLS configuration for an `https` server, or a host name that TLS cannot verify.
    NoTls,
    /// The request must be vouched for, and no front-proxy certificate is configured.
    NoCertificate,
    /// TCP: refused, unreachable, no such host.
    Connect(io::Error),
    /// We have no descriptor, port or memory left for a connection. Says nothing about the server.
    Starved(io::Error),
    /// TCP took too long.
    ConnectTimeout,
    /// TLS: not the certificate that `--upstream-ca-file` vouches for, or not TLS.
    Handshake(io::Error),
    /// TLS took too long.
    HandshakeTimeout,
    /// The connection ended before the request was sent.
    Closed(Cause),
    /// The connection broke, or what came was not HTTP, after the request was sent.
    Broken(Cause),
    /// No answer in time.
    AnswerTimeout,
}

impl Fault {
    /// No connection came about.
    pub(super) fn of_connect(error: io::Error) -> Self {
        let ours = [
            libc::EMFILE,
            libc::ENFILE,
            libc::ENOMEM,
            libc::ENOBUFS,
            libc::EADDRNOTAVAIL,
            libc::EADDRINUSE, // no port to bind to, and
            libc::E2BIG,      // too many that pass: only where a port is taken over
        ];
        if error.raw_os_error().is_some_and(|code| ours.contains(&code)) {
            return Self::Starved(error);
        }
        Self::Connect(error)
    }

    /// Status of the answer to the client: 503 if the request never got anywhere, 502 if it may have, 504 if
    /// no answer came in time.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoServer
            | Self::NoTls
            | Self::NoCertificate
            | Self::Connect(_)
            | Self::Starved(_)
            | Self::ConnectTimeout
            | Self::Handshake(_)
            | Self::HandshakeTimeout
            | Self::Closed(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Broken(_) => StatusCode::BAD_GATEWAY,
            Self::AnswerTimeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The client's sentence: what happened and whether to try again, without our addresses.
    #[must_use]
    pub fn message(&self) -> &'static str {
        match self {
            Self::NoServer | Self::NoTls | Self::NoCertificate => {
                "the gateway is not set up to forward this request to an apiserver"
            }
            Self::Connect(_) | Self::ConnectTimeout | Self::Closed(_) => {
                "no apiserver could be reached; the request was not sent"
            }
            Self::Starved(_) => "the gateway cannot open more connections now; the request was not sent",
            Self::Handshake(_) | Self::HandshakeTimeout => {
                "no apiserver could be reached securely; the request was not sent"
            }
            Self::Broken(_) => "the connection to the apiserver broke before it answered",
            Self::AnswerTimeout => "the apiserver did not answer in time",
        }
    }

    /// The client's body failed, and with it the request.
    #[must_use]
    pub fn of_client(&self) -> Option<&UploadFault> {
        let (Self::Closed(cause) | Self::Broken(cause)) = self else { return None };
        let first: &(dyn Error + 'static) = &**cause;
        std::iter::successors(Some(first), |cause| (*cause).source()).find_map(|cause| cause.downcast_ref())
    }

    /// Whether it says something about the server rather than about one connection.
    pub(super) fn is_of_server(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::ConnectTimeout | Self::Handshake(_) | Self::HandshakeTimeout)
    }

    /// Whether another attempt may end differently.
    pub(super) fn is_worth_another(&self) -> bool {
        self.is_of_server() || matches!(self, Self::Closed(_) | Self::Starved(_))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoServer => formatter.write_str("no apiserver is configured: give --upstream"),
            Self::NoTls => formatter.write_str(
                "TLS towards the apiserver is not configured: give --upstream-ca-file, or --upstream-server-name",
            ),
            Self::NoCertificate => formatter.write_str(
                "no front-proxy certificate: give --proxy-client-cert-file and --proxy-client-key-file",
            ),
            Self::Connect(error) => write!(formatter, "connect: {error}"),
            Self::Starved(error) => write!(formatter, "connect: out of descriptors, ports or memory: {error}"),
            Self::ConnectTimeout => formatter.write_str("connect: time-out"),
            Self::Handshake(error) => write!(formatter, "TLS handshake: {error}"),
            Self::HandshakeTimeout => formatter.write_str("TLS handshake: time-out"),
            Self::Closed(error) => write!(formatter, "connection ended before the request: {error}"),
            Self::Broken(error) => write!(formatter, "connection broke: {error}"),
            Self::AnswerTimeout => formatter.write_str("no answer in time"),
        }
    }
}

impl Error for Fault {}
