//! Heads: from bytes to `http`'s types.
//!
//! One allocation holds the bytes of a head; its target and its header values are slices of that. httparse finds
//! the lines (it refuses folded lines, spaces before colons, bare CRs and control bytes, and takes a bare LF as an
//! end of line, as Go does); what the lines mean for the body's framing is decided here.

use std::mem::MaybeUninit;
use std::ops::Range;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, Uri, Version};
use httparse::{Header, ParserConfig, Status};

use super::{Fault, Framing, LeftOut, Limits, Lines};

/// A request's head.
#[derive(Debug)]
pub struct RequestHead {
    /// Its method.
    pub method: Method,
    /// Its target, in whichever form it was sent.
    pub uri: Uri,
    /// 1.0 or 1.1.
    pub version: Version,
    /// Its header lines, in order within each name.
    pub headers: HeaderMap,
    /// How its body is delimited.
    pub framing: Framing,
    /// The client would use the connection again.
    pub keep_alive: bool,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// The client reads trailers.
    pub takes_trailers: bool,
    /// Bytes of the head.
    pub used: usize,
}

/// An answer's head.
#[derive(Debug)]
pub struct ResponseHead {
    /// Its status. After 1xx (but for 101) another head follows.
    pub status: StatusCode,
    /// 1.0 or 1.1.
    pub version: Version,
    /// Its header lines, in order within each name; none if `lines` has them.
    pub headers: HeaderMap,
    /// Its header lines as they came, if they are relayed so.
    pub lines: Option<Lines>,
    /// How its body is delimited.
    pub framing: Framing,
    /// The server would use the connection again, as far as its head tells.
    pub keep_alive: bool,
    /// Bytes of the head.
    pub used: usize,
}

impl RequestHead {
    /// The request that begins with it. Boxed, as it goes through many hands.
    pub fn with_body<T>(self, body: T) -> Box<Request<T>> {
        let mut request = Box::new(Request::new(body));
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.version_mut() = self.version;
        *request.headers_mut() = self.headers;
        request
    }
}

/// Either head.
pub trait Head {
    /// Bytes of it.
    fn used(&self) -> usize;
}

impl Head for RequestHead {
    fn used(&self) -> usize {
        self.used
    }
}

impl Head for ResponseHead {
    fn used(&self) -> usize {
        self.used
    }
}

/// Bytes of a target: the `http` crate takes no longer ones.
const TARGET_BYTES_MAX: usize = u16::MAX as usize - 1;
/// Lines that a relayed head will have beside its own: who asked, what it was classified as.
const LINES_ADDED: usize = 2;
/// Bytes of them.
const BYTES_ADDED: usize = 192;
/// Lines of heads that are parsed on the stack. Those of Go's clients have about ten.
const LINES_AT_HAND: usize = 64;

/// Parses a request's head; `None`: there is more to come.
///
/// # Errors
/// [`Fault`]: nothing that begins like this is a request.
pub fn request(bytes: &[u8], limits: &Limits) -> Result<Option<RequestHead>, Fault> {
    with_lines(bytes, limits, |bytes, lines| {
        let mut parsed = httparse::Request::new(&mut []);
        let config = ParserConfig::default();
        let used = match config.parse_request_with_uninit_headers(&mut parsed, bytes, lines) {
            Ok(Status::Complete(used)) => used,
            Ok(Status::Partial) => return partial(bytes, limits),
            Err(httparse::Error::Token) if parsed.method.is_none() => return Err(Fault::Method),
            Err(httparse::Error::Token) => return Err(Fault::Target),
            Err(error) => return Err(error.into()),
        };
        let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version) else {
            return Err(Fault::FirstLine);
        };
        if used > limits.bytes {
            return Err(Fault::HeadTooLarge);
        }
        if target.len() > TARGET_BYTES_MAX {
            return Err(Fault::TargetTooLong);
        }
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| Fault::Method)?;
        let target = within(bytes, target.as_bytes());
        let (shared, headers, seen) = read_lines(&bytes[..used], parsed.headers)?;
        let uri = Uri::from_maybe_shared(shared.slice(target)).map_err(|_| Fault::Target)?;
        let framing = seen.of_request(minor)?;
        Ok(Some(RequestHead {
            method,
            uri,
            version: version(minor),
            headers,
            framing,
            keep_alive: seen.keeps_alive(minor),
            expects_continue: seen.expects_continue && minor == 1 && framing != Framing::None,
            takes_trailers: seen.takes_trailers,
            used,
        }))
    })
}

