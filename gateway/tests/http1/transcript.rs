//! What a client hears.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::server::{Log, Server};

/// One connection's answers, and what the service saw.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) answers: Vec<Answer>,
    /// The server closed the connection.
    pub(crate) closed: bool,
    pub(crate) log: Log,
}

/// An answer, its header lines sorted: their order says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) line: String,
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
}

impl Heard {
    /// Sends `pieces`, and listens until the server closes or is quiet.
    pub(crate) fn of(server: &Server, pieces: &[&[u8]], quiet: Duration) -> Self {
        let mut client = TcpStream::connect(server.address).expect("a server");
        client.set_nodelay(true).unwrap();
        for (count, piece) in pieces.iter().enumerate() {
            if count > 0 {
                std::thread::sleep(Duration::from_micros(200)); // so that they come apart
            }
            if client.write_all(piece).is_err() {
                break; // it has closed
            }
        }
        client.set_read_timeout(Some(quiet)).unwrap();
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
        let closed = loop {
            match client.read(&mut buffer) {
                Ok(0) => break true,
                Ok(count) => bytes.extend_from_slice(&buffer[..count]),
                Err(error) => break !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            }
        };
        let log = server.take_log(client.local_addr().unwrap().port());
        let asked = log.seen.iter().map(|seen| seen.line.starts_with("HEAD ")).collect();
        Self { answers: parse(&bytes, asked), closed, log }
    }
}

/// Cuts bytes into answers. What is no answer becomes one with that as its line.
fn parse(mut bytes: &[u8], asked_for_heads: Vec<bool>) -> Vec<Answer> {
    let mut answers = Vec::new();
    let mut heads = asked_for_heads.into_iter();
    while !bytes.is_empty() {
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            answers.push(Answer::garbage(bytes));
            break;
        };
        let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
        bytes = &bytes[end + 4..];
        let mut lines = text.split("\r\n").map(str::to_owned);
        let line = lines.next().unwrap_or_default();
        let mut headers: Vec<String> = lines.collect();
        headers.sort();
        let is_final = !line.contains(" 100 ");
        let is_bodiless =
            !is_final || heads.next().unwrap_or(false) || line.contains(" 204 ") || line.contains(" 304 ");
        let mut answer = Answer { line, headers, body: String::new() };
        if !is_bodiless {
            bytes = answer.read_body(bytes);
        }
        answers.push(answer);
    }
    answers
}

impl Answer {
    fn garbage(bytes: &[u8]) -> Self {
        Self {
            line: format!("garbage: {}", String::from_utf8_lossy(bytes)),
            headers: Vec::new(),
            body: String::new(),
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Takes its body off `bytes`. Chunks are put together: where they are cut says nothing.
    fn read_body<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if let Some(length) = self.header("Content-Length") {
            let length = length.parse::<usize>().unwrap_or(0).min(bytes.len());
            self.body = bytes[..length].escape_ascii().to_string();
            return &bytes[length..];
        }
        if self.header("Transfer-Encoding").is_none() {
            self.body = bytes.escape_ascii().to_string();
            return &[];
        }
        let mut rest = bytes;
        while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
            let size = usize::from_str_radix(&String::from_utf8_lossy(&rest[..end]), 16).unwrap_or(0);
            rest = &rest[end + 2..];
            if size == 0 {
                let end = rest.windows(2).position(|window| window == b"\r\n").unwrap_or(0);
                self.body += &format!("|{}", rest[..end].escape_ascii()); // a trailer
                let after = if end == 0 { 2 } else { end + 4 };
                return rest.get(after..).unwrap_or_default();
            }
            let size = size.min(rest.len());
            self.body += &rest[..size].escape_ascii().to_string();
            rest = rest.get(size + 2..).unwrap_or_default();
        }
        rest
    }
}
