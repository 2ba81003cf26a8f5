use proptest::prelude::*;

use super::*;
use crate::http1::Gather;

const LIMITS: Limits = Limits { bytes: 4096, lines: 100 };

fn asked(head: &str) -> Result<RequestHead, Fault> {
    super::request(head.as_bytes(), &LIMITS).map(|head| head.expect("a whole head"))
}

fn framing(lines: &str) -> Result<Framing, Fault> {
    asked(&format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n")).map(|head| head.framing)
}

fn answered(first: &str, lines: &str, method: &Method) -> Result<Framing, Fault> {
    let head = format!("{first}\r\n{lines}\r\n");
    response(head.as_bytes(), &LIMITS, method).map(|head| head.expect("a whole head").framing)
}

#[test]
fn a_request_becomes_what_http_calls_it() {
    let head =
        asked("GET /api/v1/pods?watch=1 HTTP/1.1\r\nhost: a\r\nX-One: 1\r\nx-one:  2 \r\n\r\nrest").unwrap();
    assert_eq!((head.method, head.version), (Method::GET, Version::HTTP_11));
    assert_eq!(head.uri, "/api/v1/pods?watch=1");
    let ones: Vec<_> = head.headers.get_all("x-one").iter().collect();
    assert_eq!(ones, ["1", "2"]);
    assert_eq!((head.framing, head.keep_alive, head.expects_continue), (Framing::None, true, false));
    assert_eq!(
        head.used,
        "GET /api/v1/pods?watch=1 HTTP/1.1\r\nhost: a\r\nX-One: 1\r\nx-one:  2 \r\n\r\n".len()
    );
}

#[test]
fn targets_have_four_forms() {
    assert_eq!(asked("GET http://a:1/b HTTP/1.1\r\n\r\n").unwrap().uri.authority().unwrap(), "a:1");
    assert_eq!(asked("CONNECT a:1 HTTP/1.1\r\n\r\n").unwrap().uri, "a:1");
    assert_eq!(asked("OPTIONS * HTTP/1.1\r\n\r\n").unwrap().uri, "*");
    for bad in ["GET /a<b", "GET /a`b", "GET http://", "GET /a\u{7f}", "GET  /a", "GET"] {
        let refused = asked(&format!("{bad} HTTP/1.1\r\n\r\n"));
        assert!(matches!(refused, Err(Fault::Target | Fault::Version)), "{bad}: {refused:?}");
    }
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(TARGET_BYTES_MAX));
    let limits = Limits { bytes: 1 << 20, lines: 1 };
    assert_eq!(super::request(long.as_bytes(), &limits).unwrap_err(), Fault::TargetTooLong);
}

/// RFC 9112, sections 2.2, 5.1, 5.2; RFC 9110, section 5.5.
#[test]
fn lines_that_two_readers_could_read_differently_are_refused() {
    for (line, fault) in [
        ("A : b", Fault::HeaderLine),
        ("A\t: b", Fault::HeaderLine),
        (" A: b", Fault::HeaderLine),
        ("A: b\r\n c", Fault::HeaderLine),
        ("A: b\rC: d", Fault::HeaderLine),
        ("A: b\0", Fault::HeaderLine),
        ("A: b\u{1}", Fault::HeaderLine),
        ("A", Fault::HeaderLine),
        (": b", Fault::HeaderLine),
        ("\u{e4}: b", Fault::HeaderLine),
    ] {
        assert_eq!(framing(line), Err(fault), "{line:?}");
    }
}