/// Parses an answer's head; `asked` is the method that it answers. `None`: there is more to come.
///
/// # Errors
/// [`Fault`]: nothing that begins like this is an answer.
pub fn response(bytes: &[u8], limits: &Limits, asked: &Method) -> Result<Option<ResponseHead>, Fault> {
    response_to(bytes, limits, asked, None)
}

/// The same, for somebody who relays its lines as they came, without some of them, where that can be done: where no
/// line but those changes what another one means.
///
/// # Errors
/// [`Fault`]: nothing that begins like this is an answer.
pub fn relayed(
    bytes: &[u8],
    limits: &Limits,
    asked: &Method,
    left_out: LeftOut,
) -> Result<Option<ResponseHead>, Fault> {
    response_to(bytes, limits, asked, Some(left_out).filter(|_| *asked != Method::HEAD))
}

fn response_to(
    bytes: &[u8],
    limits: &Limits,
    asked: &Method,
    left_out: Option<LeftOut>,
) -> Result<Option<ResponseHead>, Fault> {
    with_lines(bytes, limits, |bytes, lines| {
        let mut parsed = httparse::Response::new(&mut []);
        let config = ParserConfig::default();
        let used = match config.parse_response_with_uninit_headers(&mut parsed, bytes, lines) {
            Ok(Status::Complete(used)) => used,
            Ok(Status::Partial) => return partial(bytes, limits),
            Err(error) => return Err(error.into()),
        };
        let (Some(code), Some(minor)) = (parsed.code, parsed.version) else { return Err(Fault::FirstLine) };
        if used > limits.bytes {
            return Err(Fault::HeadTooLarge);
        }
        let status = StatusCode::from_u16(code).map_err(|_| Fault::Status)?;
        let copied = left_out.map_or(Ok(None), |left_out| copy_lines(parsed.headers, left_out))?;
        let (lines, headers, seen) = match copied {
            Some((lines, seen)) => (Some(lines), HeaderMap::new(), seen),
            None => {
                let (_, headers, seen) = read_lines(&bytes[..used], parsed.headers)?;
                (None, headers, seen)
            }
        };
        let framing = seen.of_response(minor, status, asked)?;
        Ok(Some(ResponseHead {
            status,
            version: version(minor),
            headers,
            lines,
            framing,
            keep_alive: seen.keeps_alive(minor) && framing != Framing::UntilClose,
            used,
        }))
    })
}

/// Parses the lines of trailers, with the empty one that ends them.
pub(super) fn trailers(bytes: &[u8], lines_max: usize) -> Result<HeaderMap, Fault> {
    let mut lines = vec![httparse::EMPTY_HEADER; lines_max];
    match httparse::parse_headers(bytes, &mut lines) {
        Ok(Status::Complete((used, lines))) if used == bytes.len() => {
            read_lines(bytes, lines).map(|(_, headers, _)| headers).map_err(|_| Fault::Trailers)
        }
        Ok(_) => Err(Fault::Trailers),
        Err(httparse::Error::TooManyHeaders) => Err(Fault::TrailersTooLarge),
        Err(_) => Err(Fault::Trailers),
    }
}

/// Room for a head's lines: a little at first, all that is allowed if that is too little.
fn with_lines<'b, T>(
    bytes: &'b [u8],
    limits: &Limits,
    parse: impl Fn(&'b [u8], &mut [MaybeUninit<Header<'b>>]) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let mut at_hand = [const { MaybeUninit::uninit() }; LINES_AT_HAND];
    let few = limits.lines.min(LINES_AT_HAND);
    match parse(bytes, &mut at_hand[..few]) {
        Err(Fault::TooManyLines) if limits.lines > few => {
            let mut all: Vec<_> = std::iter::repeat_with(MaybeUninit::uninit).take(limits.lines).collect();
            parse(bytes, &mut all)
        }
        parsed => parsed,
    }
}

