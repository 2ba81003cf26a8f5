//! usher on the apiserver's own port, on a control plane of its own: whoever is pointed at the apiserver comes through
//! usher, and stays well while usher is killed and started again; and the apiserver can be restarted under it. In fail-closed
//! nobody gets past a usher that is gone.
//!
//! Where takeover is not permitted (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON; CAP_SYS_ADMIN for a bpf filesystem of the test's own)
//! this says so and does not run; where `CI` is set it fails.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::net::TcpStream;
use usher_tests::Outcome;
use usher_tests::client::plain_get;
use usher_tests::clock::{Pending, now, until};
use usher_tests::cluster::{Cluster, Process, programs};
use usher_tests::runner::Verdict;

use crate::world::{PATIENCE, World};

/// How often usher is killed.
const DEATHS: usize = 20;
/// Between a start and the next kill, and between a kill and the next start.
const PAUSE: Duration = Duration::from_millis(200);
/// The kernel closes what the dead one had a moment after its last thread is seen to be gone: a connection that began
/// 67 µs later was still given to it, and reset. What begins later than this must not fail.
const TEARDOWN: Duration = Duration::from_millis(10);
const ADMIN_CLIENT: &str = "admin";
const OPEN: [&str; 1] = ["--takeover=fail-open"];
/// In fail-closed: how often usher is killed, and how often another one takes over.
const TIMES: usize = 3;
/// How many try to get past a usher that is gone.
const STRANGERS: usize = 100;

/// kubectl, a client and the controller-manager, all pointed at the apiserver's own port.
pub(crate) async fn usher_is_killed_20_times_on_the_apiservers_port(world: &World) -> Verdict {
    if let Err(missing) = permitted() {
        return did_not_run(missing);
    }
    let cluster = Cluster::up_bare(&world.cluster.folder.join("takeover")).await?;
    let verdict = whole(&cluster).await;
    cluster.down().await?;
    verdict
}

/// The same port in fail-closed: dead, ended, handed over, released.
pub(crate) async fn fail_closed_lets_nobody_past(world: &World) -> Verdict {
    if let Err(missing) = permitted() {
        return did_not_run(missing);
    }
    let cluster = Cluster::up_bare(&world.cluster.folder.join("takeover-closed")).await?;
    let pins = BpfFilesystem::mount(cluster.folder.join("bpf"))?;
    let verdict = closed(&cluster, &pins.0.join("usher")).await;
    drop(pins);
    cluster.down().await?;
    verdict
}

async fn whole(cluster: &Cluster) -> Verdict {
    cluster.dump_flow_control().await?;
    let manager = start_manager(cluster)?;
    take(cluster, &OPEN).await?;
    let lease = lease(cluster).await?;

    let (over, ran) = (AtomicBool::new(false), AtomicUsize::new(0));
    let kills = async {
        let kills = kill_and_start(cluster).await;
        over.store(true, Ordering::Relaxed);
        kills
    };
    let (kills, requests, commands) =
        tokio::join!(kills, requests(cluster, &over, &ran), commands(cluster, &over, &ran));
    let (kills, by_usher) = kills?;
    for failed in requests.iter().chain(&commands) {
        let in_flight =
            kills.iter().any(|kill| failed.begun <= kill.gone + TEARDOWN && failed.ended >= kill.sent);
        if !in_flight {
            let nearest =
                kills.iter().map(|kill| when(failed.begun, kill)).min_by_key(|(distance, _)| *distance);
            let when = nearest.map_or_else(String::new, |(_, when)| when);
            return Err(format!(
                "{} failed, and was not in flight at a kill: {}; it began {when} and took {:?}",
                failed.what,
                failed.why,
                failed.ended - failed.begun
            ));
        }
    }
    manager.check().map_err(|pending| format!("{pending:?}"))?;
    let after = self::lease(cluster).await?;
    if after != lease {
        return Err(format!("the controller-manager's lease went from {lease:?} to {after:?}"));
    }
    namespace_is_served(cluster, "after-the-kills").await?;
    let relayed = restart_apiserver(cluster).await?;
    let failed = requests.len() + commands.len();
    let ran = ran.into_inner();
    Ok(format!(
        "{DEATHS} deaths; {ran} requests and runs of kubectl, {failed} of them failed, all in flight at a kill; {by_usher} \
         requests through usher; {relayed} connections of the apiserver's own client relayed while it was restarted"
    ))
}

