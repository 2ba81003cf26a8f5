//! Bytes that came in, on loan.

use std::fmt;
use std::ops::{Deref, DerefMut};

use bytes::{Bytes, BytesMut};

/// Bytes received on one connection. Dropped, their memory goes back to where it came from; who needs bytes for
/// longer than a turn or two copies them, so that slow peers hold little.
#[derive(Default)]
pub struct Chunk(BytesMut);

// === impl Chunk ===

impl Chunk {
    /// The first `count` bytes are done with.
    ///
    /// # Panics
    /// There are fewer.
    pub fn advance(&mut self, count: usize) {
        bytes::Buf::advance(&mut self.0, count);
    }

    /// Takes the first `count` bytes off, without copying.
    ///
    /// # Panics
    /// There are fewer.
    #[must_use]
    pub fn split_to(&mut self, count: usize) -> Self {
        Self(self.0.split_to(count))
    }

    /// The same bytes, to keep. No copy if the memory is nobody else's.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0.freeze()
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Chunk {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl From<&[u8]> for Chunk {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl From<Vec<u8>> for Chunk {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Bytes::from(bytes).into())
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Chunk({} bytes)", self.len())
    }
}