fn partial<T>(bytes: &[u8], limits: &Limits) -> Result<Option<T>, Fault> {
    if bytes.len() > limits.bytes { Err(Fault::HeadTooLarge) } else { Ok(None) }
}

/// Where a piece of `bytes` is in them.
fn within(bytes: &[u8], piece: &[u8]) -> Range<usize> {
    let start = piece.as_ptr().addr() - bytes.as_ptr().addr();
    start..start + piece.len()
}

fn version(minor: u8) -> Version {
    if minor == 1 { Version::HTTP_11 } else { Version::HTTP_10 }
}

/// A head's bytes, its lines as slices of them, and what they say about the message.
fn read_lines(head: &[u8], lines: &[Header<'_>]) -> Result<(Bytes, HeaderMap, Seen), Fault> {
    let shared = Bytes::copy_from_slice(head);
    let room = lines.len() + LINES_ADDED;
    let mut headers = HeaderMap::try_with_capacity(room).map_err(|_| Fault::TooManyLines)?;
    let mut seen = Seen::default();
    for line in lines {
        let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| Fault::HeaderLine)?;
        if seen.note(Meaning::of(line.name), line.value)? == Keep::Yes {
            let value = shared.slice(within(head, line.value));
            let value = HeaderValue::from_maybe_shared(value).map_err(|_| Fault::HeaderLine)?;
            headers.try_append(name, value).map_err(|_| Fault::TooManyLines)?;
        }
    }
    Ok((shared, headers, seen))
}

/// A head's lines as they came, but for those that are of the connection or left out. `None`: they must be looked at as
/// a whole, because `Connection` names some of them or trailers are announced.
fn copy_lines(lines: &[Header<'_>], left_out: LeftOut) -> Result<Option<(Lines, Seen)>, Fault> {
    let bytes = |line: &Header<'_>| line.name.len() + line.value.len() + ": \r\n".len();
    let mut copied = Lines::with_capacity(lines.iter().map(bytes).sum::<usize>() + BYTES_ADDED);
    let mut seen = Seen::default();
    for line in lines {
        let meaning = Meaning::of(line.name);
        seen.note(meaning, line.value)?;
        match meaning {
            Meaning::Trailer => return Ok(None),
            Meaning::Connection | Meaning::Length | Meaning::Coding => {}
            Meaning::TakesTrailers | Meaning::Expect | Meaning::Other => {
                if !left_out.contains(line.name) {
                    copied.push(line.name.as_bytes(), line.value);
                }
            }
        }
    }
    Ok(Some((copied, seen)).filter(|_| !seen.names_lines))
}

/// What a line says about its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Length,
    Coding,
    Connection,
    TakesTrailers,
    Trailer,
    Expect,
    /// Nothing.
    Other,
}

impl Meaning {
    /// By its name.
    fn of(name: &str) -> Self {
        let (known, meaning) = match name.len() {
            2 => ("TE", Self::TakesTrailers),
            6 => ("Expect", Self::Expect),
            7 => ("Trailer", Self::Trailer),
            10 => ("Connection", Self::Connection),
            14 => ("Content-Length", Self::Length),
            17 => ("Transfer-Encoding", Self::Coding),
            _ => return Self::Other,
        };
        // Nearly all spell it so, and that is seen at a glance.
        if name == known || name.eq_ignore_ascii_case(known) { meaning } else { Self::Other }
    }
}

/// What a head's lines say about its message.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    length: Option<u64>,
    coding: Option<Coding>,
    close: bool,
    keep_alive: bool,
    /// `Connection` has other options: they name lines.
    names_lines: bool,
    expects_continue: bool,
    takes_trailers: bool,
}

/// `Transfer-Encoding`, all its lines together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    /// `chunked` and nothing else.
    Chunked,
    /// Others, and `chunked` at last.
    OthersThenChunked,
    /// `chunked` is not the last.
    NotChunked,
}

/// Whether a line belongs in the map.
#[derive(PartialEq, Eq)]
enum Keep {
    Yes,
    /// It says what another one said.
    No,
}

// === impl Seen ===

