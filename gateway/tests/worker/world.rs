//! A worker, its apiserver, its clients.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty, Full, combinators::BoxBody};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use usher::http1::Speaker;
use usher::identity::{Authenticator, Options};
use usher::ring::Io;
use usher::upstream::{self, Server};
use usher::worker::{
    self, AdmissionSettings, Command, Counters, Handle, Listen, Objects, Settings, Snapshot,
};
use usher_flowcontrol::units::Seats;

use crate::stub::Stub;

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct World {
    pub(crate) worker: Handle,
    pub(crate) stub: Stub,
}

/// A client's HTTP/1.1 connection, by hand.
pub(crate) struct Client(pub(crate) TcpStream);

/// A client's HTTP/2 connection.
pub(crate) type Client2 = http2::SendRequest<BoxBody<Bytes, std::convert::Infallible>>;

/// An answer as it was on the wire.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

pub(crate) async fn patiently<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited for {what} in vain"),
    }
}

/// Who speaks HTTP/1.1 in these tests: usher, or hyper with `USHER_TEST_HTTP1=hyper`.
pub(crate) fn speaker() -> Speaker {
    match std::env::var("USHER_TEST_HTTP1").as_deref() {
        Ok("hyper") => Speaker::Hyper,
        _ => Speaker::Own,
    }
}

/// A worker with one seat, in front of that apiserver, that listens to nothing yet.
pub(crate) fn settings(stub: &Stub) -> Settings {
    let authenticator = Arc::new(Authenticator::new(&Options::default()).unwrap());
    let server: Server = format!("http://{}", stub.address).parse().unwrap();
    let mut settings = Settings::new(
        Vec::new(),
        authenticator,
        upstream::Settings::new(vec![server], None),
        AdmissionSettings::FlowControl { server_limit: Seats(1), together: None },
    );
    settings.upstream.http1 = speaker();
    settings.http1 = speaker();
    settings.io.io = std::env::var("USHER_TEST_IO").map_or(Io::Auto, |name| name.parse().unwrap());
    let flags = std::env::var("USHER_TEST_FLAGS").unwrap_or_default();
    settings.io.registered_files = flags.contains("--ring-registered-files").then_some(1024);
    settings
}

/// One seat; whoever does not get it waits, ten at most.
pub(crate) fn one_seat() -> Objects {
    let level = serde_json::json!({
        "metadata": {"name": "narrow", "uid": "level-uid"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 100, "lendablePercent": 0,
            "limitResponse": {"type": "Queue", "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": 10}}
        }}
    });
    let everything = serde_json::json!({
        "metadata": {"name": "everybody", "uid": "schema-uid"},
        "spec": {
            "priorityLevelConfiguration": {"name": "narrow"}, "matchingPrecedence": 100,
            "rules": [{
                "subjects": [{"kind": "Group", "group": {"name": "*"}}],
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                                   "clusterScope": true, "namespaces": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
            }]
        }
    });
    Objects {
        schemas: vec![serde_json::from_value(everything).unwrap()],
        levels: vec![serde_json::from_value(level).unwrap()],
        shared: None,
    }
}

impl World {
    /// A worker with one seat, in front of an apiserver.
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let stub = Stub::start().await;
        let mut settings = settings(&stub);
        let socket = usher::ring::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        settings.listeners.push(Listen { socket: Arc::new(socket), tls: None });
        change(&mut settings);
        let worker = worker::spawn(settings).unwrap();
        worker.send(Command::Configure(Arc::new(one_seat()))).unwrap();
        Self { worker, stub }
    }

    pub(crate) async fn client(&self) -> Client {
        Client(TcpStream::connect(self.worker.addresses()[0]).await.unwrap())
    }

    pub(crate) async fn client2(&self) -> Client2 {
        let stream = TcpStream::connect(self.worker.addresses()[0]).await.unwrap();
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    pub(crate) async fn snapshot(&self) -> Snapshot {
        let (asker, answer) = oneshot::channel();
        self.worker.send(Command::Snapshot(asker)).unwrap();
        *patiently("a snapshot", answer).await.unwrap()
    }

    pub(crate) async fn counters(&self) -> Counters {
        self.snapshot().await.counters
    }

    /// Asks until it is so.
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&Snapshot) -> bool) -> Snapshot {
        patiently(what, async {
            loop {
                let snapshot = self.snapshot().await;
                if is_so(&snapshot) {
                    return snapshot;
                }
                tokio::time::sleep(Duration::from_millis(1)).await; // not to keep the worker from its work
            }
        })
        .await
    }

    pub(crate) async fn until_waiting(&self, count: usize) {
        self.until("requests to wait", |snapshot| waiting(snapshot) == count).await;
    }

    /// Nothing is occupied, then the end.
    pub(crate) async fn done(self) {
        self.until("all seats to be free", is_free).await;
        self.worker.send(Command::Drain { grace: Duration::ZERO }).unwrap();
        self.worker.join().unwrap();
    }
}

