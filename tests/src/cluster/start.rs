//! Starting a cluster, each program after those it needs, each waited for.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::Outcome;
use crate::client::{Client, Credential, Protocol, plain_get};
use crate::clock::{Pending, until};
use crate::cluster::kubeconfig::{User, write_kubeconfig};
use crate::cluster::process::Process;
use crate::cluster::{Cluster, Ports, flags, pki, programs, write};

/// Programs in the order of their start.
pub(super) const ORDER: &[&str] =
    &["etcd", "kube-apiserver", "usher", "kube-controller-manager", "kube-scheduler", "kwok"];

/// One program must be ready within this; on an idle machine the slowest takes four seconds.
const READY_TIME_MAX: Duration = Duration::from_secs(120);

/// Life of the controllers' tokens: longer than anyone keeps a test cluster.
const TOKEN_LIFE_SECONDS: u32 = 30 * 24 * 3600;

/// What to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cluster's folder. What an earlier cluster left there is removed.
    pub folder: PathBuf,
    /// Whether usher stands in front.
    pub usher: bool,
    /// kwok nodes to make.
    pub nodes: usize,
}

impl Cluster {
    /// Builds what is missing, starts everything and waits until nodes are ready. Prints what it does.
    /// What was started keeps running after a failure, to be looked at: `down` ends it.
    pub async fn up(options: &Options) -> Outcome<Self> {
        programs::build()?;
        let cluster = prepare(options).await?;
        cluster.start_etcd().await?;
        cluster.start_apiserver().await?;
        cluster.grant_rights().await?;
        cluster.dump_flow_control().await?;
        if cluster.with_usher {
            cluster.start_usher(&[]).await?;
        }
        cluster.start_controllers().await?;
        cluster.make_nodes(options.nodes).await?;
        Ok(cluster)
    }

    /// Starts etcd and kube-apiserver alone: a real upstream in which nothing happens by itself.
    pub async fn up_bare(folder: &Path) -> Outcome<Self> {
        programs::build()?;
        let cluster = prepare(&Options { folder: folder.into(), usher: false, nodes: 0 }).await?;
        cluster.start_etcd().await?;
        cluster.start_apiserver().await?;
        Ok(cluster)
    }

    /// Writes the cluster's FlowSchemas and PriorityLevelConfigurations to the folder that usher reads.
    pub async fn dump_flow_control(&self) -> Outcome {
        let kubectl = self.kubectl_direct("admin");
        let kinds = "flowschemas.flowcontrol.apiserver.k8s.io,prioritylevelconfigurations.flowcontrol.apiserver.k8s.io";
        let objects = kubectl.run(&["get", kinds, "-o", "yaml"]).await?.success()?;
        write(&self.flow_control().join("cluster.yaml"), &objects)
    }

    /// Starts usher, with more flags than the usual ones if wanted.
    pub async fn start_usher(&self, more: &[String]) -> Outcome {
        let mut arguments = flags::usher(self);
        arguments.extend_from_slice(more);
        let usher = self.start("usher", &programs::usher()?, &arguments)?;
        let mut client = Client::new(&self.through()?, &self.administrator()?, Protocol::Http1);
        ready(&usher, async || {
            plain_get(self.admin(), "/readyz").await?.success()?;
            client.get("/readyz").await?.success()?;
            Ok(())
        })
        .await
    }

    /// Ends kube-apiserver and starts it again, until it is ready. Asked at its own port, whoever answers there.
    pub async fn restart_apiserver(&self) -> Outcome {
        self.process("kube-apiserver")?.end().await?;
        self.start_apiserver().await
    }

    async fn start_etcd(&self) -> Outcome {
        let etcd = self.start("etcd", &programs::folder().join("etcd"), &flags::etcd(self))?;
        let address = crate::cluster::loopback(self.ports.etcd);
        ready(&etcd, async || {
            plain_get(address, "/health").await?.success()?;
            Ok(())
        })
        .await
    }

