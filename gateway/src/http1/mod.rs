//! HTTP/1.1 of our own: bytes in, heads and pieces of bodies out, and the way back.
//!
//! [`head`] reads the head of a request or an answer, [`Gather`] one that comes in pieces, [`Decoder`] the body
//! behind it, [`encode`] writes all three. None of them waits, reads a clock or knows a connection; every limit is
//! named. On top of them a client's [`Connection`] serves one request after the other, all in one task: the service
//! reads the request's body ([`Incoming`]) from the connection's own wire, and the connection pulls the answer.
//!
//! Where a message could be cut up in two ways (RFC 9112, section 11.2) it is refused with a [`Fault`]:
//! what is relayed here has one meaning only. hyper is the reference.

mod body;
pub mod encode;
mod fault;
mod gather;
pub mod head;
mod incoming;
mod lines;
mod server;

pub use body::{Decoder, Part};
pub use encode::Encoder;
pub use fault::Fault;
pub use gather::Gather;
pub use head::{RequestHead, ResponseHead};
pub use incoming::{Incoming, IncomingFault};
pub use lines::{Answered, LeftOut, Lines};
pub use server::{Connection, End};

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

/// What a connection did that honest clients do seldom. How often, since it was last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddities {
    /// Requests that were sent before the answers to many others.
    pub pipelined: u32,
    /// Requests answered before they had ended.
    pub unfinished: u32,
    /// Chunks with an extension longer than any that means something.
    pub extensions: u32,
    /// Trailers larger than a gRPC client's.
    pub trailers: u32,
    /// Chunks of a few bytes.
    pub tiny_chunks: u32,
}

impl Framing {
    /// Of a body of a known length.
    #[must_use]
    pub fn of_length(length: u64) -> Self {
        if length == 0 { Self::None } else { Self::Length(length) }
    }
}
