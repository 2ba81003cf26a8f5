//! Added latency: requests at fixed moments, timed from the moment each was due.
//!
//! A connection that waits for a late answer sends its next request late, and that request is timed from when it
//! should have been sent: no coordinated omission. A thread with blocking calls for each connection, so that
//! nothing of the generator's stands between the socket and the clock; what its own waking up adds is in the
//! direct run too and falls out of the difference.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::cells::Size;
use super::upstream::Upstream;
use super::{Bench, Failure, client, in_turn};
use crate::report::{Metric, Row, put};
use usher::observe::hdr::formats;

/// Requests a second.
const RATE: u32 = 5000;
/// For a quick look, which a debug build on a busy machine must pass too.
const RATE_QUICK: u32 = 320;
/// Connections, each with every 64th request.
const CONNECTIONS: u32 = 64;
/// Connections are made within this; then it begins.
const HEAD_START: Duration = Duration::from_millis(300);
/// The longest latency that is told apart: a minute, in nanoseconds.
const LATENCY_MAX_NS: u64 = 60_000_000_000;
/// Without an answer for so long the run has failed.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

pub(super) const ADDED_P50: Metric = Metric::less("added p50 µs");
pub(super) const ADDED_P99: Metric = Metric::less("added p99 µs");
const P50: Metric = Metric::plain("p50 µs");
const P99: Metric = Metric::plain("p99 µs");
const P999: Metric = Metric::plain("p99.9 µs");
const CPU: Metric = Metric::less("µs CPU/request");

pub(super) async fn measure(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let upstream = Upstream::start(bench).await?;
    let target = upstream.target();
    let mut proxies = Vec::new();
    for contestant in &bench.contestants {
        proxies.push(contestant.start(bench, &target).await?);
    }
    let seconds = bench.options.seconds;
    let rate = if bench.options.quick { RATE_QUICK } else { RATE };
    let mut rows: Vec<Row> = proxies.iter().map(|proxy| Row::new(&proxy.name)).collect();
    let mut direct_row = Row::new("direct");
    let mut all: Vec<Histogram<u64>> = vec![empty()?; proxies.len() + 1];
    for round in 0..bench.options.runs {
        let direct = drive(upstream.address, rate, seconds).await?;
        note(&mut direct_row, &direct);
        for index in in_turn(round, proxies.len()) {
            let (proxy, row, sum) = (&mut proxies[index], &mut rows[index], &mut all[index + 1]);
            let before = proxy.process.usage()?;
            let through =
                drive(proxy.plain, rate, seconds).await.map_err(|why| format!("{}: {why}", proxy.name))?;
            let used = proxy.process.usage()?.since(before);
            for (metric, quantile) in [(ADDED_P50, 0.5), (ADDED_P99, 0.99)] {
                row.push(metric, us(&through, quantile) - us(&direct, quantile));
            }
            note(row, &through);
            row.push(CPU, used.cpu_us() / f64::from(rate * seconds));
            sum.add(&through)?;
            proxy.process.check()?;
        }
        all[0].add(&direct)?;
    }
    rows.insert(0, direct_row);
    for (row, histogram) in rows.iter().zip(&all) {
        let path = bench.folder.join(format!("latency-{}.hgrm", row.contestant));
        put(&path, formats::hgrm(histogram, 1000.0))?;
    }
    Ok(rows)
}

fn note(row: &mut Row, histogram: &Histogram<u64>) {
    for (metric, quantile) in [(P50, 0.5), (P99, 0.99), (P999, 0.999)] {
        row.push(metric, us(histogram, quantile));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a minute in nanoseconds is exact in f64")]
fn us(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1000.0
}

fn empty() -> Result<Histogram<u64>, Failure> {
    Ok(Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)?)
}

/// All connections for so many seconds, on threads of their own.
async fn drive(server: SocketAddr, rate: u32, seconds: u32) -> Result<Histogram<u64>, Failure> {
    tokio::task::spawn_blocking(move || {
        wake_in_time();
        #[expect(clippy::disallowed_methods, reason = "a load generator measures time")]
        let start = Instant::now() + HEAD_START;
        // A request has its moment this long after the one before it.
        let spacing = Duration::from_secs(1) / rate;
        let requests = rate * seconds / CONNECTIONS;
        let threads: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                std::thread::spawn(move || {
                    one_connection(server, start + spacing * number, spacing * CONNECTIONS, requests)
                })
            })
            .collect();
        let mut all = empty()?;
        for thread in threads {
            let one = thread.join().map_err(|_| "a generator's thread panicked")??;
            all.add(&one)?;
        }
        Ok(all)
    })
    .await?
}

/// Asks the kernel not to batch this thread's wake-ups (50 µs by default); the threads it starts inherit that.
fn wake_in_time() {
    let thread = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    if let Some(id) = thread.file_name() {
        // Where the kernel does not let us, direct and proxied runs are late alike.
        let _ = std::fs::write(std::path::Path::new("/proc").join(id).join("timerslack_ns"), "1");
    }
}

fn one_connection(
    server: SocketAddr,
    first: Instant,
    period: Duration,
    requests: u32,
) -> Result<Histogram<u64>, Failure> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    let request = client::request(Size::Small.path(), "");
    let mut answer = vec![0; 64 * 1024];
    let mut latencies = empty()?;
    for number in 0..requests {
        let due = first + period * number;
        #[expect(clippy::disallowed_methods, reason = "a load generator measures time")]
        let now = Instant::now();
        std::thread::sleep(due.saturating_duration_since(now));
        stream.write_all(&request)?;
        read_answer(&mut stream, &mut answer)?;
        latencies.saturating_record(u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(latencies)
}

fn read_answer(stream: &mut TcpStream, answer: &mut [u8]) -> Result<(), Failure> {
    let mut read = 0;
    loop {
        let more = stream.read(answer.get_mut(read..).unwrap_or_default())?;
        if more == 0 {
            return Err("the connection was closed before the answer's end".into());
        }
        read += more;
        if let Some(length) = client::answer_length(answer.get(..read).unwrap_or_default())?
            && read >= length
        {
            return Ok(());
        }
    }
}
