//! CPU per request under a load that waits for its answers, and what goes through.

use std::process::Stdio;

use super::cells::{Load, Transport};
use super::contestant::{Contestant, Proxy, Target};
use super::files::{LEVEL, TOKEN};
use super::process::{self, bound};
use super::programs::PERF;
use super::report::{Metric, Row};
use super::upstream::Upstream;
use super::{Bench, Failure, ask};

/// Connections over HTTP/1.1.
const CONNECTIONS: u32 = 64;
/// Connections and streams on each over HTTP/2: twice as many requests under way.
const HTTP2: (u32, u32) = (8, 16);
/// With fewer requests something is wrong, and a figure would mean nothing.
const REQUESTS_MIN: u64 = 10;

pub(super) const CPU: Metric = Metric::less("µs CPU/request");
const KERNEL: Metric = Metric::plain("of it kernel");
const RATE: Metric = Metric::more("requests/s");
const SYSCALLS: Metric = Metric::less("syscalls/request");

/// One generator's run.
pub(super) struct Generated {
    pub(super) requests: u64,
    pub(super) per_second: f64,
}

pub(super) async fn measure(bench: &Bench, load: Load) -> Result<Vec<Row>, Failure> {
    let upstream = Upstream::start(bench).await?;
    let target = Target { address: upstream.address, authority: None, usher_flags: Vec::new() };
    rounds(bench, load.transport, load.size.path(), TOKEN, &target).await
}

/// Interleaved rounds over all contestants in front of `target`.
pub(super) async fn rounds(
    bench: &Bench,
    transport: Transport,
    path: &str,
    token: &str,
    target: &Target,
) -> Result<Vec<Row>, Failure> {
    let mut proxies = Vec::new();
    for contestant in &bench.contestants {
        proxies.push((contestant, contestant.start(bench, target).await?));
    }
    let mut rows: Vec<Row> = proxies.iter().map(|(contestant, _)| Row::new(&contestant.name)).collect();
    // The first time round, which also makes the connections to the upstream, system calls are counted.
    for ((_, proxy), row) in proxies.iter().zip(&mut rows) {
        if let Some(calls) = count_syscalls(bench, proxy, transport, path, token).await? {
            row.push(SYSCALLS, calls);
        }
    }
    for _ in 0..bench.options.runs {
        for ((contestant, proxy), row) in proxies.iter_mut().zip(&mut rows) {
            once(bench, contestant, proxy, transport, path, token, row).await?;
        }
    }
    Ok(rows)
}

async fn once(
    bench: &Bench,
    contestant: &Contestant,
    proxy: &mut Proxy,
    transport: Transport,
    path: &str,
    token: &str,
    row: &mut Row,
) -> Result<(), Failure> {
    let seated = if contestant.is_usher() { dispatched(proxy).await? } else { 0.0 };
    let before = proxy.process.usage()?;
    let command = generator(transport, address(proxy, transport), path, token, bench.options.seconds);
    let generated = generate(command, transport).await.map_err(|why| format!("{}: {why}", proxy.name))?;
    let used = proxy.process.usage()?.since(before);
    #[expect(clippy::cast_precision_loss, reason = "requests of a run are exact in f64")]
    let requests = generated.requests as f64;
    if contestant.is_usher() {
        let seated = dispatched(proxy).await? - seated;
        if seated < requests {
            return Err(format!(
                "{}: admission gave seats of {LEVEL} to {seated} of {requests} requests: it is not what is measured",
                proxy.name
            )
            .into());
        }
    }
    row.push(CPU, used.cpu_us() / requests);
    row.push(KERNEL, used.kernel_share());
    row.push(RATE, generated.per_second);
    proxy.process.check()
}

pub(super) fn address(proxy: &Proxy, transport: Transport) -> std::net::SocketAddr {
    if transport == Transport::Plain { proxy.plain } else { proxy.tls }
}

/// The words of one generator's run.
pub(super) fn generator(
    transport: Transport,
    address: std::net::SocketAddr,
    path: &str,
    token: &str,
    seconds: u32,
) -> Vec<String> {
    let authorization = format!("Authorization: Bearer {token}");
    match transport {
        Transport::Plain | Transport::Tls => {
            let scheme = if transport == Transport::Tls { "https" } else { "http" };
            let url = format!("{scheme}://{address}{path}");
            let (connections, duration) = (format!("-c{CONNECTIONS}"), format!("-d{seconds}s"));
            vec!["wrk".into(), "-t1".into(), connections, duration, "-H".into(), authorization, url]
        }
        Transport::Http2 => {
            let (connections, streams) = HTTP2;
            let numbers = [("-c", connections), ("-m", streams), ("-D", seconds)];
            let numbers = numbers.map(|(flag, number)| format!("{flag}{number}"));
            let mut words = vec!["h2load".into(), "-t1".into()];
            words.extend(numbers);
            words.extend(["-H".into(), authorization, format!("https://{address}{path}")]);
            words
        }
    }
}

/// Runs a generator and reads what it counted. Any answer that is not a success makes the run worthless.
pub(super) async fn generate(words: Vec<String>, transport: Transport) -> Result<Generated, Failure> {
    let mut command = bound(None);
    command.args(&words).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.output().await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let generated = match transport {
        Transport::Plain | Transport::Tls => read_wrk(&text),
        Transport::Http2 => read_h2load(&text),
    };
    generated.map_err(|why| {
        format!("{why}\n{}\n{text}{}", words.join(" "), String::from_utf8_lossy(&output.stderr)).into()
    })
}

