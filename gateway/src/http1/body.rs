//! Bodies: which of the bytes that come are the body's, and where it ends.

use http::HeaderMap;

use super::head;
use super::{Fault, Framing, Oddities};

/// Finds a body among bytes. Fed with pieces of any size; the bytes stay where they are.
///
/// ```text
/// while !decoder.is_complete() {
///     let part = decoder.next(&input)?;   // input[part.framing..][..part.data] is body
///     input.advance(part.framing + part.data);
///     if part.data == 0 && input.is_empty() { /* more is needed; at the end of the connection: decoder.end() */ }
/// }
/// ```
#[derive(Debug)]
pub struct Decoder {
    state: State,
    odd: Oddities,
}

/// What the next bytes are: first so many of framing, then so many of the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Bytes to skip.
    pub framing: usize,
    /// Bytes of the body after them.
    pub data: usize,
}

#[derive(Debug)]
enum State {
    /// So many bytes are still to come.
    Length(u64),
    Chunked(Box<Chunked>),
    UntilClose,
    Complete(Option<Box<HeaderMap>>),
}

/// Boxed: few requests have one, and connections keep the decoder.
#[derive(Debug)]
struct Chunked {
    at: At,
    /// Of the chunk that is being read: its size so far, or what is left of it.
    left: u64,
    /// Digits of the size so far.
    digits: u32,
    /// Bytes of extensions and of spaces around them, in the whole body.
    extension_bytes: usize,
    /// How many they were before this chunk.
    extension_from: usize,
    trailers: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Size,
    /// Spaces behind a size.
    Space,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// The beginning of a line behind the last chunk.
    Line,
    Trailer,
    TrailerLf,
    EndLf,
}

/// Digits of a chunk's size: those of 64 bits. More leading zeros than that have no purpose.
const SIZE_DIGITS_MAX: u32 = 16;
/// Bytes of chunk extensions in a body. Nobody uses them; hyper's limit (CVE-2023-39326 is Go's missing one).
const EXTENSION_BYTES_MAX: usize = 16 * 1024;
/// Bytes of trailers. hyper's own limit where it is told none.
const TRAILER_BYTES_MAX: usize = 16 * 1024;
/// Bytes of one chunk's extension, and of a body's trailers, beyond which they are odd.
const ODD_EXTENSION_BYTES: usize = 64;
/// See [`ODD_EXTENSION_BYTES`].
const ODD_TRAILER_BYTES: usize = 1024;
/// Chunks smaller than that are odd.
const ODD_CHUNK_BYTES: u64 = 16;
/// Lines of trailers.
const TRAILER_LINES_MAX: usize = 64;

// === impl Decoder ===

impl Decoder {
    /// Of a body behind a head with this framing.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Complete(None),
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Chunked(Box::new(Chunked {
                at: At::Size,
                left: 0,
                digits: 0,
                extension_bytes: 0,
                extension_from: 0,
                trailers: Vec::new(),
            })),
            Framing::UntilClose => State::UntilClose,
        };
        Self { state, odd: Oddities::default() }
    }

    /// What was odd about it since this was last asked.
    pub fn take_oddities(&mut self) -> Oddities {
        std::mem::take(&mut self.odd)
    }

    /// Whether the body is over.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        matches!(self.state, State::Complete(_))
    }

    /// Bytes of the body still to come, where they are known.
    #[must_use]
    pub fn left(&self) -> Option<u64> {
        match self.state {
            State::Length(left) => Some(left),
            State::Complete(_) => Some(0),
            State::Chunked(_) | State::UntilClose => None,
        }
    }

    /// Whether it had trailers that nobody has taken.
    #[must_use]
    pub fn has_trailers(&self) -> bool {
        matches!(self.state, State::Complete(Some(_)))
    }

    /// The trailers of a complete body, if it had any.
    pub fn take_trailers(&mut self) -> Option<HeaderMap> {
        match &mut self.state {
            State::Complete(trailers) => trailers.take().map(|trailers| *trailers),
            _ => None,
        }
    }

    /// Looks at the next bytes. Both counts together are all of `input`, unless data ended in it: then there is
    /// more to ask about behind it. Of what is behind a complete body nothing is taken.
    ///
    /// # Errors
    /// [`Fault`]: the body is malformed.
    pub fn next(&mut self, input: &[u8]) -> Result<Part, Fault> {
        match &mut self.state {
            State::Length(left) => {
                let data = at_most(*left, input.len());
                *left -= data as u64;
                if *left == 0 {
                    self.state = State::Complete(None);
                }
                Ok(Part { framing: 0, data })
            }
            State::UntilClose => Ok(Part { framing: 0, data: input.len() }),
            State::Complete(_) => Ok(Part::default()),
            State::Chunked(chunked) => {
                let (part, is_over) = chunked.next(input, &mut self.odd)?;
                if is_over {
                    let trailers = std::mem::take(&mut chunked.trailers);
                    self.odd.trailers += u32::from(trailers.len() > ODD_TRAILER_BYTES);
                    self.state = State::Complete(read_trailers(&trailers)?);
                }
                Ok(part)
            }
        }
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// The body has not.
    pub fn end(&mut self) -> Result<(), Fault> {
        match self.state {
            State::UntilClose | State::Complete(_) => {
                self.state = State::Complete(None);
                Ok(())
            }
            State::Length(_) | State::Chunked(_) => Err(Fault::Truncated),
        }
    }
}