/// RFC 9112, section 6.3.
#[test]
fn a_request_has_one_framing_or_none() {
    for (lines, framing_of_it) in [
        ("A: b", Ok(Framing::None)),
        ("Content-Length: 0", Ok(Framing::None)),
        ("Content-Length: 5", Ok(Framing::Length(5))),
        ("Content-Length: 5\r\ncontent-length: 5", Ok(Framing::Length(5))),
        ("Content-Length: 5\r\nContent-Length: 6", Err(Fault::LengthsDiffer)),
        ("Content-Length: 5, 5", Err(Fault::Length)),
        ("Content-Length: +5", Err(Fault::Length)),
        ("Content-Length: -5", Err(Fault::Length)),
        ("Content-Length: 0x5", Err(Fault::Length)),
        ("Content-Length:", Err(Fault::Length)),
        ("Content-Length: 18446744073709551615", Err(Fault::Length)),
        ("Content-Length: 18446744073709551616", Err(Fault::Length)),
        ("Transfer-Encoding: chunked", Ok(Framing::Chunked)),
        ("Transfer-Encoding: CHUNKED", Ok(Framing::Chunked)),
        ("Transfer-Encoding: gzip, chunked", Err(Fault::CodingUnknown)),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", Err(Fault::CodingUnknown)),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", Err(Fault::CodingUnknown)),
        ("Transfer-Encoding: chunked, gzip", Err(Fault::NotChunked)),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip", Err(Fault::NotChunked)),
        ("Transfer-Encoding: identity", Err(Fault::NotChunked)),
        ("Transfer-Encoding: xchunked", Err(Fault::NotChunked)),
        ("Transfer-Encoding: chunked;a=b", Err(Fault::NotChunked)),
        ("Transfer-Encoding: chunked,", Err(Fault::NotChunked)),
        ("Transfer-Encoding: ,chunked", Err(Fault::CodingUnknown)),
        ("Transfer-Encoding:", Err(Fault::NotChunked)),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", Err(Fault::LengthAndCoding)),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", Err(Fault::LengthAndCoding)),
        ("Content-Length: 0\r\nTransfer-Encoding: identity", Err(Fault::LengthAndCoding)),
    ] {
        assert_eq!(framing(lines), framing_of_it, "{lines:?}");
    }
    let old = asked("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap_err();
    assert_eq!(old, Fault::CodingInHttp10);
}

#[test]
fn an_answer_may_have_a_body_until_the_end() {
    let get = &Method::GET;
    for (first, lines, framing_of_it) in [
        ("HTTP/1.1 200 OK", "", Ok(Framing::UntilClose)),
        ("HTTP/1.0 200 OK", "", Ok(Framing::UntilClose)),
        ("HTTP/1.1 200 OK", "Content-Length: 3\r\n", Ok(Framing::Length(3))),
        ("HTTP/1.1 200 OK", "Transfer-Encoding: chunked\r\n", Ok(Framing::Chunked)),
        ("HTTP/1.1 204 No Content", "", Ok(Framing::None)),
        ("HTTP/1.1 304 Not Modified", "Content-Length: 3\r\n", Ok(Framing::None)),
        ("HTTP/1.1 100 Continue", "", Ok(Framing::None)),
        ("HTTP/1.1 101 Switching Protocols", "", Ok(Framing::None)),
        (
            "HTTP/1.1 200 OK",
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            Err(Fault::LengthAndCoding),
        ),
        ("HTTP/1.1 200 OK", "Transfer-Encoding: gzip\r\n", Err(Fault::CodingUnknown)),
        ("HTTP/1.0 200 OK", "Transfer-Encoding: chunked\r\n", Err(Fault::CodingInHttp10)),
        ("HTTP/1.1 99 Low", "", Err(Fault::Status)),
        ("HTTP/1.1 2000 High", "", Err(Fault::Status)),
    ] {
        assert_eq!(answered(first, lines, get), framing_of_it, "{first}, {lines:?}");
    }
    let head = answered("HTTP/1.1 200 OK", "Content-Length: 3\r\n", &Method::HEAD);
    assert_eq!(head, Ok(Framing::None));
    let until_close = response(b"HTTP/1.1 200 OK\r\n\r\n", &LIMITS, get).unwrap().unwrap();
    assert!(!until_close.keep_alive);
}

/// RFC 9112, section 9.3.
#[test]
fn connections_live_on_unless_told_otherwise() {
    for (version, lines, lives) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: x, Close\r\nConnection: keep-alive\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let head = asked(&format!("GET / HTTP/{version}\r\n{lines}\r\n")).unwrap();
        assert_eq!(head.keep_alive, lives, "{version} {lines:?}");
    }
}

#[test]
fn continue_is_expected_only_before_a_body() {
    let expects = |head: &str| asked(head).unwrap().expects_continue;
    assert!(expects("PUT / HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n"));
    assert!(!expects("PUT / HTTP/1.1\r\nExpect: 100-continue\r\n\r\n"));
    assert!(!expects("PUT / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"));
    assert!(!expects("PUT / HTTP/1.1\r\nExpect: else\r\nContent-Length: 1\r\n\r\n"));
}

