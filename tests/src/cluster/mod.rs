//! A real Kubernetes control plane on loopback with usher in front, in one folder.
//!
//! etcd, kube-apiserver, usher, kube-controller-manager, kube-scheduler, and kwok for nodes and pods without
//! machines. All but kube-apiserver talk to usher. Everything lies in the cluster's folder:
//!
//! | where | what |
//! |---|---|
//! | `ports.json` | the ports that were free when it was started |
//! | `pki/` | certificates, keys, `tokens.csv` ([`pki`]) |
//! | `kubeconfig/direct/NAME.yaml`, `kubeconfig/usher/NAME.yaml` | one for each identity, past usher and through it |
//! | `flow-control/` | the cluster's FlowSchemas and PriorityLevelConfigurations, as kubectl prints them |
//! | `logs/NAME.log`, `logs/audit.log` | what every program wrote; kube-apiserver's audit log |
//! | `run/NAME.json` | pid, program and start time of what runs ([`process`]) |

mod flags;
pub mod kubeconfig;
pub mod pki;
pub mod process;
pub mod programs;
mod start;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::Outcome;
use crate::client::{Client, Credential, Endpoint, Protocol};
use crate::kubectl::Kubectl;

pub use flags::ISSUER;
pub use process::Process;
pub use start::Options;

/// A cluster that was started in a folder; it may or may not run.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Where everything of it lies.
    pub folder: PathBuf,
    /// Where its programs listen, on 127.0.0.1.
    pub ports: Ports,
    /// Whether usher stands in front; without it `usher` in names below means kube-apiserver itself.
    pub with_usher: bool,
}

/// Ports on 127.0.0.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// etcd for its clients.
    pub etcd: u16,
    /// etcd for its peers, of which there are none.
    pub etcd_peer: u16,
    /// kube-apiserver.
    pub apiserver: u16,
    /// kube-controller-manager's own health and metrics.
    pub controller_manager: u16,
    /// kube-scheduler's own health and metrics.
    pub scheduler: u16,
    /// kwok in the role of every node's kubelet.
    pub kwok: u16,
    /// usher.
    pub usher: u16,
    /// usher's admin port.
    pub usher_admin: u16,
}

