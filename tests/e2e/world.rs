//! What all end-to-end tests share: the cluster, the seed, some objects to look at.

use std::time::Duration;

use serde_json::{Value, json};
use usher_tests::Outcome;
use usher_tests::client::{Client, Credential, Protocol, plain_get};
use usher_tests::clock::{Pending, until};
use usher_tests::cluster::Cluster;
use usher_tests::kubectl::Kubectl;

/// The tests' namespace.
pub(crate) const NAMESPACE: &str = "e2e";

/// A pod on a kwok node that answers logs, exec, attach and port-forward.
pub(crate) const POD: &str = "talker";

/// ConfigMaps of 100 kB each: together a list of more than 5 MB.
pub(crate) const BIG_MAPS: usize = 52;

/// Long enough for anything that takes milliseconds on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The shared fixture.
pub(crate) struct World {
    /// The control plane.
    pub(crate) cluster: Cluster,
    /// Seed of everything that is generated.
    pub(crate) seed: u64,
    /// How many requests the classification test makes.
    pub(crate) requests: usize,
    /// Who leads what at the start: lease, holder, transitions.
    pub(crate) leaders: Vec<(String, Value, Value)>,
}

impl World {
    /// Makes the objects that tests look at and waits for the pod.
    pub(crate) async fn prepare(cluster: Cluster, seed: u64, requests: usize) -> Outcome<Self> {
        let kubectl = cluster.kubectl_direct("admin");
        let objects = json!({"apiVersion": "v1", "kind": "List", "items": objects()}).to_string();
        kubectl.run_with_input(&["apply", "--server-side", "-f", "-"], &objects).await?.success()?;
        let mut world = Self { cluster, seed, requests, leaders: Vec::new() };
        world.pod_runs(POD).await?;
        world.leaders = world.leases().await?;
        Ok(world)
    }

    /// kubectl with the administrator's certificate: past usher, and through it.
    pub(crate) fn kubectls(&self) -> (Kubectl, Kubectl) {
        (self.cluster.kubectl_direct("admin"), self.cluster.kubectl("admin"))
    }

    /// Clients with one credential: past usher, and through it.
    pub(crate) fn clients(&self, credential: &Credential, protocol: Protocol) -> Outcome<(Client, Client)> {
        Ok((
            Client::new(&self.cluster.direct()?, credential, protocol),
            Client::new(&self.cluster.through()?, credential, protocol),
        ))
    }

    /// Waits until a pod of the tests' namespace runs.
    pub(crate) async fn pod_runs(&self, name: &str) -> Outcome {
        let target = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}");
        let mut client = self.cluster.administrator_direct()?;
        until("the pod to run", PATIENCE, async || {
            let pod = client.get(&target).await?.success()?.json();
            match pod["status"]["phase"].as_str() {
                Some("Running") => Ok(()),
                phase => Err(Pending::NotYet(format!("{phase:?}"))),
            }
        })
        .await
    }

    /// The controllers' leases: name, holder, transitions.
    pub(crate) async fn leases(&self) -> Outcome<Vec<(String, Value, Value)>> {
        let mut client = self.cluster.administrator_direct()?;
        let mut leases = Vec::new();
        for name in ["kube-controller-manager", "kube-scheduler"] {
            let target = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}");
            let lease = client.get(&target).await?.success()?.json();
            let spec = &lease["spec"];
            leases.push((name.into(), spec["holderIdentity"].clone(), spec["leaseTransitions"].clone()));
        }
        Ok(leases)
    }

    /// The metrics of whoever decides on the way through: usher, or kube-apiserver if there is no usher.
    pub(crate) async fn metrics(&self) -> Outcome<Metrics> {
        let answer = if self.cluster.with_usher {
            plain_get(self.cluster.admin(), "/metrics").await?.success()?
        } else {
            self.cluster.administrator_direct()?.get("/metrics").await?.success()?
        };
        Ok(Metrics(String::from_utf8_lossy(&answer.body).into_owned()))
    }
}

/// Metrics in the text format.
pub(crate) struct Metrics(String);

impl Metrics {
    /// The series of a family whose labels hold all of `labels`: labels as written, and the value.
    pub(crate) fn series<'a>(
        &'a self,
        family: &'a str,
        labels: &'a [String],
    ) -> impl Iterator<Item = (&'a str, f64)> {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(family)?;
            let (shown, value) = rest.strip_prefix('{')?.rsplit_once("} ")?;
            let wanted = labels.iter().all(|label| shown.split(',').any(|one| one == label));
            wanted.then_some((shown, value.split(' ').next()?.parse().ok()?))
        })
    }

    /// The sum of those series.
    pub(crate) fn sum(&self, family: &str, labels: &[String]) -> f64 {
        self.series(family, labels).map(|(_, value)| value).sum()
    }
}

/// `name="value"` as metrics write it.
pub(crate) fn label(name: &str, value: &str) -> String {
    format!("{name}=\"{value}\"")
}

fn objects() -> Vec<Value> {
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
               "metadata": {"name": "robot", "namespace": NAMESPACE}}),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": POD, "namespace": NAMESPACE, "labels": {"app": POD}},
            "spec": {
                // Without waiting for the controller that makes the namespace's default account.
                "serviceAccountName": "robot", "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "app", "image": "fake", "ports": [{"containerPort": 7}]}],
            },
        }),
    ];
    for number in 0..30 {
        objects.push(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("small-{number:02}"), "namespace": NAMESPACE, "labels": {"size": "small"}},
            "data": {"number": number.to_string()},
        }));
    }
    for number in 0..BIG_MAPS {
        let line = format!("{number:08} The quick brown fox jumps over the lazy dog. äöü\n");
        objects.push(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("big-{number:02}"), "namespace": NAMESPACE, "labels": {"size": "big"}},
            "data": {"text": line.repeat(100_000 / line.len())},
        }));
    }
    objects
}
