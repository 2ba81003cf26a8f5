//! Handshakes that came to nothing, and whose doing it was.

use std::fmt;
use std::io;

use rustls::{Error, InvalidMessage};

/// Why there is no connection.
#[derive(Debug)]
pub enum Failed {
    /// The peer hung up, or the connection broke.
    Closed(io::Error),
    /// The peer speaks HTTP without TLS.
    PlainHttp,
    /// The peer said more than [`super::HANDSHAKE_BYTES_MAX`].
    TooLong,
    /// Too many others were half done, and it was the one that had waited longest.
    Crowded,
    /// TLS says no.
    Tls(Error),
}

/// The same, as metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Hung up, or broken.
    Closed,
    /// What came is not TLS.
    NotTls,
    /// More bytes than a handshake may have.
    TooLong,
    /// Cut for newer ones.
    Crowded,
    /// No version, cipher or key exchange in common.
    Incompatible,
    /// A certificate, or a signature with it, that cannot be used.
    Certificate,
    /// The peer said no.
    Refused,
    /// Against the protocol, or forged.
    Protocol,
}

// === impl Failed ===

impl Failed {
    /// As metrics count it.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Closed(_) => Reason::Closed,
            Self::PlainHttp => Reason::NotTls,
            Self::TooLong => Reason::TooLong,
            Self::Crowded => Reason::Crowded,
            Self::Tls(error) => match error {
                Error::InvalidMessage(
                    InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
                ) => Reason::NotTls,
                Error::InvalidMessage(InvalidMessage::HandshakePayloadTooLarge) => Reason::TooLong,
                Error::PeerIncompatible(_) | Error::NoApplicationProtocol => Reason::Incompatible,
                Error::InvalidCertificate(_) | Error::NoCertificatesPresented => Reason::Certificate,
                Error::AlertReceived(_) => Reason::Refused,
                _ => Reason::Protocol,
            },
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(error) => write!(formatter, "the peer hung up: {error}"),
            Self::PlainHttp => formatter.write_str("HTTP without TLS"),
            Self::TooLong => formatter.write_str("the handshake is too long"),
            Self::Crowded => formatter.write_str("too many handshakes are half done"),
            Self::Tls(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for Failed {}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Tls(error)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Closed(error)
    }
}

impl From<Failed> for io::Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Closed(error) => error,
            other => Self::new(io::ErrorKind::InvalidData, other),
        }
    }
}
