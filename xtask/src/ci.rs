//! `cargo xtask ci`: all that must hold before a change lands; `.ci/run` prepares a machine and calls it.
//!
//! Every step runs even if one before it failed: one run tells everything. Aim: 25 minutes on two cores with cold caches; 26
//! were seen with what comes from the network at hand already.

use crate::run::{Beside, Steps, cargo, install, run, tools, works};
use crate::{Outcome, Task, e2e};

pub(crate) const TASK: Task = Task {
    name: "ci",
    arguments: "",
    about: "formatting, lints, docs, licences, all tests: what .ci/run runs",
    run: ci,
};

/// The version whose `deny.toml` this is.
const CARGO_DENY: &str = "cargo-deny@0.20.2";

fn ci(arguments: &[String]) -> Outcome {
    if !arguments.is_empty() {
        return Err("takes no arguments".into());
    }
    let mut steps = Steps::default();
    steps.step("formatting", || run(&mut cargo(["fmt", "--all", "--check"])));
    steps.step("lints", || {
        run(&mut cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
        // Not among all targets, because it is not among the tests that `cargo test` runs.
        let apart = ["--test", "e2e", "--test", "hdr", "--test", "deploy"];
        run(cargo(["clippy", "--workspace"]).args(apart).args(["--", "-D", "warnings"]))
    });
    steps.step("docs", || run(cargo(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings")));
    steps.step("licences, bans, sources", deny);
    steps.step("the kernel programs are what their source gives", crate::ebpf::check);
    steps.step("tests", || (crate::test::TASK.run)(&[]));
    steps.step("core, shards and choice on aarch64; usher compiles for it", crate::dist::check);
    steps.step("the many-worker protocol under loom", || (crate::loom::TASK.run)(&[]));
    // Half of what the next steps take is waiting, and they judge no times.
    let control_plane = Beside::start(&["cluster", "build"]);
    // With what the tests have built: whether the bench works, not how fast anything is.
    for (bench, name) in [
        ("proxy", "bench beside other proxies"),
        ("dispatch", "bench of decisions"),
        ("overload", "bench under overload"),
        ("steering", "bench of steering"),
    ] {
        steps.step(name, || (crate::bench::TASK.run)(&[bench.into(), "--quick".into()]));
    }
    steps.step("HdrHistogram's own tools read our logs", || (crate::hdr::TASK.run)(&[]));
    steps.step("control plane for the end-to-end tests", || control_plane.end());
    // The same seed each time, so that a change is not blamed for another one's fault.
    steps.step("end-to-end tests", || e2e::e2e(&["--seed".into(), "1".into()]));
    steps.step("image, manifests, chart, unit", || crate::deploy::check(&[]));
    steps.summary()
}

/// `cargo deny`, built under `target/` if the machine has none. The advisory database is not asked for:
/// deny.toml tells why.
fn deny() -> Outcome {
    let path = path_with(&tools().join("bin"));
    if !works(cargo(["deny", "--version"]).env("PATH", &path)) {
        install(CARGO_DENY)?;
    }
    let checks = ["deny", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"];
    run(cargo(checks).env("PATH", &path))
}

/// The search path with `first` before everything else.
fn path_with(first: &std::path::Path) -> std::ffi::OsString {
    let mut path = first.as_os_str().to_owned();
    if let Some(rest) = std::env::var_os("PATH") {
        path.push(":");
        path.push(rest);
    }
    path
}
