//! A client that writes HTTP/2 frame by frame, honest or not (RFC 9113, RFC 7541).

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;

use crate::usher::PATIENCE;

/// Types of frames.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
    pub(crate) const PRIORITY_UPDATE: u8 = 16;
}

/// Flags of frames.
pub(crate) mod flag {
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
}

/// GOAWAY's code for clients that are too much.
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

/// One connection. Nothing is sent or acknowledged but what a test says.
pub(crate) struct H2 {
    stream: StreamOwned<ClientConnection, TcpStream>,
    /// Read, but not yet a whole frame.
    left: Vec<u8>,
}

/// A frame as it came.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl H2 {
    /// Connects, says hello with these settings, and acknowledges usher's.
    pub(crate) fn connect(address: SocketAddr, tls: Arc<ClientConfig>, settings: &[(u16, u32)]) -> Self {
        let mut client = Self::connect_rudely(address, tls, settings);
        client.until(kind::SETTINGS, 0);
        assert!(client.send(&frame(kind::SETTINGS, flag::ACK, 0, &[])));
        client
    }

    /// The same without acknowledging.
    pub(crate) fn connect_rudely(
        address: SocketAddr,
        tls: Arc<ClientConfig>,
        settings: &[(u16, u32)],
    ) -> Self {
        let socket = TcpStream::connect(address).expect("usher listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        socket.set_write_timeout(Some(PATIENCE)).expect("a time-out");
        let name = ServerName::IpAddress(address.ip().into());
        let connection = ClientConnection::new(tls, name).expect("a client");
        let mut client = Self { stream: StreamOwned::new(connection, socket), left: Vec::new() };
        let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        hello.extend(self::settings(settings));
        assert!(client.send(&hello), "usher reads");
        client
    }

    /// Sends bytes; `false` if the peer has hung up.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).is_ok()
    }

    /// The next frame; `None` at the end of the connection, orderly or not.
    pub(crate) fn frame(&mut self) -> Option<Frame> {
        loop {
            if let [a, b, c, kind, flags, stream @ ..] = &self.left[..]
                && let Some((stream, rest)) = stream.split_first_chunk()
            {
                let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
                if let Some(payload) = rest.get(..length) {
                    let stream = u32::from_be_bytes(*stream);
                    let frame = Frame { kind: *kind, flags: *flags, stream, payload: payload.to_vec() };
                    self.left.drain(..9 + length);
                    return Some(frame);
                }
            }
            if !self.read_more() {
                return None;
            }
        }
    }

    /// Reads what there is; `false` at the end of the connection. Writes nothing: the peer may have stopped reading
    /// and have said why.
    fn read_more(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.stream.conn.reader().read(&mut buffer) {
                Ok(length) => {
                    self.left.extend_from_slice(&buffer[..length]);
                    return length > 0;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
            match self.stream.conn.read_tls(&mut self.stream.sock) {
                Ok(_) => {
                    if self.stream.conn.process_new_packets().is_err() {
                        return false;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    panic!("nothing came within {PATIENCE:?}")
                }
                Err(_) => return false,
            }
        }
    }

    /// Frames to the end of the connection.
    pub(crate) fn frames(&mut self) -> impl Iterator<Item = Frame> + '_ {
        std::iter::from_fn(|| self.frame())
    }

    /// Waits for a frame of that kind on that stream.
    pub(crate) fn until(&mut self, kind: u8, stream: u32) -> Frame {
        loop {
            let frame = self.frame().unwrap_or_else(|| panic!("a frame {kind} on stream {stream}"));
            if (frame.kind, frame.stream) == (kind, stream) {
                return frame;
            }
        }
    }

    /// Reads to the end; the code of the last GOAWAY, if one came.
    pub(crate) fn goodbye(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(frame) = self.frame() {
            if frame.kind == kind::GOAWAY {
                code = Some(self::code(&frame.payload[4..]));
            }
        }
        code
    }
}

/// An error code.
pub(crate) fn code(payload: &[u8]) -> u32 {
    u32::from_be_bytes(*payload.first_chunk().expect("four bytes"))
}

/// A frame's bytes.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).expect("a small frame").to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// SETTINGS with these parameters.
pub(crate) fn settings(parameters: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (identifier, value) in parameters {
        payload.extend(identifier.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    frame(kind::SETTINGS, 0, 0, &payload)
}

/// A frame whose payload is one number: RST_STREAM's code, WINDOW_UPDATE's increment.
pub(crate) fn number(kind: u8, stream: u32, value: u32) -> Vec<u8> {
    frame(kind, 0, stream, &value.to_be_bytes())
}

/// A whole request without a body, of that user.
pub(crate) fn get(stream: u32, path: &str, token: &str) -> Vec<u8> {
    frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &request("GET", path, token))
}

/// A request whose body follows.
pub(crate) fn post(stream: u32, path: &str, token: &str) -> Vec<u8> {
    frame(kind::HEADERS, flag::END_HEADERS, stream, &request("POST", path, token))
}

/// A request's header list, all in literals that no table remembers.
pub(crate) fn request(method: &str, path: &str, token: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [
        (":method", method),
        (":scheme", "https"),
        (":authority", "usher"),
        (":path", path),
        ("authorization", &format!("Bearer {token}")),
    ] {
        literal(&mut block, name, value);
    }
    block
}

/// Literal header field without indexing, new name (RFC 7541 §6.2.2).
pub(crate) fn literal(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    text(block, name);
    text(block, value);
}

/// Literal header field with incremental indexing, new name (RFC 7541 §6.2.1): later `0xbe` stands for it.
pub(crate) fn remembered(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0x40);
    text(block, name);
    text(block, value);
}

/// A string literal without Huffman coding.
fn text(block: &mut Vec<u8>, text: &str) {
    let mut length = text.len();
    if length < 127 {
        block.push(u8::try_from(length).expect("seven bits"));
    } else {
        block.push(127);
        length -= 127;
        while length >= 128 {
            block.push(u8::try_from(length % 128).expect("seven bits") | 128);
            length /= 128;
        }
        block.push(u8::try_from(length).expect("seven bits"));
    }
    block.extend(text.bytes());
}
