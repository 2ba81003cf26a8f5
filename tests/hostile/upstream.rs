//! An upstream that does what a test says, byte for byte: plain HTTP/1.1, a thread a connection.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use crate::usher::PATIENCE;

/// What became of a connection after one request.
pub(crate) enum Next {
    /// It takes another request.
    Keep,
    /// It ends.
    Close,
}

/// A request as it arrived; its body is still on the wire.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) head: String,
}

/// The upstream. It listens until the test's process ends.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
    gate: Arc<Gate>,
}

/// Holds answers back until the test lets them go.
pub(crate) struct Gate {
    arrived: AtomicUsize,
    open: Mutex<Receiver<()>>,
    opener: Mutex<Sender<()>>,
}

impl Upstream {
    /// Answers everything with 200 and a line that tells what it was asked; paths that contain `hold`
    /// only after [`Upstream::release`].
    pub(crate) fn start() -> Self {
        Self::with(|request, stream, gate| {
            if request.target.contains("hold") {
                gate.pass();
            }
            let body = format!("{} {}\n", request.method, request.target);
            answer(stream, "200 OK", &body)
        })
    }

    /// Does what the function says for every request but `/readyz`, which is always well.
    pub(crate) fn with(
        behave: impl Fn(&Request, &mut TcpStream, &Gate) -> std::io::Result<Next> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (opener, open) = channel();
        let gate = Arc::new(Gate {
            arrived: AtomicUsize::new(0),
            open: Mutex::new(open),
            opener: Mutex::new(opener),
        });
        let (behave, requests, held) = (Arc::new(behave), Arc::clone(&seen), Arc::clone(&gate));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (behave, requests, held) =
                    (Arc::clone(&behave), Arc::clone(&requests), Arc::clone(&held));
                std::thread::spawn(move || {
                    // A connection that breaks is what many tests are about.
                    let _ = converse(stream, |request, stream| {
                        requests.lock().expect("no holder panics").push(request.clone());
                        behave(request, stream, &held)
                    });
                });
            }
        });
        Self { address, seen, gate }
    }

    /// What it was asked, `/readyz` and usher's own questions apart.
    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().expect("no holder panics").clone()
    }

    /// Requests that have come to the gate since the start.
    pub(crate) fn held(&self) -> usize {
        self.gate.arrived.load(Ordering::SeqCst)
    }

    /// The same, to be asked from elsewhere.
    pub(crate) fn counter(&self) -> impl Fn() -> usize + Send + 'static {
        let gate = Arc::clone(&self.gate);
        move || gate.arrived.load(Ordering::SeqCst)
    }

    /// Lets so many held answers go.
    pub(crate) fn release(&self, answers: usize) {
        let opener = self.gate.opener.lock().expect("no holder panics");
        for _ in 0..answers {
            opener.send(()).expect("the gate stands");
        }
    }
}

impl Gate {
    /// Waits until the test lets one go.
    pub(crate) fn pass(&self) {
        self.arrived.fetch_add(1, Ordering::SeqCst);
        // A test that has ended lets nobody go: the thread goes with the process.
        let _ = self.open.lock().expect("no holder panics").recv();
    }
}

/// A whole answer with a length.
pub(crate) fn answer(stream: &mut TcpStream, status: &str, body: &str) -> std::io::Result<Next> {
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    Ok(Next::Keep)
}

fn converse(
    stream: TcpStream,
    mut behave: impl FnMut(&Request, &mut TcpStream) -> std::io::Result<Next>,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE * 4))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let mut head = String::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            head += &line;
        }
        let mut words = head.split(' ');
        let request = Request {
            method: words.next().unwrap_or_default().to_owned(),
            target: words.next().unwrap_or_default().to_owned(),
            head: head.clone(),
        };
        let own = ["/readyz", "/openid/", "/.well-known/", "/metrics"];
        let own = own.iter().any(|path| request.target.starts_with(path));
        let next = if own {
            answer(&mut stream, "200 OK", "ok")?
        } else {
            if !request.target.contains("unread") {
                read_body(&head, &mut reader)?;
            }
            behave(&request, &mut stream)?
        };
        if matches!(next, Next::Close) {
            return stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn read_body(head: &str, reader: &mut BufReader<TcpStream>) -> std::io::Result<()> {
    let lower = head.to_ascii_lowercase();
    if let Some(rest) = lower.split("content-length:").nth(1) {
        let length: u64 = rest.split("\r\n").next().unwrap_or("").trim().parse().unwrap_or(0);
        std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
    } else if lower.contains("transfer-encoding: chunked") {
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let size = u64::from_str_radix(line.trim(), 16).unwrap_or(0);
            std::io::copy(&mut reader.take(size), &mut std::io::sink())?;
            let mut end = String::new();
            reader.read_line(&mut end)?;
            if size == 0 {
                return Ok(());
            }
        }
    }
    Ok(())
}
