//! `cargo xtask bench dispatch` runs this.

use std::process::ExitCode;

use clap::Parser as _;
use usher_bench::dispatch::{self, allocations::Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    match dispatch::run(dispatch::Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("usher-bench-dispatch: {failure}");
            ExitCode::FAILURE
        }
    }
}
