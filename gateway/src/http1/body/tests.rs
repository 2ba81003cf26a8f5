use proptest::prelude::*;

use super::*;

/// A body and its end: the data, the trailers as text, and how many bytes were its own.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    data: Vec<u8>,
    trailers: Option<String>,
    used: usize,
}

/// Reads one body from pieces of `bytes` that end at `cuts`. `Ok(None)`: it is not complete.
fn read(framing: Framing, bytes: &[u8], cuts: &[usize]) -> Result<Option<Read>, Fault> {
    let mut decoder = Decoder::new(framing);
    let (mut data, mut used, mut from) = (Vec::new(), 0, 0);
    for cut in cuts.iter().copied().chain([bytes.len()]) {
        let mut piece = &bytes[from..cut];
        from = cut;
        while !decoder.is_complete() && !piece.is_empty() {
            let part = decoder.next(piece)?;
            data.extend_from_slice(&piece[part.framing..][..part.data]);
            assert!(part.data > 0 || decoder.is_complete() || part.framing == piece.len(), "no progress");
            piece = &piece[part.framing + part.data..];
            used += part.framing + part.data;
        }
    }
    if !decoder.is_complete() && decoder.end().is_err() {
        return Ok(None);
    }
    let trailers = decoder.take_trailers().map(|trailers| format!("{trailers:?}"));
    Ok(Some(Read { data, trailers, used }))
}

fn chunked(bytes: &str) -> Result<Option<String>, Fault> {
    let read = read(Framing::Chunked, bytes.as_bytes(), &[])?;
    Ok(read.map(|read| String::from_utf8(read.data).unwrap()))
}

/// RFC 9112, section 7.1.
#[test]
fn chunks_are_read_strictly() {
    for (bytes, body) in [
        ("0\r\n\r\n", Ok(Some(""))),
        ("5\r\nhello\r\n0\r\n\r\n", Ok(Some("hello"))),
        ("00005\r\nhello\r\n0\r\n\r\n", Ok(Some("hello"))),
        ("A\r\n0123456789\r\n3\r\nabc\r\n000\r\n\r\n", Ok(Some("0123456789abc"))),
        ("5;ext=\"1\"\r\nhello\r\n0;last\r\n\r\n", Ok(Some("hello"))),
        ("5 \t;ext\r\nhello\r\n0\r\n\r\n", Ok(Some("hello"))),
        ("5\r\nhello\r\n0\r\nA: b\r\n\r\n", Ok(Some("hello"))),
        ("5\r\nhel", Ok(None)),
        ("5\r\nhello\r\n0\r\n", Ok(None)),
        ("5\nhello\n0\n\n", Err(Fault::ChunkSize)),
        ("5\r\nhello\n0\r\n\r\n", Err(Fault::ChunkEnd)),
        ("5\r\nhelloXX0\r\n\r\n", Err(Fault::ChunkEnd)),
        ("5;a\nhello\r\n", Err(Fault::ChunkSize)),
        ("5;a\rb\r\n", Err(Fault::ChunkSize)),
        ("\r\n", Err(Fault::ChunkSize)),
        (";a\r\n", Err(Fault::ChunkSize)),
        (" 5\r\n", Err(Fault::ChunkSize)),
        ("5 5\r\n", Err(Fault::ChunkSize)),
        ("-5\r\n", Err(Fault::ChunkSize)),
        ("+5\r\n", Err(Fault::ChunkSize)),
        ("0x5\r\n", Err(Fault::ChunkSize)),
        ("zz\r\n", Err(Fault::ChunkSize)),
        ("ffffffffffffffff\r\n", Ok(None)),
        ("10000000000000000\r\n", Err(Fault::ChunkSize)),
        ("00000000000000000\r\n", Err(Fault::ChunkSize)),
        ("0\r\nA : b\r\n\r\n", Err(Fault::Trailers)),
        ("0\r\nA: b\n\r\n\r\n", Err(Fault::Trailers)),
        ("0\r\n B\r\n\r\n", Err(Fault::Trailers)),
        ("0\r\nA: b\nC: d\r\n\r\n", Err(Fault::Trailers)),
        ("0\r\n\n", Err(Fault::Trailers)),
        ("0\r\n\rX", Err(Fault::Trailers)),
    ] {
        assert_eq!(chunked(bytes), body.map(|body| body.map(str::to_owned)), "{bytes:?}");
    }
}

