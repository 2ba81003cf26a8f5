//! `cargo xtask dist`: the program as it is shipped, for this machine or another, with its checksum;
//! `cargo xtask dist --tests`: what must hold on another kind of machine, under qemu.
//!
//! One file is everything: the kernel programs are in it, libraries too (glibc's, linked statically; see [`program`]).
//!
//! Another machine's standard library comes from rustup, or from Debian's packages (`libstd-rust-web-dev:arm64` beside
//! rustc-web and cargo-web); where neither has one, `rustup target add` is tried; its C compiler, for aws-lc and mimalloc, is Debian's
//! `gcc-aarch64-linux-gnu` with `libc6-dev-arm64-cross`, or what `CC_aarch64_unknown_linux_gnu` and
//! `CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER` name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{output, root, run, target, works};
use crate::{Outcome, Task};

pub(crate) const TASK: Task = Task {
    name: "dist",
    arguments: "[--target TRIPLE] [--profile NAME] [--tests]",
    about: "the program as it is shipped and its checksum, in target/dist-out; or its tests under qemu",
    run: dist,
};

/// The other kind of machine that we ship for.
pub(crate) const OTHER: &str = "aarch64-unknown-linux-gnu";

/// What is tested on other machines: arithmetic, atomics, the choice of a worker. The rest is the operating system's.
const TESTED: [&str; 3] = ["usher-flowcontrol", "usher-shards", "usher-ebpf"];
/// Property tests try so many cases under qemu, which takes ten times as long; 256 without it.
const CASES: &str = "32";
/// Millions of hand-overs between threads: minutes under qemu, which on x86-64 shows no weaker order of memory than
/// that. The order is model-checked (`cargo xtask loom`).
const TOO_LONG: &str = "stress";

fn dist(arguments: &[String]) -> Outcome {
    let (mut triple, mut profile, mut tests) = (host()?, "dist".to_owned(), false);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().cloned().ok_or_else(|| format!("{argument} wants a value"));
        match argument.as_str() {
            "--target" => triple = value()?,
            "--profile" => profile = value()?,
            "--tests" => tests = true,
            other => return Err(format!("does not know {other}")),
        }
    }
    let toolchain = Toolchain::for_target(&triple)?;
    if tests {
        return toolchain.test();
    }
    let built = toolchain.build(&profile)?;
    let place = target().join("dist-out");
    let name = format!("usher-{}-{triple}", env!("CARGO_PKG_VERSION"));
    fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    fs::copy(&built, place.join(&name)).map_err(|error| format!("{}: {error}", built.display()))?;
    let sum = output(Command::new("sha256sum").arg(&name).current_dir(&place))?;
    fs::write(place.join(format!("{name}.sha256")), sum.clone() + "\n").map_err(|error| error.to_string())?;
    println!("{}\n{sum}", place.join(&name).display());
    toolchain.try_out(&place.join(&name))
}

/// For `cargo xtask ci`: the tests, and that the program compiles. Linking it takes as long as all of the rest.
pub(crate) fn check() -> Outcome {
    match Toolchain::for_target(OTHER) {
        Err(reason) if std::env::var_os("CI").is_none() => {
            println!("NOT CHECKED, and CI would fail here: {reason}");
            Ok(())
        }
        toolchain => {
            let toolchain = toolchain?;
            toolchain.test()?;
            run(toolchain.cargo("check").args(["--package", "usher", "--bin", "usher"]))
        }
    }
}

/// usher for `triple` without any library beside it. glibc's, not musl's: it is at hand wherever Rust is, and since 2.34
/// looks names up in `/etc/hosts` and the DNS by itself, also in a static program (nothing else is asked:
/// `deploy/image/nsswitch.conf`).
pub(crate) fn program(triple: &str, profile: &str) -> Result<PathBuf, String> {
    Toolchain::for_target(triple)?.build(profile)
}

/// The machine that this runs on, as the compiler calls it.
pub(crate) fn host() -> Result<String, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = output(Command::new(rustc).arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(String::from).ok_or_else(|| "rustc does not say for what machine it is".into())
}

/// What compiles for a kind of machine.
struct Toolchain {
    triple: String,
    foreign: bool,
    cargo: PathBuf,
    /// `None`: cargo's own.
    rustc: Option<PathBuf>,
    /// Where it puts what it builds.
    folder: PathBuf,
}

