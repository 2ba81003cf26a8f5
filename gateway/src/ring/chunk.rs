//! Bytes that came in, on loan.

use std::fmt;
use std::ops::{Deref, DerefMut};

use bytes::{Bytes, BytesMut};

use super::uring::Lent;

/// Bytes received on one connection. Dropped, their memory goes back to where it came from; who needs bytes for
/// longer than a turn or two copies them, so that slow peers hold little.
pub struct Chunk(Memory);

enum Memory {
    /// Its own.
    Owned(BytesMut),
    /// A part of a buffer that the kernel fills.
    Lent(Lent),
}

// === impl Chunk ===

impl Chunk {
    /// The first `count` bytes are done with.
    ///
    /// # Panics
    /// There are fewer.
    pub fn advance(&mut self, count: usize) {
        match &mut self.0 {
            Memory::Owned(bytes) => bytes::Buf::advance(bytes, count),
            Memory::Lent(lent) => lent.advance(count),
        }
    }

    /// Takes the first `count` bytes off, without copying.
    ///
    /// # Panics
    /// There are fewer.
    #[must_use]
    pub fn split_to(&mut self, count: usize) -> Self {
        Self(match &mut self.0 {
            Memory::Owned(bytes) => Memory::Owned(bytes.split_to(count)),
            Memory::Lent(lent) => Memory::Lent(lent.split_to(count)),
        })
    }

    /// Only the first `count` bytes are left, if there are more.
    pub fn truncate(&mut self, count: usize) {
        match &mut self.0 {
            Memory::Owned(bytes) => bytes.truncate(count),
            Memory::Lent(lent) => lent.truncate(count),
        }
    }

    /// The same bytes, to keep. No copy if the memory is the chunk's own.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        match self.0 {
            Memory::Owned(bytes) => bytes.freeze(),
            Memory::Lent(lent) => Bytes::copy_from_slice(&lent),
        }
    }

    pub(super) fn lent(lent: Lent) -> Self {
        Self(Memory::Lent(lent))
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Owned(bytes) => bytes,
            Memory::Lent(lent) => lent,
        }
    }
}

impl DerefMut for Chunk {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Owned(bytes) => bytes,
            Memory::Lent(lent) => lent,
        }
    }
}

impl Default for Chunk {
    fn default() -> Self {
        Self(Memory::Owned(BytesMut::new()))
    }
}

impl From<&[u8]> for Chunk {
    fn from(bytes: &[u8]) -> Self {
        Self(Memory::Owned(bytes.into()))
    }
}

impl From<Vec<u8>> for Chunk {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Memory::Owned(Bytes::from(bytes).into()))
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Chunk({} bytes)", self.len())
    }
}
