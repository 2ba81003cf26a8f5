//! Headers that are of one connection only, and the shape of a request's target.
//!
//! What belongs to a connection (RFC 9110, section 7.6.1) is not relayed; neither `Via` nor `Date` is added.
//! The client's `Host` is kept: kube-apiserver does not look at it, what stands behind it may.

use http::header::{
    CONNECTION, DATE, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::Authority;
use http::{Method, Request, Version};

use super::audit::AUDIT_ID;
use super::uids;
use crate::http1::LeftOut;

/// Header lines that are of one connection, besides those that `Connection`, the first, names.
const OF_CONNECTION: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "transfer-encoding",
    "upgrade",
    "te",
];
const HAS_CONNECTION: u8 = 1;
const HAS_UPGRADE: u8 = 1 << 6;
const HAS_TE: u8 = 1 << 7;

/// Lines of an apiserver's answer that do not go on: those of its connection, and those that usher writes itself.
pub(super) const NOT_RELAYED: LeftOut = LeftOut::new(&[
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "upgrade",
    uids::LEVEL_NAME,
    uids::SCHEMA_NAME,
]);

/// What a client asks its connection for.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Protocols to switch to.
    pub(super) upgrade: Option<HeaderValue>,
}

/// Why a request is refused before anything else: the sentence for the client.
pub(super) type Malformed = &'static str;

/// Checks what names the server, leaves exactly one `Host`, and the target in origin form.
///
/// A target in absolute form, an `:authority` and a `Host` must name the same server: two parties that read
/// different ones see different requests.
pub(super) fn origin_form<B>(request: &mut Request<B>) -> Result<(), Malformed> {
    if *request.method() == Method::CONNECT {
        return Err("CONNECT is not offered here");
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next().cloned();
    if hosts.next().is_some() {
        return Err("too many Host headers");
    }
    if let Some(host) = &host {
        if !host.is_empty() && !is_authority(host.as_bytes()) {
            return Err("malformed Host header");
        }
    } else if request.version() == Version::HTTP_11 {
        return Err("missing required Host header");
    }
    if let Some(authority) = request.uri().authority() {
        if authority.as_str().contains('@') {
            return Err("a user in the request target");
        }
        let named = authority.as_str().as_bytes();
        if host.as_ref().is_some_and(|host| !host.as_bytes().eq_ignore_ascii_case(named)) {
            return Err("request target and Host name different servers");
        }
        let named = HeaderValue::from_bytes(named).map_err(|_| "malformed authority")?;
        request.headers_mut().insert(HOST, named);
        let origin = request.uri().path_and_query().cloned().ok_or("a request target without a path")?;
        *request.uri_mut() = origin.into();
    } // else it is
    Ok(())
}

/// Checks how the body is framed: chunked, once, or by its length. A coding that is undone here (or not known
/// here) would reach the apiserver as something else than the client sent.
pub(super) fn framing(headers: &HeaderMap) -> Result<(), Malformed> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err("a transfer coding other than chunked"),
    }
}

fn is_authority(bytes: &[u8]) -> bool {
    if is_plain_name(bytes) {
        return true;
    }
    Authority::try_from(bytes).is_ok_and(|authority| !authority.as_str().contains('@'))
}

/// A name or an IPv4 address, without port or with: nothing that would have to be taken apart.
fn is_plain_name(bytes: &[u8]) -> bool {
    let (name, port) = match bytes.iter().position(|byte| *byte == b':') {
        Some(colon) => (&bytes[..colon], &bytes[colon + 1..]),
        None => (bytes, &b"0"[..]),
    };
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    !name.is_empty()
        && name.iter().all(is_of_name)
        && matches!(port.len(), 1..=5)
        && port.iter().all(u8::is_ascii_digit)
}

/// Takes away what is of the client's connection.
pub(super) fn strip_request(headers: &mut HeaderMap, version: Version) -> Asked {
    let mut asked = Asked::default();
    let there = of_connection(headers);
    if there & HAS_UPGRADE != 0 && version == Version::HTTP_11 && names(headers, "upgrade") {
        asked.upgrade = headers.get(UPGRADE).cloned();
    }
    let asks_trailers = there & HAS_TE != 0 && asks_trailers(headers);
    strip(headers, there);
    if asks_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    asked
}

fn asks_trailers(headers: &HeaderMap) -> bool {
    headers.get_all(TE).iter().any(|value| {
        value.to_str().is_ok_and(|te| te.split(',').any(|one| one.trim().eq_ignore_ascii_case("trailers")))
    })
}

/// Takes away what is of the apiserver's connection, or of no HTTP/2 connection.
pub(super) fn strip_response(headers: &mut HeaderMap, version: Version) {
    // `TE` says nothing there; HTTP/2 forbids it all the same.
    let unwanted = if version == Version::HTTP_2 { !0 } else { !HAS_TE };
    strip(headers, of_connection(headers) & unwanted);
}

/// Answers over HTTP/2: what no later one repeats, or not for long, stays out of the connection's table of headers
/// (HPACK, 4 KiB), which would else drop for it what all of them repeat. "Never indexed" (RFC 7541, section 7.1.3)
/// says just that.
pub(super) fn keep_out_of_table(headers: &mut HeaderMap) {
    for name in [DATE, AUDIT_ID] {
        if let Some(value) = headers.get_mut(name) {
            value.set_sensitive(true);
        }
    }
}

/// Which of [`OF_CONNECTION`] there are, a bit for each: most heads have none of them, and looking once is cheaper than
/// looking for each.
fn of_connection(headers: &HeaderMap) -> u8 {
    let place = |name: &HeaderName| OF_CONNECTION.iter().position(|one| *one == name.as_str());
    headers.keys().filter_map(place).fold(0, |there, place| there | 1 << place)
}

fn strip(headers: &mut HeaderMap, there: u8) {
    if there & HAS_CONNECTION != 0 {
        let named: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .filter(|name| !is_option(name))
            .filter_map(|name| name.parse().ok())
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    for (index, name) in OF_CONNECTION.iter().enumerate() {
        if there & 1 << index != 0 {
            headers.remove(*name);
        }
    }
}

/// Options of `Connection` that name no line, or one that goes anyway.
fn is_option(name: &str) -> bool {
    ["close", "keep-alive", "upgrade"].iter().any(|option| option.eq_ignore_ascii_case(name))
}

/// Whether `Connection` has that option.
fn names(headers: &HeaderMap, option: &str) -> bool {
    headers.get_all(CONNECTION).iter().any(|value| {
        value.to_str().is_ok_and(|value| value.split(',').any(|one| one.trim().eq_ignore_ascii_case(option)))
    })
}

/// Asks the apiserver's connection for what the client asked of its own.
pub(super) fn ask_upgrade(headers: &mut HeaderMap, protocols: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, protocols);
}

#[cfg(test)]
mod tests;
