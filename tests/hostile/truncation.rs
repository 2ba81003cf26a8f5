//! Answers over TLS whose end somebody could have forged: without `close_notify` a body that lasts to the end of the
//! connection is not complete (RFC 8446 §6.1), and no client may believe that it is.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::h2::{H2, flag, get, kind};
use crate::usher::{Authority, Setup, Usher};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Answers every path: those that hold `cut` end without `close_notify`, others with it.
fn upstream(authority: &Authority) -> SocketAddr {
    let (certificate, key) = authority.server();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions that the provider has")
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate")],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key"),
        )
        .expect("a key that fits its certificate");
    let config = Arc::new(config);
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a server");
            std::thread::spawn(move || {
                // A connection that breaks is none of ours to mend.
                let _ = answer(StreamOwned::new(connection, socket));
            });
        }
    });
    address
}

fn answer(mut stream: StreamOwned<ServerConnection, std::net::TcpStream>) -> std::io::Result<()> {
    let (mut target, mut line) = (String::new(), String::new());
    let mut reader = BufReader::new(&mut stream);
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if target.is_empty() {
            target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        }
    }
    drop(reader);
    let body = if target.contains("chunked") {
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    } else if target.contains("length") {
        "Content-Length: 100\r\n\r\nhello"
    } else {
        "\r\nhello"
    };
    write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n{body}")?;
    stream.flush()?;
    if !target.contains("cut") {
        stream.conn.send_close_notify();
        stream.flush()?;
    }
    stream.sock.shutdown(Shutdown::Write)
}

fn start() -> (Usher, tempfile::TempDir) {
    let authority = Authority::new("upstream");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ca = folder.path().join("upstream-ca.crt");
    std::fs::write(&ca, authority.pem()).expect("a file");
    let usher = Setup::bare()
        .flag(format!("--upstream=https://{}", upstream(&authority)))
        .flag(format!("--upstream-ca-file={}", ca.display()))
        .start();
    (usher, folder)
}

/// Every way to end, and whether that is the end of the body.
const ENDINGS: [(&str, bool); 5] =
    [("whole", true), ("cut", false), ("chunked", false), ("chunked-cut", false), ("length-cut", false)];

#[test]
fn an_answer_that_was_cut_is_not_whole_over_http1() {
    let (usher, _folder) = start();
    for (name, is_whole) in ENDINGS {
        let mut client = usher.connect();
        client.get(&format!("{CONFIG_MAPS}/{name}"), "alice");
        let answer = client.answer().expect("an answer");
        assert_eq!((answer.status, answer.whole, &*answer.text()), (200, is_whole, "hello"), "{name}");
        usher.all_seats_are_back();
    }
}

#[test]
fn an_answer_that_was_cut_is_not_whole_over_http2() {
    let (usher, _folder) = start();
    for (name, is_whole) in ENDINGS {
        let mut client = H2::connect(usher.address, usher.tls(None, &[b"h2"]), &[]);
        assert!(client.send(&get(1, &format!("{CONFIG_MAPS}/{name}"), "alice")));
        let mut body = Vec::new();
        let ended = loop {
            let frame = client.frame().expect("an end");
            match frame.kind {
                kind::DATA if frame.stream == 1 => body.extend_from_slice(&frame.payload),
                kind::RST_STREAM if frame.stream == 1 => break false,
                _ => {}
            }
            if frame.stream == 1 && frame.flags & flag::END_STREAM != 0 {
                break true;
            }
        };
        assert_eq!(ended, is_whole, "{name}");
        // What was on its way when the stream was reset may be lost.
        assert!(if is_whole { body == b"hello" } else { b"hello".starts_with(&body) }, "{name}: {body:?}");
        usher.all_seats_are_back();
    }
}
