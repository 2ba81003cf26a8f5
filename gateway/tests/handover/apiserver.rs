//! An apiserver that outlives every usher: `ok` at once, or for `/hold/…` once it is let go.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// It, from threads of its own.
pub(crate) struct Apiserver {
    pub(crate) address: SocketAddr,
    pub(crate) url: String,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

/// More than one packet, so that an answer can be cut off.
pub(crate) const BODY_BYTES: usize = 8192;

impl Apiserver {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let gate = Arc::<Gate>::default();
        let shared = Arc::clone(&gate);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let gate = Arc::clone(&shared);
                std::thread::spawn(move || answer(stream.unwrap(), &gate));
            }
        });
        Self { address, url: format!("http://{address}"), gate }
    }

    /// Everything that was held is answered.
    pub(crate) fn let_go(&self) {
        *self.gate.is_open.lock().unwrap() = true;
        self.gate.opened.notify_all();
    }
}

fn answer(stream: TcpStream, gate: &Gate) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut stream = stream;
    let mut is_held = false;
    while let Some(Ok(line)) = lines.next() {
        is_held |= line.starts_with("GET /hold/");
        if line.is_empty() {
            if std::mem::take(&mut is_held) {
                let mut is_open = gate.is_open.lock().unwrap();
                while !*is_open {
                    is_open = gate.opened.wait(is_open).unwrap();
                }
            }
            let body = " ".repeat(BODY_BYTES - 2) + "ok";
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n{body}");
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}
