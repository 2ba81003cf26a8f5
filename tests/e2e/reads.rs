//! kubectl reads the same through usher as without it.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use usher_tests::Outcome;
use usher_tests::kubectl::{Kubectl, Run};
use usher_tests::runner::Verdict;

use crate::world::{NAMESPACE, World};

/// Objects change between two runs (leases, heartbeats): so often are both sides asked before it counts.
const TRIES: usize = 4;

pub(crate) async fn kubectl_reads_the_same(world: &World) -> Verdict {
    let commands: &[&[&str]] = &[
        &["version", "-o", "json"],
        &["api-resources"],
        &["api-resources", "--verbs=list", "-o", "name"],
        &["api-versions"],
        &["explain", "pod.spec.containers"],
        &["get", "namespaces"],
        &["get", "namespace", "kube-system", "-o", "yaml"],
        &["get", "pods", "-A", "-o", "json"],
        &["get", "configmaps", "-n", NAMESPACE, "-l", "size=small"],
        &["get", "configmaps", "-n", NAMESPACE, "-l", "size=small", "-o", "json"],
        &["get", "configmap", "small-03", "-n", NAMESPACE, "-o", "jsonpath={.data.number}"],
        &["get", "configmap", "no-such-map", "-n", NAMESPACE],
        &["get", "no-such-kind"],
        &["get", "clusterroles", "-o", "name"],
        &["get", "flowschemas"],
        &["get", "prioritylevelconfigurations", "-o", "yaml"],
        &["get", "pods", "-n", NAMESPACE, "--field-selector", "status.phase=Running", "-o", "name"],
        &["describe", "configmap", "small-01", "-n", NAMESPACE],
        &["auth", "can-i", "--list"],
        &["auth", "whoami", "-o", "json"],
        &["auth", "can-i", "create", "pods", "--as", "alice"],
        &["get", "--raw", "/version"],
        &["get", "--raw", "/apis"],
        &["get", "--raw", "/readyz?verbose"],
        &["get", "--raw", "/api/v1/namespaces/e2e/configmaps/small-02"],
        &["get", "--raw", "/api/v1/namespaces/e2e/configmaps/no-such-map"],
        &["get", "--raw", "/openapi/v3"],
        &["get", "--raw", "/no/such/path"],
    ];
    let (direct, through) = world.kubectls();
    for command in commands {
        same(&direct, &through, command).await?;
    }
    // Someone with few rights sees the same refusals.
    let (direct, through) = (world.cluster.kubectl_direct("alice"), world.cluster.kubectl("alice"));
    let refused: &[&[&str]] = &[
        &["get", "pods", "-A"],
        &["get", "secrets", "-n", "kube-system"],
        &["auth", "whoami", "-o", "json"],
    ];
    for command in refused {
        same(&direct, &through, command).await?;
    }
    Ok(format!("{} commands", commands.len() + refused.len()))
}

pub(crate) async fn chunked_lists_are_the_same(world: &World) -> Verdict {
    let (direct, through) = world.kubectls();
    let chunks = ["--chunk-size=4", "--chunk-size=7", "--chunk-size=500", "--chunk-size=0"];
    for chunk in chunks {
        same(&direct, &through, &["get", "configmaps", "-n", NAMESPACE, chunk, "-o", "name"]).await?;
    }
    let names =
        through.run(&["get", "cm", "-n", NAMESPACE, "-l", "size=small", chunks[1], "-o", "name"]).await?;
    let count = names.success()?.lines().count();
    if count == 30 { Ok(String::new()) } else { Err(format!("{count} small maps, 30 were made")) }
}

