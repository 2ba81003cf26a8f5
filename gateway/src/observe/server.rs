//! The admin port: plain HTTP on loopback, a thread and a runtime of its own.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{Semaphore, watch};

use super::dumps::{self, Table};
use super::hdr;
use super::health::Question;
use super::metrics::{Format, own, refusals, takeover};
use super::{NoAnswer, Process, View, Workers};
use crate::control;
use crate::ring::Choice;

/// How long a worker may take to answer: half of what Prometheus gives a scrape.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const _: () =
    assert!(ANSWER_TIMEOUT.as_secs() < control::ANSWER_TIMEOUT.as_secs(), "usher status waits for it");

/// Connections at a time: a few scrapers, probes and people.
const CONNECTIONS_MAX: usize = 64;

/// How long a request's head may take to arrive, and a connection to be used again.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a connection is used. One whose client does not read its answer must not keep its place for ever; a
/// scraper or a probe opens a new one.
const CONNECTION_MAX: Duration = Duration::from_secs(600);

/// Before accepting is tried again when the system refuses (no descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// What handlers share.
struct Admin {
    workers: Box<dyn Workers>,
    process: Process,
}

/// Pairs of a query, decoded.
type Pairs = Query<Vec<(String, String)>>;

/// Binds the admin port.
///
/// # Errors
/// Whatever the system says, in a sentence that names the flag.
pub fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    let bound = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|error| {
        format!("--admin-bind-address={address}: {error}; give another address, port 0 chooses a free one")
    })
}

/// The port, to have it accept no more.
#[derive(Debug)]
pub struct Open(watch::Sender<bool>);

impl Open {
    /// Accepts no more: another process has the socket. Who is connected is answered.
    pub fn leave(&self) {
        let _ = self.0.send(true); // the thread has ended by itself
    }
}

/// Serves from a thread of its own, for as long as the process lives, or until [`Open::leave`].
///
/// # Errors
/// No thread, or no runtime.
pub fn start(listener: TcpListener, workers: impl Workers, process: Process) -> io::Result<Open> {
    let admin = Arc::new(Admin { workers: Box::new(workers), process });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let (ended, until) = watch::channel(false);
    let run = move || {
        runtime.block_on(async {
            serve(listener, router(admin), until).await;
            tokio::time::sleep(CONNECTION_MAX).await; // for those who are connected
        });
    };
    std::thread::Builder::new().name("usher-admin".into()).spawn(run)?;
    Ok(Open(ended))
}

fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/metrics", get(metrics))
        .route(&format!("{}{{table}}", dumps::PREFIX), get(dump))
        .route("/debug/hdr", get(histograms))
        .route("/{question}", get(health))
        .route("/{question}/{check}", get(health_check))
        .with_state(admin)
}

/// What there is.
async fn index() -> &'static str {
    "usher's admin port\n\n\
     /metrics\n\
     /healthz /livez /readyz (?verbose, /readyz/CHECK)\n\
     /debug/api_priority_and_fairness/dump_priority_levels (?output=json)\n\
     /debug/api_priority_and_fairness/dump_queues\n\
     /debug/api_priority_and_fairness/dump_requests (?includeRequestDetails=1)\n\
     /debug/hdr (?format=json|hgrm|hlog&metric=…&level=…&outcome=…&since=start or intervals=N)\n"
}

impl Admin {
    /// Asks the workers.
    async fn look(&self) -> Result<View, NoAnswer> {
        self.workers.look().await
    }
}

impl IntoResponse for NoAnswer {
    fn into_response(self) -> Response {
        (StatusCode::SERVICE_UNAVAILABLE, format!("{self}\n")).into_response()
    }
}

