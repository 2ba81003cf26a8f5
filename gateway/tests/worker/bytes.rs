//! HTTP/1.1 towards an apiserver, byte for byte: what counts as sent, as an answer, as its end; which connections
//! are used again.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use usher::http1::Speaker;
use usher::upstream::{self, Server};
use usher::worker::Snapshot;

use crate::world::{World, get, patiently, speaker};

/// An apiserver's connection after the head of a request has come over it.
struct Arrived {
    connection: usize,
    head: String,
    stream: TcpStream,
    /// Gives the connection back, to read the next request from it.
    home: mpsc::UnboundedSender<(usize, TcpStream)>,
}

/// A worker in front of an apiserver that the test plays.
struct Bytes {
    world: World,
    arrived: mpsc::UnboundedReceiver<Arrived>,
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const POST: &str = "POST /x HTTP/1.1\r\nHost: usher\r\nContent-Length: 4\r\n\r\nbody";

impl Bytes {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server: Server = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let (sender, arrived) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let (home, mut homecoming) = mpsc::unbounded_channel::<(usize, TcpStream)>();
            let mut connections = 0;
            loop {
                let (connection, stream) = tokio::select! {
                    fresh = listener.accept() => (connections, fresh.unwrap().0),
                    Some(back) = homecoming.recv() => back,
                };
                connections = connections.max(connection + 1);
                tokio::spawn(read_head(connection, stream, home.clone(), sender.clone()));
            }
        });
        let world = World::with(|settings| {
            settings.upstream = upstream::Settings::new(vec![server], None);
            settings.upstream.http1 = speaker();
        })
        .await;
        // The question after its health leaves one connection in the pool.
        world.until("a connection to be idle", |snapshot| idle(snapshot) == 1).await;
        Self { world, arrived }
    }

    async fn next(&mut self) -> Arrived {
        patiently("a request to reach the apiserver", self.arrived.recv()).await.unwrap()
    }

    async fn idle_is(&self, count: usize) {
        self.world.until("connections to be idle, or not", |snapshot| idle(snapshot) == count).await;
    }

    async fn unasked(&self) -> u64 {
        self.world.snapshot().await.upstreams[0].http1_unasked
    }
}

fn idle(snapshot: &Snapshot) -> usize {
    snapshot.upstreams[0].http1_idle
}

async fn read_head(
    connection: usize,
    mut stream: TcpStream,
    home: mpsc::UnboundedSender<(usize, TcpStream)>,
    sender: mpsc::UnboundedSender<Arrived>,
) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(char::from(byte)),
            Err(_) => return,
        }
    }
    let mut arrived = Arrived { connection, head, stream, home };
    if arrived.head.starts_with("GET /readyz") {
        arrived.say(OK).await;
        arrived.again();
    } else {
        let _ = sender.send(arrived);
    }
}

impl Arrived {
    async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    async fn read(&mut self, expected: &str) {
        let mut read = vec![0; expected.len()];
        patiently("bytes of a body", self.stream.read_exact(&mut read)).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&read), expected);
    }

    /// Waits for the next request on this connection.
    fn again(self) {
        let _ = self.home.send((self.connection, self.stream));
    }

    /// Usher closes it.
    async fn is_closed(&mut self) {
        let mut ignored = Vec::new();
        let _ = patiently("the connection to be closed", self.stream.read_to_end(&mut ignored)).await;
    }
}

#[tokio::test]
async fn a_read_that_meets_a_closing_connection_is_sent_again_and_a_write_is_not() {
    let mut bytes = Bytes::new().await;
    let mut client = bytes.world.client().await;
    client.send(get("/x")).await;
    let seen = bytes.next().await;
    assert_eq!(seen.connection, 0, "used before");
    drop(seen);
    if speaker() == Speaker::Own {
        let mut seen = bytes.next().await;
        assert_eq!(seen.connection, 1, "a fresh one");
        seen.say(OK).await;
        assert_eq!(client.answer().await.body, "ok");
        seen.again();
        bytes.idle_is(1).await;
        client.send(POST).await;
        drop(bytes.next().await);
    }
    assert_eq!(client.answer().await.status, 502);
    client.send(get("/x")).await;
    let mut seen = bytes.next().await;
    seen.say("HTTP/1.1 200").await;
    drop(seen);
    assert_eq!(client.answer().await.status, 502, "a byte of the answer has come");
    assert!(bytes.arrived.try_recv().is_err());
    bytes.world.done().await;
}

