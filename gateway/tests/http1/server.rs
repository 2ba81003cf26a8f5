//! A server with a service that shows what it was asked.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
pub(crate) use usher::http1::Speaker;
use usher::http1::{Connection, End, Fault, Limits, RequestHead};
use usher::ring::{self, Listener, Stream};
use usher::wire::Wire;

/// One of the two.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    logs: Logs,
}

/// By the client's port.
type Logs = Arc<Mutex<HashMap<u16, Log>>>;

/// What a connection's requests were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) seen: Vec<Seen>,
    /// Why ours read no further.
    pub(crate) refused: Option<Fault>,
}

/// A request as the service saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    /// `None`: it was malformed or incomplete.
    pub(crate) body: Option<String>,
    pub(crate) trailers: Vec<(String, String)>,
}

pub(crate) const LIMITS: Limits = Limits { bytes: 4096, lines: 32 };

impl Server {
    pub(crate) fn start(speaker: Speaker) -> Self {
        let socket = ring::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let logs = Logs::default();
        let shared = Arc::clone(&logs);
        std::thread::spawn(move || ring::run(serve(socket, speaker, shared)));
        Self { address, logs }
    }

    /// Takes what was seen of a client.
    pub(crate) fn take_log(&self, port: u16) -> Log {
        self.logs.lock().unwrap().remove(&port).unwrap_or_default()
    }
}

async fn serve(socket: std::net::TcpListener, speaker: Speaker, logs: Logs) {
    let listener = Listener::new(socket).unwrap();
    loop {
        let Ok((stream, peer)) = listener.accept().await else { continue };
        let log = Writer { logs: Arc::clone(&logs), port: peer.port() };
        ring::spawn(async move {
            match speaker {
                Speaker::Own => serve_own(stream, log).await,
                Speaker::Hyper => serve_hyper(stream, log).await,
            }
        });
    }
}

/// Writes one client's log.
#[derive(Clone)]
struct Writer {
    logs: Logs,
    port: u16,
}

impl Writer {
    fn write(&self, write: impl FnOnce(&mut Log)) {
        write(self.logs.lock().unwrap().entry(self.port).or_default());
    }
}

async fn serve_own(stream: Stream, log: Writer) {
    let of_requests = log.clone();
    let service = move |head: RequestHead, body| {
        let answer = answer(*head.with_body(body), of_requests.clone());
        async { Box::new(answer.await.unwrap_or_else(|never| match never {})) }
    };
    let mut connection = Connection::new(Wire::plain(stream), LIMITS, service);
    let end = poll_fn(|cx| connection.poll(cx)).await;
    if let End::Refused(fault) = end {
        log.write(|log| log.refused = Some(fault));
    }
    if let Some((wire, _)) = connection.into_wire() {
        close(wire).await;
    }
}

async fn serve_hyper(stream: Stream, log: Writer) {
    let service = service_fn(move |request| Box::pin(answer(request, log.clone())));
    let mut connection = hyper::server::conn::http1::Builder::new()
        .max_headers(LIMITS.lines)
        .max_header_size(LIMITS.bytes)
        .header_read_timeout(None)
        .auto_date_header(false)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(Wire::plain(stream)), service);
    let _ = poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
    close(connection.into_parts().io.into_inner()).await;
}

/// Closes so that the client gets to read what was written last.
async fn close(mut wire: Wire) {
    let closing = async {
        if wire.shutdown().await.is_ok() {
            let mut ignored = [0; 4096];
            while wire.read(&mut ignored).await.is_ok_and(|read| read > 0) {}
        }
    };
    ring::within(Duration::from_secs(5), closing).await;
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

async fn answer<B>(request: Request<B>, log: Writer) -> Result<Answer, Infallible>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let (head, mut body) = request.into_parts();
    let mut seen = Seen {
        line: format!("{} {} {:?}", head.method, head.uri, head.version),
        headers: lines(&head.headers),
        body: Some(String::new()),
        trailers: Vec::new(),
    };
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        match frame {
            Ok(frame) => match frame.into_data() {
                Ok(data) => *seen.body.as_mut().unwrap() += &data.escape_ascii().to_string(),
                Err(frame) => seen.trailers = lines(&frame.into_trailers().unwrap_or_default()),
            },
            Err(_) => {
                seen.body = None;
                break;
            }
        }
    }
    let answer = respond(head.uri.path(), &seen);
    log.write(|log| log.seen.push(seen));
    Ok(answer)
}

fn respond(path: &str, seen: &Seen) -> Answer {
    let Some(body) = &seen.body else {
        let mut response = Response::new(Full::from("bad body").boxed());
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return response;
    };
    let builder = Response::builder().header("x-path", path.len());
    let parts = ["first ", "", "second"].map(|part| Frame::data(Bytes::from(part)));
    let stream = |last: Option<Frame<Bytes>>| {
        StreamBody::new(futures_util::stream::iter(parts.into_iter().chain(last).map(Ok))).boxed()
    };
    let response = match path {
        "/stream" => builder.body(stream(None)),
        "/told" => builder.header("content-length", 12).body(stream(None)),
        "/trailers" => {
            let mut trailers = http::HeaderMap::new();
            trailers.insert("x-sum", "1".parse().unwrap());
            trailers.insert("x-other", "2".parse().unwrap());
            builder.header("trailer", "x-sum").body(stream(Some(Frame::trailers(trailers))))
        }
        "/empty" => builder.body(Empty::new().boxed()),
        "/204" => builder.status(204).body(Empty::new().boxed()),
        "/304" => builder.status(304).body(Empty::new().boxed()),
        "/404" => builder.status(404).body(Full::from("not here").boxed()),
        "/close" => builder.header("connection", "close").body(Full::from("the end").boxed()),
        _ => builder.body(Full::from(body.clone()).boxed()),
    };
    response.unwrap()
}

/// Header lines, sorted by name; in order within each.
fn lines(headers: &http::HeaderMap) -> Vec<(String, String)> {
    let mut lines: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.as_bytes().escape_ascii().to_string()))
        .collect();
    lines.sort_by(|one, other| one.0.cmp(&other.0));
    lines
}
