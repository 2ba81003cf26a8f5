//! Apiservers that end their HTTP/2 connections (GOAWAY) while requests are on their way: each has an answer.
//!
//! The apiserver here says its frames by hand, so that each comes when the test wants it.

use std::collections::BTreeMap;
use std::io;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::server::TlsStream;
use usher::upstream::{Http2, Server};

use crate::stub::text;
use crate::upstreams::{WATCH, certificates, secure_listener, world_before};
use crate::world::{Client, World, patiently};

type Stream = TlsStream<TcpStream>;

/// What came on an HTTP/2 connection, in the order of their coming.
struct Arrived {
    /// Counts from 0.
    connection: usize,
    what: What,
    /// Frames for the other side.
    frames: mpsc::UnboundedSender<Vec<u8>>,
}

#[derive(Debug, PartialEq, Eq)]
enum What {
    /// A request, on this stream.
    Request(u32),
    /// All frames sent before the PING were seen.
    Pong,
}

/// An apiserver's HTTP/2 connection, and what it does of itself.
struct Connection {
    stream: Stream,
    number: usize,
    script: Script,
}

#[derive(Clone, Copy)]
enum Script {
    /// Nothing: the test says what.
    Tested,
    /// Answers each request; on the first so many connections only the first [`LOOKED_AT`], the rest it leaves: Go's
    /// server from the moment it ends a connection.
    Ending(usize),
    /// The first so many connections end without a word, not even SETTINGS.
    Dumb(usize),
}

/// See [`Script::Ending`].
const LOOKED_AT: u32 = 7;
/// The last stream that there can be: all that comes is still looked at (RFC 9113, section 6.8).
const LAST: u32 = (1 << 31) - 1;
/// The same as a short request.
const SHORT: &str = "GET /api/v1/pods HTTP/1.1\r\nHost: usher\r\nAuthorization: Bearer secret\r\n\r\n";

/// Types of frames (RFC 9113, section 6).
mod kind {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PING: u8 = 6;
    pub(super) const GOAWAY: u8 = 7;
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The head of an answer: `:status: 200`, as the static table of HPACK has it.
fn head(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, 0x4, stream, &[0x88])
}

fn end(stream: u32) -> Vec<u8> {
    frame(kind::DATA, 0x1, stream, b"{}\n")
}

/// Without an error.
fn goaway(last: u32) -> Vec<u8> {
    frame(kind::GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat())
}

async fn start(folder: &std::path::Path, script: Script) -> (Server, mpsc::UnboundedReceiver<Arrived>) {
    certificates(folder, &["server", "proxy"]);
    let (server, listener, acceptor) = secure_listener(folder).await;
    let (sender, arrived) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut number = 0;
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                let connection = Connection { stream, number, script };
                number += 1;
                tokio::spawn(connection.run(sender.clone()));
            } else {
                tokio::spawn(async move {
                    let well = service_fn(async |_| Ok::<_, std::convert::Infallible>(text("ok")));
                    let builder = hyper::server::conn::http1::Builder::new();
                    let _ = builder.serve_connection(TokioIo::new(stream), well).await;
                });
            }
        }
    });
    (server, arrived)
}

impl Connection {
    /// Until the other side ends it.
    async fn run(mut self, sender: mpsc::UnboundedSender<Arrived>) -> io::Result<()> {
        if matches!(self.script, Script::Dumb(count) if self.number < count) {
            return self.stream.shutdown().await;
        }
        let (mut read, mut write) = tokio::io::split(self.stream);
        let (frames, mut queued) = mpsc::unbounded_channel::<Vec<u8>>();
        tokio::spawn(async move {
            while let Some(frame) = queued.recv().await {
                write.write_all(&frame).await?;
                write.flush().await?;
            }
            write.shutdown().await
        });
        let _ = frames.send(frame(kind::SETTINGS, 0, 0, &[]));
        read.read_exact(&mut [0; 24]).await?; // the preface
        loop {
            let mut head = [0; 9];
            read.read_exact(&mut head).await?;
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            read.read_exact(&mut payload).await?;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let what = match (head[3], head[4] & 1) {
                (kind::SETTINGS, 0) => {
                    let _ = frames.send(frame(kind::SETTINGS, 1, 0, &[]));
                    continue;
                }
                (kind::PING, 0) => {
                    let _ = frames.send(frame(kind::PING, 1, 0, &payload));
                    continue;
                }
                (kind::PING, _) => What::Pong,
                (kind::HEADERS, _) => {
                    self.script.answer(self.number, stream, &frames);
                    What::Request(stream)
                }
                _ => continue,
            };
            let _ = sender.send(Arrived { connection: self.number, what, frames: frames.clone() });
        }
    }
}

