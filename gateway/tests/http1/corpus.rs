//! Known tricks: request smuggling, and what readers of HTTP/1.1 have disagreed about.

const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// Whole conversations.
pub(crate) fn cases() -> Vec<String> {
    let mut cases = Vec::new();
    // A body whose end is in question, then what would be smuggled.
    for lines in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 0\r\nContent-Length: 44",
        "Content-Length: 44\r\nContent-Length: 0",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5, 5",
        "Content-Length: 5 5",
        "Content-Length: 0x5",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 5 ",
        "Content-Length:\t5",
        "Content-Length: ",
        "Content-Length: 00000000000000000000005",
        "Content-Length: 99999999999999999999",
        "Content-Length: 18446744073709551613",
        "Content-Length : 5",
        "Content-Length\t: 5",
        " Content-Length: 5",
        "X: y\r\n Content-Length: 5",
        "X: y\rContent-Length: 5",
        "X: y\nContent-Length: 5",
        "\r\nContent-Length: 5",
        "Content_Length: 5",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding:chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
        "Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding: ,chunked",
        "Transfer-Encoding: chunked,",
        "Transfer-Encoding: chunKED",
        "Transfer-Encoding: \u{b}chunked",
        "Transfer-Encoding: chunked\u{0}",
        "Transfer-Encoding:\r\n chunked",
        "Transfer-Encoding:",
        "Transfer_Encoding: chunked",
        "Foo: bar\r\n\tTransfer-Encoding: chunked",
    ] {
        for body in ["0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", ""] {
            cases.push(format!("POST /echo HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n{body}{SMUGGLED}"));
        }
    }
    for chunks in [
        "0\r\n\r\n",
        "00\r\n\r\n",
        "0;a\r\n\r\n",
        "0 \r\n\r\n",
        "0\n\n",
        "0\r\n\n",
        "0\r\r\n\r\n",
        "\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhelloXX0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "ffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "10000000000000000\r\nhello\r\n0\r\n\r\n",
        "0000000000000005\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nX: y\r\n\r\n",
        "5\r\nhello\r\n0\r\nX : y\r\n\r\n",
        "5\r\nhello\r\n0\r\nContent-Length: 9\r\n\r\n",
        "5\r\nhello\r\n0\r\n X: y\r\n\r\n",
        "5\r\nhello\r\n0\r\nX: y\n\r\n",
        "5\r\nhello\r\n0\r\n: y\r\n\r\n",
        "zz\r\n",
        ";a\r\n",
        "\t5\r\nhello\r\n0\r\n\r\n",
        "5\t;a\r\nhello\r\n0\r\n\r\n",
    ] {
        let head = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        cases.push(format!("{head}{chunks}{SMUGGLED}"));
    }
    // First lines.
    for line in [
        "GET /echo HTTP/1.1",
        "get /echo HTTP/1.1",
        "GET  /echo HTTP/1.1",
        "GET /echo  HTTP/1.1",
        "GET /echo HTTP/1.1 ",
        "GET\t/echo HTTP/1.1",
        " GET /echo HTTP/1.1",
        "GET /echo HTTP/1.0",
        "GET /echo HTTP/0.9",
        "GET /echo HTTP/2.0",
        "GET /echo HTTP/1.10",
        "GET /echo HTTP/1",
        "GET /echo",
        "GET /echo http/1.1",
        "GET",
        "",
        "GET / echo HTTP/1.1",
        "GET /\u{e4} HTTP/1.1",
        "GET /a\\b HTTP/1.1",
        "GET /a|b HTTP/1.1",
        "GET /a\"b HTTP/1.1",
        "GET /a{b} HTTP/1.1",
        "GET /a^b HTTP/1.1",
        "GET /a<b HTTP/1.1",
        "GET /a`b HTTP/1.1",
        "GET /a?b?c HTTP/1.1",
        "GET /a#b HTTP/1.1",
        "GET http://a/b HTTP/1.1",
        "GET http://u@a/b HTTP/1.1",
        "GET HTTP://a HTTP/1.1",
        "GET a/b HTTP/1.1",
        "GET ? HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "GET /\u{7f} HTTP/1.1",
        "G(T /echo HTTP/1.1",
        "\u{16}\u{3}\u{1} / HTTP/1.1",
    ] {
        cases.push(format!("{line}\r\nHost: a\r\nConnection: close\r\n\r\n"));
    }
    // What follows from a head.
    for (line, lines) in [
        ("GET /stream HTTP/1.0", ""),
        ("GET /stream HTTP/1.0", "Connection: keep-alive\r\n"),
        ("GET /echo HTTP/1.0", "Connection: keep-alive\r\n"),
        ("GET /trailers HTTP/1.1", "TE: trailers\r\nConnection: close\r\n"),
        ("GET /trailers HTTP/1.1", "Connection: close\r\n"),
        ("HEAD /echo HTTP/1.1", ""),
        ("HEAD /404 HTTP/1.1", ""),
        ("HEAD /told HTTP/1.1", ""),
        ("HEAD /stream HTTP/1.1", ""),
        ("GET /304 HTTP/1.1", ""),
        ("GET /204 HTTP/1.1", ""),
        ("POST /echo HTTP/1.1", "Expect: 100-continue\r\n"),
        ("POST /echo HTTP/1.1", "Expect: 100-continue\r\nContent-Length: 57\r\n"),
        ("POST /echo HTTP/1.0", "Expect: 100-continue\r\nContent-Length: 57\r\n"),
        ("GET /echo HTTP/1.1", "Connection: close\r\nConnection: keep-alive\r\n"),
    ] {
        cases.push(format!("{line}\r\nHost: a\r\n{lines}\r\n{SMUGGLED}"));
    }
    cases.push(format!("\r\n\r\n{SMUGGLED}"));
    cases.push(format!("\n{SMUGGLED}"));
    cases.push(SMUGGLED.replace("\r\n", "\n"));
    cases.push(format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n{SMUGGLED}", "y".repeat(5000)));
    cases.push(format!("GET / HTTP/1.1\r\n{}\r\n{SMUGGLED}", "X: y\r\n".repeat(40)));
    cases.push(format!("GET /{} HTTP/1.1\r\n\r\n{SMUGGLED}", "y".repeat(5000)));
    cases
}
