//! The record layer after the handshake: RFC 8446 §5 for TLS 1.3; RFC 5246 §6.2 with RFC 5288 (AES-GCM) and RFC 7905
//! (ChaCha20-Poly1305) for TLS 1.2.
//!
//! rustls shakes hands and derives the keys. From then on records are opened where they were received and sealed where
//! they will be sent: rustls 0.23 itself, its unbuffered API included, copies every record once on its way in and twice
//! on its way out. No cryptography is done here: one call of aws-lc, the library under rustls, does a record.

use std::fmt;
use std::ops::Range;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::{ConnectionTrafficSecrets, SupportedCipherSuite};

/// Content types of records (RFC 8446 §5.1).
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
pub(super) const DATA: u8 = 23;

/// Most bytes of a record in the clear.
pub(super) const PLAIN_MAX: usize = 16 * 1024;
const HEADER: usize = 5;
const TAG: usize = 16;
/// The part of a TLS 1.2 AES-GCM nonce that travels with the record.
const EXPLICIT: usize = 8;
/// What protection may add to a record (RFC 5246 §6.2.3); TLS 1.3 allows 256.
const GROWTH_MAX: usize = 2048;

/// Why a connection's records are refused. Each ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Not what may come now, renegotiation included.
    Unexpected,
    /// Not sealed with the connection's key, or in another order.
    BadMac,
    /// Too long.
    Overflow,
    /// Not as messages are written.
    Malformed,
    /// Too much of what is allowed now and then.
    TooMany,
    /// The peer has ended it with this alert.
    Alerted(u8),
    /// The keys have protected all that they can.
    Exhausted,
}

/// The keys of one direction, and how many records they have protected.
pub(super) struct Keys {
    key: LessSafeKey,
    iv: [u8; aead::NONCE_LEN],
    sequence: u64,
    /// The cipher's limit on records under one key (RFC 8446 §5.5).
    records_max: u64,
    shape: Shape,
}

/// How records are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Tls13,
    /// The nonce's second part travels with the record.
    Tls12Explicit,
    Tls12Implicit,
}

/// The first record's length, header included, if all of it is there.
pub(super) fn whole(bytes: &[u8]) -> Result<Option<usize>, Fault> {
    let Some(header) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
    let length = HEADER + length_of(header)?;
    Ok((bytes.len() >= length).then_some(length))
}

/// How many bytes are missing to the end of a record, or of its header.
pub(super) fn missing(bytes: &[u8]) -> Result<usize, Fault> {
    match bytes.first_chunk::<HEADER>() {
        Some(header) => Ok((HEADER + length_of(header)?).saturating_sub(bytes.len())),
        None => Ok(HEADER - bytes.len()),
    }
}

fn length_of([kind, major, _, high, low]: &[u8; HEADER]) -> Result<usize, Fault> {
    if !matches!(*kind, 20..=DATA) {
        return Err(Fault::Unexpected);
    }
    if *major != 3 {
        return Err(Fault::Malformed);
    }
    match usize::from(u16::from_be_bytes([*high, *low])) {
        length if length > PLAIN_MAX + GROWTH_MAX => Err(Fault::Overflow),
        length => Ok(length),
    }
}

// === impl Keys ===

