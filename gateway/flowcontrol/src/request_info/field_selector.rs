//! The grammar of field selectors: `field=value`, `field==value`, `field!=value`, joined by commas.
//!
//! In values a backslash escapes itself, the comma and the equals sign. Empty terms are skipped. The
//! reference sorts the terms bytewise, whole and as written, before it looks for anything: of several
//! terms that require a value of the same field, the least one counts. So no sorting is needed here.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use super::Malformed;

/// The value that the selector requires of `field`, if any.
pub(super) fn required<'a>(selector: &'a [u8], field: &[u8]) -> Result<Option<Cow<'a, [u8]>>, Malformed> {
    let mut least: Option<(&[u8], Cow<'a, [u8]>)> = None;
    for term in Terms(Some(selector)).filter(|term| !term.is_empty()) {
        let (key, requires, value) = split_term(term).ok_or(Malformed)?;
        let value = unescape(value)?;
        if requires && key == field && least.as_ref().is_none_or(|(found, _)| term < *found) {
            least = Some((term, value));
        }
    }
    Ok(least.map(|(_, value)| value))
}

/// What lies between commas that no backslash escapes.
struct Terms<'a>(Option<&'a [u8]>);

impl<'a> Iterator for Terms<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.0?;
        let mut escaped = false;
        let comma = rest.iter().position(|&byte| {
            let ends = byte == b',' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        match comma {
            Some(at) => {
                self.0 = Some(&rest[at + 1..]);
                Some(&rest[..at])
            }
            None => self.0.take(),
        }
    }
}

/// Key, whether the value is required (else forbidden), value as written; at the first operator.
fn split_term(term: &[u8]) -> Option<(&[u8], bool, &[u8])> {
    let at = (0..term.len()).find(|&at| term[at] == b'=' || term[at..].starts_with(b"!="))?;
    let (key, rest) = term.split_at(at);
    let width = if rest.starts_with(b"!=") || rest.starts_with(b"==") { 2 } else { 1 };
    Some((key, rest[0] == b'=', &rest[width..]))
}

/// Takes the backslashes out of a value.
fn unescape(value: &[u8]) -> Result<Cow<'_, [u8]>, Malformed> {
    if !value.iter().any(|byte| matches!(byte, b'\\' | b',' | b'=')) {
        return Ok(Cow::Borrowed(value));
    }
    let mut plain = Vec::with_capacity(value.len());
    let mut escaped = false;
    for &byte in value {
        match (escaped, byte) {
            (true, b'\\' | b',' | b'=') => plain.push(byte),
            (false, b'\\') => {}
            (true, _) | (false, b',' | b'=') => return Err(Malformed),
            (false, _) => plain.push(byte),
        }
        escaped = !escaped && byte == b'\\';
    }
    if escaped {
        return Err(Malformed);
    }
    // The reference goes through such a value by character: bytes that are none become U+FFFD.
    Ok(Cow::Owned(match String::from_utf8(plain) {
        Ok(valid) => valid.into_bytes(),
        Err(error) => replace_invalid(error.as_bytes()),
    }))
}

/// Every byte that belongs to no character becomes one U+FFFD.
fn replace_invalid(bytes: &[u8]) -> Vec<u8> {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text.into_bytes()
}
