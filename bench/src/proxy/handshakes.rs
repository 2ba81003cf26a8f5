//! New TLS connections: a full handshake, one request, the end.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio_rustls::TlsConnector;

use super::cells::Size;
use super::upstream::Upstream;
use super::{Bench, Failure, client, in_turn};
use crate::report::{Metric, Row};

/// Connections in the making at a time: enough to keep the proxy busy while the generator computes its own half.
const AT_ONCE: usize = 16;

pub(super) const CPU: Metric = Metric::less("µs CPU/connection");
const KERNEL: Metric = Metric::plain("of it kernel");
const RATE: Metric = Metric::more("connections/s");

pub(super) async fn measure(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let upstream = Upstream::start(bench).await?;
    let target = upstream.target();
    let mut proxies = Vec::new();
    for contestant in &bench.contestants {
        proxies.push(contestant.start(bench, &target).await?);
    }
    let tls = client::connector(b"http/1.1")?;
    let duration = Duration::from_secs(bench.options.seconds.into());
    let mut rows: Vec<Row> = proxies.iter().map(|proxy| Row::new(&proxy.name)).collect();
    for round in 0..bench.options.runs {
        for index in in_turn(round, proxies.len()) {
            let (proxy, row) = (&mut proxies[index], &mut rows[index]);
            let before = proxy.process.usage()?;
            let made =
                storm(proxy.tls, &tls, duration).await.map_err(|why| format!("{}: {why}", proxy.name))?;
            let used = proxy.process.usage()?.since(before);
            row.push(CPU, used.cpu_us() / f64::from(made));
            row.push(KERNEL, used.kernel_share());
            row.push(RATE, f64::from(made) / duration.as_secs_f64());
            proxy.process.check()?;
        }
    }
    Ok(rows)
}

/// Makes connections for so long; how many.
async fn storm(server: std::net::SocketAddr, tls: &TlsConnector, duration: Duration) -> Result<u32, Failure> {
    #[expect(clippy::disallowed_methods, reason = "a load generator measures time")]
    let start = Instant::now();
    let request = client::request(Size::Small.path(), "Connection: close\r\n");
    let one_after_the_other = async || {
        let mut made = 0_u32;
        while start.elapsed() < duration {
            let mut stream = client::connect(server, tls).await?;
            client::exchange(&mut stream, &request).await?;
            made += 1;
        }
        Ok::<_, Failure>(made)
    };
    let made = try_join_all((0..AT_ONCE).map(|_| one_after_the_other())).await?;
    Ok(made.into_iter().sum())
}
