//! Header lines of an answer that is relayed as they came: bytes, no map.
//!
//! They are read as strictly as others; what they say about the message is taken from them, and what is of the
//! connection that they came over left out. For whoever would only copy them from one map to the next: a map costs
//! each line a hash, a place, a reference to its bytes and a name to be spelled anew.

use bytes::Bytes;
use http_body::Body;
use http_body_util::combinators::BoxBody;

/// Header lines, each as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines(Vec<u8>);

/// Names of lines that are left out. Those that frame the body, and `Connection`, are left out anyway.
#[derive(Clone, Copy, Debug)]
pub struct LeftOut {
    names: &'static [&'static str],
    /// A bit for each length below 64 that a name has: most lines are told by theirs.
    lengths: u64,
}

/// An answer's body, which may bring lines of the head along: they are written behind those of the map.
pub trait Answered: Body<Data = Bytes> {
    /// Takes them.
    fn take_lines(&mut self) -> Option<Lines> {
        None
    }
}

impl<E> Answered for BoxBody<Bytes, E> {}

impl LeftOut {
    /// These, each shorter than 64 bytes.
    #[must_use]
    pub const fn new(names: &'static [&'static str]) -> Self {
        let (mut lengths, mut index) = (0, 0);
        while index < names.len() {
            assert!(names[index].len() < 64);
            lengths |= 1 << names[index].len();
            index += 1;
        }
        Self { names, lengths }
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        name.len() < 64
            && self.lengths & 1 << name.len() != 0
            && self.names.iter().any(|one| one.eq_ignore_ascii_case(name))
    }
}

impl Lines {
    /// None, with room for so many bytes.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// One more line. Name and value have been looked at: no byte of them ends a line.
    pub(super) fn push(&mut self, name: &[u8], value: &[u8]) {
        for part in [name, b": ", value, b"\r\n"] {
            self.0.extend_from_slice(part);
        }
    }

    /// More lines.
    pub fn append(&mut self, more: &Self) {
        self.0.extend_from_slice(&more.0);
    }

    /// As they are written.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl FromIterator<(http::HeaderName, http::HeaderValue)> for Lines {
    fn from_iter<I: IntoIterator<Item = (http::HeaderName, http::HeaderValue)>>(lines: I) -> Self {
        let mut out = Vec::new();
        for (name, value) in lines {
            super::encode::line(&mut out, &name, value.as_bytes());
        }
        Self(out)
    }
}