fn read_trailers(bytes: &[u8]) -> Result<Option<Box<HeaderMap>>, Fault> {
    if bytes.is_empty() {
        return Ok(None);
    }
    head::trailers(bytes, TRAILER_LINES_MAX).map(Box::new).map(Some)
}

fn at_most(left: u64, there: usize) -> usize {
    usize::try_from(left).map_or(there, |left| left.min(there))
}

// === impl Chunked ===

impl Chunked {
    /// The next part, and whether the body is over with it.
    fn next(&mut self, input: &[u8], odd: &mut Oddities) -> Result<(Part, bool), Fault> {
        let mut framing = 0;
        while let Some(byte) = input.get(framing) {
            if self.at == At::Data {
                let data = at_most(self.left, input.len() - framing);
                self.left -= data as u64;
                if self.left == 0 {
                    self.at = At::DataCr;
                }
                return Ok((Part { framing, data }, false));
            }
            framing += 1;
            if self.at == At::EndLf && *byte == b'\n' {
                if !self.trailers.is_empty() {
                    self.trailers.extend_from_slice(b"\r\n");
                }
                return Ok((Part { framing, data: 0 }, true));
            }
            let before = self.at;
            self.at = self.step(*byte)?;
            if before == At::SizeLf {
                odd.tiny_chunks += u32::from(self.left > 0 && self.left < ODD_CHUNK_BYTES);
                odd.extensions += u32::from(self.extension_bytes - self.extension_from > ODD_EXTENSION_BYTES);
                self.extension_from = self.extension_bytes;
            }
        }
        Ok((Part { framing, data: 0 }, false))
    }

    /// One byte that is not data. Stricter than RFC 9112, section 7.1 lets a reader be: lines end in CR LF.
    fn step(&mut self, byte: u8) -> Result<At, Fault> {
        match (self.at, byte) {
            (At::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => self.digit(byte),
            (At::Size, _) if self.digits == 0 => Err(Fault::ChunkSize),
            (At::Size | At::Space, b' ' | b'\t') => self.extension_byte(At::Space),
            (At::Size | At::Space, b';') => self.extension_byte(At::Extension),
            (At::Size | At::Space | At::Extension, b'\r') => Ok(At::SizeLf),
            (At::Extension, b'\n') => Err(Fault::ChunkSize),
            (At::Extension, _) => self.extension_byte(At::Extension),
            (At::SizeLf, b'\n') => {
                self.digits = 0;
                Ok(if self.left == 0 { At::Line } else { At::Data })
            }
            (At::Size | At::Space | At::SizeLf, _) => Err(Fault::ChunkSize),
            (At::DataCr, b'\r') => Ok(At::DataLf),
            (At::DataLf, b'\n') => Ok(At::Size),
            (At::DataCr | At::DataLf | At::Data, _) => Err(Fault::ChunkEnd),
            (At::Line, b'\r') => Ok(At::EndLf),
            (At::Trailer, b'\r') => self.trailer_byte(byte, At::TrailerLf),
            (At::Line | At::Trailer, b'\n') => Err(Fault::Trailers),
            (At::Line | At::Trailer, _) => self.trailer_byte(byte, At::Trailer),
            (At::TrailerLf, b'\n') => self.trailer_byte(byte, At::Line),
            (At::TrailerLf | At::EndLf, _) => Err(Fault::Trailers),
        }
    }

    fn digit(&mut self, byte: u8) -> Result<At, Fault> {
        let digit = char::from(byte).to_digit(16).ok_or(Fault::ChunkSize)?;
        self.digits += 1;
        if self.digits > SIZE_DIGITS_MAX {
            return Err(Fault::ChunkSize);
        }
        self.left = self.left << 4 | u64::from(digit); // 16 digits fit
        Ok(At::Size)
    }

    fn extension_byte(&mut self, next: At) -> Result<At, Fault> {
        self.extension_bytes += 1;
        if self.extension_bytes > EXTENSION_BYTES_MAX { Err(Fault::ExtensionsTooLong) } else { Ok(next) }
    }

    fn trailer_byte(&mut self, byte: u8, next: At) -> Result<At, Fault> {
        if self.trailers.len() >= TRAILER_BYTES_MAX {
            return Err(Fault::TrailersTooLarge);
        }
        self.trailers.push(byte);
        Ok(next)
    }
}

#[cfg(test)]
mod tests;
