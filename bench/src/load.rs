//! Clients with manners: who sends what, how often, over how many connections, and what they got.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

/// A sort of client: so many of them, each doing the same thing.
#[derive(Clone, Debug)]
pub struct Population {
    /// What the table calls it.
    pub name: &'static str,
    /// How many clients; each has a connection and a token of its own.
    pub clients: usize,
    /// Requests that one client has under way at once.
    pub streams: usize,
    /// Pause between an answer and the next request of a stream.
    pub pause: Duration,
    /// What one client asks for.
    pub ask: fn(client: usize) -> Ask,
    /// Its bearer token.
    pub token: fn(client: usize) -> String,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// JSON body, empty for none.
    pub body: String,
}

/// What one population got.
#[derive(Debug)]
pub struct Tally {
    /// Whose.
    pub name: &'static str,
    /// Requests answered with success.
    pub served: AtomicU64,
    /// Requests told to come back later (429).
    pub rejected: AtomicU64,
    /// Everything else that went wrong.
    pub failed: AtomicU64,
    /// From asking to the end of the answer, microseconds, successes only.
    pub latency: Mutex<Histogram<u64>>,
}

/// The longest latency that is told apart, in microseconds: two minutes.
const LATENCY_MAX_US: u64 = 120_000_000;
/// How long a client waits for an answer before it gives up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest `Retry-After` that a client of the demo heeds, so that a short run shows its return.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(2);

impl Tally {
    /// Nothing yet.
    pub fn new(name: &'static str) -> Self {
        let latency =
            Histogram::new_with_bounds(1, LATENCY_MAX_US, 3).expect("bounds that hdrhistogram takes");
        Self {
            name,
            served: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            latency: Mutex::new(latency),
        }
    }

    /// Latency at that percentile, in milliseconds; `None` if nothing was served.
    pub fn latency_ms(&self, percentile: f64) -> Option<f64> {
        let latency = self.latency.lock().expect("no holder panics");
        #[expect(clippy::cast_precision_loss, reason = "microseconds below two minutes are exact in f64")]
        (!latency.is_empty()).then(|| latency.value_at_percentile(percentile) as f64 / 1000.0)
    }
}

/// Runs a population against `server` until `stop` says true.
pub async fn drive(
    population: Population,
    server: std::net::SocketAddr,
    tls: TlsConnector,
    tally: Arc<Tally>,
    stop: watch::Receiver<bool>,
) {
    let clients = (0..population.clients).map(|client| {
        let population = population.clone();
        tokio::spawn(one_client(population, client, server, tls.clone(), Arc::clone(&tally), stop.clone()))
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("a client does not panic");
    }
}

async fn one_client(
    population: Population,
    client: usize,
    server: std::net::SocketAddr,
    tls: TlsConnector,
    tally: Arc<Tally>,
    stop: watch::Receiver<bool>,
) {
    let connection = match connect(server, &tls).await {
        Ok(connection) => connection,
        Err(_) => {
            tally.failed.fetch_add(1, Ordering::Relaxed);
            return;
        }
    };
    let streams = (0..population.streams).map(|_| {
        let (population, connection) = (population.clone(), connection.clone());
        tokio::spawn(one_stream(population, client, connection, server, Arc::clone(&tally), stop.clone()))
    });
    for stream in streams.collect::<Vec<_>>() {
        stream.await.expect("a stream does not panic");
    }
}

/// An HTTP/2 connection over TLS, as client-go makes one.
pub async fn connect(
    server: std::net::SocketAddr,
    tls: &TlsConnector,
) -> Result<SendRequest<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    let stream = tls.connect(ServerName::IpAddress(server.ip().into()), stream).await?;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn one_stream(
    population: Population,
    client: usize,
    mut connection: SendRequest<Full<Bytes>>,
    server: std::net::SocketAddr,
    tally: Arc<Tally>,
    mut stop: watch::Receiver<bool>,
) {
    while !*stop.borrow() {
        let pause = tokio::select! {
            pause = one_request(&population, client, &mut connection, server, &tally) => pause,
            _ = stop.changed() => return,
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.changed() => return,
        }
    }
}

/// Asks once and notes the answer; how long to pause before the next time.
async fn one_request(
    population: &Population,
    client: usize,
    connection: &mut SendRequest<Full<Bytes>>,
    server: std::net::SocketAddr,
    tally: &Tally,
) -> Duration {
    let ask = (population.ask)(client);
    let request = Request::builder()
        .method(ask.method)
        .uri(format!("https://{server}{}", ask.path))
        .header(http::header::AUTHORIZATION, format!("Bearer {}", (population.token)(client)))
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .body(Full::new(Bytes::from(ask.body)))
        .expect("a request of our own making");
    #[expect(clippy::disallowed_methods, reason = "a load generator measures time")]
    let started = Instant::now();
    let answered = tokio::time::timeout(ANSWER_TIMEOUT, async {
        let response = connection.send_request(request).await?;
        let (head, body) = response.into_parts();
        body.collect().await?;
        Ok::<_, hyper::Error>(head)
    })
    .await;
    match answered {
        Ok(Ok(head)) if head.status.is_success() => {
            tally.served.fetch_add(1, Ordering::Relaxed);
            let elapsed = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            tally.latency.lock().expect("no holder panics").saturating_record(elapsed);
            population.pause
        }
        Ok(Ok(head)) if head.status == StatusCode::TOO_MANY_REQUESTS => {
            tally.rejected.fetch_add(1, Ordering::Relaxed);
            let seconds = head
                .headers
                .get(http::header::RETRY_AFTER)
                .and_then(|value| value.to_str().ok()?.parse().ok());
            Duration::from_secs(seconds.unwrap_or(1)).min(RETRY_AFTER_MAX)
        }
        _ => {
            tally.failed.fetch_add(1, Ordering::Relaxed);
            population.pause.max(Duration::from_millis(100))
        }
    }
}