#[tokio::test]
async fn a_fresh_connection_that_is_closed_is_a_502_at_once() {
    let mut bytes = Bytes::new().await;
    let mut first = bytes.world.client().await;
    first.send(get("/api/v1/pods?watch=1")).await; // holds the pooled connection, not the seat for long
    let mut watched = bytes.next().await;
    watched.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let mut client = bytes.world.client().await;
    client.send(get("/x")).await;
    let seen = bytes.next().await;
    assert_eq!(seen.connection, 1);
    drop(seen);
    assert_eq!(client.answer().await.status, 502);
    assert!(bytes.arrived.try_recv().is_err());
    drop(first);
    bytes.world.done().await;
}

#[tokio::test]
async fn a_body_waits_for_100_continue_and_other_early_answers_are_passed_over() {
    let mut bytes = Bytes::new().await;
    let mut client = bytes.world.client().await;
    client.send("POST /x HTTP/1.1\r\nHost: usher\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n").await;
    let mut seen = bytes.next().await;
    assert!(seen.head.to_ascii_lowercase().contains("expect: 100-continue"));
    seen.say("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n").await;
    seen.say("HTTP/1.1 100 Continue\r\n\r\n").await;
    assert!(client.read_until("\r\n\r\n").await.starts_with("HTTP/1.1 100"));
    client.send("body").await;
    seen.read("body").await;
    seen.say(OK).await;
    assert_eq!(client.answer().await.body, "ok");
    seen.again();
    bytes.idle_is(1).await;
    bytes.world.done().await;
}

#[tokio::test]
async fn answers_without_end_before_the_answer_are_a_502() {
    for early in ["HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1000), "HTTP/1.1 101 Switching\r\n\r\n".into()] {
        if speaker() == Speaker::Hyper {
            return; // hyper takes any number, and anything after them
        }
        let mut bytes = Bytes::new().await;
        let mut client = bytes.world.client().await;
        client.send(get("/x")).await;
        let mut seen = bytes.next().await;
        let _ = seen.stream.write_all(early.as_bytes()).await;
        let _ = seen.stream.write_all(OK.as_bytes()).await;
        assert_eq!(client.answer().await.status, 502);
        seen.is_closed().await;
        bytes.world.done().await;
    }
}

#[tokio::test]
async fn an_answer_may_come_while_the_body_goes_up_and_ends_the_connection() {
    let mut bytes = Bytes::new().await;
    let mut client = bytes.world.client().await;
    client.send("POST /x HTTP/1.1\r\nHost: usher\r\nContent-Length: 10\r\n\r\nhalf").await;
    let mut seen = bytes.next().await;
    seen.read("half").await;
    seen.say("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno").await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.body.as_str()), (413, "no"));
    drop(client);
    seen.is_closed().await;
    bytes.idle_is(0).await;
    bytes.world.done().await;
}

#[tokio::test]
async fn a_body_that_goes_on_after_the_head_of_the_answer_arrives() {
    let mut bytes = Bytes::new().await;
    let mut client = bytes.world.client().await;
    client.send("POST /x HTTP/1.1\r\nHost: usher\r\nContent-Length: 8\r\n\r\nhalf").await;
    let mut seen = bytes.next().await;
    seen.read("half").await;
    seen.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n").await;
    client.read_until("first\r\n").await;
    client.send("half").await;
    seen.read("half").await;
    seen.say("6\r\nsecond\r\n0\r\n\r\n").await;
    client.read_until("6\r\nsecond\r\n0\r\n\r\n").await;
    seen.again();
    bytes.idle_is(1).await;
    bytes.world.done().await;
}

#[tokio::test]
async fn answers_end_where_their_heads_say() {
    let mut bytes = Bytes::new().await;
    let mut client = bytes.world.client().await;
    for (method, answer, used_again) in [
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n", true),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", true),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", true),
        ("HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", true),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", false),
        ("GET", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false),
        ("GET", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", true),
    ] {
        client.send(format!("{method} /x HTTP/1.1\r\nHost: usher\r\n\r\n")).await;
        let mut seen = bytes.next().await;
        seen.say(answer).await;
        let said = client.head().await.status.to_string();
        assert_eq!(answer.split(' ').nth(1), Some(said.as_str()));
        if used_again {
            seen.again()
        } else {
            seen.is_closed().await
        }
        bytes.idle_is(usize::from(used_again)).await;
    }
    client.send(get("/x")).await;
    let mut seen = bytes.next().await;
    seen.say("HTTP/1.1 200 OK\r\n\r\nuntil ").await;
    client.read_until("until \r\n").await;
    seen.say("the end").await;
    drop(seen);
    client.read_until("the end\r\n0\r\n\r\n").await;
    bytes.idle_is(0).await;
    assert_eq!(bytes.unasked().await, 0);
    bytes.world.done().await;
}

