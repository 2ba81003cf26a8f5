//! `cargo xtask test`: unit, property, conformance and integration tests of the whole workspace.
//!
//! Workers are tested on both ways of I/O: `USHER_TEST_IO=auto|uring|epoll` says which; and once more with flags of usher's
//! that change how io_uring is used: `USHER_TEST_FLAGS`.
//!
//! Only the end-to-end tests are apart (`cargo xtask e2e`): they need a control plane built with Go.

use crate::{Outcome, Task, run};

pub(crate) const TASK: Task = Task {
    name: "test",
    arguments: "[ARGUMENTS OF cargo test]",
    about: "every test that needs nothing but cargo",
    run: test,
};

/// usher, and the package that depends on all others: so that cargo chooses the features that it has chosen for the workspace, and
/// compiles nothing anew.
const AS_BEFORE: [&str; 4] = ["--package", "usher", "--package", "usher-bench"];

fn test(arguments: &[String]) -> Outcome {
    let mut command = run::cargo(["test", "--workspace", "--no-fail-fast"]);
    run::run(command.args(arguments))?;
    // What has to do with bytes once more, on the other way of I/O: the first time took io_uring if it is there.
    let again = || run::cargo(["test", "--no-fail-fast"].into_iter().chain(AS_BEFORE));
    let mut command = again();
    run::run(command.args(["--lib", "--test", "worker"]).args(arguments).env("USHER_TEST_IO", "epoll"))?;
    let mut command = again();
    let flags = "--ring-registered-files";
    run::run(command.args(["--test", "worker"]).args(arguments).env("USHER_TEST_FLAGS", flags))
}
