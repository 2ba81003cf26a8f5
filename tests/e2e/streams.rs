//! Upgraded connections and long answers through usher: exec, attach, port-forward and cp over WebSocket and
//! SPDY, logs that are followed.
//!
//! kubectl falls back from WebSocket to SPDY without a word, so every test asks kube-apiserver's audit log
//! which of the two arrived: a WebSocket begins with GET (verb `get`), SPDY with POST (`create`).

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout};
use usher_tests::Outcome;
use usher_tests::clock::{Pending, until};
use usher_tests::cluster::read;
use usher_tests::kubectl::Kubectl;
use usher_tests::runner::Verdict;

use crate::reads::difference;
use crate::world::{NAMESPACE, PATIENCE, POD, World};

/// How kubectl asks for a stream both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    WebSocket,
    Spdy,
}

const TRANSPORTS: [Transport; 2] = [Transport::WebSocket, Transport::Spdy];

/// Enough to fill every buffer on the way several times.
const BULK: usize = 2_000_000;

/// What was written at one end must be at the other within this.
const ARRIVAL_TIME_MAX: Duration = Duration::from_secs(10);

pub(crate) async fn exec_over_websocket_and_spdy(world: &World) -> Verdict {
    let bulk: String = (0..BULK / 20).map(|number| format!("{number:019}\n")).collect();
    let count = bulk.len().to_string();
    let sum = format!("head -c {count} | sha256sum; echo done");
    let commands: &[(&[&str], &str)] = &[
        (&["--", "sh", "-c", "echo to stdout; echo $POD"], ""),
        (&["--", "sh", "-c", "echo to stderr >&2; sleep 0.2"], ""),
        (&["--", "seq", "200000"], ""),
        (&["-i", "--", "head", "-c", "5"], "hello"),
        (&["-i", "--", "sh", "-c", &sum], &bulk),
        (&["--", "no-such-program"], ""),
    ];
    for transport in TRANSPORTS {
        let (direct, through) = kubectls(world, transport);
        for (command, input) in commands {
            let arguments = [&["exec", POD, "-n", NAMESPACE], *command].concat();
            let left = direct.run_with_input(&arguments, input).await?;
            let used = Used::since_now(world, "exec")?;
            let right = through.run_with_input(&arguments, input).await?;
            if left != right {
                return Err(format!("{transport:?}, {}: {}", command.join(" "), difference(&left, &right)));
            }
            used.must_be(transport, 1).await?;
        }
    }
    Ok(format!("{} commands by each", commands.len()))
}

pub(crate) async fn logs_are_followed(world: &World) -> Verdict {
    let (direct, through) = world.kubectls();
    for arguments in [&["logs", POD, "-n", NAMESPACE][..], &["logs", POD, "-n", NAMESPACE, "--tail=1"]] {
        let (left, right) = (direct.run(arguments).await?, through.run(arguments).await?);
        if left != right || left.out.is_empty() {
            return Err(format!("{}: {}", arguments.join(" "), difference(&left, &right)));
        }
    }
    let mut follower = Follower::start(&through, &["logs", "-f", POD, "-n", NAMESPACE, "--tail=0"])?;
    follower.begins(world, "logs").await?;
    for number in 0..20 {
        let line = format!("followed line {number}");
        append_to_log(world, &line)?;
        follower.expect(&line).await?;
    }
    Ok("20 lines".into())
}

pub(crate) async fn attach_over_websocket_and_spdy(world: &World) -> Verdict {
    for transport in TRANSPORTS {
        let (_, through) = kubectls(world, transport);
        let used = Used::since_now(world, "attach")?;
        let mut follower = Follower::start(&through, &["attach", POD, "-n", NAMESPACE])?;
        follower.begins(world, "attach").await?;
        for number in 0..20 {
            let line = format!("attached line {number}");
            append_to_log(world, &line)?;
            follower.expect(&line).await?;
        }
        drop(follower);
        used.must_be(transport, 1).await?;
    }
    Ok("20 lines by each".into())
}

