//! The command line of every program: what a kubeadm control plane has, on loopback with chosen ports.

use std::path::Path;

use crate::cluster::Cluster;
use crate::cluster::pki::{FRONT_PROXY, pair};

/// The issuer of service-account tokens, and their audience.
pub const ISSUER: &str = "https://kubernetes.default.svc";

/// etcd, without TLS: only this machine reaches it.
pub(super) fn etcd(cluster: &Cluster) -> Vec<String> {
    let client = format!("http://127.0.0.1:{}", cluster.ports.etcd);
    let peer = format!("http://127.0.0.1:{}", cluster.ports.etcd_peer);
    vec![
        format!("--data-dir={}", shown(&cluster.folder.join("etcd"))),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
    ]
}

pub(super) fn apiserver(cluster: &Cluster) -> Vec<String> {
    let (certificate, key) = pair(&cluster.certificates(), "apiserver");
    let (kubelet_certificate, kubelet_key) = pair(&cluster.certificates(), "apiserver-kubelet-client");
    let mut flags = vec![
        format!("--etcd-servers=http://127.0.0.1:{}", cluster.ports.etcd),
        format!("--secure-port={}", cluster.ports.apiserver),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        "--endpoint-reconciler-type=none".into(),
        format!("--tls-cert-file={}", shown(&certificate)),
        format!("--tls-private-key-file={}", shown(&key)),
        format!("--kubelet-client-certificate={}", shown(&kubelet_certificate)),
        format!("--kubelet-client-key={}", shown(&kubelet_key)),
        "--kubelet-preferred-address-types=InternalIP".into(),
        format!("--service-account-signing-key-file={}", shown(&cluster.certificates().join("sa.key"))),
        "--service-cluster-ip-range=10.0.0.0/24".into(),
        "--authorization-mode=Node,RBAC".into(),
        "--allow-privileged".into(),
        format!("--audit-policy-file={}", shown(&cluster.folder.join("config/audit-policy.yaml"))),
        format!("--audit-log-path={}", shown(&cluster.audit_log())),
    ];
    flags.extend(authentication(cluster));
    flags
}

/// Who is asking: the flags that kube-apiserver and usher share, so that both see the same users.
fn authentication(cluster: &Cluster) -> Vec<String> {
    let file = |name: &str| shown(&cluster.certificates().join(name));
    vec![
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--token-auth-file={}", file("tokens.csv")),
        format!("--service-account-key-file={}", file("sa.pub")),
        format!("--service-account-issuer={ISSUER}"),
        format!("--requestheader-client-ca-file={}", file("front-proxy-ca.crt")),
        format!("--requestheader-allowed-names={FRONT_PROXY}"),
        "--requestheader-username-headers=X-Remote-User".into(),
        "--requestheader-uid-headers=X-Remote-Uid".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
    ]
}

pub(super) fn usher(cluster: &Cluster) -> Vec<String> {
    let (certificate, key) = pair(&cluster.certificates(), "usher");
    let (proxy_certificate, proxy_key) = pair(&cluster.certificates(), FRONT_PROXY);
    let mut flags = vec![
        "serve".into(),
        format!("--upstream=https://127.0.0.1:{}", cluster.ports.apiserver),
        format!("--upstream-ca-file={}", shown(&cluster.certificates().join("ca.crt"))),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={}", cluster.ports.usher),
        format!("--admin-bind-address=127.0.0.1:{}", cluster.ports.usher_admin),
        format!("--tls-cert-file={}", shown(&certificate)),
        format!("--tls-private-key-file={}", shown(&key)),
        format!("--proxy-client-cert-file={}", shown(&proxy_certificate)),
        format!("--proxy-client-key-file={}", shown(&proxy_key)),
        format!("--flow-control-dir={}", shown(&cluster.flow_control())),
        // Shorter than what `down` gives a program to end.
        "--shutdown-grace-period=10s".into(),
    ];
    flags.extend(authentication(cluster));
    flags
}

pub(super) fn controller_manager(cluster: &Cluster) -> Vec<String> {
    let config = shown(&cluster.folder.join("config/kube-controller-manager.yaml"));
    vec![
        format!("--kubeconfig={config}"),
        format!("--authentication-kubeconfig={config}"),
        format!("--authorization-kubeconfig={config}"),
        "--use-service-account-credentials".into(),
        format!("--service-account-private-key-file={}", shown(&cluster.certificates().join("sa.key"))),
        format!("--root-ca-file={}", shown(&cluster.certificates().join("ca.crt"))),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={}", cluster.ports.controller_manager),
        format!("--cert-dir={}", shown(&cluster.folder.join("config/kube-controller-manager"))),
    ]
}

pub(super) fn scheduler(cluster: &Cluster) -> Vec<String> {
    let config = shown(&cluster.folder.join("config/kube-scheduler.yaml"));
    vec![
        format!("--kubeconfig={config}"),
        format!("--authentication-kubeconfig={config}"),
        format!("--authorization-kubeconfig={config}"),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={}", cluster.ports.scheduler),
        format!("--cert-dir={}", shown(&cluster.folder.join("config/kube-scheduler"))),
    ]
}

pub(super) fn kwok(cluster: &Cluster) -> Vec<String> {
    let (certificate, key) = pair(&cluster.certificates(), "kwok-server");
    vec![
        format!("--kubeconfig={}", shown(&cluster.kubeconfig("kwok"))),
        format!("--config={}", shown(&cluster.folder.join("config/kwok.yaml"))),
        "--manage-all-nodes".into(),
        "--node-ip=127.0.0.1".into(),
        format!("--node-port={}", cluster.ports.kwok),
        format!("--server-address=127.0.0.1:{}", cluster.ports.kwok),
        format!("--tls-cert-file={}", shown(&certificate)),
        format!("--tls-private-key-file={}", shown(&key)),
        "--node-lease-duration-seconds=40".into(),
    ]
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
