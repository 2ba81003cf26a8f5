//! A head that comes in pieces.

use super::head::Head;
use super::{Fault, Limits};

/// The pieces of a head so far. Holds nothing while heads come whole, as nearly all do.
#[derive(Debug, Default)]
pub struct Gather(Vec<u8>);

impl Gather {
    /// Whether a head has begun.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        !self.0.is_empty()
    }

    /// Takes the next bytes. With the head come how many of *these* bytes belong to it; without one, all of them
    /// were taken. Each byte is looked at a few times at most, however small the pieces are.
    ///
    /// # Errors
    /// [`Fault`]: the head is malformed or too large.
    pub fn feed<H: Head>(
        &mut self,
        more: &[u8],
        limits: &Limits,
        parse: impl FnOnce(&[u8], &Limits) -> Result<Option<H>, Fault>,
    ) -> Result<Option<(H, usize)>, Fault> {
        if self.0.is_empty() {
            let begun = &more[empty_lines(more)..];
            let skipped = more.len() - begun.len();
            if begun.is_empty() {
                return Ok(None);
            }
            let Some(head) = parse(begun, limits)? else {
                self.0.extend_from_slice(begun);
                return Ok(None);
            };
            let used = head.used();
            return Ok(Some((head, skipped + used)));
        }
        let before = self.0.len();
        let room = limits.bytes.saturating_add(1).saturating_sub(before);
        self.0.extend_from_slice(&more[..more.len().min(room)]);
        if !may_be_complete(&self.0, before) {
            return if self.0.len() > limits.bytes { Err(Fault::HeadTooLarge) } else { Ok(None) };
        }
        let Some(head) = parse(&self.0, limits)? else { return Ok(None) };
        let used = head.used() - before;
        self.0 = Vec::new();
        Ok(Some((head, used)))
    }
}

/// Bytes of empty lines, which may precede a request (RFC 9112, section 2.2).
fn empty_lines(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let [b'\n', after @ ..] | [b'\r', b'\n', after @ ..] = rest {
        rest = after;
    }
    bytes.len() - rest.len()
}

/// Whether an empty line ends in what came after the first `before` bytes.
fn may_be_complete(bytes: &[u8], before: usize) -> bool {
    let from = before.saturating_sub(3);
    let new = &bytes[from..];
    new.iter()
        .enumerate()
        .any(|(at, byte)| *byte == b'\n' && matches!(&new[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}
