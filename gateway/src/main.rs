//! The `usher` program: everything is in the library, so that tests and benches can have it too.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: usher::memory::Allocator = usher::memory::Allocator;

fn main() -> ExitCode {
    usher::cli::run(std::env::args_os().collect(), std::env::vars_os().collect())
}
