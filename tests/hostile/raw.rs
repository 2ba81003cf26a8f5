//! A client that says exactly what it is told to, over TLS, and hears exactly what comes back.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;

use crate::usher::PATIENCE;

/// One connection.
pub(crate) struct Raw {
    stream: StreamOwned<ClientConnection, TcpStream>,
    /// Read, but not yet part of an answer.
    left: Vec<u8>,
}

/// An answer: what a test looks at.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Whether the body ended as its head said it would.
    pub(crate) whole: bool,
}

/// How long silence must last to be called silence.
const QUIET: std::time::Duration = std::time::Duration::from_millis(300);
/// Answers larger than this are no answers.
const ANSWER_BYTES_MAX: usize = 64 << 20;

impl Raw {
    /// Connects; the handshake happens with the first byte.
    pub(crate) fn connect(address: SocketAddr, tls: Arc<ClientConfig>) -> Self {
        let socket = TcpStream::connect(address).expect("usher listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        socket.set_write_timeout(Some(PATIENCE)).expect("a time-out");
        let name = ServerName::IpAddress(address.ip().into());
        let connection = ClientConnection::new(tls, name).expect("a client");
        Self { stream: StreamOwned::new(connection, socket), left: Vec::new() }
    }

    /// Does the handshake on that connection; `None` if the peer hangs up.
    pub(crate) fn greet(socket: TcpStream, tls: Arc<ClientConfig>) -> Option<Self> {
        socket.set_read_timeout(Some(PATIENCE)).ok()?;
        socket.set_write_timeout(Some(PATIENCE)).ok()?;
        let name = ServerName::IpAddress(socket.peer_addr().ok()?.ip().into());
        let connection = ClientConnection::new(tls, name).expect("a client");
        let mut stream = StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).ok()?;
        }
        Some(Self { stream, left: Vec::new() })
    }

    /// Sends bytes. An error is the peer's right: it may have hung up.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.stream.write_all(bytes.as_ref())?;
        self.stream.flush()
    }

    /// Sends bytes to a peer that may have stopped reading, or hung up: then `false`, and nothing can be sent any more.
    pub(crate) fn push(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.sock.set_write_timeout(Some(QUIET)).expect("a time-out");
        // rustls listens when it cannot write.
        self.stream.sock.set_read_timeout(Some(QUIET)).expect("a time-out");
        let is_sent = self.send(bytes).is_ok();
        self.stream.sock.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        is_sent
    }

    /// What the peer had said before it hung up, read without writing: for after [`Raw::push`] was refused.
    pub(crate) fn until_closed_quietly(&mut self) -> Vec<u8> {
        let mut said = std::mem::take(&mut self.left);
        loop {
            // Both fail at the end, orderly or not.
            let _ = self.stream.conn.reader().read_to_end(&mut said);
            if !matches!(self.stream.conn.read_tls(&mut self.stream.sock), Ok(1..))
                || self.stream.conn.process_new_packets().is_err()
            {
                return said;
            }
        }
    }

    /// Sends a GET as that user's token.
    pub(crate) fn get(&mut self, path: &str, token: &str) {
        assert!(self.try_get(path, token), "usher reads");
    }

    /// The same, to a peer that may have hung up; `false` if it had.
    pub(crate) fn try_get(&mut self, path: &str, token: &str) -> bool {
        let head = format!("GET {path} HTTP/1.1\r\nHost: usher\r\nAuthorization: Bearer {token}\r\n\r\n");
        self.send(head).is_ok()
    }

    /// Sends bytes and reads the answer.
    pub(crate) fn ask(&mut self, bytes: impl AsRef<[u8]>) -> Answer {
        // If it hung up while we were sending, it may still have answered.
        let _ = self.send(bytes);
        self.answer().expect("an answer")
    }

    /// Reads one answer; `None` if the connection ended without one.
    pub(crate) fn answer(&mut self) -> Option<Answer> {
        let head_length = loop {
            if let Some(end) = find(&self.left, b"\r\n\r\n") {
                break end + 4;
            }
            if !self.read_more() {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&self.left[..head_length]).into_owned();
        self.left.drain(..head_length);
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let (body, whole) = if (100..200).contains(&status) || matches!(status, 204 | 304) {
            (Vec::new(), true)
        } else if let Some(length) = header(&head, "content-length") {
            self.read_length(length.parse().expect("a length"))
        } else if header(&head, "transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
            self.read_chunks()
        } else {
            while self.read_more() {}
            (std::mem::take(&mut self.left), true)
        };
        Some(Answer { status, head, body, whole })
    }

    /// Waits for the peer to hang up; what came before that.
    pub(crate) fn until_closed(&mut self) -> Vec<u8> {
        while self.read_more() {}
        std::mem::take(&mut self.left)
    }

    /// Waits until the peer hangs up or has said nothing for a moment. For tests of what must *not* happen:
    /// the moment bounds how long they look.
    pub(crate) fn until_closed_or_quiet(&mut self) {
        self.stream.sock.set_read_timeout(Some(QUIET)).expect("a time-out");
        let mut buffer = [0; 16 * 1024];
        while matches!(self.stream.read(&mut buffer), Ok(length) if length > 0) {}
        self.stream.sock.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    }

    /// Hangs up without a word.
    pub(crate) fn vanish(self) {
        // It may be gone already.
        let _ = self.stream.sock.shutdown(Shutdown::Both);
    }

    /// Sends no more, not even that TLS is over; what it sent before is still on its way, and its end behind it.
    pub(crate) fn half_close(self) -> TcpStream {
        self.stream.sock.shutdown(Shutdown::Write).expect("open");
        self.stream.sock
    }

    /// Hangs up so that the peer knows at once (RST), whatever it has not read yet.
    pub(crate) fn abort(self) {
        linger_not(&self.stream.sock);
    }

    fn read_length(&mut self, length: usize) -> (Vec<u8>, bool) {
        while self.left.len() < length && self.read_more() {}
        let whole = self.left.len() >= length;
        let end = length.min(self.left.len());
        (self.left.drain(..end).collect(), whole)
    }

    fn read_chunks(&mut self) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        loop {
            let line = loop {
                if let Some(end) = find(&self.left, b"\r\n") {
                    let line: Vec<u8> = self.left.drain(..end + 2).collect();
                    break String::from_utf8_lossy(&line).trim().to_owned();
                }
                if !self.read_more() {
                    return (body, false);
                }
            };
            let size = usize::from_str_radix(line.split(';').next().unwrap_or(""), 16).expect("a chunk size");
            if size == 0 {
                // Trailers, then an empty line.
                while find(&self.left, b"\r\n").is_none() {
                    if !self.read_more() {
                        return (body, false);
                    }
                }
                let end = find(&self.left, b"\r\n\r\n").map_or(2, |end| end + 4);
                self.left.drain(..end.min(self.left.len()));
                return (body, true);
            }
            let (chunk, whole) = self.read_length(size + 2);
            if !whole {
                body.extend_from_slice(&chunk);
                return (body, false);
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    /// Reads what there is; `false` at the end of the connection, orderly or not.
    fn read_more(&mut self) -> bool {
        assert!(self.left.len() < ANSWER_BYTES_MAX, "an endless answer");
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(length) => {
                self.left.extend_from_slice(&buffer[..length]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("nothing came within {PATIENCE:?}")
            }
            Err(_) => false,
        }
    }
}

impl Answer {
    /// A header's value; the first, if there are several.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Closing it tells the peer at once (RST), whatever it has not read yet.
pub(crate) fn linger_not(socket: &TcpStream) {
    use std::os::fd::AsRawFd as _;
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    let length = libc::socklen_t::try_from(size_of::<libc::linger>()).expect("small");
    // SAFETY: our own socket; the kernel copies a `linger` of that length.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const at_once).cast(),
            length,
        )
    };
    assert_eq!(set, 0, "a socket lingers as told");
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.split("\r\n").skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