/// What takeover asks for.
fn permitted() -> Outcome {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    let needed: u64 = 1 << 12 | 1 << 21 | 1 << 38 | 1 << 39; // linux/capability.h
    if effective & needed == needed {
        Ok(())
    } else {
        Err("takeover needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and its test CAP_SYS_ADMIN: run as root"
            .into())
    }
}

fn did_not_run(missing: String) -> Verdict {
    match std::env::var_os("CI") {
        Some(_) => Err(missing),
        None => Ok(format!("DID NOT RUN: {missing}")),
    }
}

/// kube-controller-manager, pointed at the apiserver itself.
fn start_manager(cluster: &Cluster) -> Outcome<Process> {
    let config = cluster.kubeconfig_direct(ADMIN_CLIENT).display().to_string();
    let file = |name: &str| cluster.certificates().join(name).display().to_string();
    let arguments = [
        format!("--kubeconfig={config}"),
        format!("--service-account-private-key-file={}", file("sa.key")),
        format!("--root-ca-file={}", file("ca.crt")),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={}", cluster.ports.controller_manager),
        format!("--cert-dir={}", cluster.folder.join("config/kube-controller-manager").display()),
    ];
    let program = programs::folder().join("kube-controller-manager");
    Process::start(&cluster.folder, "kube-controller-manager", &program, &arguments)
}

/// Starts usher, until the port is usher's.
async fn take(cluster: &Cluster, flags: &[impl AsRef<str>]) -> Outcome {
    let mut more: Vec<String> = flags.iter().map(|flag| flag.as_ref().to_owned()).collect();
    more.push(runtime_dir(cluster));
    cluster.start_usher(&more).await?;
    until("usher to have the port", PATIENCE, async || match metric(cluster, "usher_takeover_held").await? {
        1 => Ok(()),
        _ => Err(Pending::NotYet("it has not".into())),
    })
    .await
}

fn runtime_dir(cluster: &Cluster) -> String {
    format!("--runtime-dir={}", cluster.folder.join("run/usher").display())
}

/// The sum of a family of usher's metrics; of those series only that hold all of it, if there are labels.
async fn metric(cluster: &Cluster, series: &str) -> Outcome<u64> {
    let metrics = plain_get(cluster.admin(), "/metrics").await?.success()?;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    let (family, label) = series.split_once('/').unwrap_or((series, ""));
    let those = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(family).filter(|rest| rest.starts_with([' ', '{']))?;
        let (labels, value) = rest.rsplit_once(' ')?;
        labels.contains(label).then(|| value.parse::<u64>().ok())?
    });
    Ok(those.sum())
}

/// From the signal to the process's end.
struct Kill {
    sent: Instant,
    gone: Instant,
}

/// How far from a kill, and in words.
fn when(moment: Instant, kill: &Kill) -> (Duration, String) {
    if moment > kill.gone {
        let after = moment - kill.gone;
        (after, format!("{after:?} after usher was gone"))
    } else {
        let before = kill.sent.saturating_duration_since(moment);
        (before, format!("{before:?} before a kill"))
    }
}

/// Kills usher and starts it again. The times, and how many requests went through the ones that were killed.
async fn kill_and_start(cluster: &Cluster) -> Outcome<(Vec<Kill>, u64)> {
    let (mut kills, mut by_usher) = (Vec::new(), 0);
    for _ in 0..DEATHS {
        tokio::time::sleep(PAUSE).await;
        let requests = metric(cluster, "usher_requests_total").await?;
        let taken = metric(cluster, "usher_takeover_connections_total/path=\"taken\"").await?;
        if requests == 0 || taken == 0 {
            return Err(format!(
                "{requests} requests on {taken} connections came to usher: clients go past it"
            ));
        }
        by_usher += requests;
        let usher = cluster.process("usher")?;
        let sent = now();
        usher.signal(libc::SIGKILL);
        usher.gone_within(PATIENCE).await?;
        kills.push(Kill { sent, gone: now() });
        tokio::time::sleep(PAUSE).await;
        take(cluster, &OPEN).await?;
    }
    Ok((kills, by_usher))
}

/// Something that did not go well.
struct Failed {
    what: &'static str,
    begun: Instant,
    ended: Instant,
    why: String,
}

