//! The apiserver, played by the test: it sees every request and answers when and what it likes.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

pub(crate) type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// The apiserver.
pub(crate) struct Stub {
    pub(crate) address: SocketAddr,
    seen: mpsc::UnboundedReceiver<Seen>,
    accepting: tokio::task::JoinHandle<()>,
}

/// A request that got there. Dropped without an answer, its connection is broken.
pub(crate) struct Seen {
    pub(crate) request: Request<Incoming>,
    answer: oneshot::Sender<Response<Body>>,
}

/// A body that the test writes.
pub(crate) struct Pen(mpsc::UnboundedSender<Result<Frame<Bytes>, std::io::Error>>);

impl Stub {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, seen) = mpsc::unbounded_channel();
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let sender = sender.clone();
                let service = service_fn(move |request| see(sender.clone(), request));
                tokio::spawn(async move {
                    let connection = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service);
                    let _ = connection.with_upgrades().await;
                });
            }
        });
        Self { address, seen, accepting }
    }

    /// The next request, health checks aside.
    pub(crate) async fn next(&mut self) -> Seen {
        crate::world::patiently("a request to reach the apiserver", self.seen.recv()).await.unwrap()
    }

    /// Whether no request is there.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.seen.try_recv().is_err()
    }

    /// Nobody listens any more.
    pub(crate) fn stop(&self) {
        self.accepting.abort();
    }
}

async fn see(
    sender: mpsc::UnboundedSender<Seen>,
    request: Request<Incoming>,
) -> Result<Response<Body>, std::io::Error> {
    if request.uri().path() == "/readyz" {
        return Ok(text("ok"));
    }
    let (answer, answered) = oneshot::channel();
    let _ = sender.send(Seen { request, answer });
    answered.await.map_err(|_| std::io::Error::other("the test has dropped the request"))
}

impl Seen {
    pub(crate) fn answer(self, response: Response<Body>) {
        let _ = self.answer.send(response);
    }

    /// Whether usher has given up on it.
    pub(crate) async fn abandoned(&mut self) {
        crate::world::patiently("the request to be abandoned", self.answer.closed()).await;
    }

    /// Reads the body to its end; with trailers.
    pub(crate) async fn read(&mut self) -> (Bytes, Option<HeaderMap>) {
        let body = crate::world::patiently("the body", self.request.body_mut().collect()).await.unwrap();
        let trailers = body.trailers().cloned();
        (body.to_bytes(), trailers)
    }
}

impl Pen {
    pub(crate) fn write(&self, text: &'static str) {
        self.0.send(Ok(Frame::data(Bytes::from_static(text.as_bytes())))).unwrap();
    }

    pub(crate) fn write_bytes(&self, bytes: Bytes) -> bool {
        self.0.send(Ok(Frame::data(bytes))).is_ok()
    }

    pub(crate) fn trailers(&self, trailers: HeaderMap) {
        self.0.send(Ok(Frame::trailers(trailers))).unwrap();
    }

    /// The connection breaks here.
    pub(crate) fn break_off(&self) {
        let _ = self.0.send(Err(std::io::Error::other("the test breaks it"))); // whoever is gone sees no break
    }

    /// Done when usher does not want more.
    pub(crate) async fn abandoned(&self) {
        crate::world::patiently("the answer to be abandoned", self.0.closed()).await;
    }
}

pub(crate) fn text(text: &'static str) -> Response<Body> {
    let body = http_body_util::Full::from(text).map_err(|never: Infallible| match never {});
    Response::new(body.boxed_unsync())
}

/// An answer whose body the test writes.
pub(crate) fn open() -> (Pen, Response<Body>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let frames = stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|frame| (frame, receiver))
    });
    (Pen(sender), Response::new(StreamBody::new(frames).boxed_unsync()))
}
