//! Load that does not wait for its answers: each try has its moment, and is timed from it.
//!
//! As client-go does, a try that is told to come back (429) is repeated after `Retry-After`, ten times at the most. A
//! repeated try takes the moment of a new one, so that the rate stays what it is; else ten times the capacity would soon be a
//! hundred times. Tries go out over a few HTTP/2 connections; those due while every stream is taken wait their turn here.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpSocket;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout_at};
use tokio_rustls::TlsConnector;

use super::cast::Client;
use crate::Failure;
use crate::proxy::client;

/// How often a request is repeated that was told to come back: client-go's limit.
const RETRIES_MAX: u32 = 10;
/// How long to come back in where no `Retry-After` says it: client-go's second.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);
/// How often the generator looks what is due.
const TICK: Duration = Duration::from_millis(1);
/// Connections are made within this; then it begins.
const HEAD_START: Duration = Duration::from_millis(300);
/// Time to reach a steady state, in which nothing is counted.
const WARM_UP: Duration = Duration::from_secs(2);
/// How long the last requests may take once the counted time is over: retries and patience of the cast's all included.
const END_WITHIN: Duration = Duration::from_secs(120);
/// The longest latency that is told apart: ten minutes, in microseconds.
const LATENCY_MAX_US: u64 = 600_000_000;

/// Where a client's tries go.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    /// `None`: HTTP/2 in the clear.
    pub(super) tls: Option<TlsConnector>,
}

/// What became of a client's requests in the time that counts.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    /// Tries that were due.
    pub(super) due: u64,
    /// Successes.
    pub(super) served: u64,
    /// Tries told to come back.
    pub(super) rejected: u64,
    /// Tries given up by the client.
    pub(super) timed_out: u64,
    /// Requests told to come back more often than a client does.
    pub(super) given_up: u64,
    /// All other ends.
    pub(super) failed: u64,
    /// Of requests that were first due in that time, from then to their end, µs; those without success with what they had
    /// waited when they ended.
    pub(super) latency: Histogram<u64>,
    /// How late tries left that found a free stream: the generator's own fault, µs.
    pub(super) late: Histogram<u64>,
    /// One of the `failed`, for people.
    pub(super) example: Option<String>,
}

/// One client's load, running.
pub(super) struct Load {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

/// When loads that run together begin, and which time counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    begin: Instant,
    from: Instant,
    until: Instant,
}

struct Shared {
    client: Client,
    schedule: Schedule,
    /// One permit for each try in `Line::due`.
    ready: Semaphore,
    line: Mutex<Line>,
}

struct Line {
    due: VecDeque<Try>,
    /// Tries told to come back, by when.
    later: BinaryHeap<Reverse<Try>>,
    /// Requests that were first due in the time that counts and have not ended.
    open: u64,
    tally: Tally,
}

/// One try of a request; ordered by when it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Try {
    due: Instant,
    /// When the request's first try was due.
    first: Instant,
    /// Tries before it.
    before: u32,
}

enum End {
    Served,
    ComeBack(Duration),
    TimedOut,
    Failed(String),
}

impl Schedule {
    /// From soon on, for so long.
    pub(super) fn of(counted: Duration) -> Self {
        let begin = now() + HEAD_START;
        let from = begin + WARM_UP;
        Self { begin, from, until: from + counted }
    }

    pub(super) async fn begins_to_count(self) {
        sleep_until(self.from.into()).await;
    }

    pub(super) async fn is_counted(self) {
        sleep_until(self.until.into()).await;
    }

    fn counts(self, moment: Instant) -> bool {
        (self.from..self.until).contains(&moment)
    }
}

impl Load {
    /// Connects; tries begin with the schedule.
    pub(super) async fn start(client: Client, server: &Server, schedule: Schedule) -> Result<Self, Failure> {
        let line = Line { due: VecDeque::new(), later: BinaryHeap::new(), open: 0, tally: Tally::new()? };
        let (connections, streams, source) = (client.connections, client.streams, client.source);
        let shared = Arc::new(Shared { client, schedule, ready: Semaphore::new(0), line: Mutex::new(line) });
        let mut tasks = JoinSet::new();
        for _ in 0..connections {
            let connection = Arc::new(Connection::open(server, source).await?);
            for _ in 0..streams {
                tasks.spawn(stream(Arc::clone(&shared), Arc::clone(&connection)));
            }
        }
        tasks.spawn(pace(Arc::clone(&shared)));
        Ok(Self { shared, tasks })
    }

