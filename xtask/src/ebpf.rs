//! `cargo xtask ebpf`: builds the kernel programs and puts the objects where `cargo build` finds them;
//! `cargo xtask ebpf --check`: builds them elsewhere and compares.
//!
//! The objects are committed, so that nobody who builds usher needs the kernel toolchain; what they were built by is
//! written down beside them. Two toolchains will do: a nightly with rust-src, or Debian's rustc-web, cargo-web and
//! rust-web-src, told to allow what nightlies allow. Both want bpf-linker, which is installed under `target/tools`.
//!
//! The same source gives the same bytes in any folder of any machine with the same toolchain: paths are cut short before
//! they get into the line information, debug information that only debuggers read is taken out (BTF stays).

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{install, root, run, target, tools, works};
use crate::{Outcome, Task};

pub(crate) const TASK: Task = Task {
    name: "ebpf",
    arguments: "[--check]",
    about: "builds the kernel programs into gateway-ebpf/object, or compares them with what is there",
    run: ebpf,
};

/// The programs: binaries of `gateway-ebpf`.
const PROGRAMS: [&str; 2] = ["steer", "takeover"];
const TARGET: &str = "bpfel-unknown-none";
/// Links what LLVM made of all crates into one program.
const LINKER: &str = "bpf-linker@0.10.3";
/// Where the committed objects are, and beside them what built them.
const KEPT: &str = "gateway-ebpf/object";
const NOTE: &str = "BUILT-BY";

fn ebpf(arguments: &[String]) -> Outcome {
    let check = match arguments {
        [] => false,
        [word] if word == "--check" => true,
        _ => return Err("takes no argument but --check".into()),
    };
    let kept = root().join(KEPT);
    let builder = Builder::find(&fs::read_to_string(kept.join(NOTE)).unwrap_or_default())?;
    print!("{}", builder.note());
    let fresh = target().join("ebpf/object");
    builder.build(&fresh)?;
    if check { compare(&fresh, &kept) } else { keep(&fresh, &kept) }
}

/// `--check` for `cargo xtask ci`: without a toolchain a failure where `CI` is set, said aloud elsewhere.
pub(crate) fn check() -> Outcome {
    match Builder::find("") {
        Err(reason) if std::env::var_os("CI").is_none() => {
            println!("NOT CHECKED, and CI would fail here: {reason}");
            Ok(())
        }
        _ => ebpf(&["--check".into()]),
    }
}

fn keep(fresh: &Path, kept: &Path) -> Outcome {
    fs::create_dir_all(kept).map_err(|error| format!("{}: {error}", kept.display()))?;
    for name in files() {
        let (from, to) = (fresh.join(&name), kept.join(&name));
        fs::copy(&from, &to).map_err(|error| format!("{}: {error}", to.display()))?;
        println!("{KEPT}/{name}");
    }
    Ok(())
}

fn compare(fresh: &Path, kept: &Path) -> Outcome {
    let read = |path: PathBuf| fs::read(&path).map_err(|error| format!("{}: {error}", path.display()));
    let mut different = Vec::new();
    for name in files() {
        if read(fresh.join(&name))? != read(kept.join(&name))? {
            different.push(format!("{KEPT}/{name}"));
        }
    }
    if different.is_empty() {
        println!("{KEPT} is what the source gives");
        return Ok(());
    }
    Err(format!(
        "not what the source gives with this toolchain: {}. Run `cargo xtask ebpf` and commit {KEPT}. (Built here: {})",
        different.join(", "),
        fresh.display()
    ))
}

fn files() -> impl Iterator<Item = String> {
    PROGRAMS.iter().map(|program| format!("{program}.o")).chain([NOTE.into()])
}

/// What compiles and links.
struct Builder {
    cargo: PathBuf,
    rustc: PathBuf,
    /// `rustc -vV`, in short.
    version: String,
    /// Folder of the LLVM that bpf-linker loads: that of the Rust which runs this task.
    llvm: PathBuf,
    llvm_version: String,
    /// Takes debug information out; every Rust of rustup's has it.
    objcopy: PathBuf,
}

impl Builder {
    /// The toolchain that the objects with this `note` are from, if it is here; else the first that is.
    fn find(note: &str) -> Result<Self, String> {
        let here: Vec<Self> = [Self::nightly(), Self::debian()].into_iter().flatten().collect();
        let same = here.iter().position(|builder| builder.note() == note).unwrap_or(0);
        here.into_iter().nth(same).ok_or_else(|| {
            "no toolchain for kernel programs: a nightly with rust-src (rustup toolchain install nightly --component \
             rust-src and no newer LLVM than this Rust's), or Debian's rustc-web, cargo-web and rust-web-src"
                .into()
        })
    }