impl Keys {
    /// Keys as rustls gives them, and the number of the next record.
    pub(super) fn new(
        suite: SupportedCipherSuite,
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
    ) -> Result<Self, rustls::Error> {
        let tls13 = suite.tls13().is_some();
        let (algorithm, key, iv, explicit) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&aead::AES_128_GCM, key, iv, true),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&aead::AES_256_GCM, key, iv, true),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                (&aead::CHACHA20_POLY1305, key, iv, false)
            }
            _ => return Err(rustls::Error::General("a cipher that is unknown here".to_owned())),
        };
        let shape = match (tls13, explicit) {
            (true, _) => Shape::Tls13,
            (false, true) => Shape::Tls12Explicit,
            (false, false) => Shape::Tls12Implicit,
        };
        let records_max = match suite {
            SupportedCipherSuite::Tls13(suite) => suite.common.confidentiality_limit,
            SupportedCipherSuite::Tls12(suite) => suite.common.confidentiality_limit,
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| rustls::Error::EncryptError)?;
        let iv = iv.as_ref().try_into().map_err(|_| rustls::Error::EncryptError)?;
        Ok(Self { key: LessSafeKey::new(key), iv, sequence, records_max, shape })
    }

    /// Whether these keys protect so many records more, and one to say that others follow.
    pub(super) fn last_for(&self, records: usize) -> bool {
        self.sequence.checked_add(records as u64 + 1).is_some_and(|last| last < self.records_max)
    }

    /// Bytes of a record that holds so many in the clear.
    pub(super) fn sealed_len(&self, plain: usize) -> usize {
        HEADER + self.prefix() + plain + self.suffix() + TAG
    }

    /// Bytes of the records that hold so many in the clear, full ones first.
    pub(super) fn sealed_len_of_all(&self, plain: usize) -> usize {
        let (full, rest) = (plain / PLAIN_MAX, plain % PLAIN_MAX);
        full * self.sealed_len(PLAIN_MAX) + if rest > 0 { self.sealed_len(rest) } else { 0 }
    }

    fn prefix(&self) -> usize {
        if self.shape == Shape::Tls12Explicit { EXPLICIT } else { 0 }
    }

    fn suffix(&self) -> usize {
        usize::from(self.shape == Shape::Tls13)
    }

    fn nonce(&self) -> [u8; aead::NONCE_LEN] {
        let mut nonce = self.iv;
        let sequence = self.sequence.to_be_bytes();
        nonce[4..].iter_mut().zip(sequence).for_each(|(byte, number)| *byte ^= number);
        nonce
    }

    /// What TLS 1.2 authenticates beside the bytes.
    fn authenticated(&self, kind: u8, plain: usize) -> Result<[u8; 13], Fault> {
        let mut all = [0; 13];
        all[..8].copy_from_slice(&self.sequence.to_be_bytes());
        all[8..11].copy_from_slice(&[kind, 3, 3]);
        all[11..].copy_from_slice(&u16::try_from(plain).map_err(|_| Fault::Overflow)?.to_be_bytes());
        Ok(all)
    }

    /// Seals one record into `out`, which is [`Keys::sealed_len`] bytes long.
    pub(super) fn seal(&mut self, kind: u8, plain: &[u8], out: &mut [u8]) -> Result<(), Fault> {
        if self.sequence >= self.records_max {
            return Err(Fault::Exhausted);
        }
        debug_assert!(plain.len() <= PLAIN_MAX && out.len() == self.sealed_len(plain.len()));
        let nonce = self.nonce();
        let shown = if self.shape == Shape::Tls13 { DATA } else { kind };
        let length = u16::try_from(out.len() - HEADER).map_err(|_| Fault::Overflow)?.to_be_bytes();
        let header = [shown, 3, 3, length[0], length[1]];
        let (start, rest) = out.split_at_mut(HEADER + self.prefix());
        start[..HEADER].copy_from_slice(&header);
        start[HEADER..].copy_from_slice(&nonce[aead::NONCE_LEN - self.prefix()..]);
        let (sealed, end) = rest.split_at_mut(plain.len());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let done = if self.shape == Shape::Tls13 {
            self.key.seal_out_of_place_scatter(nonce, Aad::from(header), plain, sealed, &[kind], end)
        } else {
            let beside = Aad::from(self.authenticated(kind, plain.len())?);
            self.key.seal_out_of_place_scatter(nonce, beside, plain, sealed, &[], end)
        };
        self.sequence += 1;
        done.map_err(|_| Fault::Exhausted)
    }

    /// Seals as many records as it takes into `out`, which is [`Keys::sealed_len_of_all`] bytes long.
    pub(super) fn seal_all(&mut self, plain: &[u8], mut out: &mut [u8]) -> Result<(), Fault> {
        for piece in plain.chunks(PLAIN_MAX) {
            let (record, rest) = out.split_at_mut(self.sealed_len(piece.len()));
            self.seal(DATA, piece, record)?;
            out = rest;
        }
        Ok(())
    }

    /// Opens a whole record in place: its content type, and where its bytes are.
    pub(super) fn open(&mut self, record: &mut [u8]) -> Result<(u8, Range<usize>), Fault> {
        let (header, body) = record.split_first_chunk_mut::<HEADER>().ok_or(Fault::Malformed)?;
        let kind = header[0];
        let mut nonce = self.nonce();
        let prefix = self.prefix();
        let (explicit, sealed) = body.split_at_mut_checked(prefix).ok_or(Fault::BadMac)?;
        nonce[aead::NONCE_LEN - prefix..].copy_from_slice(explicit);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = if self.shape == Shape::Tls13 {
            if kind != DATA {
                return Err(Fault::Unexpected);
            }
            self.key.open_in_place(nonce, Aad::from(*header), sealed)
        } else {
            let plain = sealed.len().checked_sub(TAG).ok_or(Fault::BadMac)?;
            self.key.open_in_place(nonce, Aad::from(self.authenticated(kind, plain)?), sealed)
        };
        let plain = opened.map_err(|_| Fault::BadMac)?;
        self.sequence = self.sequence.checked_add(1).ok_or(Fault::Exhausted)?;
        let (kind, length) = if self.shape == Shape::Tls13 {
            // Behind the bytes: their type, then padding.
            let last = plain.iter().rposition(|byte| *byte != 0).ok_or(Fault::Unexpected)?;
            (plain[last], last)
        } else {
            (kind, plain.len())
        };
        if length > PLAIN_MAX {
            return Err(Fault::Overflow);
        }
        let start = HEADER + prefix;
        Ok((kind, start..start + length))
    }
}

#[cfg(test)]
impl Keys {
    pub(super) fn expire_after(&mut self, records: u64) {
        self.records_max = self.sequence + records;
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Keys({:?}, record {})", self.shape, self.sequence)
    }
}

// === impl Fault ===

impl Fault {
    /// The alert that tells the peer (RFC 8446 §6.2); `None` if it knows, or cannot be told.
    pub(super) fn alert(self) -> Option<u8> {
        match self {
            Self::Unexpected | Self::TooMany => Some(10),
            Self::BadMac => Some(20),
            Self::Overflow => Some(22),
            Self::Malformed => Some(50),
            Self::Alerted(_) | Self::Exhausted => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unexpected => formatter.write_str("TLS: a message that may not come now"),
            Self::BadMac => formatter.write_str("TLS: a record that is not the peer's"),
            Self::Overflow => formatter.write_str("TLS: a record that is too long"),
            Self::Malformed => formatter.write_str("TLS: a malformed message"),
            Self::TooMany => formatter.write_str("TLS: too many key updates, empty records or warnings"),
            Self::Alerted(alert) => write!(formatter, "TLS: the peer ended it with alert {alert}"),
            Self::Exhausted => formatter.write_str("TLS: the keys have protected all that they can"),
        }
    }
}

impl std::error::Error for Fault {}

impl From<Fault> for std::io::Error {
    fn from(fault: Fault) -> Self {
        Self::new(std::io::ErrorKind::InvalidData, fault)
    }
}
