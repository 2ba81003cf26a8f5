//! `cargo xtask deploy image|check|render`: what operators install: the container image, manifests, chart, unit.
//!
//! `image` builds usher as one static program and puts it alone into an image, with buildah and without a daemon or a
//! registry. `check` does the same with a debug build (`--profile dist`: with what is shipped) and tries everything in `deploy/` on a real kube-apiserver: the
//! tests are the target `deploy` of `tests/`. `render` writes the kustomize base anew after the chart was changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dist::{self, host};
use crate::run::{build_as_tested, cargo, output, root, run, target};
use crate::{Outcome, Task};

pub(crate) const TASK: Task = Task {
    name: "deploy",
    arguments: "image [--profile P] [--target T] | check [--profile P] [FILTER …] | render",
    about: "container image, manifests, chart (needs buildah, runc, Go)",
    run: deploy,
};

fn deploy(arguments: &[String]) -> Outcome {
    let (what, rest) = arguments.split_first().ok_or("what: image, check or render?")?;
    match what.as_str() {
        "image" => {
            let image = build(&Wanted::parse(rest)?)?;
            println!("image: {}", image.archive.display());
            Ok(())
        }
        "check" => check(rest),
        "render" => run(cargo(TESTS).args(["--", "--render"])),
        other => Err(format!("there is no `deploy {other}`: image, check or render")),
    }
}

const TESTS: [&str; 4] = ["test", "--workspace", "--test", "deploy"];

/// The tests, on an image of a debug build unless another is asked for: it differs from what is shipped in speed alone.
pub(crate) fn check(arguments: &[String]) -> Outcome {
    let (profile, filters) = match arguments {
        [flag, profile, filters @ ..] if flag == "--profile" => (profile.as_str(), filters),
        filters => ("dev", filters),
    };
    let image = build(&Wanted { profile: profile.into(), target: host()? })?;
    build_as_tested(&["usher"], "deploy")?;
    let mut tests = cargo(TESTS);
    tests.arg("--").args(filters);
    run(tests.env("USHER_IMAGE", &image.folder).env("USHER_IMAGE_ENTRYPOINT", &image.entrypoint))
}

/// What kind of image.
struct Wanted {
    profile: String,
    target: String,
}

impl Wanted {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut wanted = Self { profile: "dist".into(), target: host()? };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let field = match argument.as_str() {
                "--profile" => &mut wanted.profile,
                "--target" => &mut wanted.target,
                other => return Err(format!("what is {other}? [--profile P] [--target T]")),
            };
            *field = arguments.next().ok_or_else(|| format!("{argument} wants a value"))?.clone();
        }
        Ok(wanted)
    }
}

/// An image that was built and whose entry point was run.
struct Image {
    /// As registries and runtimes take it.
    archive: PathBuf,
    /// What a container of it sees as `/`.
    folder: String,
    /// What it starts with.
    entrypoint: String,
}

fn build(wanted: &Wanted) -> Result<Image, String> {
    let place = target().join("deploy");
    let context = place.join("context");
    afresh(&context)?;
    let program = dist::program(&wanted.target, &wanted.profile)?;
    copy(&program, &context.join("usher"))?;
    // Symbols stay, for the places in a panic's backtrace; what only a debugger reads goes.
    run(Command::new(strip(&wanted.target)).arg("--strip-debug").arg(context.join("usher")))?;
    copy(&root().join("deploy/image/nsswitch.conf"), &context.join("nsswitch.conf"))?;

    let name = format!("usher:{}", env!("CARGO_PKG_VERSION"));
    let (arch, _) = wanted.target.split_once('-').unwrap_or((&wanted.target, ""));
    let buildah = Buildah::new(&place)?;
    buildah.run(
        // The same program gives the same image, whenever it is built.
        &["build", "--quiet", "--timestamp=0", "--arch", oci_arch(arch), "--tag", &name, "--file"],
        &[&root().join("deploy/Containerfile"), &context],
    )?;
    let archive = place.join(format!("usher-{}-{arch}.oci.tar", env!("CARGO_PKG_VERSION")));
    let _ = fs::remove_file(&archive); // an archive is added to, if it is there
    // In full: so runtimes that import the archive find it by the short name that manifests have.
    let full = format!("oci-archive:{}:docker.io/library/{name}", archive.display());
    buildah.run(&["push", "--quiet", &name, &full], &[])?;

    let container = buildah.output(&["from", &name])?;
    let entrypoint = "{{range .OCIv1.Config.Entrypoint}}{{.}} {{end}}";
    let entrypoint = buildah.output(&["inspect", "--format", entrypoint, &container])?;
    let folder = buildah.output(&["mount", &container])?;
    if wanted.target == host()? {
        let version = buildah.output(&["run", &container, "--", &entrypoint, "--version"])?;
        println!("{entrypoint} --version in the image: {version}");
        if version != format!("usher {}", env!("CARGO_PKG_VERSION")) {
            return Err(format!("the image's entry point said {version:?}"));
        }
    }
    Ok(Image { archive, folder, entrypoint })
}

/// binutils' name for another machine's: the triple without its vendor.
fn strip(target: &str) -> String {
    if host().is_ok_and(|host| host == target) {
        "strip".into()
    } else {
        format!("{}-strip", target.replace("-unknown", ""))
    }
}

/// The architecture as images name it.
fn oci_arch(arch: &str) -> &str {
    match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// buildah with a store of its own, emptied first: nothing is left over, and nobody else's images are touched.
struct Buildah {
    store: PathBuf,
}

impl Buildah {
    fn new(place: &Path) -> Result<Self, String> {
        let store = place.join("store");
        afresh(&store)?;
        Ok(Self { store })
    }

    /// `arguments`, then `paths`.
    fn command(&self, arguments: &[&str], paths: &[&Path]) -> Command {
        let mut command = Command::new("buildah");
        command.arg("--root").arg(self.store.join("root")).arg("--runroot").arg(self.store.join("run"));
        // Neither needs anything of the kernel but root: files in folders, and chroot.
        command.args(["--storage-driver", "vfs"]).env("BUILDAH_ISOLATION", "chroot");
        command.args(arguments).args(paths);
        command
    }

    fn run(&self, arguments: &[&str], paths: &[&Path]) -> Outcome {
        output(&mut self.command(arguments, paths)).map(drop)
    }

    fn output(&self, arguments: &[&str]) -> Result<String, String> {
        output(&mut self.command(arguments, &[]))
    }
}

/// An empty folder.
fn afresh(folder: &Path) -> Outcome {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    fs::create_dir_all(folder).map_err(failed)
}

fn copy(from: &Path, to: &Path) -> Outcome {
    fs::copy(from, to).map(drop).map_err(|error| format!("{}: {error}", from.display()))
}
