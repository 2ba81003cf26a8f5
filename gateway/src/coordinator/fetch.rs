//! Small questions to the apiserver on usher's own behalf: one connection each, HTTP/1.1, everything bounded.
//!
//! The control thread asks them; requests of clients go through [`crate::upstream`] instead.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};

use crate::ring::{Pass, Passage, bound};
use crate::tls;
use crate::upstream::Server;

/// A whole question, from connecting to the last byte. The largest /metrics of real apiservers take seconds.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// The apiservers, and what to show them.
#[derive(Debug)]
pub(crate) struct Fetcher {
    upstreams: Vec<Server>,
    tls: Option<Arc<tls::Client>>,
    passage: Option<Arc<dyn Passage>>,
}

/// What to ask for, and as whom.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) path: &'static str,
    pub(crate) presents: tls::Presents,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

/// Takes a body piece by piece.
pub(crate) trait Sink {
    /// A new attempt: forget what an earlier one brought.
    fn start(&mut self);
    /// The next piece. `Err`: too much, with the bound.
    fn take(&mut self, piece: &[u8]) -> Result<(), usize>;
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("{upstream}{path}: {problem}")]
pub(crate) struct FetchError {
    upstream: Server,
    path: &'static str,
    pub(crate) problem: Problem,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("no answer within {FETCH_TIMEOUT:?}")]
    Late,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("{0}")]
    Request(#[from] http::Error),
    #[error("the answer is {0}")]
    Status(StatusCode),
    #[error("there is no certificate to ask with; give --proxy-client-cert-file and --proxy-client-key-file")]
    NoCertificate,
    #[error("neither a DNS name nor an IP address; give --upstream-server-name")]
    NoName,
    #[error("the answer is longer than {0} bytes")]
    Long(usize),
}

// === impl Fetcher ===

impl Fetcher {
    pub(crate) fn new(
        upstreams: Vec<Server>,
        tls: Option<Arc<tls::Client>>,
        passage: Option<Arc<dyn Passage>>,
    ) -> Self {
        Self { upstreams, tls, passage }
    }

    /// GETs from the first upstream that answers 200. What the last one said is the error.
    pub(crate) async fn get(&self, question: &Question, sink: &mut impl Sink) -> Result<(), FetchError> {
        let mut outcome = Ok(());
        for upstream in &self.upstreams {
            sink.start();
            let answer = tokio::time::timeout(FETCH_TIMEOUT, self.get_from(upstream, question, sink)).await;
            match answer.unwrap_or(Err(Problem::Late)) {
                Ok(()) => return Ok(()),
                Err(problem) => {
                    outcome = Err(FetchError { upstream: upstream.clone(), path: question.path, problem });
                }
            }
        }
        outcome
    }

    async fn get_from(
        &self,
        upstream: &Server,
        question: &Question,
        sink: &mut impl Sink,
    ) -> Result<(), Problem> {
        let stream = self.connect(upstream).await?;
        let mut request = Request::get(question.path).header(header::HOST, upstream.authority.as_str());
        for (name, value) in &question.headers {
            request = request.header(name, value);
        }
        let request = request.body(Empty::new())?;
        let Some(client) = self.tls.as_ref().filter(|_| upstream.tls) else {
            return exchange(stream, request, sink).await;
        };
        let config = client.current(question.presents, tls::Protocol::Http1).ok_or(Problem::NoCertificate)?;
        let name = client.server_name(&upstream.host).ok_or(Problem::NoName)?;
        let stream = tokio_rustls::TlsConnector::from(config).connect(name, stream).await?;
        exchange(stream, request, sink).await
    }
}

/// A connection to an apiserver; what lets it pass goes before it.
struct Connection {
    _pass: Option<Pass>,
    stream: TcpStream,
}

impl Fetcher {
    /// To the first of its addresses that takes it.
    async fn connect(&self, upstream: &Server) -> io::Result<Connection> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in tokio::net::lookup_host((upstream.host.as_str(), upstream.port)).await? {
            match self.connect_to(address).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn connect_to(&self, address: SocketAddr) -> io::Result<Connection> {
        let Some(passage) = self.passage.as_ref().filter(|passage| passage.leads_to(address)) else {
            return Ok(Connection { _pass: None, stream: TcpStream::connect(address).await? });
        };
        let (socket, pass) = bound(address, passage)?;
        socket.set_nonblocking(true)?;
        let stream = TcpSocket::from_std_stream(socket.into()).connect(address).await?;
        Ok(Connection { _pass: Some(pass), stream })
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Empty<Bytes>>,
    sink: &mut impl Sink,
) -> Result<(), Problem> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answer = async move {
        let response = sender.send_request(request).await?;
        if response.status() != StatusCode::OK {
            return Err(Problem::Status(response.status()));
        }
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            if let Ok(piece) = frame?.into_data() {
                sink.take(&piece).map_err(Problem::Long)?;
            }
        }
        Ok(())
    };
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        biased;
        outcome = &mut answer => outcome,
        // The last bytes may have come together with the end of the connection.
        closed = connection => match closed {
            Ok(()) => answer.await,
            Err(error) => Err(error.into()),
        },
    }
}

/// A small body, whole.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) bytes: Vec<u8>,
    bytes_max: usize,
}

impl Whole {
    pub(crate) fn at_most(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), bytes_max }
    }
}

impl Sink for Whole {
    fn start(&mut self) {
        self.bytes.clear();
    }

    fn take(&mut self, piece: &[u8]) -> Result<(), usize> {
        if self.bytes.len() + piece.len() > self.bytes_max {
            return Err(self.bytes_max);
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }
}