    /// Waits, with the load going on, until all that was due in the counted time has ended.
    pub(super) async fn is_through(&self) -> Result<(), Failure> {
        let through = async {
            while self.shared.line().open > 0 {
                sleep(TICK * 10).await;
            }
        };
        let late = |_| format!("requests had not ended {END_WITHIN:?} after the counted time");
        Ok(tokio::time::timeout(END_WITHIN, through).await.map_err(late)?)
    }

    /// Ends it.
    pub(super) async fn stop(mut self) -> Tally {
        self.tasks.shutdown().await;
        self.shared.line().tally.clone()
    }
}

impl Tally {
    fn new() -> Result<Self, Failure> {
        let empty = || Histogram::new_with_bounds(1, LATENCY_MAX_US, 3);
        let (latency, late) = (empty()?, empty()?);
        Ok(Self {
            due: 0,
            served: 0,
            rejected: 0,
            timed_out: 0,
            given_up: 0,
            failed: 0,
            latency,
            late,
            example: None,
        })
    }
}

/// Puts tries into the line as they fall due.
async fn pace(shared: Arc<Shared>) {
    let spacing = Duration::from_secs(1) / shared.client.rate;
    let mut due = shared.schedule.begin;
    loop {
        sleep_until(due.into()).await;
        let now = now();
        let mut many = 0;
        while due <= now {
            shared.line().fall_due(due, shared.schedule);
            due += spacing;
            many += 1;
        }
        shared.ready.add_permits(many);
        sleep(TICK).await;
    }
}

/// One stream of a connection: takes the next try of the line, again and again.
async fn stream(shared: Arc<Shared>, connection: Arc<Connection>) {
    loop {
        let waited = shared.ready.available_permits() == 0;
        shared.ready.acquire().await.expect("the semaphore is never closed").forget();
        let next = shared.line().due.pop_front().expect("a permit for each try");
        if waited && shared.schedule.counts(next.due) {
            shared.line().tally.late.saturating_record(us(now() - next.due));
        }
        let client = &shared.client;
        let asked = timeout_at((next.due + client.patience).into(), connection.ask(client)).await;
        let end = asked.unwrap_or(End::TimedOut);
        shared.line().note(next, end, shared.schedule);
    }
}

impl Shared {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().expect("no holder panics")
    }
}

impl Line {
    /// A try at that moment: one that is to be repeated by then, else a new one.
    fn fall_due(&mut self, due: Instant, schedule: Schedule) {
        let counts = schedule.counts(due);
        let again = self.later.peek().is_some_and(|Reverse(again)| again.due <= due);
        let next = match again.then(|| self.later.pop()).flatten() {
            Some(Reverse(again)) => Try { due, ..again },
            None => {
                self.open += u64::from(counts);
                Try { due, first: due, before: 0 }
            }
        };
        self.tally.due += u64::from(counts);
        self.due.push_back(next);
    }

    fn note(&mut self, one: Try, end: End, schedule: Schedule) {
        let now = now();
        let counts = schedule.counts(now);
        let tally = &mut self.tally;
        let counter = match end {
            End::Served => &mut tally.served,
            End::ComeBack(_) => &mut tally.rejected,
            End::TimedOut => &mut tally.timed_out,
            End::Failed(ref why) => {
                tally.example.get_or_insert_with(|| why.clone());
                &mut tally.failed
            }
        };
        *counter += u64::from(counts);
        if let End::ComeBack(pause) = end {
            if one.before < RETRIES_MAX {
                self.later.push(Reverse(Try { due: now + pause, before: one.before + 1, ..one }));
                return;
            }
            tally.given_up += u64::from(counts);
        }
        if schedule.counts(one.first) {
            self.open -= 1;
            tally.latency.saturating_record(us(now - one.first));
        }
    }
}

/// An HTTP/2 connection as client-go has one: opened again if it is lost.
struct Connection {
    server: Server,
    source: Ipv4Addr,
    sender: tokio::sync::Mutex<SendRequest<Full<Bytes>>>,
}

impl Connection {
    async fn open(server: &Server, source: Ipv4Addr) -> Result<Self, Failure> {
        let sender = tokio::sync::Mutex::new(connect(server, source).await?);
        Ok(Self { server: server.clone(), source, sender })
    }

