//! A request target to its path, percent-decoded, and its query, as written.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use core::fmt;

use super::query::hex_pair;
use crate::objects::status::quoted;

/// Why a request target says nothing about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetError {
    /// It is no origin-form target: it does not begin with `/`, or it holds control characters or a `%`
    /// without two hexadecimal digits. An HTTP server refuses it before anything else: 400.
    Malformed,
    /// `watch` or `proxy` stands in the path with nothing after it: the attributes cannot be
    /// determined, 500.
    NoResource,
}

// === impl TargetError ===

impl TargetError {
    /// Status of the answer.
    pub fn status(self) -> u16 {
        match self {
            Self::Malformed => 400,
            Self::NoResource => 500,
        }
    }

    /// What the client is told, in plain text and kube-apiserver's words, without a final newline.
    pub fn message(self, target: &str) -> String {
        match self {
            Self::Malformed => String::from("400 Bad Request"),
            Self::NoResource => {
                let quoted = quoted(target);
                escape_html(&format!(
                    "Internal Server Error: {quoted}: failed to create RequestInfo: {self}, {target}"
                ))
            }
        }
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Malformed => "the request target is malformed",
            Self::NoResource => "unable to determine kind and namespace from url",
        })
    }
}

impl core::error::Error for TargetError {}

/// Splits at the first `?` and decodes what stands before it.
pub(super) fn split(target: &str) -> Result<(Cow<'_, [u8]>, &str), TargetError> {
    // Every byte, whatever is found: several are compared at once then.
    let has_control = target.bytes().fold(false, |found, byte| found | byte.is_ascii_control());
    if !target.starts_with('/') || has_control {
        return Err(TargetError::Malformed);
    }
    let mark = target.bytes().position(|byte| byte == b'?');
    let (path, query) = mark.map_or((target, ""), |mark| (&target[..mark], &target[mark + 1..]));
    Ok((decode_path(path.as_bytes()).ok_or(TargetError::Malformed)?, query))
}

/// Percent-decodes a path; `+` stays `+`.
fn decode_path(path: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !path.contains(&b'%') {
        return Some(Cow::Borrowed(path));
    }
    let first = path.iter().position(|&byte| byte == b'%')?;
    let (plain, mut rest) = path.split_at(first);
    let mut decoded = plain.to_vec();
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'%' {
            decoded.push(hex_pair(after)?);
            rest = &after[2..];
        } else {
            decoded.push(byte);
            rest = after;
        }
    }
    Some(Cow::Owned(decoded))
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
