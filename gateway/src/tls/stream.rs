//! A TLS connection over the ring, handshake done.
//!
//! Records are opened in the chunk that they were received in, and handed out as a part of it; only a record that is
//! not complete is copied, to a buffer that is given back with it. What is put in a turn is sealed once at the turn's
//! end, as few records as possible; what is long is sealed at once from where it is. Either way it is sealed into the
//! bytes that will be sent. An idle connection holds its keys and nothing else.
//!
//! What may come beside data is little, and each kind has its limit: key updates, empty records, warnings, tickets.
//! Renegotiation is refused as Go refuses it. A connection that ends without `close_notify` was cut, by somebody, and
//! its last chunk is an error (RFC 8446 §6.1): else the end of a body that lasts to the end could be forged.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rustls::SupportedCipherSuite;
use rustls_pki_types::CertificateDer;

use super::handshake::{Agreed, Kernel};
use super::record::{self, ALERT, DATA, Fault, HANDSHAKE, Keys};
use super::sealing::Sealing;
use crate::ring::{self, Chunk};

/// Records without a byte, one after the other. OpenSSL once sent one before each record, against a weakness of
/// TLS 1.0; BoringSSL's limit, and rustls'.
const EMPTY_MAX: u8 = 32;
/// Key updates without data between them. BoringSSL's limit, and rustls'.
const KEY_UPDATES_MAX: u8 = 32;
/// Warnings that end nothing, of a whole connection. BoringSSL's limit, and rustls'.
const WARNINGS_MAX: u8 = 4;
/// Bytes of a message after the handshake: a ticket holds a chain of certificates at most.
const MESSAGE_MAX: usize = 64 * 1024;
/// Records smaller than that are handed out together: who sends byte by byte must not cost a task's turn a byte.
const TOGETHER_BELOW: usize = 2048;

/// Hears what a peer does that honest ones do seldom.
pub trait Observer: fmt::Debug {
    /// It did that. False: enough, cut it.
    fn saw(&self, trouble: Trouble) -> bool;
}

/// What honest peers do seldom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// New keys: a derivation and two key schedules for us, 22 bytes for the peer.
    KeyUpdate,
    /// A record without a byte.
    EmptyRecord,
    /// A warning that ends nothing.
    Warning,
    /// A record that is not the peer's or that may not come now: a second handshake, for one. It ends the connection.
    Fault,
}

/// One connection.
pub struct Stream {
    sealing: Rc<Sealing>,
    opening: Keys,
    suite: SupportedCipherSuite,
    /// Received and not looked at: whole records.
    incoming: Chunk,
    /// The beginning of a record.
    partial: Vec<u8>,
    /// The beginning of a message after the handshake.
    message: Vec<u8>,
    /// In the clear, received with the handshake.
    plain: Chunk,
    ended: Option<Ended>,
    empty: u8,
    key_updates: u8,
    warnings: u8,
    protocol: Option<Box<[u8]>>,
    certificates: Vec<CertificateDer<'static>>,
    observer: Option<Rc<dyn Observer>>,
}

#[derive(Clone, Copy, Debug)]
enum Ended {
    /// The peer said that it is.
    Said,
    /// It just was.
    Cut,
    Failed(Fault),
}

// === impl Stream ===

impl Stream {
    pub(super) fn new(
        below: ring::Stream,
        agreed: Agreed,
        observer: Option<Rc<dyn Observer>>,
    ) -> Result<Self, rustls::Error> {
        let suite = agreed.kernel.suite();
        let opening = Keys::new(suite, agreed.secrets.rx)?;
        let sealing = Sealing::new(below, Keys::new(suite, agreed.secrets.tx)?, agreed.kernel);
        Ok(Self {
            sealing,
            opening,
            suite,
            incoming: Chunk::from(agreed.sealed),
            partial: Vec::new(),
            message: Vec::new(),
            plain: Chunk::from(agreed.plain),
            ended: None,
            empty: 0,
            key_updates: 0,
            warnings: 0,
            protocol: agreed.protocol,
            certificates: agreed.certificates,
            observer,
        })
    }

    /// The connection underneath.
    #[must_use]
    pub fn below(&self) -> &ring::Stream {
        self.sealing.below()
    }

    /// What ALPN agreed on.
    #[must_use]
    pub fn protocol(&self) -> Option<&[u8]> {
        self.protocol.as_deref()
    }

    /// The peer's certificate chain as sent, end entity first; empty if it sent none.
    #[must_use]
    pub fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// Gives up the peer's certificate chain.
    pub fn forget_peer_certificates(&mut self) {
        self.certificates = Vec::new();
    }