#[test]
fn heads_have_limits() {
    let lines = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(count));
    assert_eq!(asked(&lines(100)).unwrap().headers.len(), 100);
    assert_eq!(asked(&lines(101)).unwrap_err(), Fault::TooManyLines);
    let bytes = |count: usize| format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "b".repeat(count));
    let most = LIMITS.bytes - bytes(0).len();
    assert_eq!(asked(&bytes(most)).unwrap().used, LIMITS.bytes);
    assert_eq!(asked(&bytes(most + 1)).unwrap_err(), Fault::HeadTooLarge);
    let endless = "GET / HTTP/1.1\r\nA: ".to_owned() + &"b".repeat(LIMITS.bytes);
    assert_eq!(super::request(endless.as_bytes(), &LIMITS).unwrap_err(), Fault::HeadTooLarge);
}

/// As much of an outcome as can be compared.
fn outcome(fed: Result<Option<(RequestHead, usize)>, Fault>) -> Result<Option<String>, Fault> {
    fed.map(|fed| fed.map(|(head, _)| format!("{:?}", RequestHead { used: 0, ..head })))
}

/// Feeds `bytes` in pieces that end at `cuts`; the outcome, and how many bytes were used.
fn fed_in_pieces(bytes: &[u8], cuts: &[usize]) -> (Result<Option<String>, Fault>, usize) {
    let mut gather = Gather::default();
    let mut from = 0;
    for cut in cuts.iter().map(|cut| cut % (bytes.len() + 1)).chain([bytes.len()]) {
        if cut <= from {
            continue;
        }
        let piece = &bytes[from..cut];
        match gather.feed(piece, &LIMITS, super::request) {
            Ok(None) => from = cut,
            Ok(Some((head, used))) => {
                assert!(used <= piece.len());
                return (outcome(Ok(Some((head, used)))), from + used);
            }
            Err(fault) => return (Err(fault), from),
        }
    }
    (Ok(None), from)
}

fn arb_lines() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(
        prop_oneof![
            Just("Host: a".to_owned()),
            Just("Content-Length: 7".to_owned()),
            Just("Transfer-Encoding: chunked".to_owned()),
            Just("Connection: keep-alive, close".to_owned()),
            Just("Connection: x-hop".to_owned()),
            Just("X-Hop: 1".to_owned()),
            Just("X-Left-Out: 1".to_owned()),
            "[!-~]{1,12}: [ -~]{0,20}",
            "[a-zA-Z-]{1,12}:[ \t]{0,2}[ -~\u{e4}]{0,20}",
        ],
        0..6,
    )
}

fn arb_request() -> impl Strategy<Value = Vec<u8>> {
    let first =
        ("\r?\n?[A-Z]{1,7}", "[!-~]{1,20}", prop_oneof![9 => Just("HTTP/1.1"), 1 => Just("HTTP/1.0")])
            .prop_map(|(method, target, version)| format!("{method} {target} {version}"));
    arb_head(first)
}

fn arb_answer() -> impl Strategy<Value = Vec<u8>> {
    let version = prop_oneof![9 => Just("HTTP/1.1"), 1 => Just("HTTP/1.0")];
    let code = prop_oneof![5 => Just(200_u16), 1 => 100_u16..600];
    arb_head((version, code).prop_map(|(version, code)| format!("{version} {code} Some reason")))
}

fn arb_head(first: impl Strategy<Value = String>) -> impl Strategy<Value = Vec<u8>> {
    let lines = arb_lines();
    let end = prop_oneof![9 => Just("\r\n"), 1 => Just("\n")];
    (first, lines, end).prop_map(|(first, lines, end)| {
        let mut head = first + end;
        lines.iter().for_each(|line| head.extend([line, end]));
        (head + end + "what follows").into_bytes()
    })
}

/// Left out in these tests.
const NAMES: &[&str] = &["x-left-out", "keep-alive"];
const LEFT_OUT: LeftOut = LeftOut::new(NAMES);

