//! Where requests carry bearer tokens: `Authorization`, or for browsers a WebSocket subprotocol.
//!
//! Found exactly where kube-apiserver finds them, because what it does not take for a token leaves a request
//! anonymous instead of unauthorized.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, HeaderValue};
use memchr::memchr;

/// Prefix of the WebSocket subprotocol that carries a token, base64url without padding.
const PROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// A place where a token was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// None there.
    Nothing,
    /// One that no authenticator could accept.
    Unusable,
    /// This one.
    Token(Cow<'a, str>),
}

/// The token of the first `Authorization` line: `Bearer`, one blank, the token; what follows a second blank is
/// ignored.
pub(super) fn authorization(headers: &HeaderMap) -> Found<'_> {
    let Some(line) = headers.get(AUTHORIZATION) else { return Found::Nothing };
    let line = line.as_bytes().trim_ascii();
    let Some(blank) = line.iter().position(|&byte| byte == b' ') else { return Found::Nothing };
    let (scheme, rest) = (&line[..blank], &line[blank + 1..]);
    let token = memchr(b' ', rest).map_or(rest, |blank| &rest[..blank]);
    if !scheme.eq_ignore_ascii_case(b"bearer") || token.is_empty() {
        return Found::Nothing;
    }
    str::from_utf8(token).map_or(Found::Unusable, |token| Found::Token(token.into()))
}

/// The token among the subprotocols of a request that asks to speak `upgrade`, if that is a WebSocket. There must be
/// one at most, and another subprotocol beside it.
pub(super) fn web_socket(headers: &HeaderMap, upgrade: Option<&HeaderValue>) -> Found<'static> {
    if !upgrade.is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket")) {
        return Found::Nothing;
    }
    let mut token = None;
    let mut others = false;
    for line in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
        for protocol in line.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            match protocol.strip_prefix(PROTOCOL_PREFIX.as_bytes()) {
                None => others = true,
                Some(_) if token.is_some() => return Found::Unusable,
                Some(encoded) => token = Some(encoded),
            }
        }
    }
    let decoded = match token.map(|encoded| URL_SAFE_NO_PAD.decode(encoded)) {
        None => return Found::Nothing,
        Some(Err(_)) => return Found::Unusable,
        Some(Ok(decoded)) => String::from_utf8(decoded),
    };
    match decoded {
        Ok(token) if token.is_empty() => Found::Nothing,
        Ok(token) if others => Found::Token(token.into()),
        _ => Found::Unusable,
    }
}

#[cfg(test)]
mod tests;