impl Toolchain {
    /// The Rust that runs this task if it has a standard library for it; else Debian's; else rustup gets one.
    fn for_target(triple: &str) -> Result<Self, String> {
        let own = PathBuf::from(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        let own_cargo = PathBuf::from(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let foreign = host()? != triple;
        let (cargo, rustc, folder) = if has_library(&own, triple) {
            (own_cargo, None, target())
        } else if has_library(Path::new(DEBIAN[1]), triple) {
            let [cargo, rustc] = DEBIAN.map(PathBuf::from);
            (cargo, Some(rustc), target().join("debian"))
        } else if added(&own, triple) {
            (own_cargo, None, target())
        } else {
            return Err(format!(
                "no standard library for {triple}: `rustup target add {triple}`, or Debian's rustc-web, cargo-web and \
                 libstd-rust-web-dev of that architecture"
            ));
        };
        let toolchain = Self { triple: triple.into(), foreign, cargo, rustc, folder };
        let compiler = toolchain.gnu("gcc");
        if foreign && toolchain.unset("LINKER") && !works(Command::new(&compiler).arg("--version")) {
            return Err(format!("no C compiler for {triple}: install {compiler}"));
        }
        Ok(toolchain)
    }

    /// `cargo WORD` for that machine; the program is one without libraries beside it.
    fn cargo(&self, word: &str) -> Command {
        let mut command = Command::new(&self.cargo);
        command.args([word, "--target", &self.triple, "--target-dir"]).arg(&self.folder).current_dir(root());
        command.env(self.variable("RUSTFLAGS"), "-C target-feature=+crt-static");
        if let Some(rustc) = &self.rustc {
            command.env("RUSTC", rustc);
        }
        if self.foreign {
            let of_c = self.triple.replace('-', "_");
            let tools = [
                (self.variable("LINKER"), "gcc"),
                (format!("CC_{of_c}"), "gcc"),
                (format!("CXX_{of_c}"), "g++"),
                (format!("AR_{of_c}"), "ar"),
            ];
            for (variable, tool) in tools {
                if std::env::var_os(&variable).is_none() {
                    command.env(variable, self.gnu(tool));
                }
            }
            if self.unset("RUNNER") {
                command.env(self.variable("RUNNER"), self.qemu());
            }
        }
        command
    }

    fn build(&self, profile: &str) -> Result<PathBuf, String> {
        run(self.cargo("build").args(["--package", "usher", "--bin", "usher", "--profile", profile]))?;
        let folder = if profile == "dev" { "debug" } else { profile };
        Ok(self.folder.join(&self.triple).join(folder).join("usher"))
    }

    /// With some optimisation and all assertions: qemu is slow enough.
    fn test(&self) -> Outcome {
        let mut command = self.cargo("test");
        TESTED.iter().for_each(|package| _ = command.args(["--package", package]));
        command.args(["--lib", "--", "--skip", TOO_LONG]);
        run(command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("PROPTEST_CASES", CASES))
    }

    /// It starts, and says what it is.
    fn try_out(&self, program: &Path) -> Outcome {
        let mut command = if self.foreign { Command::new(self.qemu()) } else { Command::new("env") };
        if self.foreign && !works(Command::new(self.qemu()).arg("--version")) {
            println!("not tried out: there is no {}", self.qemu());
            return Ok(());
        }
        let said = output(command.arg(program).arg("--version"))?;
        println!("{said}");
        if said == format!("usher {}", env!("CARGO_PKG_VERSION")) {
            Ok(())
        } else {
            Err(format!("it says that it is {said:?}"))
        }
    }

    /// Cargo's variable of that name for that machine.
    fn variable(&self, name: &str) -> String {
        format!("CARGO_TARGET_{}_{name}", self.triple.to_uppercase().replace('-', "_"))
    }

    fn unset(&self, name: &str) -> bool {
        std::env::var_os(self.variable(name)).is_none()
    }

    /// One of GNU's tools: the triple without its vendor.
    fn gnu(&self, tool: &str) -> String {
        format!("{}-{tool}", self.triple.replace("-unknown", ""))
    }

    fn qemu(&self) -> String {
        format!("qemu-{}-static", self.triple.split('-').next().unwrap_or_default())
    }
}

/// Debian's cargo and rustc, wherever others are on the search path.
const DEBIAN: [&str; 2] = ["/usr/bin/cargo", "/usr/bin/rustc"];

fn has_library(rustc: &Path, triple: &str) -> bool {
    let folder = output(Command::new(rustc).args(["--print", "target-libdir", "--target", triple]));
    folder.is_ok_and(|folder| Path::new(&folder).is_dir())
}

/// Whether rustup could get it.
fn added(rustc: &Path, triple: &str) -> bool {
    works(Command::new("rustup").args(["target", "add", triple])) && has_library(rustc, triple)
}