pub(crate) async fn port_forward_over_websocket_and_spdy(world: &World) -> Verdict {
    let bulk: Vec<u8> = (0..BULK).map(|number| u8::try_from(number % 251).unwrap_or(0)).collect();
    for transport in TRANSPORTS {
        let (_, through) = kubectls(world, transport);
        let used = Used::since_now(world, "portforward")?;
        let mut forward =
            Follower::start(&through, &["port-forward", POD, "-n", NAMESPACE, ":7", "--address=127.0.0.1"])?;
        let line = forward.next().await?;
        let port = line
            .strip_prefix("Forwarding from ")
            .and_then(|rest| rest.split_once(" -> "))
            .ok_or_else(|| format!("kubectl port-forward says {line:?}"))?
            .0
            .to_owned();
        // Two connections at once: each has streams of its own in the one that kubectl opened.
        let (one, other) = tokio::join!(echo(&port, b"hello\n"), echo(&port, &bulk));
        one.and(other).map_err(|why| format!("{transport:?}: {why}"))?;
        drop(forward);
        used.must_be(transport, 1).await?;
    }
    Ok(format!("{BULK} bytes there and back by each"))
}

pub(crate) async fn cp_over_websocket_and_spdy(world: &World) -> Verdict {
    let root = world.cluster.folder.join("kwok/root");
    let content: Vec<u8> = (0..TAR_CONTENT).map(|number| u8::try_from(number % 249).unwrap_or(0)).collect();
    let failed = |error: std::io::Error| format!("cp: {error}");
    for transport in TRANSPORTS {
        let (direct, through) = kubectls(world, transport);
        fs::write(root.join("source.bin"), &content).map_err(failed)?;
        let from = format!("{NAMESPACE}/{POD}:source.bin");
        for kubectl in [&direct, &through] {
            let here = world.cluster.folder.join("kwok/copied.bin");
            let used = Used::since_now(world, "exec")?;
            kubectl.run(&["cp", &from, &here.display().to_string()]).await?.success()?;
            if fs::read(&here).map_err(failed)? != content {
                return Err(format!("{transport:?}: the copy from the pod differs"));
            }
            used.must_be(transport, 1).await?;
            fs::remove_file(&here).map_err(failed)?;
        }
        // It asks whether there is such a folder before it sends the archive.
        let used = Used::since_now(world, "exec")?;
        copy_to_pod(&through, &root, &content).await.map_err(|why| format!("{transport:?}: {why}"))?;
        used.must_be(transport, 2).await?;
    }
    Ok(format!("{TAR_CONTENT} bytes from and to the pod by each"))
}

/// With its header and its end a whole number of tar's records, so that tar in the pod needs no end of file.
const TAR_CONTENT: usize = 10_240 * 60 - 512 - 1024;

/// kwok never closes a command's standard input, so kubectl never learns that tar is done: the copy is
/// complete when it is there.
async fn copy_to_pod(kubectl: &Kubectl, root: &std::path::Path, content: &[u8]) -> Outcome {
    let failed = |error: std::io::Error| format!("cp: {error}");
    let target = root.join("received.bin");
    let _ = fs::remove_file(&target);
    let to = format!("{NAMESPACE}/{POD}:{}", target.display());
    let _copying = kubectl.start(&["cp", &root.join("source.bin").display().to_string(), &to])?;
    until("the copy in the pod", PATIENCE, async || {
        let there = fs::read(&target).map_err(failed)?;
        if there == content { Ok(()) } else { Err(Pending::NotYet(format!("{} bytes", there.len()))) }
    })
    .await
}

/// Sends bytes to the echo service and reads them back.
async fn echo(address: &str, bytes: &[u8]) -> Outcome {
    let failed = |error: std::io::Error| format!("through the forwarded port: {error}");
    let stream = TcpStream::connect(address).await.map_err(failed)?;
    let (mut reader, mut writer) = stream.into_split();
    let mut back = vec![0; bytes.len()];
    let both = async { tokio::try_join!(writer.write_all(bytes), reader.read_exact(&mut back)) };
    tokio::time::timeout(PATIENCE, both).await.map_err(|_| "the echo does not come back")?.map_err(failed)?;
    if back == bytes { Ok(()) } else { Err("the echo differs".into()) }
}

