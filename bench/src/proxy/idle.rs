//! What it costs to hold on: memory of idle connections, memory and CPU of watches without events. usher alone.

use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::net::TcpStream;

use super::cells::{Size, Transport};
use super::contestant::{Proxy, Target};
use super::upstream::Upstream;
use super::{Bench, Failure, client};
use crate::report::{Metric, Row};
use crate::standin::{Manner, Standin};

/// Connections in the making at a time.
const AT_ONCE: usize = 32;
/// Connections that come and go before anything is measured, so that what usher keeps for good is there.
const WARM_UP: u32 = 200;
/// Until everything has come to rest.
const SETTLE: Duration = Duration::from_secs(2);
/// What a client with a cache asks; the answer stays open.
const WATCH: &str =
    "/api/v1/namespaces/default/configmaps?watch=true&allowWatchBookmarks=true&resourceVersion=1";

pub(super) const MEMORY: Metric = Metric::less("KiB each");
pub(super) const CPU: Metric = Metric::less("% of a core");
const COUNT: Metric = Metric::plain("held");
const RESIDENT: Metric = Metric::plain("MiB before");
const CPU_BEFORE: Metric = Metric::plain("% without them");

/// Connections idle after one request.
pub(super) async fn connections(bench: &Bench, transport: Transport) -> Result<Vec<Row>, Failure> {
    let upstream = Upstream::start(bench).await?;
    let target = upstream.target();
    let mut rows = Vec::new();
    for contestant in bench.contestants.iter().filter(|one| one.is_usher()) {
        let mut proxy = contestant.start(bench, &target).await?;
        drop(open_connections(&proxy, transport, WARM_UP).await?);
        tokio::time::sleep(SETTLE).await;
        let before = proxy.process.resident()?;
        let held = open_connections(&proxy, transport, bench.options.idle).await?;
        tokio::time::sleep(SETTLE).await;
        rows.push(memory(&proxy, before, bench.options.idle)?);
        let gone = held.iter().filter(|stream| ended(stream)).count();
        if gone > 0 {
            return Err(format!("{}: {gone} of the idle connections were closed", proxy.name).into());
        }
        proxy.process.check()?;
    }
    Ok(rows)
}

/// Only the socket is kept of each: what TLS needs on our side is not what is measured.
async fn open_connections(
    proxy: &Proxy,
    transport: Transport,
    count: u32,
) -> Result<Vec<TcpStream>, Failure> {
    let (plain, server) = (proxy.plain, proxy.tls);
    let tls = &client::connector(b"http/1.1")?;
    let request = &client::request(Size::Small.path(), "");
    let open = |_| async move {
        if transport == Transport::Plain {
            let mut stream = TcpStream::connect(plain).await?;
            client::exchange(&mut stream, request).await?;
            return Ok::<_, Failure>(stream);
        }
        let mut stream = client::connect(server, tls).await?;
        client::exchange(&mut stream, request).await?;
        Ok(stream.into_inner().0)
    };
    stream::iter(0..count).map(open).buffer_unordered(AT_ONCE).try_collect().await
}

/// Whether the other side has closed it.
fn ended(stream: &TcpStream) -> bool {
    matches!(stream.try_read(&mut [0]), Ok(0))
}

/// Watches that see no event, `streams` of them on each connection.
pub(super) async fn watches(bench: &Bench, streams: u32) -> Result<Vec<Row>, Failure> {
    let manner = Manner { service_time: Duration::ZERO, concurrency: 1000, namespaces: 0, pods: 0, nodes: 0 };
    let standin = Standin::start_tls(manner, bench.files.server_config()?).await?;
    let authority = Some(bench.files.certificate.clone());
    let pid = std::process::id();
    let target = Target { address: standin.address, pid, authority, usher_flags: Vec::new() };
    let mut rows = Vec::new();
    for contestant in bench.contestants.iter().filter(|one| one.is_usher()) {
        let mut proxy = contestant.start(bench, &target).await?;
        let count = bench.options.idle.div_ceil(streams);
        drop(open_watches(&proxy, WARM_UP.div_ceil(streams), streams).await?);
        tokio::time::sleep(SETTLE).await;
        let unburdened = idle_cpu(&proxy, bench.options.idle_seconds).await?;
        let before = proxy.process.resident()?;
        let mut held = open_watches(&proxy, count, streams).await?;
        tokio::time::sleep(SETTLE).await;
        let mut row = memory(&proxy, before, count * streams)?;
        row.push(CPU, idle_cpu(&proxy, bench.options.idle_seconds).await?);
        row.push(CPU_BEFORE, unburdened);
        let open = |watch: &mut Response<Incoming>| watch.body_mut().frame().now_or_never().is_none();
        let gone = held.iter_mut().flatten().filter_map(|watch| (!open(watch)).then_some(())).count();
        if gone > 0 {
            return Err(format!("{}: {gone} of the idle watches ended", proxy.name).into());
        }
        rows.push(row);
        proxy.process.check()?;
    }
    Ok(rows)
}

/// What it uses while nothing happens, in percent of a core.
async fn idle_cpu(proxy: &Proxy, seconds: u32) -> Result<f64, Failure> {
    let before = proxy.process.usage()?;
    tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    Ok(proxy.process.usage()?.since(before).cpu_us() / 1e4 / f64::from(seconds))
}

/// So many connections with so many watches each. The answers hold their connections.
async fn open_watches(
    proxy: &Proxy,
    connections: u32,
    streams: u32,
) -> Result<Vec<Vec<Response<Incoming>>>, Failure> {
    let server = proxy.tls;
    let tls = &client::connector(b"h2")?;
    let open = |_| async move {
        let mut sender = client::http2(server, tls).await?;
        let mut watches = Vec::new();
        for _ in 0..streams {
            watches.push(client::ask(&mut sender, WATCH).await?);
        }
        Ok::<_, Failure>(watches)
    };
    stream::iter(0..connections).map(open).buffer_unordered(AT_ONCE).try_collect().await
}

#[expect(clippy::cast_precision_loss, reason = "memory of this machine is exact in f64")]
fn memory(proxy: &Proxy, before: u64, count: u32) -> Result<Row, Failure> {
    let after = proxy.process.resident()?;
    let mut row = Row::new(&proxy.name);
    row.push(MEMORY, after.saturating_sub(before) as f64 / 1024.0 / f64::from(count));
    row.push(COUNT, f64::from(count));
    row.push(RESIDENT, before as f64 / f64::from(1 << 20));
    Ok(row)
}
