//! In front of a real kube-apiserver: TLS on both sides, a service account's token, its own flow control behind ours.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use usher_tests::client::{Client, Credential, Protocol};
use usher_tests::clock::until;
use usher_tests::cluster::{Cluster, ISSUER};

use super::cells::{Transport, Wish};
use super::contestant::Target;
use super::generator::Generator;
use super::{Bench, Failure, closed};
use crate::report::Row;

/// Config maps that a list gives.
const LISTED: usize = 10;
/// Bytes of data in each: about 1.3 KiB of JSON, as a small pod has.
const DATA_BYTES: usize = 900;

/// Rights that were just given are known within this.
const RIGHTS_WITHIN: Duration = Duration::from_secs(30);

/// A control plane of etcd and kube-apiserver alone, ended by its pids when dropped.
struct ControlPlane(Cluster);

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.0.kill();
    }
}

pub(super) async fn measure(bench: &Bench, transport: Transport, wish: Wish) -> Result<Vec<Row>, Failure> {
    let plane = ControlPlane::start(&bench.folder.join("cluster")).await?;
    let token = plane.token().await?;
    let generator = Generator { transport, path: path(wish), token: &token, seconds: bench.options.seconds };
    closed::rounds(bench, &bench.contestants, generator, &plane.target()?, true).await
}

/// What a controller without a cache asks.
fn path(wish: Wish) -> &'static str {
    match wish {
        Wish::Get => "/api/v1/namespaces/default/configmaps/bench-0",
        Wish::List => "/api/v1/namespaces/default/configmaps?labelSelector=of%3Dbench",
    }
}

impl ControlPlane {
    async fn start(folder: &Path) -> Result<Self, Failure> {
        // An earlier one that was not ended, by a bench that was killed.
        if let Ok(earlier) = Cluster::open(folder) {
            earlier.down().await?;
        }
        let plane = Self(Cluster::up_bare(folder).await?);
        let mut items = vec![
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "bench"},
                "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}],
            }),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bench", "namespace": "default"}}),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": "bench"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bench"},
                "subjects": [{"kind": "ServiceAccount", "name": "bench", "namespace": "default"}],
            }),
        ];
        items.extend((0..LISTED).map(|number| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("bench-{number}"), "namespace": "default", "labels": {"of": "bench"}},
                "data": {"text": "x".repeat(DATA_BYTES)},
            })
        }));
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        plane.0.kubectl_direct("admin").run_with_input(&["create", "-f", "-"], &list).await?.success()?;
        Ok(plane)
    }

    /// The account's token, once its rights are known to the authoriser.
    async fn token(&self) -> Result<String, Failure> {
        let token = self.0.service_account_token("default", "bench").await?;
        let mut client = Client::new(&self.0.direct()?, &Credential::token(&token), Protocol::Http1);
        until("the account's rights", RIGHTS_WITHIN, async || {
            client.get(path(Wish::Get)).await?.success()?;
            Ok(())
        })
        .await?;
        Ok(token)
    }

    fn target(&self) -> Result<Target, Failure> {
        let pki = self.0.certificates();
        let file = |flag: &str, name: &str| format!("--{flag}={}", pki.join(name).display());
        Ok(Target {
            address: self.0.direct()?.address,
            pid: u32::try_from(self.0.process("kube-apiserver")?.pid)?,
            authority: Some(pki.join("ca.crt")),
            usher_flags: vec![
                file("service-account-key-file", "sa.pub"),
                format!("--service-account-issuer={ISSUER}"),
                file("proxy-client-cert-file", "front-proxy-client.crt"),
                file("proxy-client-key-file", "front-proxy-client.key"),
            ],
        })
    }
}