pub(crate) fn waiting(snapshot: &Snapshot) -> usize {
    snapshot.core.as_ref().map_or(0, |core| core.levels.iter().map(|level| level.waiting).sum())
}

pub(crate) fn is_free(snapshot: &Snapshot) -> bool {
    snapshot.requests.is_empty()
        && snapshot.core.as_ref().is_none_or(|core| {
            core.levels
                .iter()
                .all(|level| level.waiting == 0 && level.executing == 0 && level.seats_in_use == Seats(0))
        })
}

/// A request without a body.
pub(crate) fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: usher\r\n\r\n")
}

pub(crate) fn get2(target: &str) -> Request<BoxBody<Bytes, std::convert::Infallible>> {
    Request::get(format!("http://usher{target}")).body(BoxBody::new(Empty::new())).unwrap()
}

pub(crate) fn post2(target: &str, body: Vec<u8>) -> Request<BoxBody<Bytes, std::convert::Infallible>> {
    Request::post(format!("http://usher{target}")).body(Full::from(body).boxed()).unwrap()
}

impl Client {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        patiently("room to write", self.0.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Bytes up to and with `end`.
    pub(crate) async fn read_until(&mut self, end: &str) -> String {
        let mut read = Vec::new();
        patiently(end, async {
            while !read.ends_with(end.as_bytes()) {
                match self.0.read_u8().await {
                    Ok(byte) => read.push(byte),
                    Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&read)),
                }
            }
        })
        .await;
        String::from_utf8(read).unwrap()
    }

    pub(crate) async fn read_all(&mut self) -> String {
        let mut read = Vec::new();
        let _ = patiently("the end", self.0.read_to_end(&mut read)).await;
        String::from_utf8_lossy(&read).into_owned()
    }

    /// The head of an answer.
    pub(crate) async fn head(&mut self) -> Answer {
        let head = self.read_until("\r\n\r\n").await;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body: String::new() }
    }

    /// A whole answer with a Content-Length, or chunked.
    pub(crate) async fn answer(&mut self) -> Answer {
        let head = self.head().await;
        self.rest(head).await
    }

    /// The body behind a head.
    pub(crate) async fn rest(&mut self, mut answer: Answer) -> Answer {
        if let Some(length) = answer.header("content-length") {
            let mut body = vec![0; length.parse().unwrap()];
            patiently("the body", self.0.read_exact(&mut body)).await.unwrap();
            answer.body = String::from_utf8(body).unwrap();
        } else if answer.header("transfer-encoding") == Some("chunked") {
            loop {
                let size = self.read_until("\r\n").await;
                let size = usize::from_str_radix(size.trim(), 16).unwrap();
                if size == 0 {
                    let rest = self.read_until("\r\n").await;
                    if rest != "\r\n" {
                        answer.head.push_str(&rest); // a trailer
                        answer.head.push_str(&self.read_until("\r\n").await);
                    }
                    break;
                }
                let mut chunk = vec![0; size + 2];
                patiently("a chunk", self.0.read_exact(&mut chunk)).await.unwrap();
                answer.body.push_str(std::str::from_utf8(&chunk[..size]).unwrap());
            }
        }
        answer
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}