    async fn ask(&self, client: &Client) -> End {
        match self.exchange(client).await {
            Ok((status, _)) if status.is_success() => End::Served,
            Ok((StatusCode::TOO_MANY_REQUESTS, headers)) => {
                let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
                End::ComeBack(seconds.map_or(RETRY_AFTER_DEFAULT, Duration::from_secs))
            }
            Ok((status, _)) => End::Failed(status.to_string()),
            Err(failure) => End::Failed(failure.to_string()),
        }
    }

    async fn exchange(&self, client: &Client) -> Result<(StatusCode, HeaderMap), Failure> {
        let request = Request::builder()
            .method(client.method.clone())
            .uri(format!("https://{}{}", self.server.address, client.path))
            .header(AUTHORIZATION, format!("Bearer {}", client.token))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(client.body))?;
        let (head, body) = self.sender().await?.send_request(request).await?.into_parts();
        body.collect().await?;
        Ok((head.status, head.headers))
    }

    async fn sender(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let mut sender = self.sender.lock().await;
        if sender.is_closed() {
            *sender = connect(&self.server, self.source).await?;
        }
        Ok(sender.clone())
    }
}

async fn connect(server: &Server, source: Ipv4Addr) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let executor = TokioExecutor::new();
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((source, 0)))?;
    let stream = socket.connect(server.address).await?;
    match &server.tls {
        Some(tls) => {
            let stream = client::over(stream, server.address, tls).await?;
            let (sender, connection) = http2::handshake(executor, TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            Ok(sender)
        }
        None => {
            stream.set_nodelay(true)?;
            let (sender, connection) = http2::handshake(executor, TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            Ok(sender)
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a load generator measures time")]
fn now() -> Instant {
    Instant::now()
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::{BinaryHeap, VecDeque};
    use std::time::Duration;

    use super::{End, Line, RETRIES_MAX, Schedule, Tally, now};

    const SECOND: Duration = Duration::from_secs(1);

    fn line() -> Line {
        let tally = Tally::new().expect("bounds that hdrhistogram takes");
        Line { due: VecDeque::new(), later: BinaryHeap::new(), open: 0, tally }
    }

    #[test]
    fn a_repeated_try_takes_the_moment_of_a_new_one() {
        let (mut line, begin) = (line(), now());
        let schedule = Schedule { begin, from: begin, until: begin + SECOND * 100 };
        line.fall_due(begin, schedule);
        let first = line.due.pop_front().expect("it is due");
        line.note(first, End::ComeBack(SECOND * 10), schedule);
        // Before its time has come there are new ones; then it comes before them.
        line.fall_due(begin + SECOND * 2, schedule);
        line.fall_due(begin + SECOND * 50, schedule);
        let tries: Vec<_> =
            line.due.drain(..).map(|one| (one.due - begin, one.first == begin, one.before)).collect();
        assert_eq!(tries, [(SECOND * 2, false, 0), (SECOND * 50, true, 1)]);
        assert_eq!((line.tally.due, line.tally.rejected, line.open), (3, 1, 2));
    }

    #[test]
    fn a_request_ends_once() {
        let (mut line, begin) = (line(), now());
        let schedule = Schedule { begin, from: begin, until: begin + SECOND * 100 };
        line.fall_due(begin, schedule);
        for _ in 0..=RETRIES_MAX {
            let one = line.due.pop_front().expect("it is due");
            line.note(one, End::ComeBack(Duration::ZERO), schedule);
            line.fall_due(now(), schedule);
        }
        // The last one due is new: nobody repeats more often.
        assert_eq!((line.tally.rejected, line.tally.given_up), (u64::from(RETRIES_MAX) + 1, 1));
        assert_eq!((line.open, line.tally.latency.len()), (1, 1));
        assert_eq!(line.due.pop_front().map(|one| one.before), Some(0));
    }

    #[test]
    fn what_was_due_before_the_counted_time_is_not_counted() {
        let (mut line, begin) = (line(), now());
        let schedule = Schedule { begin, from: begin + SECOND * 50, until: begin + SECOND * 100 };
        line.fall_due(begin, schedule);
        let one = line.due.pop_front().expect("it is due");
        line.note(one, End::Served, schedule);
        assert_eq!((line.tally.due, line.tally.served, line.open, line.tally.latency.len()), (0, 0, 0, 0));
    }
}
