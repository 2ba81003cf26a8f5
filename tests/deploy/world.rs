//! What the tests share: a bare control plane, the image, a scratch folder that looks like a host's root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use usher_tests::Outcome;
use usher_tests::cluster::{Cluster, programs};

/// The namespace of everything.
pub(crate) const NAMESPACE: &str = "kube-system";

/// The shared fixture.
pub(crate) struct World {
    /// etcd and kube-apiserver.
    pub(crate) cluster: Cluster,
    /// The image.
    pub(crate) image: Image,
    /// `/` of the host that the tests play: `etc/kubernetes/pki`, `run/usher`, `var/lib/kubelet/seccomp`.
    host: TempDir,
}

/// A container image that was built by `cargo xtask deploy`.
pub(crate) struct Image {
    /// What a container of it sees as `/`.
    pub(crate) folder: PathBuf,
    /// The program it starts.
    pub(crate) entrypoint: String,
}

impl World {
    pub(crate) async fn prepare() -> Outcome<Self> {
        let image = Image::named()?;
        let folder = programs::root().join("target/cluster/deploy");
        if let Ok(earlier) = Cluster::open(&folder) {
            earlier.down().await?;
        }
        let cluster = Cluster::up_bare(&folder).await?;
        cluster.dump_flow_control().await?;
        let host = tempfile::Builder::new().prefix("usher-").tempdir().map_err(|error| error.to_string())?;
        let world = Self { cluster, image, host };
        world.lay_out_the_host()?;
        Ok(world)
    }

    pub(crate) async fn end(self) -> Outcome {
        self.cluster.down().await.map(drop)
    }

    /// A path of the host's in the folder that stands for it.
    pub(crate) fn on_host(&self, path: &str) -> PathBuf {
        self.host.path().join(path.trim_start_matches('/'))
    }

    /// As kubeadm leaves it: `/etc/kubernetes/pki`, keys for root alone.
    fn lay_out_the_host(&self) -> Outcome {
        let pki = self.on_host("/etc/kubernetes/pki");
        make_folder(&pki)?;
        for name in KUBEADM {
            let (from, to) = (self.cluster.certificates().join(name), pki.join(name));
            fs::copy(&from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
            let mode = if name.ends_with(".key") { 0o600 } else { 0o644 };
            set_mode(&to, mode)?;
        }
        Ok(())
    }
}

/// kubeadm's files that usher reads.
const KUBEADM: &[&str] = &[
    "ca.crt",
    "apiserver.crt",
    "apiserver.key",
    "front-proxy-ca.crt",
    "front-proxy-client.crt",
    "front-proxy-client.key",
    "sa.pub",
];

/// A bpf filesystem on the host that the tests play. With it goes what is pinned there: a port that is still closed is open
/// again.
pub(crate) struct BpfFilesystem(PathBuf);

impl BpfFilesystem {
    pub(crate) fn mount(path: PathBuf) -> Outcome<Self> {
        make_folder(&path)?;
        let mounted = Command::new("mount").args(["-t", "bpf", "bpf"]).arg(&path).status();
        match mounted.map_err(|error| format!("mount: {error}"))? {
            done if done.success() => Ok(Self(path)),
            failed => Err(format!("mount -t bpf bpf {}: {failed}", path.display())),
        }
    }
}

impl Drop for BpfFilesystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

impl Image {
    fn named() -> Outcome<Self> {
        let named = |name: &str| {
            std::env::var(name).map_err(|_| format!("no {name}: run this as `cargo xtask deploy check`"))
        };
        Ok(Self { folder: named("USHER_IMAGE")?.into(), entrypoint: named("USHER_IMAGE_ENTRYPOINT")? })
    }
}

/// A file or folder of `deploy/`.
pub(crate) fn deploy(path: &str) -> PathBuf {
    programs::root().join("deploy").join(path)
}

pub(crate) fn make_folder(path: &Path) -> Outcome {
    fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

pub(crate) fn set_mode(path: &Path, mode: u32) -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(|error| format!("{}: {error}", path.display()))
}