#[tokio::test]
async fn answers_come_in_pieces_of_any_size() {
    let mut bytes = Bytes::new().await;
    let mut client = bytes.world.client().await;
    client.send(get("/x")).await;
    let mut seen = bytes.next().await;
    seen.stream.set_nodelay(true).unwrap();
    for byte in
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\none\r\n0\r\nX: y\r\n\r\n".bytes()
    {
        seen.say([byte]).await;
        tokio::task::yield_now().await;
    }
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "one"));
    seen.again();
    bytes.idle_is(1).await;
    bytes.world.done().await;
}

#[tokio::test]
async fn what_nobody_asked_for_closes_the_connection() {
    if speaker() == Speaker::Hyper {
        return; // hyper closes it too, but does not count
    }
    let mut bytes = Bytes::new().await;
    let mut client = bytes.world.client().await;
    client.send(get("/x")).await;
    let mut seen = bytes.next().await;
    seen.say(format!("{OK}{OK}")).await; // behind the answer
    assert_eq!(client.answer().await.body, "ok");
    seen.is_closed().await;
    assert_eq!(bytes.unasked().await, 1);
    client.send(get("/x")).await;
    let mut seen = bytes.next().await;
    seen.say(OK).await;
    assert_eq!(client.answer().await.body, "ok");
    bytes.idle_is(1).await;
    seen.say(OK).await; // later
    seen.is_closed().await;
    bytes.idle_is(0).await;
    assert_eq!(bytes.unasked().await, 2);
    bytes.world.done().await;
}

#[tokio::test]
async fn heads_that_are_too_large_or_malformed_are_a_502() {
    let large = format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(512 * 1024));
    for answer in [
        large.as_str(),
        "HTTP/1.1 200 OK\r\n folded: 1\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nx",
        "SSH-2.0-OpenSSH\r\n\r\n",
    ] {
        let mut bytes = Bytes::new().await;
        let mut client = bytes.world.client().await;
        client.send(get("/x")).await;
        let mut seen = bytes.next().await;
        let _ = seen.stream.write_all(answer.as_bytes()).await;
        assert_eq!(client.answer().await.status, 502, "{:?}", answer.get(..60));
        seen.is_closed().await;
        bytes.world.done().await;
    }
}

#[tokio::test]
async fn an_answer_that_nobody_wants_closes_its_connection() {
    let mut bytes = Bytes::new().await;
    for answer in ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"] {
        let mut client = bytes.world.client().await;
        client.send(get("/x")).await;
        let mut seen = bytes.next().await;
        seen.say(answer).await;
        if !answer.is_empty() {
            client.read_until("half").await;
        }
        drop(client);
        seen.is_closed().await;
        bytes.idle_is(0).await;
    }
    bytes.world.done().await;
}

#[tokio::test]
async fn a_body_is_not_taken_from_a_client_faster_than_the_apiserver_reads() {
    const MANY: usize = 64 << 20;
    let mut bytes = Bytes::new().await;
    let mut client = bytes.world.client().await;
    client.send(format!("POST /x HTTP/1.1\r\nHost: usher\r\nContent-Length: {MANY}\r\n\r\n")).await;
    let mut seen = bytes.next().await;
    let piece = vec![b'x'; 64 * 1024];
    let mut sent = 0;
    // The apiserver reads nothing; what the kernel's buffers and usher's hold is far below all of it.
    while let Ok(written) =
        tokio::time::timeout(std::time::Duration::from_millis(500), client.0.write(&piece)).await
    {
        sent += written.unwrap();
        assert!(sent < MANY, "all of it was taken");
    }
    let mut left = MANY - sent;
    let mut read = vec![0; 64 * 1024];
    let mut got = 0;
    while got < MANY {
        tokio::select! {
            written = client.0.write(&piece[..left.min(piece.len())]), if left > 0 => left -= written.unwrap(),
            some = seen.stream.read(&mut read) => got += some.unwrap(),
        }
    }
    seen.say(OK).await;
    assert_eq!(client.answer().await.body, "ok");
    bytes.idle_is(1).await;
    bytes.world.done().await;
}