impl Script {
    fn answer(self, connection: usize, stream: u32, frames: &mpsc::UnboundedSender<Vec<u8>>) {
        let last = LOOKED_AT * 2 - 1;
        let ending = match self {
            Self::Tested => return,
            Self::Ending(count) => connection < count,
            Self::Dumb(_) => false,
        };
        if ending && stream > last {
            return;
        }
        let _ = frames.send([head(stream), end(stream)].concat());
        if ending && stream == last {
            let _ = frames.send(goaway(last));
        }
    }
}

async fn next(arrived: &mut mpsc::UnboundedReceiver<Arrived>) -> Arrived {
    patiently("frames to arrive", arrived.recv()).await.unwrap()
}

async fn sent(world: &World, request: &str) -> Client {
    let mut client = world.client().await;
    client.send(request).await;
    client
}

#[tokio::test]
async fn a_request_after_a_goaway_goes_over_another_connection_and_what_is_open_goes_on() {
    let ways: [(&str, &[u32]); 3] = [("Go", &[1]), ("the RFC, begun", &[LAST]), ("the RFC", &[LAST, 1])];
    for (request, http2) in [(WATCH, Http2::Watches), (SHORT, Http2::All)] {
        for (way, lasts) in ways {
            let folder = tempfile::tempdir().unwrap();
            let (server, mut arrived) = start(folder.path(), Script::Tested).await;
            let world = world_before(server, folder.path(), http2).await;
            let mut watcher = sent(&world, WATCH).await;
            let watch = next(&mut arrived).await;
            assert_eq!((watch.connection, &watch.what), (0, &What::Request(1)));
            watch.frames.send(head(1)).unwrap();
            let open = watcher.head().await;
            assert_eq!(open.status, 200);

            lasts.iter().for_each(|last| watch.frames.send(goaway(*last)).unwrap());
            watch.frames.send(frame(kind::PING, 0, 0, &[0; 8])).unwrap();
            assert_eq!(next(&mut arrived).await.what, What::Pong);
            let mut others = Vec::new();
            for _ in 0..3 {
                let mut other = sent(&world, request).await;
                let seen = next(&mut arrived).await;
                assert_eq!(seen.connection, 1, "as {way} does it: {request}");
                let What::Request(stream) = seen.what else { panic!("{:?}", seen.what) };
                seen.frames.send([head(stream), end(stream)].concat()).unwrap();
                assert_eq!(other.answer().await.body, "{}\n");
                others.push(other);
            }
            watch.frames.send(end(1)).unwrap();
            assert_eq!(watcher.rest(open).await.body, "{}\n");
            world.done().await;
        }
    }
}

#[tokio::test]
async fn of_many_requests_that_meet_a_goaway_each_has_an_answer() {
    for (request, http2) in [(WATCH, Http2::Watches), (SHORT, Http2::All)] {
        let folder = tempfile::tempdir().unwrap();
        let (server, mut arrived) = start(folder.path(), Script::Ending(2)).await;
        let world = world_before(server, folder.path(), http2).await;
        for _ in 0..3 {
            let mut herd = Vec::new();
            for _ in 0..40 {
                herd.push(sent(&world, request).await);
            }
            for mut client in herd {
                let answer = client.answer().await;
                assert_eq!((answer.status, answer.body.as_str()), (200, "{}\n"));
            }
        }
        world.done().await;
        let mut seen = BTreeMap::new();
        while let Ok(Arrived { connection, .. }) = arrived.try_recv() {
            *seen.entry(connection).or_insert(0) += 1;
        }
        assert!(seen.len() >= 3, "{seen:?}");
    }
}

#[tokio::test]
async fn connections_that_end_before_they_say_anything_keep_nobody_waiting() {
    for (request, http2) in [(WATCH, Http2::Watches), (SHORT, Http2::All)] {
        let folder = tempfile::tempdir().unwrap();
        let (server, _arrived) = start(folder.path(), Script::Dumb(3)).await;
        let world = world_before(server, folder.path(), http2).await;
        let mut herd = Vec::new();
        for _ in 0..20 {
            herd.push(sent(&world, request).await);
        }
        let mut statuses = BTreeMap::new();
        for mut client in herd {
            *statuses.entry(client.answer().await.status).or_insert(0) += 1;
        }
        // What had been sent may have been looked at: 502. What had not is sent again, or not sent (503).
        assert!(statuses.keys().all(|status| [200, 502, 503].contains(status)), "{statuses:?}");
        assert_eq!(sent(&world, request).await.answer().await.status, 200);
        world.done().await;
    }
}