impl Cluster {
    /// The cluster that was started in `folder`.
    pub fn open(folder: &Path) -> Outcome<Self> {
        let path = folder.join("ports.json");
        if !path.exists() {
            return Err(format!("there is no cluster in {}", folder.display()));
        }
        let document: Value =
            serde_json::from_str(&read(&path)?).map_err(|error| format!("{}: {error}", path.display()))?;
        let ports = Ports::parse(&document).ok_or_else(|| format!("{}: not a cluster's", path.display()))?;
        let folder = folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self { folder, ports, with_usher: document["with_usher"] == true })
    }

    /// Its programs, by name.
    pub fn processes(&self) -> Vec<Process> {
        Process::recorded(&self.folder)
    }

    /// One of its programs.
    pub fn process(&self, name: &str) -> Outcome<Process> {
        self.processes()
            .into_iter()
            .find(|process| process.name == name)
            .ok_or_else(|| format!("{name} was not started in {}", self.folder.display()))
    }

    /// Ends its programs, what depends on others first. Logs and files stay.
    pub async fn down(&self) -> Outcome<Vec<Process>> {
        let mut processes = self.processes();
        processes.sort_by_key(|process| start::ORDER.iter().position(|name| *name == process.name));
        processes.reverse();
        for process in &processes {
            process.end().await?;
        }
        Ok(processes)
    }

    /// Ends its programs at once and does not wait: for when nobody can.
    pub fn kill(&self) {
        for process in self.processes() {
            process.signal(libc::SIGKILL);
        }
    }

    /// The folder of certificates and tokens.
    pub fn certificates(&self) -> PathBuf {
        self.folder.join("pki")
    }

    /// The folder that usher reads its objects from.
    pub fn flow_control(&self) -> PathBuf {
        self.folder.join("flow-control")
    }

    /// kube-apiserver's audit log, one JSON document a line.
    pub fn audit_log(&self) -> PathBuf {
        self.folder.join("logs/audit.log")
    }

    /// An identity's kubeconfig through usher.
    pub fn kubeconfig(&self, identity: &str) -> PathBuf {
        self.folder.join(format!("kubeconfig/usher/{identity}.yaml"))
    }

    /// An identity's kubeconfig past usher.
    pub fn kubeconfig_direct(&self, identity: &str) -> PathBuf {
        self.folder.join(format!("kubeconfig/direct/{identity}.yaml"))
    }

    /// kube-apiserver itself.
    pub fn direct(&self) -> Outcome<Endpoint> {
        self.endpoint("direct", self.ports.apiserver)
    }

    /// usher in front of it.
    pub fn through(&self) -> Outcome<Endpoint> {
        if self.with_usher { self.endpoint("usher", self.ports.usher) } else { self.direct() }
    }

    fn endpoint(&self, name: &'static str, port: u16) -> Outcome<Endpoint> {
        let path = self.certificates().join("ca.crt");
        let authority =
            CertificateDer::from_pem_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Endpoint { name, address: loopback(port), authority })
    }

    /// usher's admin port.
    pub fn admin(&self) -> SocketAddr {
        loopback(self.ports.usher_admin)
    }

    /// The administrator's credential.
    pub fn administrator(&self) -> Outcome<Credential> {
        Credential::certificate(&self.certificates(), "admin")
    }

    /// A client of the administrator's, past usher.
    pub fn administrator_direct(&self) -> Outcome<Client> {
        Ok(Client::new(&self.direct()?, &self.administrator()?, Protocol::Http1))
    }

    /// kubectl with an identity, through usher.
    pub fn kubectl(&self, identity: &str) -> Kubectl {
        Kubectl::new(&programs::folder().join("kubectl"), &self.kubeconfig(identity))
    }

    /// kubectl with an identity, past usher.
    pub fn kubectl_direct(&self, identity: &str) -> Kubectl {
        Kubectl::new(&programs::folder().join("kubectl"), &self.kubeconfig_direct(identity))
    }
}

impl Ports {
    /// Ports that nobody listens on. All are held until all are found, so that they differ.
    fn free() -> Outcome<Self> {
        let mut held = Vec::new();
        let mut next = || {
            let listener =
                TcpListener::bind(loopback(0)).map_err(|error| format!("no free port: {error}"))?;
            let port = listener.local_addr().map_err(|error| format!("no free port: {error}"))?.port();
            held.push(listener);
            Ok::<_, String>(port)
        };
        Ok(Self {
            etcd: next()?,
            etcd_peer: next()?,
            apiserver: next()?,
            controller_manager: next()?,
            scheduler: next()?,
            kwok: next()?,
            usher: next()?,
            usher_admin: next()?,
        })
    }

    fn parse(document: &Value) -> Option<Self> {
        let port = |name: &str| u16::try_from(document[name].as_u64()?).ok();
        Some(Self {
            etcd: port("etcd")?,
            etcd_peer: port("etcd_peer")?,
            apiserver: port("apiserver")?,
            controller_manager: port("controller_manager")?,
            scheduler: port("scheduler")?,
            kwok: port("kwok")?,
            usher: port("usher")?,
            usher_admin: port("usher_admin")?,
        })
    }

    fn document(&self, with_usher: bool) -> Value {
        json!({
            "etcd": self.etcd,
            "etcd_peer": self.etcd_peer,
            "apiserver": self.apiserver,
            "controller_manager": self.controller_manager,
            "scheduler": self.scheduler,
            "kwok": self.kwok,
            "usher": self.usher,
            "usher_admin": self.usher_admin,
            "with_usher": with_usher,
        })
    }
}

/// A port of this machine's.
pub fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Reads a text file; the error names it.
pub fn read(path: &Path) -> Outcome<String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a text file whole or not at all, its folders too; the error names it.
pub fn write(path: &Path, text: &str) -> Outcome {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(failed)?;
    // Watchers of the folder must never see half a file, nor this one under another known suffix.
    let beside = path.with_file_name(format!(".{}.new", path.file_name().unwrap_or_default().display()));
    fs::write(&beside, text).and_then(|()| fs::rename(&beside, path)).map_err(failed)
}