pub(crate) async fn a_watch_brings_every_event(world: &World) -> Verdict {
    let (direct, through) = world.kubectls();
    let mut seen_direct = Watch::start(&direct)?;
    let mut seen_through = Watch::start(&through)?;
    // Both watches have begun when they show the map that is already there.
    let first = ["create", "configmap", "watched-0", "-n", NAMESPACE];
    direct.run(&first).await?.success()?;
    direct.run(&["label", "configmap", "watched-0", "-n", NAMESPACE, "watched=yes"]).await?.success()?;
    let expected = seen_direct.next().await?;
    if expected != "ADDED watched-0" {
        return Err(format!("the direct watch begins with {expected:?}"));
    }
    seen_through.expect(&expected).await?;
    // From here on whatever happens must arrive, in its order; half of it is done through usher.
    for number in 1..=10 {
        let kubectl = if number % 2 == 0 { &direct } else { &through };
        let name = format!("watched-{number}");
        let create = ["create", "configmap", &name, "-n", NAMESPACE];
        kubectl.run(&create).await?.success()?;
        kubectl.run(&["label", "configmap", &name, "-n", NAMESPACE, "watched=yes"]).await?.success()?;
        for watch in [&mut seen_direct, &mut seen_through] {
            watch.expect(&format!("ADDED {name}")).await?;
        }
        let patch = ["patch", "configmap", &name, "-n", NAMESPACE, "-p", r#"{"data":{"a":"b"}}"#];
        kubectl.run(&patch).await?.success()?;
        for watch in [&mut seen_direct, &mut seen_through] {
            watch.expect(&format!("MODIFIED {name}")).await?;
        }
    }
    direct.run(&["delete", "configmap", "-n", NAMESPACE, "-l", "watched=yes"]).await?.success()?;
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for _ in 0..=10 {
        left.push(seen_direct.next().await?);
        right.push(seen_through.next().await?);
    }
    if left == right { Ok("32 events".into()) } else { Err(format!("direct {left:?}\nusher  {right:?}")) }
}

/// `kubectl get -w` and the lines it has not been asked for yet.
struct Watch {
    lines: Lines<BufReader<ChildStdout>>,
    _kubectl: Child,
}

impl Watch {
    fn start(kubectl: &Kubectl) -> Outcome<Self> {
        let arguments =
            ["get", "configmaps", "-n", NAMESPACE, "-l", "watched=yes", "-w", "--output-watch-events"];
        let columns = ["--no-headers", "-o", "custom-columns=TYPE:.type,NAME:.object.metadata.name"];
        let mut kubectl = kubectl.start(&[&arguments[..], &columns[..]].concat())?;
        let output = kubectl.stdout.take().ok_or("kubectl without output")?;
        Ok(Self { lines: BufReader::new(output).lines(), _kubectl: kubectl })
    }

    /// The next event: its type and its object's name.
    async fn next(&mut self) -> Outcome<String> {
        let line = tokio::time::timeout(EVENT_TIME_MAX, self.lines.next_line()).await;
        match line {
            Ok(Ok(Some(line))) => Ok(line.split_whitespace().collect::<Vec<_>>().join(" ")),
            Ok(other) => Err(format!("the watch ended: {other:?}")),
            Err(_) => Err(format!("no event within {EVENT_TIME_MAX:?}")),
        }
    }

    async fn expect(&mut self, event: &str) -> Outcome {
        let seen = self.next().await?;
        if seen == event { Ok(()) } else { Err(format!("event {seen:?} where {event:?} was due")) }
    }
}

/// An event must arrive within this: one that waits for the stream to fill up never does.
const EVENT_TIME_MAX: Duration = Duration::from_secs(10);

/// Both sides give the same exit code and text. Objects may change meanwhile: then both are asked again.
pub(crate) async fn same(direct: &Kubectl, through: &Kubectl, command: &[&str]) -> Outcome {
    let mut before = direct.run(command).await?;
    let mut last = String::new();
    for _ in 0..TRIES {
        let seen = through.run(command).await?;
        if seen == before {
            return Ok(());
        }
        let after = direct.run(command).await?;
        if seen == after {
            return Ok(());
        }
        last = difference(&after, &seen);
        before = after;
    }
    Err(format!("kubectl {}: {last}", command.join(" ")))
}

/// Where two runs differ first.
pub(crate) fn difference(direct: &Run, through: &Run) -> String {
    if direct.code != through.code {
        return format!("exit {} directly, {} through usher: {}", direct.code, through.code, through.err);
    }
    let pairs = [("output", &direct.out, &through.out), ("errors", &direct.err, &through.err)];
    for (what, left, right) in pairs {
        let mut lines = left.lines().zip(right.lines()).enumerate();
        if let Some((number, (left, right))) = lines.find(|(_, (left, right))| left != right) {
            return format!("{what}, line {}:\ndirect {left}\nusher  {right}", number + 1);
        }
        if left != right {
            return format!("{what}: {} bytes directly, {} through usher", left.len(), right.len());
        }
    }
    String::from("no difference")
}
