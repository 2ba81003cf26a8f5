//! `cargo xtask bench steering` runs this.

use std::process::ExitCode;

use clap::Parser as _;
use usher_bench::steering;

fn main() -> ExitCode {
    match steering::run(steering::Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("usher-bench-steering: {failure}");
            ExitCode::FAILURE
        }
    }
}
