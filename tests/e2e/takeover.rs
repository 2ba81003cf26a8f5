//! usher on the apiserver's own port, on a control plane of its own: whoever is pointed at the apiserver comes through
//! usher, and stays well while usher is killed and started again; and the apiserver can be restarted under it.
//!
//! Where takeover is not permitted (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON) this says so and does not run; where `CI` is set it fails.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use usher_tests::Outcome;
use usher_tests::client::{Client, Protocol, plain_get};
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

/// kubectl, a client and the controller-manager, all pointed at the apiserver's own port.
pub(crate) async fn usher_is_killed_20_times_on_the_apiservers_port(world: &World) -> Verdict {
    if let Err(missing) = permitted() {
        return match std::env::var_os("CI") {
            Some(_) => Err(missing),
            None => Ok(format!("DID NOT RUN: {missing}")),
        };
    }
    let cluster = Cluster::up_bare(&world.cluster.folder.join("takeover")).await?;
    let verdict = whole(&cluster).await;
    cluster.down().await?;
    verdict
}

async fn whole(cluster: &Cluster) -> Verdict {
    cluster.dump_flow_control().await?;
    let manager = start_manager(cluster)?;
    take(cluster).await?;
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
    let needed: u64 = 1 << 12 | 1 << 38 | 1 << 39; // linux/capability.h
    if effective & needed == needed {
        Ok(())
    } else {
        Err("takeover needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON: run as root".into())
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
async fn take(cluster: &Cluster) -> Outcome {
    let folder = cluster.folder.join("run/usher");
    let more = ["--takeover=fail-open".into(), format!("--runtime-dir={}", folder.display())];
    cluster.start_usher(&more).await?;
    until("usher to have the port", PATIENCE, async || match metric(cluster, "usher_takeover_held").await? {
        1 => Ok(()),
        _ => Err(Pending::NotYet("it has not".into())),
    })
    .await
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
        take(cluster).await?;
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
    again_and_again("a request", over, ran, async || {
        let mut client = Client::new(&cluster.direct()?, &cluster.administrator()?, Protocol::Http1);
        let answer = client.get("/api/v1/namespaces/kube-system").await?.success()?;
        match answer.header("x-kubernetes-pf-flowschema-uid") {
            "" => Err("the answer names no flow schema".into()),
            _ => Ok(()),
        }
    })
    .await
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
    if after <= before || held != 1 {
        return Err(format!("{before} relayed before, {after} after; held: {held}"));
    }
    Ok(after - before)
}
