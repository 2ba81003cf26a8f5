//! Clients who notice everything: a connection refused or reset, one closed where an answer was due, an answer cut off.
//!
//! Some open a new connection for every request, some keep theirs until they are told to go; HTTP/1.1 and HTTP/2, over TLS.

use std::cell::RefCell;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::PATIENCE;
use crate::apiserver::BODY_BYTES;
use crate::process::Folder;

/// What each kind of client got.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Requests on connections of their own.
    pub(crate) fresh_http1: u64,
    pub(crate) fresh_http2: u64,
    /// Requests on kept connections.
    pub(crate) kept_http1: u64,
    pub(crate) kept_http2: u64,
    /// Kept connections that ended as they should: `Connection: close`, GOAWAY.
    pub(crate) said_goodbye: u64,
}

/// Load, until it is ended.
pub(crate) struct Load {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    counts: Mutex<Counts>,
    failures: Mutex<Vec<String>>,
    ending: AtomicBool,
}

/// One client.
#[derive(Clone)]
struct Client {
    shared: Arc<Shared>,
    address: SocketAddr,
    http1: TlsConnector,
    http2: TlsConnector,
}

/// Clients of each kind: enough for some to be at any stage when a hand-over comes, few enough for two cores.
const EACH: usize = 3;
/// Between two requests of a client.
const PAUSE: Duration = Duration::from_millis(2);

impl Counts {
    /// Each kind of client has got so many answers more.
    pub(crate) fn all_beyond(&self, before: &Self, more: u64) -> bool {
        self.fresh_http1 >= before.fresh_http1 + more
            && self.fresh_http2 >= before.fresh_http2 + more
            && self.kept_http1 >= before.kept_http1 + more
            && self.kept_http2 >= before.kept_http2 + more
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fresh_http1, fresh_http2, kept_http1, kept_http2, said_goodbye } = self;
        write!(
            formatter,
            "{fresh_http1} + {fresh_http2} requests on connections of their own (HTTP/1.1 + HTTP/2), {kept_http1} + \
             {kept_http2} on kept ones, of which {said_goodbye} were told to go"
        )
    }
}

impl Load {
    pub(crate) fn start(address: SocketAddr, folder: &Folder) -> Self {
        let shared = Arc::<Shared>::default();
        let client = Client {
            shared: Arc::clone(&shared),
            address,
            http1: connector(folder, b"http/1.1"),
            http2: connector(folder, b"h2"),
        };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let tasks = LocalSet::new();
            for _ in 0..EACH {
                tasks.spawn_local(client.clone().fresh_http1());
                tasks.spawn_local(client.clone().fresh_http2());
                tasks.spawn_local(client.clone().kept_http1());
                tasks.spawn_local(client.clone().kept_http2());
            }
            runtime.block_on(tasks);
        });
        Self { shared, thread }
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.shared.counts.lock().unwrap()
    }

    /// Nobody has lost anything.
    pub(crate) fn assert_well(&self, when: &str) {
        let failures = self.shared.failures.lock().unwrap().clone();
        assert!(failures.is_empty(), "{when}: {} failures: {failures:#?}", failures.len());
    }

    pub(crate) fn end(self) -> Counts {
        self.shared.ending.store(true, Ordering::SeqCst);
        let Self { shared, thread } = self;
        thread.join().unwrap();
        assert!(shared.failures.lock().unwrap().is_empty());
        *shared.counts.lock().unwrap()
    }
}

fn connector(folder: &Folder, protocol: &[u8]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(folder.certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// What went wrong, where.
type Failed = String;

fn at<E: fmt::Debug>(step: &str) -> impl FnOnce(E) -> Failed {
    move |error| format!("{step}: {error:?}")
}

async fn connect(address: SocketAddr, connector: &TlsConnector) -> Result<TlsStream<TcpStream>, Failed> {
    let tcp = TcpStream::connect(address).await.map_err(at("connect"))?;
    tcp.set_nodelay(true).map_err(at("connect"))?;
    let name = ServerName::try_from("localhost").unwrap();
    connector.connect(name, tcp).await.map_err(at("TLS handshake"))
}

/// One request over HTTP/1.1; head and body of its answer.
async fn get(stream: &mut TlsStream<TcpStream>, path: &str) -> Result<String, Failed> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: usher\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(at("write"))?;
    let mut answer = Vec::new();
    loop {
        let read = stream.read_buf(&mut answer).await.map_err(at("read"))?;
        if read == 0 {
            return Err(format!("closed with {} bytes of an answer", answer.len()));
        }
        let text = String::from_utf8_lossy(&answer);
        if text.split_once("\r\n\r\n").is_some_and(|(_, body)| body.len() >= BODY_BYTES) {
            return Ok(text.into_owned());
        }
        if text.starts_with("HTTP/1.1 ") && !text.starts_with("HTTP/1.1 200") {
            return Err(text.into_owned());
        }
    }
}

/// One request by itself, in a thread of its own.
pub(crate) fn get_later(address: SocketAddr, path: &'static str, folder: &Folder) -> JoinHandle<String> {
    let connector = connector(folder, b"http/1.1");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut stream = connect(address, &connector).await.unwrap();
            get(&mut stream, path).await.unwrap()
        })
    })
}