    /// The next bytes; an empty chunk is the end, as the peer said. Nothing is held while nothing is there.
    ///
    /// # Errors
    /// The connection is broken; what came is not the peer's, or not TLS; `UnexpectedEof` if it ended without a word.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Chunk>> {
        if !self.plain.is_empty() {
            return Poll::Ready(Ok(std::mem::take(&mut self.plain)));
        }
        loop {
            match self.ended {
                None => {}
                Some(Ended::Said) => return Poll::Ready(Ok(Chunk::default())),
                Some(Ended::Cut) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Some(Ended::Failed(fault)) => return Poll::Ready(Err(fault.into())),
            }
            match self.take() {
                Ok(Some(plain)) => return Poll::Ready(Ok(plain)),
                Ok(None) if self.ended.is_some() => {}
                Ok(None) => {
                    let chunk = ready!(self.below().poll_recv(cx))?;
                    if chunk.is_empty() {
                        self.ended = Some(Ended::Cut);
                    }
                    self.incoming = chunk;
                }
                Err(fault) => {
                    self.ended = Some(Ended::Failed(fault));
                    self.incoming = Chunk::default();
                    if let Some(observer) = &self.observer
                        && !matches!(fault, Fault::TooMany | Fault::Alerted(_))
                    {
                        observer.saw(Trouble::Fault);
                    }
                    if let Some(alert) = fault.alert() {
                        self.sealing.put_control(ALERT, &[FATAL, alert]);
                    }
                }
            }
        }
    }

    /// Room to put more.
    ///
    /// # Errors
    /// The connection is broken, or its keys are used up.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.sealing.check()?;
        self.below().poll_room(cx)
    }

    /// The kernel has taken all that was put.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.sealing.seal_now();
        self.below().poll_sent(cx)
    }

    /// Our side is closed, and says so, once everything is sent.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_close(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.sealing.put_end();
        self.below().poll_close(cx)
    }

    /// Sends these bytes at the end of the turn.
    pub fn put(&self, bytes: &[u8]) {
        self.sealing.put(bytes);
    }

    /// Sends these bytes at the end of the turn. They are not copied, but sealed, if they are many.
    pub fn put_bytes(&self, bytes: &Bytes) {
        self.sealing.put(bytes);
    }

    /// Bytes put that the kernel has not taken.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.sealing.unsent()
    }

    /// Data out of what was received and not looked at; `None`: more must be received.
    fn take(&mut self) -> Result<Option<Chunk>, Fault> {
        while !self.partial.is_empty() && !self.incoming.is_empty() {
            let missing = record::missing(&self.partial)?;
            let came = missing.min(self.incoming.len());
            self.partial.extend_from_slice(&self.incoming[..came]);
            self.incoming.advance(came);
            if record::whole(&self.partial)?.is_some() {
                let mut whole = Chunk::from(std::mem::take(&mut self.partial));
                let plain = self.open_all(&mut whole)?;
                if plain.is_some() || self.ended.is_some() {
                    self.put_back(None)?;
                    return Ok(plain);
                }
            }
        }
        let mut incoming = std::mem::take(&mut self.incoming);
        let plain = self.open_all(&mut incoming)?;
        self.put_back(Some(incoming))?;
        Ok(plain)
    }

    /// Keeps what is left of the chunk for the next time if a record of it is whole; else gives the chunk back and
    /// keeps a copy.
    fn put_back(&mut self, left: Option<Chunk>) -> Result<(), Fault> {
        if let Some(left) = left {
            self.incoming = left;
        }
        if self.ended.is_some() {
            self.incoming = Chunk::default(); // nobody asks what comes after the end
        } else if self.partial.is_empty() && record::whole(&self.incoming)?.is_none() {
            self.partial.extend_from_slice(&self.incoming);
            self.incoming = Chunk::default();
        } else if self.incoming.is_empty() {
            self.incoming = Chunk::default();
        }
        Ok(())
    }

    /// Opens whole records at the front of a chunk: the first with data, and small ones behind it.
    fn open_all(&mut self, chunk: &mut Chunk) -> Result<Option<Chunk>, Fault> {
        let (mut used, mut data) = (0, 0..0);
        while self.ended.is_none()
            && let Some(length) = record::whole(&chunk[used..])?
        {
            if !data.is_empty() && length > TOGETHER_BELOW {
                break;
            }
            let (kind, within) = self.opening.open(&mut chunk[used..used + length])?;
            let opened = used + within.start..used + within.end;
            used += length;
            if kind != DATA || opened.is_empty() {
                self.beside_data(kind, &chunk[opened])?;
                continue;
            }
            if !self.message.is_empty() {
                return Err(Fault::Unexpected); // in the middle of a message
            }
            (self.empty, self.key_updates) = (0, 0);
            if data.is_empty() {
                data = opened;
            } else {
                let length = opened.len();
                chunk.copy_within(opened, data.end);
                data.end += length;
            }
        }
        // Mostly nothing is behind them: then the chunk itself goes on.
        let mut plain = if used == chunk.len() { std::mem::take(chunk) } else { chunk.split_to(used) };
        if data.is_empty() {
            return Ok(None);
        }
        plain.advance(data.start);
        plain.truncate(data.len());
        Ok(Some(plain))
    }

    /// Everything that is not data.
    fn beside_data(&mut self, kind: u8, bytes: &[u8]) -> Result<(), Fault> {
        if kind != HANDSHAKE && !self.message.is_empty() {
            return Err(Fault::Unexpected);
        }
        match kind {
            DATA => {
                self.empty += 1;
                self.report(Trouble::EmptyRecord, self.empty > EMPTY_MAX)
            }
            ALERT => self.alert(bytes),
            HANDSHAKE if self.suite.tls13().is_some() && !bytes.is_empty() => self.messages(bytes),
            _ => Err(Fault::Unexpected), // renegotiation, for one
        }
    }

    fn alert(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let [level, alert] = *bytes else { return Err(Fault::Malformed) };
        let harmless = if self.suite.tls13().is_some() { alert == USER_CANCELED } else { level == WARNING };
        if alert == CLOSE_NOTIFY {
            self.ended = Some(Ended::Said);
            return Ok(());
        }
        if !harmless {
            return Err(Fault::Alerted(alert));
        }
        self.warnings += 1;
        self.report(Trouble::Warning, self.warnings > WARNINGS_MAX)
    }

    /// Messages of TLS 1.3 after the handshake, whole ones and pieces.
    fn messages(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.message.extend_from_slice(bytes);
        let all = std::mem::take(&mut self.message);
        let mut rest = &all[..];
        while let Some(([kind, high, middle, low], behind)) = rest.split_first_chunk() {
            let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            if length > MESSAGE_MAX {
                return Err(Fault::Overflow);
            }
            let Some((body, behind)) = behind.split_at_checked(length) else { break };
            match (*kind, body) {
                // Keys change between records, not within one.
                (KEY_UPDATE, [asked @ (0 | 1)]) if behind.is_empty() => self.update_keys(*asked == 1)?,
                (KEY_UPDATE, [0 | 1]) => return Err(Fault::Unexpected),
                (KEY_UPDATE, _) => return Err(Fault::Malformed),
                (NEW_SESSION_TICKET, ticket) => self.sealing.remember(ticket)?,
                _ => return Err(Fault::Unexpected),
            }
            rest = behind;
        }
        self.message.extend_from_slice(rest);
        Ok(())
    }

    /// The peer has new keys; `asked`: and wants us to have new ones too.
    fn update_keys(&mut self, asked: bool) -> Result<(), Fault> {
        self.key_updates += 1;
        self.report(Trouble::KeyUpdate, self.key_updates > KEY_UPDATES_MAX)?;
        self.opening = self.sealing.peer_keys()?;
        if asked {
            self.sealing.update_keys()?;
        }
        Ok(())
    }

    fn report(&self, trouble: Trouble, too_many: bool) -> Result<(), Fault> {
        let go_on = self.observer.as_ref().is_none_or(|observer| observer.saw(trouble));
        if too_many || !go_on { Err(Fault::TooMany) } else { Ok(()) }
    }
}

/// RFC 8446 §6 and §4.
pub(super) const WARNING: u8 = 1;
pub(super) const FATAL: u8 = 2;
pub(super) const CLOSE_NOTIFY: u8 = 0;
const USER_CANCELED: u8 = 90;
pub(super) const KEY_UPDATE: u8 = 24;
const NEW_SESSION_TICKET: u8 = 4;

impl fmt::Debug for Stream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Stream")
            .field("below", self.below())
            .field("suite", &self.suite.suite())
            .field("protocol", &self.protocol)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

// === impl Kernel ===

impl Kernel {
    pub(super) fn suite(&self) -> SupportedCipherSuite {
        match self {
            Self::Server(kernel) => kernel.negotiated_cipher_suite(),
            Self::Client(kernel) => kernel.negotiated_cipher_suite(),
        }
    }
}

#[cfg(test)]
mod tests;