fn kubectls(world: &World, transport: Transport) -> (Kubectl, Kubectl) {
    let wanted = if transport == Transport::WebSocket { "true" } else { "false" };
    let with = |kubectl: Kubectl| {
        kubectl
            .with("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", wanted)
            .with("KUBECTL_PORT_FORWARD_WEBSOCKETS", wanted)
    };
    let (direct, through) = world.kubectls();
    (with(direct), with(through))
}

/// Which transport the apiserver saw since some moment.
struct Used {
    log: PathBuf,
    from: usize,
    subresource: &'static str,
}

impl Used {
    fn since_now(world: &World, subresource: &'static str) -> Outcome<Self> {
        let log = world.cluster.audit_log();
        let from = read(&log)?.len();
        Ok(Self { log, from, subresource })
    }

    /// All streams since then have ended by now, came over this transport, and were at least so many.
    async fn must_be(&self, transport: Transport, at_least: usize) -> Outcome {
        let expected = if transport == Transport::WebSocket { "get" } else { "create" };
        until(&format!("{} over {transport:?} in the audit log", self.subresource), PATIENCE, async || {
            let log = read(&self.log)?;
            let verbs: Vec<Value> = log
                .get(self.from..)
                .unwrap_or_default()
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok())
                .filter(|entry| entry["objectRef"]["subresource"] == self.subresource)
                .filter(|entry| entry["stage"] == "ResponseComplete")
                .map(|entry| entry["verb"].clone())
                .collect();
            match verbs.iter().find(|verb| **verb != expected) {
                Some(other) => Err(Pending::Never(format!("the apiserver saw verb {other}"))),
                None if verbs.len() < at_least => {
                    Err(Pending::NotYet(format!("{} of {at_least}", verbs.len())))
                }
                None => Ok(()),
            }
        })
        .await
    }
}

/// A running kubectl and its output line by line.
struct Follower {
    lines: Lines<BufReader<ChildStdout>>,
    _kubectl: Child,
}

impl Follower {
    fn start(kubectl: &Kubectl, arguments: &[&str]) -> Outcome<Self> {
        let mut kubectl = kubectl.start(arguments)?;
        let output = kubectl.stdout.take().ok_or("kubectl without output")?;
        Ok(Self { lines: BufReader::new(output).lines(), _kubectl: kubectl })
    }

    async fn next(&mut self) -> Outcome<String> {
        match tokio::time::timeout(ARRIVAL_TIME_MAX, self.lines.next_line()).await {
            Ok(Ok(Some(line))) => Ok(line),
            Ok(end) => Err(format!("the output ended: {end:?}")),
            Err(_) => Err(format!("nothing within {ARRIVAL_TIME_MAX:?}")),
        }
    }

    async fn expect(&mut self, line: &str) -> Outcome {
        let seen = self.next().await?;
        if seen == line { Ok(()) } else { Err(format!("{seen:?} where {line:?} was due")) }
    }

    /// Writes lines until one of them is seen: only then does kwok follow the file. Skips the rest of them.
    async fn begins(&mut self, world: &World, what: &str) -> Outcome {
        let mut written = 0;
        until(&format!("the beginning of {what}"), PATIENCE, async || {
            append_to_log(world, &format!("is anyone there? {written}"))?;
            written += 1;
            let line = tokio::time::timeout(Duration::from_millis(500), self.lines.next_line()).await;
            match line {
                Ok(Ok(Some(_))) => Ok(()),
                Ok(end) => Err(Pending::Never(format!("the output ended: {end:?}"))),
                Err(_) => Err(Pending::NotYet("nothing yet".into())),
            }
        })
        .await?;
        append_to_log(world, "here we go")?;
        while self.next().await? != "here we go" {}
        Ok(())
    }
}

/// Adds a line to the log of every container, in the format of container runtimes.
fn append_to_log(world: &World, line: &str) -> Outcome {
    let path = world.cluster.folder.join("kwok/pod.log");
    OpenOptions::new()
        .append(true)
        .open(&path)
        .and_then(|mut log| {
            log.write_all(format!("2026-01-01T00:00:01.000000000Z stdout F {line}\n").as_bytes())
        })
        .map_err(|error| format!("{}: {error}", path.display()))
}