/// Requests over a connection each, one after the other.
async fn requests(cluster: &Cluster, over: &AtomicBool, ran: &AtomicUsize) -> Vec<Failed> {
    again_and_again("a request", over, ran, async || request(cluster).await).await
}

/// One, over a connection of its own.
async fn request(cluster: &Cluster) -> Outcome {
    let answer = cluster.administrator_direct()?.get("/api/v1/namespaces/kube-system").await?.success()?;
    match answer.header("x-kubernetes-pf-flowschema-uid") {
        "" => Err("the answer names no flow schema".into()),
        _ => Ok(()),
    }
}

/// `kubectl get`, again and again.
async fn commands(cluster: &Cluster, over: &AtomicBool, ran: &AtomicUsize) -> Vec<Failed> {
    let kubectl = cluster.kubectl_direct(ADMIN_CLIENT);
    again_and_again("kubectl get", over, ran, async || {
        kubectl.run(&["get", "namespaces", "-o", "name"]).await?.success().map(drop)
    })
    .await
}

async fn again_and_again(
    what: &'static str,
    over: &AtomicBool,
    ran: &AtomicUsize,
    mut run: impl AsyncFnMut() -> Outcome,
) -> Vec<Failed> {
    let mut all = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let begun = now();
        let done = run().await;
        ran.fetch_add(1, Ordering::Relaxed);
        if let Err(why) = done {
            all.push(Failed { what, begun, ended: now(), why });
        }
    }
    all
}

/// Who leads, and how often that has changed.
async fn lease(cluster: &Cluster) -> Outcome<(String, String)> {
    let target = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";
    until("the controller-manager to lead", PATIENCE, async || {
        let lease = cluster.administrator_direct()?.get(target).await?.success()?.json();
        match lease["spec"]["holderIdentity"].as_str() {
            Some(holder) if !holder.is_empty() => {
                Ok((holder.to_owned(), lease["spec"]["leaseTransitions"].to_string()))
            }
            _ => Err(Pending::NotYet("nobody leads yet".into())),
        }
    })
    .await
}

/// The controllers work: a new namespace gets its service account.
async fn namespace_is_served(cluster: &Cluster, name: &str) -> Outcome {
    let mut client = cluster.administrator_direct()?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    client.json(http::Method::POST, "/api/v1/namespaces", &namespace).await?.success()?;
    let target = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
    until("the namespace's service account", PATIENCE, async || {
        cluster.administrator_direct()?.get(&target).await?.success()?;
        Ok(())
    })
    .await
}

/// Restarts the apiserver while its port is usher's: it is ready only when its own client, which asks for the apiserver's
/// own certificate, has got through. Returns how many such connections were relayed. (The controller-manager may lose its
/// lease: the apiserver is away for longer than it waits.)
async fn restart_apiserver(cluster: &Cluster) -> Outcome<u64> {
    let relayed = "usher_takeover_relayed_total/result=\"relayed\"";
    let before = metric(cluster, relayed).await?;
    cluster.restart_apiserver().await?;
    let after = metric(cluster, relayed).await?;
    let held = metric(cluster, "usher_takeover_held").await?;
    let displaced = metric(cluster, "usher_takeover_relayed_total/result=\"displaced\"").await?;
    let open = metric(cluster, "usher_takeover_relays_open").await?;
    if after <= before || held != 1 || displaced != 0 {
        return Err(format!(
            "{before} relayed before, {after} after; {displaced} displaced, {open} open; held: {held}"
        ));
    }
    Ok(after - before)
}

