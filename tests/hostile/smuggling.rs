//! Requests that two readers would cut up differently must not get past the first.

use crate::upstream::Upstream;
use crate::usher::Setup;

const HEAD: &str =
    "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: usher\r\nAuthorization: Bearer alice\r\n";
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: usher\r\n\r\n";

/// Sends it; whatever is answered, `/smuggled` never reaches the upstream.
fn nothing_slips_through(bytes: &str) -> Option<u16> {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let mut client = usher.connect();
    // It may hang up before it has read everything.
    let _ = client.send(bytes);
    let status = client.answer().map(|answer| answer.status);
    client.until_closed_or_quiet();
    let smuggled = upstream.seen().iter().any(|request| request.target.contains("smuggled"));
    assert!(!smuggled, "{bytes:?} smuggled a request: {:?}", upstream.seen());
    usher.all_seats_are_back();
    status
}

/// RFC 9112, section 6.3: refused, or read as chunked and nothing else on that connection ever after.
#[test]
fn both_lengths() {
    for order in
        ["Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 5"]
    {
        let status = nothing_slips_through(&format!("{HEAD}{order}\r\n\r\n0\r\n\r\n{SMUGGLED}"));
        assert!(matches!(status, Some(200 | 400)), "{order}: {status:?}");
    }
}

#[test]
fn two_different_lengths() {
    let status =
        nothing_slips_through(&format!("{HEAD}Content-Length: 0\r\nContent-Length: 44\r\n\r\n{SMUGGLED}"));
    assert_eq!(status, Some(400));
}

#[test]
fn codings_that_are_not_plainly_chunked() {
    for coding in ["chunked, identity", "xchunked", "chunked\u{b}", "identity", "gzip, chunked, chunked"] {
        let status =
            nothing_slips_through(&format!("{HEAD}Transfer-Encoding: {coding}\r\n\r\n0\r\n\r\n{SMUGGLED}"));
        assert!(matches!(status, Some(400 | 501)), "{coding}: {status:?}");
    }
}

#[test]
fn folded_lines_and_bare_returns() {
    for header in [
        "X-Folded: a\r\n Transfer-Encoding: chunked",
        "X-Bare: a\rTransfer-Encoding: chunked",
        "Transfer-Encoding : chunked",
        "X-Nul: a\u{0}b",
    ] {
        let status = nothing_slips_through(&format!("{HEAD}{header}\r\nContent-Length: 0\r\n\r\n"));
        assert_eq!(status, Some(400), "{header:?}");
    }
}

#[test]
fn bad_chunk_sizes() {
    for chunks in [
        "zz\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\n",
        "5\r\nhelloXX0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
    ] {
        let status =
            nothing_slips_through(&format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n{chunks}{SMUGGLED}"));
        assert_ne!(status, Some(200), "{chunks:?}");
    }
}

#[test]
fn absolute_form_and_host_must_agree() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let ask = |target: &str, host: &str| {
        let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer alice\r\n\r\n");
        usher.connect().ask(head).status
    };
    assert_eq!(ask("https://usher/api/v1/pods", "usher"), 200);
    assert_eq!(ask("https://elsewhere/api/v1/pods", "usher"), 400);
    let seen = upstream.seen();
    assert!(seen.iter().all(|request| request.target == "/api/v1/pods"), "not in origin form: {seen:?}");
    usher.all_seats_are_back();
}