    async fn start_apiserver(&self) -> Outcome {
        write(&self.folder.join("config/audit-policy.yaml"), include_str!("audit-policy.yaml"))?;
        let program = programs::folder().join("kube-apiserver");
        let apiserver = self.start("kube-apiserver", &program, &flags::apiserver(self))?;
        let mut client = self.administrator_direct()?;
        ready(&apiserver, async || {
            client.get("/readyz").await?.success()?;
            // Its flow control works from its own objects only a moment later.
            let answer = client.get("/api/v1/namespaces/kube-system").await?.success()?;
            match answer.header("x-kubernetes-pf-flowschema-uid") {
                "" => Err(Pending::NotYet("its flow control has no objects yet".into())),
                _ => Ok(()),
            }
        })
        .await
    }

    /// Gives the controllers service accounts with the rights of their usual users, and tokens for them.
    async fn grant_rights(&self) -> Outcome {
        let kubectl = self.kubectl_direct("admin");
        kubectl.run_with_input(&["apply", "-f", "-"], include_str!("rights.yaml")).await?.success()?;
        for name in ["kube-controller-manager", "kube-scheduler"] {
            let token = self.service_account_token("kube-system", name).await?;
            let path = self.folder.join(format!("config/{name}.yaml"));
            let port = self.through()?.address.port();
            write_kubeconfig(&path, &self.certificates(), port, User::Token(&token))?;
        }
        Ok(())
    }

