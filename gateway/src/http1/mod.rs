//! HTTP/1.1 of our own, without I/O: bytes in, heads and pieces of bodies out, and the way back.
//!
//! [`head`] reads the head of a request or an answer, [`Gather`] one that comes in pieces, [`Decoder`] the body
//! behind it, [`encode`] writes all three. Nothing here waits, reads a clock or knows a connection; every limit is
//! named. Where a message could be cut up in two ways (RFC 9112, section 11.2) it is refused with a [`Fault`]:
//! what is relayed here has one meaning only. hyper is the reference.

mod body;
pub mod encode;
mod fault;
mod gather;
pub mod head;

pub use body::{Decoder, Part};
pub use encode::Encoder;
pub use fault::Fault;
pub use gather::Gather;
pub use head::{RequestHead, ResponseHead};

/// Who speaks HTTP/1.1, with clients and with apiservers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Speaker {
    /// usher itself, by what is in this room.
    #[default]
    Own,
    /// hyper: what ours is compared with, and what to fall back on.
    Hyper,
}

/// How a message's body is delimited (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// So many bytes, at least one.
    Length(u64),
    /// Chunks, each with its size before it.
    Chunked,
    /// Whatever comes until the connection is closed. Answers only.
    UntilClose,
}

/// What a head may take up.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes, with the line that begins it and the empty one that ends it.
    pub bytes: usize,
    /// Header lines.
    pub lines: usize,
}

impl Framing {
    /// Of a body of a known length.
    #[must_use]
    pub fn of_length(length: u64) -> Self {
        if length == 0 { Self::None } else { Self::Length(length) }
    }
}
