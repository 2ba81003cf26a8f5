//! Requests, most of them nearly right.

use proptest::prelude::*;

/// Some requests over one connection, some bytes of them changed; at last one that closes it.
pub(crate) fn conversation() -> impl Strategy<Value = Vec<u8>> {
    let last = Just(b"GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_vec());
    let requests = prop::collection::vec(request(), 1..4);
    let changes = prop::collection::vec((any::<prop::sample::Index>(), change()), 0..3);
    (requests, last, prop_oneof![2 => Just(Vec::new()), 1 => changes]).prop_map(
        |(requests, last, changes)| {
            let mut bytes = requests.concat();
            for (at, change) in changes {
                let at = at.index(bytes.len() + 1);
                match change {
                    Change::Insert(byte) => bytes.insert(at, byte),
                    Change::Replace(byte) if at < bytes.len() => bytes[at] = byte,
                    Change::Remove if at < bytes.len() => drop(bytes.remove(at)),
                    Change::Repeat if at < bytes.len() => {
                        let line_end = bytes[at..]
                            .iter()
                            .position(|byte| *byte == b'\n')
                            .map_or(bytes.len(), |end| at + end + 1);
                        let line = bytes[at..line_end].to_vec();
                        bytes.splice(at..at, line);
                    }
                    _ => {}
                }
            }
            [bytes, last].concat()
        },
    )
}

#[derive(Clone, Debug)]
enum Change {
    Insert(u8),
    Replace(u8),
    Remove,
    Repeat,
}

fn change() -> impl Strategy<Value = Change> {
    let byte = || prop_oneof![any::<u8>(), prop::sample::select(&b"\r\n \t:;,0a\0\x7f\xff"[..])];
    prop_oneof![
        byte().prop_map(Change::Insert),
        byte().prop_map(Change::Replace),
        Just(Change::Remove),
        Just(Change::Repeat)
    ]
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let method = prop_oneof![
        8 => prop::sample::select(vec!["GET", "POST", "PUT", "HEAD", "DELETE", "PATCH", "OPTIONS"]).prop_map(str::to_owned),
        1 => "[A-Za-z!~-]{1,9}"
    ];
    let target = prop_oneof![
        8 => prop::sample::select(vec![
            "/echo", "/stream", "/told", "/trailers", "/empty", "/204", "/304", "/404", "/close",
        ]).prop_map(str::to_owned),
        1 => "/[ -~]{0,12}",
        1 => prop::sample::select(vec!["*", "http://a/echo", "http://a:80", "a:80", "//a", "/a?b#c", "http:/", "/%zz"])
            .prop_map(str::to_owned),
    ];
    let version = prop_oneof![8 => Just("HTTP/1.1"), 2 => Just("HTTP/1.0"), 1 => Just("HTTP/1.2"), 1 => Just("http/1.1")];
    let line = prop_oneof![
        3 => Just("Host: a".to_owned()),
        2 => "[A-Za-z-]{1,8}:[ \t]{0,2}[ -~]{0,9}",
        1 => prop::sample::select(vec![
            "Connection: close", "Connection: keep-alive", "Connection: x, Close", "TE: trailers", "te: gzip, Trailers",
            "Expect: 100-continue", "Upgrade: x", "Content-Length: 3", "Content-Length: 03", "Content-Length: +3",
            "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: identity",
            "X-A : b", " folded: c", "X-\u{e4}: d", "X-B: \u{e4}",
        ]).prop_map(str::to_owned),
    ];
    let head = (method, target, version, prop::collection::vec(line, 0..4));
    (head, body()).prop_map(|((method, target, version, lines), (framing, body))| {
        let mut head = format!("{method} {target} {version}\r\n");
        for line in lines.iter().chain(&framing) {
            head += &format!("{line}\r\n");
        }
        [(head + "\r\n").into_bytes(), body].concat()
    })
}

/// The line that frames a body, and the body.
fn body() -> impl Strategy<Value = (Option<String>, Vec<u8>)> {
    let data = || "[ -~\r\n]{1,30}";
    let chunk = (data(), prop::sample::select(vec!["", "", "", ";a=b", " ;c", "\t"]));
    let trailers = prop::sample::select(vec!["", "", "", "X-T: 1\r\n", "X-T: 1\r\nX-U: 2\r\n", "bad\r\n"]);
    prop_oneof![
        3 => Just((None, Vec::new())),
        2 => data().prop_map(|data| (Some(format!("Content-Length: {}", data.len())), data.into_bytes())),
        3 => (prop::collection::vec(chunk, 0..4), trailers).prop_map(|(chunks, trailers)| {
            let mut body = String::new();
            for (data, extension) in chunks {
                body += &format!("{:x}{extension}\r\n{data}\r\n", data.len());
            }
            (Some("Transfer-Encoding: chunked".to_owned()), (body + "0\r\n" + trailers + "\r\n").into_bytes())
        }),
    ]
}
