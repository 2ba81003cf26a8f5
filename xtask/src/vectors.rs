//! `cargo xtask vectors [DIR]`: the conformance vectors, one line a file.

use std::path::PathBuf;

use crate::{Outcome, Task, run};

pub(crate) const TASK: Task = Task {
    name: "vectors",
    arguments: "[DIR]",
    about: "the golden vectors of tests/vectors, of DIR, or of $USHER_VECTORS",
    run: vectors,
};

fn vectors(arguments: &[String]) -> Outcome {
    let directory = match arguments {
        [] => std::env::var_os("USHER_VECTORS").map(PathBuf::from),
        [directory] if !directory.starts_with('-') => Some(PathBuf::from(directory)),
        _ => return Err(format!("usage: cargo xtask vectors {}", TASK.arguments)),
    };
    let mut command = run::cargo(["test", "--workspace", "--test", "conformance"]);
    if let Some(directory) = directory {
        // Cargo runs tests in their package's folder, so a relative path is made whole here.
        let whole = std::path::absolute(&directory)
            .map_err(|error| format!("{}: not a path: {error}", directory.display()))?;
        command.env("USHER_VECTORS", whole);
    }
    run::run(&mut command)
}
