//! The query of a request target, read as Go's `net/url` reads it.
//!
//! Pairs are separated by `&`. Empty pairs, pairs with a `;` and pairs with an invalid escape are dropped
//! without a word; `+` is a space; a name may occur several times and the first value is the one that
//! counts.

use alloc::borrow::Cow;

/// A query as written, without its `?`.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a>(&'a str);

/// More pairs than this and Go reads none of them (Go 1.26, `urlmaxqueryparams`).
const PAIRS_MAX: usize = 10_000;

// === impl Query ===

impl<'a> Query<'a> {
    /// The query of those words.
    pub fn of(text: &'a str) -> Self {
        // Fewer bytes cannot hold so many separators.
        let few = text.len() < PAIRS_MAX || text.bytes().filter(|&byte| byte == b'&').count() < PAIRS_MAX;
        Self(if few { text } else { "" })
    }

    /// Names and values, decoded, in order.
    pub fn pairs(self) -> impl Iterator<Item = (Cow<'a, [u8]>, Cow<'a, [u8]>)> {
        self.0.as_bytes().split(|&byte| byte == b'&').filter_map(|pair| {
            if pair.is_empty() || pair.contains(&b';') {
                return None;
            }
            let (name, value) = match pair.iter().position(|&byte| byte == b'=') {
                Some(at) => (&pair[..at], &pair[at + 1..]),
                None => (pair, &[][..]),
            };
            Some((unescape(name)?, unescape(value)?))
        })
    }

    /// The first value of that name.
    pub fn first(self, name: &str) -> Option<Cow<'a, [u8]>> {
        self.pairs().find(|(found, _)| **found == *name.as_bytes()).map(|(_, value)| value)
    }
}

/// Decodes a name or a value; `None` if an escape is invalid.
fn unescape(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    let Some(first) = text.iter().position(|&byte| matches!(byte, b'%' | b'+')) else {
        return Some(Cow::Borrowed(text));
    };
    let (plain, mut rest) = text.split_at(first);
    let mut decoded = plain.to_vec();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        decoded.push(match byte {
            b'%' => {
                rest = after.get(2..)?;
                hex_pair(after)?
            }
            b'+' => b' ',
            plain => plain,
        });
    }
    Some(Cow::Owned(decoded))
}

/// The byte that the first two characters write in hexadecimal.
pub(super) fn hex_pair(text: &[u8]) -> Option<u8> {
    let digit =
        |at: usize| char::from(*text.get(at)?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(0)? << 4 | digit(1)?)
}