    /// A token from the TokenRequest API.
    pub async fn service_account_token(&self, namespace: &str, name: &str) -> Outcome<String> {
        let target = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_LIFE_SECONDS},
        });
        let mut client = self.administrator_direct()?;
        let answer = client.json(Method::POST, &target, &request).await?.success()?.json();
        answer["status"]["token"].as_str().map(String::from).ok_or_else(|| format!("no token in {answer}"))
    }

    /// kube-controller-manager, kube-scheduler and kwok; all of them talk to usher.
    async fn start_controllers(&self) -> Outcome {
        let kwok_config = include_str!("../../cluster/kwok/kwok.yaml");
        let kwok_config = kwok_config.replace("@FOLDER@", &self.folder.display().to_string());
        write(&self.folder.join("config/kwok.yaml"), &kwok_config)?;
        let root = self.folder.join("kwok/root");
        fs::create_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()))?;
        write(&self.folder.join("kwok/pod.log"), FIRST_LOG_LINES)?;

        let programs = programs::folder();
        let manager = self.start(
            "kube-controller-manager",
            &programs.join("kube-controller-manager"),
            &flags::controller_manager(self),
        )?;
        let scheduler =
            self.start("kube-scheduler", &programs.join("kube-scheduler"), &flags::scheduler(self))?;
        let kwok = self.start("kwok", &programs.join("kwok"), &flags::kwok(self))?;
        let mut client = self.administrator_direct()?;
        // Pods can be made as soon as the controllers have made the namespace's service account.
        ready(&manager, async || {
            client.get("/api/v1/namespaces/default/serviceaccounts/default").await?.success()?;
            Ok(())
        })
        .await?;
        let anyone = Credential::default();
        for (process, port) in [(&scheduler, self.ports.scheduler), (&kwok, self.ports.kwok)] {
            let mut endpoint = self.direct()?;
            endpoint.address.set_port(port);
            let mut client = Client::new(&endpoint, &anyone, Protocol::Http1);
            ready(process, async || {
                // The scheduler's certificate is its own: that it answers at all is seen in its lease.
                if process.name == "kube-scheduler" {
                    return self.lease_held("kube-scheduler").await;
                }
                client.get("/healthz").await?.success()?;
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Whether someone holds the leader's lease of this name.
    async fn lease_held(&self, name: &str) -> Result<(), Pending> {
        let target = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}");
        let lease = self.administrator_direct()?.get(&target).await?.success()?.json();
        match lease["spec"]["holderIdentity"].as_str() {
            Some(holder) if !holder.is_empty() => Ok(()),
            _ => Err(Pending::NotYet("nobody leads yet".into())),
        }
    }

    async fn make_nodes(&self, count: usize) -> Outcome {
        let nodes: Vec<Value> = (0..count)
            .map(|number| {
                let name = format!("node-{number}");
                let labels = json!({"kubernetes.io/hostname": name, "type": "kwok"});
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
            })
            .collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": nodes}).to_string();
        let kubectl = self.kubectl_direct("admin");
        kubectl.run_with_input(&["apply", "-f", "-"], &list).await?.success()?;
        let mut client = self.administrator_direct()?;
        until("nodes that can be scheduled to", READY_TIME_MAX, async || {
            let nodes = client.get("/api/v1/nodes").await?.success()?.json();
            let ready =
                nodes["items"].as_array().into_iter().flatten().filter(|node| can_be_used(node)).count();
            if ready == count { Ok(()) } else { Err(Pending::NotYet(format!("{ready} of {count}"))) }
        })
        .await?;
        println!("{count} nodes ready");
        Ok(())
    }

    fn start(&self, name: &str, program: &Path, arguments: &[String]) -> Outcome<Process> {
        println!("starting {name}");
        Process::start(&self.folder, name, program, arguments)
    }
}

/// Two lines of a container's log as a container runtime writes them; tests append more.
const FIRST_LOG_LINES: &str = "2026-01-01T00:00:00.000000001Z stdout F first line\n\
                               2026-01-01T00:00:00.000000002Z stdout F second line\n";

/// Waits for a program; fails at once, with the end of its log, if it ends.
async fn ready(process: &Process, mut ask: impl AsyncFnMut() -> Result<(), Pending>) -> Outcome {
    until(&format!("{} to be ready", process.name), READY_TIME_MAX, async || {
        process.check()?;
        ask().await
    })
    .await
}

/// Ready, and rid of the taint that the controllers put on new nodes.
fn can_be_used(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True");
    ready && node["spec"]["taints"].as_array().is_none_or(Vec::is_empty)
}

/// A folder with certificates, kubeconfigs and chosen ports, and nothing of an earlier cluster.
async fn prepare(options: &Options) -> Outcome<Cluster> {
    let folder = &options.folder;
    if let Ok(earlier) = Cluster::open(folder) {
        let running: Vec<String> =
            earlier.processes().iter().filter(|one| one.runs()).map(|one| one.name.clone()).collect();
        if !running.is_empty() {
            return Err(format!("{} runs in {} already: `down` first", running.join(", "), folder.display()));
        }
        for part in PARTS {
            let path = earlier.folder.join(part);
            if path.exists() {
                fs::remove_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
    }
    for part in PARTS {
        let path = folder.join(part);
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let ports = Ports::free()?;
    write(&folder.join("ports.json"), &format!("{:#}\n", ports.document(options.usher)))?;
    let cluster = Cluster::open(folder)?;
    pki::write_all(&cluster.certificates())?;
    cluster.write_kubeconfigs()?;
    Ok(cluster)
}

/// The folders of a cluster; an earlier one's are removed, other things in the folder are left alone.
const PARTS: &[&str] = &["config", "etcd", "flow-control", "kubeconfig", "kwok", "logs", "pki", "run"];

impl Cluster {
    fn write_kubeconfigs(&self) -> Outcome {
        let through = self.through()?.address.port();
        let certificates = self.certificates();
        let users = pki::CERTIFICATE_USERS.iter().map(|name| (*name, User::Certificate(name)));
        let tokens = pki::TOKENS.iter().map(|(token, user, _, _)| (*user, User::Token(token)));
        for (name, user) in users.chain(tokens) {
            write_kubeconfig(&self.kubeconfig_direct(name), &certificates, self.ports.apiserver, user)?;
            write_kubeconfig(&self.kubeconfig(name), &certificates, through, user)?;
        }
        Ok(())
    }
}