impl Seen {
    fn note(&mut self, meaning: Meaning, value: &[u8]) -> Result<Keep, Fault> {
        match meaning {
            Meaning::Length => {
                let length = decimal(value).ok_or(Fault::Length)?;
                match self.length.replace(length) {
                    None => {}
                    Some(same) if same == length => return Ok(Keep::No),
                    Some(_) => return Err(Fault::LengthsDiffer),
                }
            }
            Meaning::Coding => {
                for coding in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    let is_chunked = coding.eq_ignore_ascii_case(b"chunked");
                    self.coding = Some(match self.coding {
                        None if is_chunked => Coding::Chunked,
                        // Twice chunked is chunked within another coding, which nobody sends and few undo.
                        Some(_) if is_chunked => Coding::OthersThenChunked,
                        _ => Coding::NotChunked,
                    });
                }
            }
            Meaning::Connection if value == b"keep-alive" => self.keep_alive = true, // what most have
            Meaning::Connection => {
                for option in tokens(value) {
                    let is_close = option.eq_ignore_ascii_case(b"close");
                    let is_keep_alive = option.eq_ignore_ascii_case(b"keep-alive");
                    self.close |= is_close;
                    self.keep_alive |= is_keep_alive;
                    self.names_lines |= !is_close && !is_keep_alive;
                }
            }
            Meaning::TakesTrailers => {
                self.takes_trailers |= tokens(value).any(|token| token.eq_ignore_ascii_case(b"trailers"));
            }
            Meaning::Expect => self.expects_continue = value.eq_ignore_ascii_case(b"100-continue"),
            Meaning::Trailer | Meaning::Other => {}
        }
        Ok(Keep::Yes)
    }

    /// RFC 9112, section 6.3, with every choice that it leaves made against the message.
    fn of_request(&self, minor: u8) -> Result<Framing, Fault> {
        match (self.coding, self.length) {
            (None, length) => length.map_or(Ok(Framing::None), length_of),
            (Some(_), Some(_)) => Err(Fault::LengthAndCoding),
            (Some(_), None) if minor == 0 => Err(Fault::CodingInHttp10),
            (Some(Coding::Chunked), None) => Ok(Framing::Chunked),
            (Some(Coding::OthersThenChunked), None) => Err(Fault::CodingUnknown),
            (Some(Coding::NotChunked), None) => Err(Fault::NotChunked),
        }
    }

    fn of_response(&self, minor: u8, status: StatusCode, asked: &Method) -> Result<Framing, Fault> {
        let bodiless = status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            || *asked == Method::HEAD
            || *asked == Method::CONNECT && status.is_success();
        match (self.coding, self.length) {
            (Some(_), Some(_)) => Err(Fault::LengthAndCoding),
            (Some(_), None) if minor == 0 => Err(Fault::CodingInHttp10),
            _ if bodiless => Ok(Framing::None),
            (None, None) => Ok(Framing::UntilClose),
            (None, Some(length)) => length_of(length),
            (Some(Coding::Chunked), None) => Ok(Framing::Chunked),
            // Unlike a request's, such a body has an end; but the coding would be lost on the way.
            (Some(_), None) => Err(Fault::CodingUnknown),
        }
    }

    /// RFC 9112, section 9.3.
    fn keeps_alive(&self, minor: u8) -> bool {
        !self.close && (minor == 1 || self.keep_alive)
    }
}

/// Longer lengths are refused: hyper keeps them for meanings of its own, and no sum with one can overflow.
const LENGTH_MAX: u64 = u64::MAX - 2;

fn length_of(length: u64) -> Result<Framing, Fault> {
    if length <= LENGTH_MAX { Ok(Framing::of_length(length)) } else { Err(Fault::Length) }
}

/// A number that is digits and nothing else.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| match digit {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// The parts of a list.
fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|token| !token.is_empty())
}

impl From<httparse::Error> for Fault {
    fn from(error: httparse::Error) -> Self {
        match error {
            httparse::Error::HeaderName | httparse::Error::HeaderValue => Self::HeaderLine,
            httparse::Error::NewLine | httparse::Error::Token => Self::FirstLine,
            httparse::Error::Status => Self::Status,
            httparse::Error::TooManyHeaders => Self::TooManyLines,
            httparse::Error::Version => Self::Version,
        }
    }
}

#[cfg(test)]
mod tests;