async fn metrics(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Result<Response, NoAnswer> {
    let view = admin.look().await?;
    let mut families = view.snapshot.as_ref().map(usher_flowcontrol::meters::families).unwrap_or_default();
    families.extend(refusals::families(&view.turned_away));
    families.extend(own::families(&view, &admin.process));
    families.extend(admin.process.takeover.iter().flat_map(|takeover| takeover::families(&takeover.look())));
    let format = Format::accepted(accept(&headers));
    Ok(([(header::CONTENT_TYPE, format.content_type())], format.render(&families)).into_response())
}

async fn dump(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    Query(pairs): Pairs,
    headers: HeaderMap,
) -> Result<Response, NoAnswer> {
    let Some(table) = Table::named(&name, first(&pairs, "includeRequestDetails").unwrap_or("")) else {
        return Ok((StatusCode::NOT_FOUND, "404 page not found\n").into_response());
    };
    let view = admin.look().await?;
    let Some(snapshot) = &view.snapshot else {
        let off = "flow control is off (--enable-priority-and-fairness=false)\n";
        return Ok((StatusCode::NOT_FOUND, off).into_response());
    };
    let json = first(&pairs, "output") == Some("json") || accept(&headers).contains("application/json");
    if json {
        let text = format!("{:#}\n", table.json(snapshot, &view.details));
        return Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response());
    }
    let options =
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    Ok((options, table.text(snapshot, &view.details)).into_response())
}

/// Whatever the query selects of the workers' histograms: see [`hdr::query`].
async fn histograms(State(admin): State<Arc<Admin>>, Query(pairs): Pairs) -> Response {
    let query = match hdr::Query::of(&pairs) {
        Ok(query) => query,
        Err(problem) => return (StatusCode::BAD_REQUEST, format!("{problem}\n")).into_response(),
    };
    let answer = match &admin.process.hdr {
        Some(desk) => tokio::time::timeout(ANSWER_TIMEOUT, desk.ask(query)).await.ok().flatten(),
        None => None,
    };
    match answer {
        Some(Ok((kind, text))) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        Some(Err(problem)) => (StatusCode::BAD_REQUEST, format!("{problem}\n")).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "histograms are not collected, or their disk hangs\n")
            .into_response(),
    }
}

async fn health(state: State<Arc<Admin>>, Path(question): Path<String>, pairs: Pairs) -> Response {
    answer_health(state, &question, None, pairs).await
}

async fn health_check(
    state: State<Arc<Admin>>,
    Path((question, check)): Path<(String, String)>,
    pairs: Pairs,
) -> Response {
    answer_health(state, &question, Some(&check), pairs).await
}

async fn answer_health(
    State(admin): State<Arc<Admin>>,
    question: &str,
    only: Option<&str>,
    Query(pairs): Pairs,
) -> Response {
    let not_found = || (StatusCode::NOT_FOUND, "404 page not found\n").into_response();
    let Some(question) = Question::named(question) else { return not_found() };
    let view = admin.look().await;
    let checks = question.checks(&view);
    let verbose = first(&pairs, "verbose").is_some();
    let Some((well, text)) = question.answer(&checks, only, verbose) else { return not_found() };
    let details = match only {
        None if verbose && question == Question::Readyz => details(&admin, view.as_ref().ok()),
        _ => String::new(),
    };
    let status = if well { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    (status, details + &text).into_response()
}

/// What else there is to know, for those who ask verbosely; above all when usher is not ready.
fn details(admin: &Admin, view: Option<&View>) -> String {
    let Process { io: Choice { io, reason, .. }, steering, takeover, .. } = &admin.process;
    let workers = view.map(|view| super::health::workers(view, steering)).unwrap_or_default();
    let (mode, why) = (steering.mode(), steering.reason());
    let takeover =
        takeover.as_ref().map_or_else(String::new, |port| format!("[i]takeover {}\n", port.look()));
    format!("[i]io {}: {reason}\n[i]steering {mode}: {why}\n{takeover}{workers}", io.name())
}

fn first<'a>(pairs: &'a [(String, String)], key: &str) -> Option<&'a str> {
    pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

fn accept(headers: &HeaderMap) -> &str {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("")
}

/// Somebody has said so; never, if nobody can any more.
async fn left(until: &mut watch::Receiver<bool>) {
    if until.wait_for(|left| *left).await.is_err() {
        std::future::pending().await
    }
}

/// Accepts [`CONNECTIONS_MAX`] at a time; the others wait in the kernel.
async fn serve(listener: tokio::net::TcpListener, router: Router, mut until: watch::Receiver<bool>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(place) = Arc::clone(&room).acquire_owned().await {
        let accepted = tokio::select! {
            biased;
            () = left(&mut until) => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the admin port cannot accept; it tries again");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
            let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
            // A client that broke off has nobody to be told of it.
            if tokio::time::timeout(CONNECTION_MAX, connection.as_mut()).await.is_err() {
                connection.as_mut().graceful_shutdown();
                let _ = tokio::time::timeout(HEADER_TIMEOUT, connection).await;
            }
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests;
