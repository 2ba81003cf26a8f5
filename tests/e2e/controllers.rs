//! kube-controller-manager and kube-scheduler work through usher, with tokens of their service accounts.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;
use usher_tests::Outcome;
use usher_tests::clock::{Pending, until};
use usher_tests::cluster::{programs, read};
use usher_tests::runner::Verdict;

use crate::world::{NAMESPACE, World, label};

const PODS: u64 = 50;

/// From the scale to the last pod; four seconds on an idle machine.
const SCALE_TIME_MAX: Duration = Duration::from_secs(120);

pub(crate) async fn a_deployment_scales_to_50_pods(world: &World) -> Verdict {
    let through_usher = world.cluster.through()?.address.port();
    for name in ["kube-controller-manager", "kube-scheduler"] {
        let config = read(&world.cluster.folder.join(format!("config/{name}.yaml")))?;
        if !config.contains(&format!("https://127.0.0.1:{through_usher}")) {
            return Err(format!("{name} does not talk to usher"));
        }
    }
    let before = dispatched(world).await?;
    let kubectl = world.cluster.kubectl("admin");
    kubectl.run_with_input(&["apply", "-f", "-"], &deployment().to_string()).await?.success()?;
    kubectl.run(&["scale", "deployment", "crowd", "-n", NAMESPACE, "--replicas=50"]).await?.success()?;
    ready(world, PODS).await?;
    let nodes = nodes_used(world).await?;
    if nodes < 2 {
        return Err(format!("all pods are on {nodes} node"));
    }
    kubectl.run(&["scale", "deployment", "crowd", "-n", NAMESPACE, "--replicas=0"]).await?.success()?;
    ready(world, 0).await?;
    kubectl.run(&["delete", "deployment", "crowd", "-n", NAMESPACE]).await?.success()?;
    let requests = dispatched(world).await? - before;
    // Every pod is created, bound and deleted by requests of service accounts at the least.
    if requests < 100.0 {
        return Err(format!("only {requests} requests of kube-system's service accounts were dispatched"));
    }
    Ok(format!("{nodes} nodes, {requests} requests of the controllers"))
}

/// What Go's HTTP/2 client does on behalf of busy controllers, all on one connection: `tests/cluster/controllers`.
pub(crate) async fn go_clients_that_change_their_minds_are_never_cut(world: &World) -> Verdict {
    let cuts = async || Ok::<_, String>(world.metrics().await?.sum("usher_connections_cut_total", &[]));
    let glitches = async || {
        let metrics = world.metrics().await?;
        let of = |(labels, count): (&str, f64)| (labels.to_owned(), count);
        Ok::<_, String>(metrics.series("usher_glitches_total", &[]).map(of).collect::<Vec<_>>())
    };
    let (cut_before, before) = (cuts().await?, glitches().await?);
    let certificates = world.cluster.certificates();
    let output = Command::new(programs::folder().join("controllers"))
        .arg(format!("https://{}", world.cluster.through()?.address))
        .args(["ca.crt", "admin.crt", "admin.key"].map(|file| certificates.join(file)))
        .arg(NAMESPACE)
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| format!("controllers: {error}"))?;
    let done = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let glitches: Vec<String> = glitches()
        .await?
        .into_iter()
        .zip(before)
        .filter(|((_, now), (_, before))| now > before)
        .map(|((labels, now), (_, before))| format!("{labels} {}", now - before))
        .collect();
    let told = format!("{done}; glitches: {}", glitches.join(", "));
    if !output.status.success() {
        return Err(format!("{told}\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    if cuts().await? > cut_before {
        return Err(format!("a connection was cut; {told}"));
    }
    Ok(told)
}

pub(crate) async fn leader_election_holds_for_the_whole_run(world: &World) -> Verdict {
    for name in ["kube-controller-manager", "kube-scheduler"] {
        if !world.cluster.process(name)?.runs() {
            return Err(format!("{name} has ended"));
        }
    }
    let now = world.leases().await?;
    if now != world.leaders {
        return Err(format!("at the start {:?}\nnow          {now:?}", world.leaders));
    }
    // Held, and still renewed: the renewal that is due every two seconds must come.
    let (before, mut client) = (renewals(world).await?, world.cluster.administrator_direct()?);
    client.disconnect();
    until("renewals of both leases", Duration::from_secs(20), async || {
        let now = renewals(world).await?;
        let renewed = now.iter().zip(&before).all(|(now, before)| now != before);
        if renewed { Ok(String::new()) } else { Err(Pending::NotYet(format!("{now:?}"))) }
    })
    .await
}

async fn renewals(world: &World) -> Outcome<Vec<Value>> {
    let mut client = world.cluster.administrator_direct()?;
    let mut times = Vec::new();
    for name in ["kube-controller-manager", "kube-scheduler"] {
        let target = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}");
        times.push(client.get(&target).await?.success()?.json()["spec"]["renewTime"].clone());
    }
    Ok(times)
}

/// Requests of kube-system's service accounts that usher has let through.
async fn dispatched(world: &World) -> Outcome<f64> {
    let labels = [label("flow_schema", "kube-system-service-accounts")];
    Ok(world.metrics().await?.sum("apiserver_flowcontrol_dispatched_requests_total", &labels))
}

async fn ready(world: &World, count: u64) -> Outcome {
    let mut client = world.cluster.administrator_direct()?;
    let target = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/crowd");
    until(&format!("{count} pods"), SCALE_TIME_MAX, async || {
        let deployment = client.get(&target).await?.success()?.json();
        let status = &deployment["status"];
        let (all, ready) = (status["replicas"].as_u64(), status["readyReplicas"].as_u64());
        let observed = status["observedGeneration"] == deployment["metadata"]["generation"];
        if observed && all.unwrap_or(0) == count && ready.unwrap_or(0) == count {
            Ok(())
        } else {
            Err(Pending::NotYet(format!("{ready:?} of {all:?} ready")))
        }
    })
    .await
}

async fn nodes_used(world: &World) -> Outcome<usize> {
    let target = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3Dcrowd");
    let pods = world.cluster.administrator_direct()?.get(&target).await?.success()?.json();
    let mut nodes: Vec<&str> = pods["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|pod| pod["spec"]["nodeName"].as_str())
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    Ok(nodes.len())
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "crowd", "namespace": NAMESPACE},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "crowd"}},
            "template": {
                "metadata": {"labels": {"app": "crowd"}},
                "spec": {
                    "serviceAccountName": "robot", "automountServiceAccountToken": false,
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "app", "image": "fake"}],
                },
            },
        },
    })
}
