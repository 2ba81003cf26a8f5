//! The load generators: wrk for HTTP/1.1, h2load for HTTP/2; started one at a time, their counts read.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use super::Failure;
use super::cells::Transport;
use super::programs::PERF;
use crate::process::{BINDING, bound};

/// Connections over HTTP/1.1.
const CONNECTIONS: u32 = 64;
/// Connections and streams on each over HTTP/2: twice as many requests under way.
const HTTP2: (u32, u32) = (8, 16);
/// With fewer requests something is wrong, and a figure would mean nothing.
const REQUESTS_MIN: u64 = 10;

/// What is asked, again and again, on all connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Generator<'a> {
    pub(super) transport: Transport,
    pub(super) path: &'a str,
    pub(super) token: &'a str,
    pub(super) seconds: u32,
}

/// One run.
pub(super) struct Generated {
    pub(super) requests: f64,
    pub(super) per_second: f64,
}

impl Generator<'_> {
    pub(super) fn with_seconds(self, seconds: u32) -> Self {
        Self { seconds, ..self }
    }

    /// Asks the server at `address`. Any answer that is not a success makes the run worthless: an error.
    pub(super) async fn run(&self, address: SocketAddr) -> Result<Generated, Failure> {
        self.read(self.words(address)).await
    }

    /// The same while perf counts `events` of `pid` into the file `counts`; what it counted, in their order.
    pub(super) async fn run_counted(
        &self,
        address: SocketAddr,
        pid: u32,
        events: &[&str],
        counts: &Path,
    ) -> Result<(Generated, Vec<Option<f64>>), Failure> {
        let mut words: Vec<String> = [PERF, "stat", "-x,", "-e"].map(String::from).into();
        let (pid, file) = (pid.to_string(), counts.display().to_string());
        words.extend([events.join(","), "-o".into(), file, "-p".into(), pid, "--".into()]);
        // The generator is perf's child then, and ends with it.
        words.extend(BINDING.map(String::from));
        words.extend(self.words(address));
        let generated = self.read(words).await?;
        let text = std::fs::read_to_string(counts).unwrap_or_default();
        let count = |event: &&str| {
            let line = text.lines().find(|line| line.contains(*event))?;
            line.split(',').next()?.parse().ok()
        };
        Ok((generated, events.iter().map(count).collect()))
    }

    fn words(&self, address: SocketAddr) -> Vec<String> {
        let Self { transport, path, token, seconds } = self;
        let authorization = format!("Authorization: Bearer {token}");
        match transport {
            Transport::Plain | Transport::Tls => {
                let scheme = if *transport == Transport::Tls { "https" } else { "http" };
                let url = format!("{scheme}://{address}{path}");
                let (connections, duration) = (format!("-c{CONNECTIONS}"), format!("-d{seconds}s"));
                vec!["wrk".into(), "-t1".into(), connections, duration, "-H".into(), authorization, url]
            }
            Transport::Http2 => {
                let (connections, streams) = HTTP2;
                let numbers = [("-c", connections), ("-m", streams), ("-D", *seconds)];
                let mut words = vec!["h2load".into(), "-t1".into()];
                words.extend(numbers.map(|(flag, number)| format!("{flag}{number}")));
                words.extend(["-H".into(), authorization, format!("https://{address}{path}")]);
                words
            }
        }
    }

    async fn read(&self, words: Vec<String>) -> Result<Generated, Failure> {
        let mut command = bound(&[]);
        command.args(&words).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = command.output().await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let generated = match self.transport {
            Transport::Plain | Transport::Tls => read_wrk(&text),
            Transport::Http2 => read_h2load(&text),
        };
        generated.map_err(|why| {
            let words = words.join(" ").replace(self.token, "TOKEN");
            format!("{why}\n{words}\n{text}{}", String::from_utf8_lossy(&output.stderr)).into()
        })
    }
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
        (Some(requests), Some(per_second)) if requests >= REQUESTS_MIN =>
        {
            #[expect(clippy::cast_precision_loss, reason = "requests of a run are exact in f64")]
            Ok(Generated { requests: requests as f64, per_second })
        }
        _ => Err("the generator counted too little".into()),
    }
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
        assert_eq!((wrk.requests, wrk.per_second), (31_872.0, 31_872.11));
        let h2load = read_h2load(H2LOAD).expect("a good run");
        assert_eq!((h2load.requests, h2load.per_second), (20_524.0, 20_524.0));
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
