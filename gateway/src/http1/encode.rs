//! Messages on their way out.
//!
//! Names of header lines are spelled as Go spells them (`Content-Type`): that is what clients of kube-apiserver
//! have always seen.

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST,
    HeaderMap, HeaderName, MAX_FORWARDS, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
};
use http::{Method, StatusCode, Version};

use super::Framing;

/// Writes a body behind its head: what goes before, between and after its pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoder(Framing);

/// Writes a request's head. The framing of the body is written by what it is, whatever `headers` say about it.
pub fn request_head(out: &mut Vec<u8>, method: &Method, target: &str, headers: &HeaderMap, framing: Framing) {
    for part in [method.as_str(), " ", if target.is_empty() { "/" } else { target }, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    lines(out, headers);
    framing_line(out, framing);
    if framing == Framing::None && matches!(*method, Method::POST | Method::PUT | Method::PATCH) {
        out.extend_from_slice(b"Content-Length: 0\r\n"); // RFC 9110, section 8.6
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes an answer's head, all but the lines that say how its body is delimited and the empty one: the caller
/// knows best whether there is one to be.
pub fn response_head(out: &mut Vec<u8>, version: Version, status: StatusCode, headers: &HeaderMap) {
    if status == StatusCode::OK && version == Version::HTTP_11 {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        let protocol = if version == Version::HTTP_10 { "HTTP/1.0 " } else { "HTTP/1.1 " };
        let reason = status.canonical_reason().unwrap_or("<none>"); // there must be one for old readers
        for part in [protocol, status.as_str(), " ", reason, "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
    }
    lines(out, headers);
}

/// Writes the line that says how a body is delimited.
pub fn framing_line(out: &mut Vec<u8>, framing: Framing) {
    match framing {
        Framing::None | Framing::UntilClose => {}
        Framing::Length(length) => content_length(out, length),
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
}

/// Writes `Content-Length`.
pub fn content_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"Content-Length: ");
    number(out, length, 10);
    out.extend_from_slice(b"\r\n");
}

/// Header lines, but for those that say how the body is delimited.
fn lines(out: &mut Vec<u8>, headers: &HeaderMap) {
    for (name, value) in headers {
        if *name != CONTENT_LENGTH && *name != TRANSFER_ENCODING {
            line(out, name, value.as_bytes());
        }
    }
}

pub(super) fn line(out: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    match spelled(name.as_str()) {
        Some(spelled) => out.extend_from_slice(spelled),
        None => spell(out, name.as_str().as_bytes()),
    }
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Names of lines that most heads have, spelled in advance: letter by letter they took most of the time of writing one.
fn spelled(name: &str) -> Option<&'static [u8]> {
    Some(match name {
        "accept" => b"Accept: ",
        "accept-encoding" => b"Accept-Encoding: ",
        "audit-id" => b"Audit-Id: ",
        "authorization" => b"Authorization: ",
        "cache-control" => b"Cache-Control: ",
        "content-type" => b"Content-Type: ",
        "date" => b"Date: ",
        "host" => b"Host: ",
        "server" => b"Server: ",
        "user-agent" => b"User-Agent: ",
        "x-forwarded-for" => b"X-Forwarded-For: ",
        "x-kubernetes-pf-flowschema-uid" => b"X-Kubernetes-Pf-Flowschema-Uid: ",
        "x-kubernetes-pf-prioritylevel-uid" => b"X-Kubernetes-Pf-Prioritylevel-Uid: ",
        _ => return None,
    })
}

/// Any name: each word begins with a capital.
fn spell(out: &mut Vec<u8>, name: &[u8]) {
    let from = out.len();
    out.extend_from_slice(name);
    let mut begins_word = true;
    for byte in &mut out[from..] {
        if begins_word {
            byte.make_ascii_uppercase();
        }
        begins_word = *byte == b'-';
    }
    out.extend_from_slice(b": ");
}

/// Writes a number in digits.
fn number(out: &mut Vec<u8>, number: u64, radix: u64) {
    let mut digits = [0; 20]; // of u64::MAX in decimal
    let (mut at, mut left) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b"0123456789abcdef"[usize::try_from(left % radix).unwrap_or(0)];
        left /= radix;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

// === impl Encoder ===

impl Encoder {
    /// Of a body with this framing.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        Self(framing)
    }

    /// How many of `count` bytes at hand may follow, and writes what goes before them. A body that is longer than
    /// was said is cut: what is beyond would be read as another message.
    pub fn before(&mut self, out: &mut Vec<u8>, count: usize) -> usize {
        match &mut self.0 {
            Framing::None => 0,
            Framing::Length(left) => {
                let count = usize::try_from(*left).map_or(count, |left| left.min(count));
                *left -= count as u64;
                count
            }
            Framing::Chunked => {
                if count > 0 {
                    number(out, count as u64, 16);
                    out.extend_from_slice(b"\r\n");
                }
                count
            }
            Framing::UntilClose => count,
        }
    }

    /// Writes what goes behind bytes that [`Encoder::before`] let pass.
    pub fn after(&self, out: &mut Vec<u8>, count: usize) {
        if self.0 == Framing::Chunked && count > 0 {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Whether more of the body may follow.
    #[must_use]
    pub fn takes_more(&self) -> bool {
        !matches!(self.0, Framing::None | Framing::Length(0))
    }

    /// Writes the end of the body, with trailers if it can have any. False if it is shorter than was said: then
    /// only the end of the connection tells the reader.
    #[must_use]
    pub fn end(&self, out: &mut Vec<u8>, trailers: Option<&HeaderMap>) -> bool {
        match self.0 {
            Framing::Chunked => {
                out.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.into_iter().flatten() {
                    line(out, name, value.as_bytes());
                }
                out.extend_from_slice(b"\r\n");
                true
            }
            Framing::Length(left) => left == 0,
            Framing::None | Framing::UntilClose => true,
        }
    }
}

/// The trailers that may follow: those that `Trailer` in the head announced, but for the names that must not be
/// in trailers (RFC 9110, section 6.5.1).
#[must_use]
pub fn announced(trailers: &HeaderMap, announced: &[HeaderName]) -> HeaderMap {
    const NEVER: [HeaderName; 12] = [
        AUTHORIZATION,
        CACHE_CONTROL,
        CONTENT_ENCODING,
        CONTENT_LENGTH,
        CONTENT_RANGE,
        CONTENT_TYPE,
        HOST,
        MAX_FORWARDS,
        SET_COOKIE,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
    ];
    let passes = |name: &HeaderName| announced.contains(name) && !NEVER.contains(name);
    trailers
        .iter()
        .filter(|(name, _)| passes(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The names in a head's `Trailer` lines.
#[must_use]
pub fn trailer_names(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(TRAILER).iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).filter_map(|name| name.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests;