async fn closed(cluster: &Cluster, pins: &Path) -> Verdict {
    cluster.dump_flow_control().await?;
    let pin_dir = format!("--takeover-pin-dir={}", pins.display());
    let closed = ["--takeover=fail-closed", &pin_dir];
    take(cluster, &closed).await?;
    for _ in 0..TIMES {
        request(cluster).await?;
        let usher = cluster.process("usher")?;
        usher.signal(libc::SIGKILL);
        usher.gone_within(PATIENCE).await?;
        nobody_is_answered(cluster).await.map_err(|why| format!("after kill -9: {why}"))?;
        take(cluster, &closed).await?;
    }

    let (over, ran) = (AtomicBool::new(false), AtomicUsize::new(0));
    let hand_overs = async {
        let done = hand_over(cluster, &["--hand-over=required", closed[0], closed[1]], &ran).await;
        over.store(true, Ordering::Relaxed);
        done
    };
    let (handed_over, requests, commands) =
        tokio::join!(hand_overs, requests(cluster, &over, &ran), commands(cluster, &over, &ran));
    handed_over?;
    if let Some(failed) = requests.iter().chain(&commands).next() {
        return Err(format!("{} failed during {TIMES} hand-overs: {}", failed.what, failed.why));
    }
    let dropped = metric(cluster, "usher_takeover_connections_total/path=\"dropped\"").await?;
    let relayed = restart_apiserver(cluster).await?;

    cluster.process("usher")?.end().await?;
    nobody_is_answered(cluster).await.map_err(|why| format!("after SIGTERM: {why}"))?;
    release(cluster, &pin_dir)?;
    request(cluster).await.map_err(|why| format!("after usher release: {why}"))?;
    if dropped != 0 || pins.join("takeover").exists() {
        return Err(format!(
            "{dropped} connections dropped while usher was there; a pin is left: {}",
            pins.display()
        ));
    }
    Ok(format!(
        "{} connections tried to get past {TIMES} dead ushers and one that had ended; {} requests and runs of kubectl over \
         {TIMES} hand-overs, none failed; {relayed} connections of the apiserver's own client relayed while it was restarted",
        STRANGERS * (TIMES + 1),
        ran.into_inner()
    ))
}

/// usher is gone, the apiserver is there and nobody gets to it. (The kernel clears up what usher had for a moment after its
/// last thread is gone: until then a connection may be made, and is reset.)
async fn nobody_is_answered(cluster: &Cluster) -> Outcome {
    let address = cluster.direct()?.address;
    until("connections to be refused", PATIENCE, async || {
        if request(cluster).await.is_ok() {
            return Err(Pending::Never("somebody was answered".into()));
        }
        match TcpStream::connect(address).await {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            other => Err(Pending::NotYet(format!("{other:?}"))),
        }
    })
    .await?;
    for _ in 0..STRANGERS {
        match TcpStream::connect(address).await {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            other => return Err(format!("a connection was not refused: {other:?}")),
        }
    }
    let kubectl = cluster.kubectl_direct(ADMIN_CLIENT);
    if kubectl.run(&["get", "namespaces"]).await?.success().is_ok() {
        return Err("kubectl was answered".into());
    }
    cluster.process("kube-apiserver")?.check().map_err(|pending| format!("{pending:?}"))
}

/// One usher after the other, each with some requests of its own.
async fn hand_over(cluster: &Cluster, flags: &[&str], ran: &AtomicUsize) -> Outcome {
    for _ in 0..TIMES {
        let former = cluster.process("usher")?;
        take(cluster, flags).await?;
        former.gone_within(PATIENCE).await?;
        let before = ran.load(Ordering::Relaxed);
        until("requests to the next usher", PATIENCE, async || match ran.load(Ordering::Relaxed) - before {
            0..10 => Err(Pending::NotYet("not ten yet".into())),
            _ => Ok(()),
        })
        .await?;
    }
    Ok(())
}

/// `usher release`, with nobody to ask.
fn release(cluster: &Cluster, pin_dir: &str) -> Outcome {
    let mut command = Command::new(programs::usher()?);
    let output = command.args(["release", &runtime_dir(cluster), pin_dir]).output();
    let output = output.map_err(|error| format!("usher release: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("usher release: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// A bpf filesystem of the test's own. With it goes what is pinned there: a port that is still closed is the apiserver's
/// again.
struct BpfFilesystem(PathBuf);

impl BpfFilesystem {
    fn mount(path: PathBuf) -> Outcome<Self> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        std::fs::create_dir_all(&path).map_err(failed)?;
        while Command::new("umount").arg("-q").arg(&path).status().map_err(failed)?.success() {} // of runs that were killed
        let mounted = Command::new("mount").args(["-t", "bpf", "bpf"]).arg(&path).status().map_err(failed)?;
        if mounted.success() {
            Ok(Self(path))
        } else {
            Err(format!("mount -t bpf bpf {}: {mounted}", path.display()))
        }
    }
}

impl Drop for BpfFilesystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
