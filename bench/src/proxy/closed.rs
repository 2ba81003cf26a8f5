//! CPU per request under a load that waits for its answers, and what goes through.

use super::cells::{Load, Size, Transport};
use super::contestant::{Contestant, Proxy, Target};
use super::files::{LEVEL, TOKEN};
use super::generator::Generator;
use super::upstream::Upstream;
use super::{Bench, Failure, in_turn, programs};
use crate::ask;
use crate::process::{Usage, usage};
use crate::report::{Metric, Row};

pub(super) const CPU: Metric = Metric::less("µs CPU/request");
const KERNEL: Metric = Metric::plain("of it kernel");
pub(super) const RATE: Metric = Metric::more("requests/s");
/// What perf counts, and what it is called per request.
const COUNTED: [(&str, Metric); 2] = [
    ("raw_syscalls:sys_enter", Metric::less("syscalls/request")),
    ("instructions", Metric::less("instructions/request")),
];
const UPSTREAM: Metric = Metric::less("upstream µs CPU");

/// What the row without a proxy is called.
const DIRECT: &str = "direct";

pub(super) async fn measure(bench: &Bench, load: Load) -> Result<Vec<Row>, Failure> {
    let upstream = Upstream::start(bench).await?;
    let Load { transport, size } = load;
    let generator = Generator { transport, path: size.path(), token: TOKEN, seconds: bench.options.seconds };
    rounds(bench, &bench.contestants, generator, &upstream.target(), false).await
}

/// The smallest relay on each way of I/O: HTTP/1.1 plain, small answers.
pub(super) async fn relays(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let upstream = Upstream::start(bench).await?;
    let (transport, path) = (Transport::Plain, Size::Small.path());
    let generator = Generator { transport, path, token: TOKEN, seconds: bench.options.seconds };
    rounds(bench, &Contestant::relays(), generator, &upstream.target(), false).await
}

/// Interleaved rounds over the contestants in front of `target`, and with `direct` over the target itself.
pub(super) async fn rounds(
    bench: &Bench,
    contestants: &[Contestant],
    generator: Generator<'_>,
    target: &Target,
    direct: bool,
) -> Result<Vec<Row>, Failure> {
    let mut proxies = Vec::new();
    for contestant in contestants {
        proxies.push(contestant.start(bench, target).await?);
    }
    let mut rows: Vec<Row> = proxies.iter().map(|proxy| Row::new(&proxy.name)).collect();
    let mut direct = direct.then(|| Row::new(DIRECT));
    // The first time round, which also makes the connections to the upstream, perf counts.
    let counted: Vec<_> = COUNTED.into_iter().filter(|(event, _)| programs::countable(event)).collect();
    for (proxy, row) in proxies.iter().zip(&mut rows) {
        count(bench, proxy, Generator { seconds: 1, ..generator }, &counted, row)
            .await
            .map_err(|why| format!("{}: {why}", proxy.name))?;
    }
    for round in 0..bench.options.runs {
        for index in in_turn(round, proxies.len()) {
            let (proxy, row) = (&mut proxies[index], &mut rows[index]);
            once(proxy, generator, target, row).await.map_err(|why| format!("{}: {why}", proxy.name))?;
            proxy.process.check()?;
        }
        if let Some(row) = &mut direct {
            let before = usage(target.pid)?;
            let generated = generator.run(target.address).await?;
            row.push(RATE, generated.per_second);
            row.push(UPSTREAM, usage(target.pid)?.since(before).cpu_us() / generated.requests);
        }
    }
    rows.extend(direct);
    Ok(rows)
}

/// One run of the generator, noted.
pub(super) async fn once(
    proxy: &Proxy,
    generator: Generator<'_>,
    target: &Target,
    row: &mut Row,
) -> Result<(), Failure> {
    let seated = dispatched(proxy).await?;
    let (before, behind) = (proxy.process.usage()?, usage(target.pid)?);
    let generated = generator.run(address(proxy, generator.transport)).await?;
    let used: Usage = proxy.process.usage()?.since(before);
    let behind = usage(target.pid)?.since(behind);
    let requests = generated.requests;
    if let Some((earlier, now)) = seated.zip(dispatched(proxy).await?)
        && now - earlier < requests
    {
        let seated = now - earlier;
        return Err(format!(
            "admission gave seats of {LEVEL} to {seated} of {requests} requests: it is not what is measured"
        )
        .into());
    }
    row.push(CPU, used.cpu_us() / requests);
    row.push(KERNEL, used.kernel_share());
    row.push(UPSTREAM, behind.cpu_us() / requests);
    row.push(RATE, generated.per_second);
    Ok(())
}

pub(super) fn address(proxy: &Proxy, transport: Transport) -> std::net::SocketAddr {
    if transport == Transport::Plain { proxy.plain } else { proxy.tls }
}

/// Events per request. System calls by tracepoint: unlike with strace the calls stay as quick as they are.
async fn count(
    bench: &Bench,
    proxy: &Proxy,
    generator: Generator<'_>,
    counted: &[(&str, Metric)],
    row: &mut Row,
) -> Result<(), Failure> {
    let address = address(proxy, generator.transport);
    if counted.is_empty() {
        return generator.run(address).await.map(drop);
    }
    let events: Vec<&str> = counted.iter().map(|(event, _)| *event).collect();
    let file = bench.room(&proxy.name)?.join("counts.csv");
    let (generated, counts) = generator.run_counted(address, proxy.process.pid(), &events, &file).await?;
    for ((_, metric), count) in counted.iter().zip(counts) {
        if let Some(count) = count {
            row.push(*metric, count / generated.requests);
        }
    }
    Ok(())
}

/// Requests that usher has given seats of our level to; none for the others.
async fn dispatched(proxy: &Proxy) -> Result<Option<f64>, Failure> {
    let Some(admin) = proxy.admin else { return Ok(None) };
    let (_, text) = ask::get(admin, "/metrics").await?;
    let level = format!("priority_level=\"{LEVEL}\"");
    let sum = text
        .lines()
        .filter(|line| line.starts_with("apiserver_flowcontrol_dispatched_requests_total{"))
        .filter(|line| line.contains(&level))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    Ok(Some(sum))
}
