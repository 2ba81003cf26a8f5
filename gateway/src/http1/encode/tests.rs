use proptest::prelude::*;

use super::*;
use crate::http1::{Decoder, Limits, head};

const LIMITS: Limits = Limits { bytes: 64 * 1024, lines: 100 };

fn map(lines: &[(&str, &str)]) -> HeaderMap {
    let line = |(name, value): &(&str, &str)| {
        (name.parse::<HeaderName>().unwrap(), http::HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    let mut headers = HeaderMap::new();
    for (name, value) in lines.iter().map(line) {
        headers.append(name, value);
    }
    headers
}

fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn names_are_spelled_as_go_spells_them() {
    let headers = map(&[("x-kubernetes-pf-flowschema-uid", "a"), ("etag", "b"), ("content-length", "9")]);
    let head = text(|out| response_head(out, Version::HTTP_11, StatusCode::NOT_FOUND, &headers));
    assert_eq!(head, "HTTP/1.1 404 Not Found\r\nX-Kubernetes-Pf-Flowschema-Uid: a\r\nEtag: b\r\n");
}

#[test]
fn what_is_spelled_in_advance_is_spelled_alike() {
    let common = [
        "accept",
        "accept-encoding",
        "audit-id",
        "authorization",
        "cache-control",
        "content-type",
        "date",
        "host",
        "server",
        "user-agent",
        "x-forwarded-for",
        "x-kubernetes-pf-flowschema-uid",
        "x-kubernetes-pf-prioritylevel-uid",
    ];
    for name in common {
        let mut alike = Vec::new();
        spell(&mut alike, name.as_bytes());
        assert_eq!(spelled(name), Some(&*alike), "{name}");
    }
    assert_eq!(spelled("etag"), None);
}

#[test]
fn a_request_says_how_its_body_is_framed() {
    let headers = map(&[("transfer-encoding", "gzip"), ("content-length", "9"), ("a", "b")]);
    let head = |method, framing| text(|out| request_head(out, &method, "/x?y", &headers, framing));
    assert_eq!(head(Method::GET, Framing::None), "GET /x?y HTTP/1.1\r\nA: b\r\n\r\n");
    assert_eq!(head(Method::PUT, Framing::None), "PUT /x?y HTTP/1.1\r\nA: b\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(
        head(Method::PUT, Framing::Length(3)),
        "PUT /x?y HTTP/1.1\r\nA: b\r\nContent-Length: 3\r\n\r\n"
    );
    assert_eq!(
        head(Method::PUT, Framing::Chunked),
        "PUT /x?y HTTP/1.1\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
}

#[test]
fn a_body_is_never_longer_than_was_said() {
    let mut out = Vec::new();
    let mut encoder = Encoder::new(Framing::Length(5));
    assert_eq!((encoder.before(&mut out, 3), encoder.before(&mut out, 3)), (3, 2));
    assert!(encoder.end(&mut out, None) && out.is_empty());
    let mut short = Encoder::new(Framing::Length(5));
    assert_eq!(short.before(&mut out, 4), 4);
    assert!(!short.end(&mut out, None));
    assert_eq!(Encoder::new(Framing::None).before(&mut out, 3), 0);
}

#[test]
fn trailers_must_be_announced_and_harmless() {
    let names = trailer_names(&map(&[("trailer", "X-One, content-length"), ("trailer", "x-two")]));
    let passing = announced(&map(&[("x-one", "1"), ("x-three", "3"), ("content-length", "9")]), &names);
    assert_eq!(passing, map(&[("x-one", "1")]));
}

#[test]
fn numbers_are_written_whole() {
    for value in [0, 9, 10, 4096, u64::MAX] {
        assert_eq!(text(|out| number(out, value, 10)), value.to_string());
        assert_eq!(text(|out| number(out, value, 16)), format!("{value:x}"));
    }
}

fn arb_headers() -> impl Strategy<Value = HeaderMap> {
    prop::collection::vec(("x-[a-z-]{1,10}", "([!-~]([ -~]{0,20}[!-~])?)?"), 0..8).prop_map(|lines| {
        let lines: Vec<_> = lines.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        map(&lines)
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        headers in arb_headers(),
        target in "/[a-z0-9/%?=&.-]{0,30}",
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..5),
        chunked: bool,
    ) {
        let body = pieces.concat();
        let framing = if chunked { Framing::Chunked } else { Framing::of_length(body.len() as u64) };
        let mut out = Vec::new();
        request_head(&mut out, &Method::PATCH, &target, &headers, framing);
        let mut encoder = Encoder::new(framing);
        for piece in &pieces {
            let count = encoder.before(&mut out, piece.len());
            out.extend_from_slice(&piece[..count]);
            encoder.after(&mut out, count);
        }
        prop_assert!(encoder.end(&mut out, chunked.then_some(&headers)));

        let read = head::request(&out, &LIMITS).unwrap().unwrap();
        prop_assert_eq!(read.uri.to_string(), target);
        prop_assert_eq!(read.framing, framing);
        let mut kept = read.headers.clone();
        kept.remove(CONTENT_LENGTH);
        kept.remove(TRANSFER_ENCODING);
        prop_assert_eq!(&kept, &headers);
        let (mut decoder, mut rest, mut got) = (Decoder::new(read.framing), &out[read.used..], Vec::new());
        while !decoder.is_complete() {
            let part = decoder.next(rest).unwrap();
            got.extend_from_slice(&rest[part.framing..][..part.data]);
            rest = &rest[part.framing + part.data..];
        }
        prop_assert_eq!(got, body);
        prop_assert!(rest.is_empty());
        if chunked {
            prop_assert_eq!(decoder.take_trailers().unwrap_or_default(), headers);
        }
    }

    #[test]
    fn answers_are_read_too(headers in arb_headers(), status in 200_u16..600, length in 1_u64..u64::MAX / 2) {
        let status = StatusCode::from_u16(status).unwrap();
        let mut out = Vec::new();
        response_head(&mut out, Version::HTTP_11, status, &headers);
        framing_line(&mut out, Framing::Length(length));
        out.extend_from_slice(b"\r\n");
        let read = head::response(&out, &LIMITS, &Method::GET).unwrap().unwrap();
        prop_assert_eq!(read.status, status);
        prop_assert_eq!(read.used, out.len());
        prop_assert_eq!(read.headers.len(), headers.len() + 1);
    }
}