/// Relayed lines are the map's: the same head, or none in both ways.
fn assert_relayed_alike(bytes: &[u8], method: &Method) {
    let asked = response(bytes, &LIMITS, method);
    let relayed = relayed(bytes, &LIMITS, method, LEFT_OUT);
    let about = |head: &ResponseHead| (head.status, head.version, head.framing, head.keep_alive, head.used);
    let same = match (&asked, &relayed) {
        (Ok(asked), Ok(relayed)) => asked.as_ref().map(about) == relayed.as_ref().map(about),
        (asked, relayed) => asked.as_ref().err() == relayed.as_ref().err(),
    };
    assert!(same, "{asked:?} {relayed:?}");
    let (Ok(Some(asked)), Ok(Some(relayed))) = (asked, relayed) else { return };
    let Some(lines) = relayed.lines else {
        return assert_eq!(asked.headers, relayed.headers);
    };
    assert!(relayed.headers.is_empty());
    let again = [b"HTTP/1.1 200 OK\r\n", lines.as_bytes(), b"\r\n"].concat();
    let again = response(&again, &LIMITS, &Method::GET).unwrap().unwrap().headers;
    let mut expected = asked.headers;
    for name in NAMES.iter().chain(&["connection", "content-length", "transfer-encoding"]) {
        expected.remove(*name);
    }
    assert_eq!(again, expected);
}

#[test]
fn relayed_lines_are_those_that_came_less_what_is_of_the_connection() {
    let head =
        b"HTTP/1.1 200 OK\r\nX-One:  a b \r\nContent-Length: 4\r\nConnection: Keep-Alive\r\nx-one:\r\n\
        Keep-Alive: 5\r\nX-Left-Out: 1\r\n\r\n";
    let head = relayed(head, &LIMITS, &Method::GET, LEFT_OUT).unwrap().unwrap();
    assert_eq!(head.lines.unwrap().as_bytes(), b"X-One: a b\r\nx-one: \r\n");
    assert_eq!((head.framing, head.keep_alive), (Framing::Length(4), true));
}

#[test]
fn relayed_lines_that_depend_on_each_other_become_a_map() {
    let lines = |lines: &str, method| {
        let head = format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n");
        assert_relayed_alike(head.as_bytes(), &method);
        relayed(head.as_bytes(), &LIMITS, &method, LEFT_OUT).unwrap().unwrap().lines
    };
    assert!(lines("Connection: close", Method::GET).is_some());
    for map in ["Connection: close, X-Hop\r\nX-Hop: 1", "Trailer: x-sum\r\nTransfer-Encoding: chunked"] {
        assert!(lines(map, Method::GET).is_none(), "{map}");
    }
    assert!(lines("Content-Length: 4", Method::HEAD).is_none(), "whose length is told");
}

#[test]
fn empty_lines_may_precede_a_request_but_no_bare_cr() {
    for before in ["\r\n", "\n", "\r\n\r\n\n"] {
        let bytes = format!("{before}GET / HTTP/1.1\r\n\r\n");
        for cut in 0..bytes.len() {
            assert!(
                matches!(fed_in_pieces(bytes.as_bytes(), &[cut]), (Ok(Some(_)), used) if used == bytes.len())
            );
        }
    }
    let (fed, _) = fed_in_pieces(b"\rGET / HTTP/1.1\r\n\r\n", &[]);
    assert_eq!(fed, Err(Fault::FirstLine));
}

proptest! {
    #[test]
    fn pieces_do_not_matter(bytes in arb_request(), mut cuts in prop::collection::vec(any::<usize>(), 0..8)) {
        cuts.iter_mut().for_each(|cut| *cut %= bytes.len() + 1);
        cuts.sort_unstable();
        let whole = fed_in_pieces(&bytes, &[]);
        let pieces = fed_in_pieces(&bytes, &cuts);
        match (&whole.0, &pieces.0) {
            // Refused sooner or later, and perhaps for what came first.
            (Err(_), Err(_) | Ok(None)) => {}
            _ => prop_assert_eq!(whole, pieces),
        }
    }

    #[test]
    fn relayed_lines_are_the_same_lines(bytes in arb_answer()) {
        assert_relayed_alike(&bytes, &Method::GET);
    }

    #[test]
    fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for head in [&b""[..], b"GET / HTTP/1.1\r\n"] {
            let bytes = [head, &bytes].concat();
            if let Ok(Some(head)) = super::request(&bytes, &LIMITS) {
                prop_assert!(head.used <= bytes.len());
            }
        }
        for head in [&b""[..], b"HTTP/1.1 200 OK\r\n"] {
            let bytes = [head, &bytes].concat();
            assert_relayed_alike(&bytes, &Method::GET);
            if let Ok(Some(head)) = response(&bytes, &LIMITS, &Method::GET) {
                prop_assert!(head.used <= bytes.len());
            }
        }
    }
}