    fn nightly() -> Option<Self> {
        let which = |program| {
            says(Command::new("rustup").args(["which", "--toolchain", "nightly", program])).map(PathBuf::from)
        };
        Self::new(which("cargo")?, which("rustc")?)
    }

    fn debian() -> Option<Self> {
        Self::new("/usr/bin/cargo".into(), "/usr/bin/rustc".into())
    }

    /// Nothing unless the source of `core` is there, and bpf-linker's LLVM reads what this compiler's writes: no newer one's.
    fn new(cargo: PathBuf, rustc: PathBuf) -> Option<Self> {
        sysroot(&rustc)?.join("lib/rustlib/src/rust/library/core").is_dir().then_some(())?;
        let own = PathBuf::from(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        (llvm(&rustc)? <= llvm(&own)?).then_some(())?;
        let home = sysroot(&own)?;
        let host = field(&own, "host: ")?;
        Some(Self {
            version: says(Command::new(&rustc).arg("--version"))?,
            cargo,
            rustc,
            llvm: home.join("lib"),
            llvm_version: field(&own, "LLVM version: ")?,
            objcopy: home.join("lib/rustlib").join(host).join("bin/rust-objcopy"),
        })
    }

    /// What is written down beside the objects.
    fn note(&self) -> String {
        format!("compiled by {}\nlinked by {LINKER} with LLVM {}\n", self.version, self.llvm_version)
    }

    /// Builds everything into `folder`.
    fn build(&self, folder: &Path) -> Outcome {
        let linker = tools().join("bin/bpf-linker");
        if !works(self.env(&mut Command::new(&linker)).arg("--version")) {
            install(LINKER)?;
        }
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let built = target().join("ebpf");
        run(&mut self.compile(&linker, &built))?;
        for program in PROGRAMS {
            run(Command::new(&self.objcopy)
                .arg("--strip-debug")
                .arg(built.join(TARGET).join("release").join(program))
                .arg(folder.join(format!("{program}.o")))
                .env("LD_LIBRARY_PATH", &self.llvm))?;
        }
        fs::write(folder.join(NOTE), self.note()).map_err(|error| format!("{NOTE}: {error}"))
    }

    fn compile(&self, linker: &Path, folder: &Path) -> Command {
        let mut with = OsString::from("-Clinker=");
        with.push(linker);
        let mut flags = vec![with];
        // BTF is made of the debug information.
        flags.extend(["-Cpanic=abort", "-Clink-arg=--btf", "-Cdebuginfo=2"].map(OsString::from));
        flags.extend(self.short_paths());
        let mut command = Command::new(&self.cargo);
        command
            .args(["build", "-Z", "build-std=core", "--target", TARGET, "--release", "--locked"])
            .args(["--package", "usher-ebpf", "--features", "kernel", "--bins", "--target-dir"])
            .arg(folder)
            .current_dir(root())
            .env("RUSTC", &self.rustc)
            .env("RUSTC_BOOTSTRAP", "1")
            // The programs read no registers: the same object on every machine, from the same bindings.
            .env("AYA_BPF_TARGET_ARCH", "x86_64")
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join(&OsString::from("\u{1f}")))
            .env_remove("RUSTFLAGS")
            .env_remove("RUSTUP_TOOLCHAIN");
        self.env(&mut command);
        command
    }

    fn env<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("LD_LIBRARY_PATH", &self.llvm)
    }

    /// Paths of this machine, replaced by what is the same on all.
    fn short_paths(&self) -> Vec<OsString> {
        let here = root().canonicalize().unwrap_or_else(|_| root());
        let mut places = vec![(here, "usher")];
        if let Some(home) = sysroot(&self.rustc) {
            places.push((home.join("lib/rustlib/src/rust"), "rust"));
        }
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
        let sources = home.and_then(|home| fs::read_dir(home.join("registry/src")).ok());
        places.extend(sources.into_iter().flatten().flatten().map(|registry| (registry.path(), "crates")));
        let remap = |(from, to): (PathBuf, &str)| {
            let mut flag = OsString::from("--remap-path-prefix=");
            flag.push(from);
            flag.push(format!("=/{to}"));
            flag
        };
        places.into_iter().map(remap).collect()
    }
}

fn sysroot(rustc: &Path) -> Option<PathBuf> {
    says(Command::new(rustc).args(["--print", "sysroot"])).map(PathBuf::from)
}

/// What follows `name` in `rustc -vV`.
fn field(rustc: &Path, name: &str) -> Option<String> {
    let all = says(Command::new(rustc).arg("-vV"))?;
    all.lines().find_map(|line| line.strip_prefix(name)).map(Into::into)
}

/// The first number of a compiler's LLVM.
fn llvm(rustc: &Path) -> Option<u32> {
    field(rustc, "LLVM version: ")?.split('.').next()?.parse().ok()
}

/// What `command` prints, if it ends well.
fn says(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