/// What plain HTTP gets there; `None`: nobody understands it.
pub(crate) fn plain(address: SocketAddr) -> Option<String> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: apiserver\r\n\r\n").ok()?;
    let mut answer = vec![0; 65_536];
    let mut read = 0;
    while !answer[..read].ends_with(b"ok") {
        match stream.read(&mut answer[read..]) {
            Ok(more) if more > 0 => read += more,
            _ => break,
        }
    }
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    Some(answer).filter(|answer| answer.starts_with("HTTP/1.1 200"))
}

impl Client {
    /// Does it again and again.
    async fn repeat(self, name: &str, step: impl AsyncFn(&Self) -> Result<(), Failed>) {
        while !self.shared.ending.load(Ordering::SeqCst) {
            if let Err(failed) = step(&self).await {
                self.shared.failures.lock().unwrap().push(format!("{name}: {failed}"));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.shared.counts.lock().unwrap());
    }

    fn is_over(&self) -> bool {
        self.shared.ending.load(Ordering::SeqCst)
    }

    async fn fresh_http1(self) {
        self.repeat("fresh HTTP/1.1", async |client| {
            let mut stream = connect(client.address, &client.http1).await?;
            get(&mut stream, "/api/v1/pods").await?;
            client.count(|counts| counts.fresh_http1 += 1);
            Ok(())
        })
        .await;
    }

    async fn kept_http1(self) {
        self.repeat("kept HTTP/1.1", async |client| {
            let mut stream = connect(client.address, &client.http1).await?;
            while !client.is_over() {
                let answer = get(&mut stream, "/api/v1/pods").await?;
                client.count(|counts| counts.kept_http1 += 1);
                if answer.contains("\r\nConnection: close\r\n") {
                    let rest = stream.read_u8().await;
                    let is_end =
                        rest.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::UnexpectedEof);
                    client.count(|counts| counts.said_goodbye += 1);
                    return if is_end { Ok(()) } else { Err(format!("after the last answer: {rest:?}")) };
                }
                tokio::time::sleep(PAUSE).await;
            }
            Ok(())
        })
        .await;
    }

    async fn fresh_http2(self) {
        self.repeat("fresh HTTP/2", async |client| {
            let mut session = Session::open(client).await?;
            if !session.get().await? {
                return Err("told to go before its first request".into());
            }
            client.count(|counts| counts.fresh_http2 += 1);
            session.close().await
        })
        .await;
    }

    async fn kept_http2(self) {
        self.repeat("kept HTTP/2", async |client| {
            let mut session = Session::open(client).await?;
            while !client.is_over() {
                if !session.get().await? {
                    client.count(|counts| counts.said_goodbye += 1);
                    break;
                }
                client.count(|counts| counts.kept_http2 += 1);
                tokio::time::sleep(PAUSE).await;
            }
            session.close().await
        })
        .await;
    }
}

/// An HTTP/2 connection.
struct Session {
    requests: h2::client::SendRequest<Bytes>,
    ended: Rc<RefCell<Option<Result<(), h2::Error>>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Session {
    async fn open(client: &Client) -> Result<Self, Failed> {
        let stream = connect(client.address, &client.http2).await?;
        let (requests, connection) = h2::client::handshake(stream).await.map_err(at("HTTP/2 preface"))?;
        let ended = Rc::<RefCell<_>>::default();
        let end = Rc::clone(&ended);
        let task = tokio::task::spawn_local(async move {
            let result = connection.await;
            end.replace(Some(result));
        });
        Ok(Self { requests, ended, task })
    }

    /// Whether it was answered; it is not if the connection was told to go before, and then nobody has seen it.
    async fn get(&mut self) -> Result<bool, Failed> {
        let request = http::Request::get("https://localhost/api/v1/pods").body(()).unwrap();
        let sent = match self.requests.clone().ready().await {
            Ok(mut ready) => ready.send_request(request, true),
            Err(error) => Err(error),
        };
        let answer = match sent {
            Ok((answer, _)) => answer.await,
            Err(error) => Err(error),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if is_goodbye(&error) => return Ok(false),
            Err(error) => return Err(format!("request: {error:?}, connection: {:?}", self.ended.borrow())),
        };
        if answer.status() != http::StatusCode::OK {
            return Err(format!("{}", answer.status()));
        }
        let mut body = answer.into_body();
        let mut bytes = 0;
        while let Some(data) = body.data().await {
            let data = data.map_err(at("body"))?;
            let _ = body.flow_control().release_capacity(data.len());
            bytes += data.len();
        }
        if bytes == BODY_BYTES { Ok(true) } else { Err(format!("{bytes} bytes of {BODY_BYTES}")) }
    }

    /// Waits for the connection's own end.
    async fn close(self) -> Result<(), Failed> {
        drop(self.requests);
        self.task.await.map_err(at("connection"))?;
        match self.ended.take() {
            Some(Err(error)) if !is_goodbye(&error) => Err(format!("connection: {error:?}")),
            _ => Ok(()),
        }
    }
}

fn is_goodbye(error: &h2::Error) -> bool {
    error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR)
}
