//! The control plane's programs, built from their Go modules under `tests/cluster/` and kept in
//! `target/cluster/bin`.
//!
//! A program's stamp holds all that it was built from (pins, checksums, flags): while it fits, nothing is
//! built and Go is not needed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Outcome, clock};

/// What `cargo xtask cluster` and the end-to-end tests call the version.
pub const KUBERNETES: &str = "v1.36.2";

/// A Go module of ours and what is built from it in one go.
struct Module {
    /// Its folder under `tests/cluster`.
    folder: &'static str,
    /// Program and package.
    programs: &'static [(&'static str, &'static str)],
    /// Files of our own in the folder.
    sources: &'static [&'static str],
    /// Linker flags; without a version Kubernetes' programs call themselves v0.0.0.
    linker: &'static str,
}

const MODULES: &[Module] = &[
    Module {
        folder: "etcd",
        programs: &[("etcd", "go.etcd.io/etcd/server/v3")],
        sources: &[],
        linker: "-s -w",
    },
    Module {
        folder: "kubernetes",
        programs: &[
            ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
            ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
            ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
            ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
        ],
        sources: &[],
        linker: "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.2 \
                 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36",
    },
    Module {
        folder: "kwok",
        programs: &[("kwok", "sigs.k8s.io/kwok/cmd/kwok")],
        sources: &[],
        linker: "-s -w",
    },
    Module {
        folder: "controllers",
        programs: &[("controllers", "usher.dev/tests/cluster/controllers")],
        sources: &["main.go"],
        linker: "-s -w",
    },
];

/// What `cargo xtask deploy check` needs besides.
const INSTALLATION: &[Module] = &[
    Module {
        folder: "helm",
        programs: &[("helm", "helm.sh/helm/v3/cmd/helm")],
        sources: &[],
        linker: "-s -w -X helm.sh/helm/v3/internal/version.version=v3.22.0",
    },
    Module {
        folder: "promql",
        programs: &[("promql", "usher.dev/tests/cluster/promql")],
        sources: &["main.go"],
        linker: "-s -w",
    },
];

/// The project's root.
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.canonicalize().unwrap_or(root)
}

/// Where the built programs are.
pub fn folder() -> PathBuf {
    root().join("target/cluster/bin")
}

/// The `usher` to test: `$USHER_BIN`, else the one beside the running program.
pub fn usher() -> Outcome<PathBuf> {
    if let Some(named) = std::env::var_os("USHER_BIN") {
        return Ok(named.into());
    }
    // target/PROFILE/usher-cluster, target/PROFILE/deps/e2e-…: the nearest usher upwards.
    let own = std::env::current_exe().map_err(|error| format!("where am I: {error}"))?;
    own.ancestors()
        .skip(1)
        .map(|folder| folder.join("usher"))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| "there is no usher: cargo build -p usher, or name one in $USHER_BIN".into())
}

/// Builds what is missing or was built from something else. Prints what it does.
pub fn build() -> Outcome {
    MODULES.iter().try_for_each(build_module)
}

/// The same for what looks at manifests: helm, and a reader of PromQL.
pub fn build_installation() -> Outcome {
    INSTALLATION.iter().try_for_each(build_module)
}

fn build_module(module: &Module) -> Outcome {
    let source = root().join("tests/cluster").join(module.folder);
    let stamp = module.stamp(&source)?;
    let stale: Vec<_> =
        module.programs.iter().filter(|(name, _)| !is_fresh(&folder().join(name), &stamp)).copied().collect();
    if stale.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = stale.iter().map(|(name, _)| *name).collect();
    require_go(&names)?;
    println!("building {} (kept in target/cluster; minutes the first time)", names.join(", "));
    let start = clock::now();
    for (name, package) in &stale {
        let program = folder().join(name);
        // One at a time: together their linkers need more memory than small machines have.
        let status = Command::new("go")
            // Without -trimpath: with it, what a replace directive names is not the same package as what a requirement does.
            .args(["build", "-mod=readonly", "-buildvcs=false", "-ldflags", module.linker, "-o"])
            .arg(&program)
            .arg(package)
            .current_dir(&source)
            .status()
            .map_err(|error| format!("go: {error}"))?;
        if !status.success() {
            return Err(format!("go build {package}: {status}"));
        }
        std::fs::write(stamp_path(&program), &stamp).map_err(|error| format!("stamp of {name}: {error}"))?;
    }
    println!("built {} in {:.0} s", names.join(", "), start.elapsed().as_secs_f64());
    Ok(())
}

impl Module {
    /// All that decides what comes out.
    fn stamp(&self, source: &Path) -> Outcome<String> {
        let read = |name: &str| {
            let path = source.join(name);
            std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let mut stamp = format!("{}\n{}\n{}", self.linker, read("go.mod")?, read("go.sum")?);
        for source in self.sources {
            stamp += &read(source)?;
        }
        Ok(stamp)
    }
}

fn is_fresh(program: &Path, stamp: &str) -> bool {
    program.is_file() && std::fs::read_to_string(stamp_path(program)).is_ok_and(|built| built == stamp)
}

fn stamp_path(program: &Path) -> PathBuf {
    program.with_extension("stamp")
}

/// Says what to install where Go is missing or too old to fetch the version that the modules name.
fn require_go(programs: &[&str]) -> Outcome {
    let help = format!(
        "{} must be built, for which Go 1.21 or newer is needed (it fetches the version that \
         tests/cluster/*/go.mod name by itself): install it from https://go.dev/dl, or Debian's golang-go from \
         trixie on",
        programs.join(", ")
    );
    let output = Command::new("go").args(["env", "GOVERSION"]).output().map_err(|_| help.clone())?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let minor = version.strip_prefix("go1.").and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    match minor {
        Some(minor) if minor < 21 => Err(format!("{help} (found {version})")),
        // A development version has no number: let it try.
        _ => Ok(()),
    }
}
