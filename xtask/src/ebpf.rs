//! `cargo xtask ebpf`: builds the kernel programs and puts the objects where `cargo build` finds them.
//!
//! The objects are committed, so that nobody who builds usher needs the kernel toolchain.

use std::path::Path;
use std::process::Command;

use crate::run::{cargo, root, run};
use crate::{Outcome, Task};

pub(crate) const TASK: Task = Task {
    name: "ebpf",
    arguments: "",
    about: "builds the kernel programs into gateway-ebpf/object",
    run: ebpf,
};

/// The programs: binaries of `gateway-ebpf`.
const PROGRAMS: [&str; 2] = ["steer", "takeover"];
const TARGET: &str = "bpfel-unknown-none";
/// Links what LLVM made of all crates into one program.
const LINKER: &str = "bpf-linker@0.10.3";

fn ebpf(arguments: &[String]) -> Outcome {
    if !arguments.is_empty() {
        return Err("takes no arguments".into());
    }
    let tools = root().join("target/tools");
    let linker = tools.join("bin/bpf-linker");
    if !linker.exists() {
        println!("installing {LINKER} into {}", linker.display());
        run(cargo(["install", "--locked", "--quiet", LINKER, "--root"]).arg(&tools))?;
    }
    let folder = root().join("target/ebpf");
    run(&mut build(&linker, &folder))?;
    let kept = root().join("gateway-ebpf/object");
    std::fs::create_dir_all(&kept).map_err(|error| format!("{}: {error}", kept.display()))?;
    for program in PROGRAMS {
        let built = folder.join(TARGET).join("release").join(program);
        std::fs::copy(&built, kept.join(format!("{program}.o")))
            .map_err(|error| format!("{}: {error}", built.display()))?;
        println!("gateway-ebpf/object/{program}.o");
    }
    Ok(())
}

/// By Debian's toolchain, whose source of `core` is a package.
fn build(linker: &Path, folder: &Path) -> Command {
    let flags = format!(
        "-C linker={} -C panic=abort -C link-arg=--btf -C debuginfo=2 --remap-path-prefix={}=.",
        linker.display(),
        root().display()
    );
    let mut command = Command::new("/usr/bin/cargo");
    command
        .args(["build", "-Z", "build-std=core", "--target", TARGET, "--release"])
        .args(["--package", "usher-ebpf", "--features", "kernel", "--bins", "--target-dir"])
        .arg(folder)
        .current_dir(root())
        .env("RUSTC", "/usr/bin/rustc")
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", flags);
    command
}