/// What wrk counted; an error if it met anything but success.
fn read_wrk(text: &str) -> Result<Generated, String> {
    if let Some(bad) = text.lines().find(|line| line.contains("Non-2xx") || line.contains("Socket errors")) {
        return Err(format!("not every answer was a success: {}", bad.trim()));
    }
    let line = text.lines().find(|line| line.contains(" requests in ")).ok_or("wrk counted nothing")?;
    let requests = line.split_whitespace().next().and_then(|word| word.parse().ok());
    let rate = text.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
    let rate = rate.and_then(|rate| rate.trim().parse().ok());
    enough(requests, rate)
}

/// What h2load counted; an error if it met anything but success.
fn read_h2load(text: &str) -> Result<Generated, String> {
    let codes =
        text.lines().find_map(|line| line.strip_prefix("status codes: ")).ok_or("h2load counted nothing")?;
    let count = |name: &str| {
        codes.split(',').find_map(|part| part.trim().strip_suffix(name)?.trim().parse::<u64>().ok())
    };
    let bad: u64 = ["3xx", "4xx", "5xx"].iter().filter_map(|name| count(name)).sum();
    let line = text.lines().find(|line| line.starts_with("requests: ")).unwrap_or_default();
    let lost = ["failed", "errored", "timeout"].iter().any(|word| !line.contains(&format!(" 0 {word}")));
    if bad > 0 || lost {
        return Err(format!("not every answer was a success: {codes}; {line}"));
    }
    let rate = text
        .lines()
        .find(|line| line.starts_with("finished in "))
        .and_then(|line| line.split(',').find_map(|part| part.trim().strip_suffix(" req/s")?.parse().ok()));
    enough(count("2xx"), rate)
}

fn enough(requests: Option<u64>, per_second: Option<f64>) -> Result<Generated, String> {
    match (requests, per_second) {
        (Some(requests), Some(per_second)) if requests >= REQUESTS_MIN => {
            Ok(Generated { requests, per_second })
        }
        _ => Err("the generator counted too little".into()),
    }
}

/// System calls per request, by tracepoint: unlike with strace the calls stay as quick as they are. None if this
/// machine does not let us count.
async fn count_syscalls(
    bench: &Bench,
    proxy: &Proxy,
    transport: Transport,
    path: &str,
    token: &str,
) -> Result<Option<f64>, Failure> {
    let words = generator(transport, address(proxy, transport), path, token, 1);
    if !process::found(PERF) {
        // Still worth the run: it makes the connections to the upstream.
        generate(words, transport).await?;
        return Ok(None);
    }
    let counts = bench.room(&proxy.name)?.join("syscalls.csv");
    let mut perf: Vec<String> =
        [PERF, "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-o"].map(String::from).into();
    perf.extend([counts.display().to_string(), "-p".into(), proxy.process.pid().to_string(), "--".into()]);
    perf.extend(words);
    let generated = generate(perf, transport).await.map_err(|why| format!("{}: {why}", proxy.name))?;
    let text = std::fs::read_to_string(&counts).unwrap_or_default();
    let count = text.lines().find(|line| line.contains("sys_enter"));
    let count: Option<f64> = count.and_then(|line| line.split(',').next()?.parse().ok());
    #[expect(clippy::cast_precision_loss, reason = "requests of a run are exact in f64")]
    let requests = generated.requests as f64;
    Ok(count.map(|count| count / requests))
}

/// Requests that usher has given seats of our level to.
async fn dispatched(proxy: &Proxy) -> Result<f64, Failure> {
    let admin = proxy.admin.ok_or("only usher has an admin port")?;
    let (_, text) = ask::get(admin, "/metrics").await?;
    let level = format!("priority_level=\"{LEVEL}\"");
    let sum = text
        .lines()
        .filter(|line| line.starts_with("apiserver_flowcontrol_dispatched_requests_total{"))
        .filter(|line| line.contains(&level))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::{read_h2load, read_wrk};

    const WRK: &str = "Running 1s test @ http://127.0.0.1:1/\n  31872 requests in 1.00s, 37.30MB read\n\
                       Requests/sec:  31872.11\nTransfer/sec: 37.30MB\n";
    const H2LOAD: &str = "finished in 1.00s, 20524.00 req/s, 24.62MB/s\n\
        requests: 20524 total, 20652 started, 20524 done, 20524 succeeded, 0 failed, 0 errored, 0 timeout\n\
        status codes: 20524 2xx, 0 3xx, 0 4xx, 0 5xx\n";

    #[test]
    fn generators_counts_are_read() {
        let wrk = read_wrk(WRK).expect("a good run");
        assert_eq!((wrk.requests, wrk.per_second), (31_872, 31_872.11));
        let h2load = read_h2load(H2LOAD).expect("a good run");
        assert_eq!((h2load.requests, h2load.per_second), (20_524, 20_524.0));
    }

    #[test]
    fn a_run_with_anything_but_success_is_worthless() {
        let bad = [
            WRK.to_owned() + "  Non-2xx or 3xx responses: 1\n",
            WRK.to_owned() + "  Socket errors: connect 0, read 3, write 0, timeout 0\n",
            WRK.replace("31872 requests", "0 requests"),
            String::new(),
        ];
        assert!(bad.iter().all(|text| read_wrk(text).is_err()));
        let bad = [
            H2LOAD.replace("0 4xx", "1 4xx"),
            H2LOAD.replace("0 errored", "2 errored"),
            H2LOAD.replace("0 timeout", "10 timeout"),
            String::new(),
        ];
        assert!(bad.iter().all(|text| read_h2load(text).is_err()));
    }
}
