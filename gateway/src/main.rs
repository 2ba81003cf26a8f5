//! The `usher` program: everything is in the library, so that tests and benches can have it too.

use std::process::ExitCode;

/// Several times faster than the system's on small short-lived blocks, which requests are made of.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    usher::cli::run(std::env::args_os().collect(), std::env::vars_os().collect())
}
