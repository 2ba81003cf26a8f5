//! `cargo xtask test`: unit, property, conformance and integration tests of the whole workspace.
//!
//! Only the end-to-end tests are apart (`cargo xtask e2e`): they need a control plane built with Go.

use crate::{Outcome, Task, run};

pub(crate) const TASK: Task = Task {
    name: "test",
    arguments: "[ARGUMENTS OF cargo test]",
    about: "every test that needs nothing but cargo",
    run: test,
};

fn test(arguments: &[String]) -> Outcome {
    let mut command = run::cargo(["test", "--workspace", "--no-fail-fast"]);
    run::run(command.args(arguments))
}