#[test]
fn trailers_come_with_the_end() {
    let mut decoder = Decoder::new(Framing::Chunked);
    let bytes = b"0\r\nX-One: 1\r\nX-Two: 2\r\n\r\nGET";
    assert_eq!(decoder.next(bytes), Ok(Part { framing: bytes.len() - 3, data: 0 }));
    let trailers = decoder.take_trailers().unwrap();
    assert_eq!((&trailers["x-one"], &trailers["x-two"]), (&"1".parse().unwrap(), &"2".parse().unwrap()));
    assert_eq!(decoder.next(b"GET"), Ok(Part::default()));
}

#[test]
fn what_is_not_the_body_is_bounded() {
    let extension = |bytes: usize| format!("1;{}\r\na\r\n0\r\n\r\n", "e".repeat(bytes - 1));
    assert_eq!(chunked(&extension(EXTENSION_BYTES_MAX)), Ok(Some("a".to_owned())));
    assert_eq!(chunked(&extension(EXTENSION_BYTES_MAX + 1)), Err(Fault::ExtensionsTooLong));
    let spread = "1;eeeeeeeeeeeeeeee\r\na\r\n".repeat(EXTENSION_BYTES_MAX / 17 + 1);
    assert_eq!(chunked(&spread), Err(Fault::ExtensionsTooLong));
    let trailers = |bytes: usize| format!("0\r\nA: {}\r\n\r\n", "b".repeat(bytes - "A: \r\n".len()));
    assert_eq!(chunked(&trailers(TRAILER_BYTES_MAX)), Ok(Some(String::new())));
    assert_eq!(chunked(&trailers(TRAILER_BYTES_MAX + 1)), Err(Fault::TrailersTooLarge));
    let many = format!("0\r\n{}\r\n", "A: b\r\n".repeat(TRAILER_LINES_MAX + 1));
    assert_eq!(chunked(&many), Err(Fault::TrailersTooLarge));
}

#[test]
fn lengths_count_down_and_ends_end() {
    let read_all =
        |framing, bytes: &str| read(framing, bytes.as_bytes(), &[]).map(|read| read.map(|read| read.used));
    assert_eq!(read_all(Framing::Length(3), "abcdef"), Ok(Some(3)));
    assert_eq!(read_all(Framing::Length(3), "ab"), Ok(None));
    assert_eq!(read_all(Framing::None, "abc"), Ok(Some(0)));
    assert_eq!(read_all(Framing::UntilClose, "abc"), Ok(Some(3)));
    let mut cut = Decoder::new(Framing::Length(3));
    assert_eq!((cut.next(b"ab"), cut.left()), (Ok(Part { framing: 0, data: 2 }), Some(1)));
    assert_eq!(cut.end(), Err(Fault::Truncated));
}

/// Chunked bodies, most of them well-formed.
fn arb_chunked() -> impl Strategy<Value = Vec<u8>> {
    let chunk =
        ("[a-z\r\n0]{1,40}", prop_oneof![4 => Just(""), 1 => Just(";e=1"), 1 => Just(" "), 1 => Just("\n")]);
    let trailer = prop_oneof![8 => "([A-Z]: [a-z]{1,5}\r\n){0,2}", 1 => "[ -~]{0,9}\r\n"];
    (prop::collection::vec(chunk, 0..5), trailer).prop_map(|(chunks, trailers)| {
        let mut body = String::new();
        for (data, extension) in &chunks {
            body += &format!("{:x}{extension}\r\n{data}\r\n", data.len());
        }
        (body + "0\r\n" + &trailers + "\r\nnext").into_bytes()
    })
}

proptest! {
    #[test]
    fn pieces_do_not_matter(bytes in arb_chunked(), mut cuts in prop::collection::vec(any::<usize>(), 0..12)) {
        cuts.iter_mut().for_each(|cut| *cut %= bytes.len() + 1);
        cuts.sort_unstable();
        prop_assert_eq!(read(Framing::Chunked, &bytes, &cuts), read(Framing::Chunked, &bytes, &[]));
        let each: Vec<usize> = (0..bytes.len()).collect();
        prop_assert_eq!(read(Framing::Chunked, &bytes, &each), read(Framing::Chunked, &bytes, &[]));
    }

    #[test]
    fn any_bytes_are_taken_or_refused(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\r'), Just(b'\n'), b'0'..=b'9'], 0..200),
        cut in 0_usize..200,
    ) {
        let cut = cut.min(bytes.len());
        prop_assert_eq!(read(Framing::Chunked, &bytes, &[cut]), read(Framing::Chunked, &bytes, &[]));
    }
}
