//! What must hold of messages over HTTP/1.1, whatever bytes they are: fed at once or in pieces of any size they are
//! the same message, or none in both ways. A message that is one thing at once and another in pieces is a smuggled one.
//!
//! The first bytes of an input say how large the pieces are, the others are the message.

use std::fmt::Debug;

use http::Method;
use usher::http1::head::Head;
use usher::http1::{Decoder, Fault, Framing, Gather, LeftOut, Limits, RequestHead, ResponseHead, head};

/// Small, so that the fuzzer finds them.
const LIMITS: Limits = Limits { bytes: 2048, lines: 20 };
/// Lines that are not relayed.
const LEFT_OUT: LeftOut = LeftOut::new(&["x-left-out"]);
/// Bytes of an input that are sizes of pieces, used over and over.
const SIZES: usize = 4;

/// A message and where it ends.
#[derive(Debug, PartialEq, Eq)]
struct Message {
    head: String,
    body: Vec<u8>,
    trailers: String,
    used: usize,
}

/// What is known of a head beside its text.
trait Framed: Head + Debug {
    fn framing(&self) -> Framing;
}

impl Framed for RequestHead {
    fn framing(&self) -> Framing {
        self.framing
    }
}

impl Framed for ResponseHead {
    fn framing(&self) -> Framing {
        self.framing
    }
}

/// A request with its body.
pub fn request(input: &[u8]) {
    same_in_pieces(input, head::request);
}

/// An answer with its body; the first byte also says what it answers.
pub fn response(input: &[u8]) {
    let asked = [Method::GET, Method::HEAD, Method::CONNECT, Method::POST];
    let asked = &asked[usize::from(input.first().copied().unwrap_or(0)) % asked.len()];
    same_in_pieces(input, |bytes, limits| head::response(bytes, limits, asked));
    same_in_pieces(input, |bytes, limits| head::relayed(bytes, limits, asked, LEFT_OUT));
    let head = |head: Result<Option<ResponseHead>, Fault>| {
        head.map(|head| head.map(|head| (head.status, head.version, head.framing, head.keep_alive, head.used)))
    };
    assert_eq!(
        head(head::response(input, &LIMITS, asked)),
        head(head::relayed(input, &LIMITS, asked, LEFT_OUT)),
        "lines that are relayed as they came say the same about their message"
    );
}

fn same_in_pieces<H: Framed>(input: &[u8], parse: impl Fn(&[u8], &Limits) -> Result<Option<H>, Fault>) {
    let Some((sizes, bytes)) = input.split_at_checked(SIZES) else { return };
    let at_once = read(&mut std::iter::once(bytes), &parse);
    let mut rest = bytes;
    let mut pieces = sizes.iter().cycle().map_while(|size| {
        let (piece, after) = rest.split_at(usize::from(*size).max(1).min(rest.len()));
        rest = after;
        (!piece.is_empty()).then_some(piece)
    });
    let in_pieces = read(&mut pieces, &parse);
    // When a fault is seen, and which of several, may depend on the pieces; whether it is a message may not.
    assert_eq!(at_once.ok().flatten(), in_pieces.ok().flatten());
}

/// Reads one message; `None`: it is not complete.
fn read<'a, H: Framed>(
    pieces: &mut dyn Iterator<Item = &'a [u8]>,
    parse: impl Fn(&[u8], &Limits) -> Result<Option<H>, Fault>,
) -> Result<Option<Message>, Fault> {
    let (mut gather, mut used) = (Gather::default(), 0);
    let (head, mut piece) = loop {
        let Some(piece) = pieces.next() else { return Ok(None) };
        if let Some((head, of_these)) = gather.feed(piece, &LIMITS, &parse)? {
            used += of_these;
            break (head, &piece[of_these..]);
        }
        used += piece.len();
    };
    let mut decoder = Decoder::new(head.framing());
    let mut body = Vec::new();
    while !decoder.is_complete() {
        if piece.is_empty() {
            match pieces.next() {
                Some(next) => piece = next,
                None if decoder.end().is_ok() => break,
                None => return Ok(None),
            }
            continue;
        }
        let part = decoder.next(piece)?;
        body.extend_from_slice(&piece[part.framing..][..part.data]);
        used += part.framing + part.data;
        piece = &piece[part.framing + part.data..];
    }
    let trailers = format!("{:?}", decoder.take_trailers());
    Ok(Some(Message { head: text(&head), body, trailers, used }))
}

/// All of a head but how many bytes it had: empty lines may come before it, in a piece of their own.
fn text<H: Framed>(head: &H) -> String {
    let text = format!("{head:?}");
    text.split_once(", used:").map_or_else(|| text.clone(), |(text, _)| text.to_owned())
}
