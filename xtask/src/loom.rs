//! `cargo xtask loom`: the protocol of `gateway/shards` in every order that two or three workers' steps can
//! come in.
//!
//! In a target directory of its own: the flag that chooses loom's atomics would throw everybody else's builds
//! away.

use crate::run::{cargo, run, target};
use crate::{Outcome, Task};

pub(crate) const TASK: Task = Task {
    name: "loom",
    arguments: "[ARGUMENTS OF THE TESTS]",
    about: "model-checks workers that share a level (LOOM_MAX_PREEMPTIONS=5 for longer)",
    run: loom,
};

fn loom(arguments: &[String]) -> Outcome {
    let mut command = cargo(["test", "--package", "usher-shards", "--test", "loom"]);
    // Optimised, or a minute becomes ten; with the assertions of a debug build.
    command.args(["--config", "profile.dev.opt-level=2", "--"]).args(arguments);
    run(command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target().join("loom")))
}
