//! The relays that the cell `relay` of `cargo xtask bench proxy` compares.

use std::process::ExitCode;

use clap::Parser as _;
use usher_bench::relay;

fn main() -> ExitCode {
    match relay::run(&relay::Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("usher-relay: {error}");
            ExitCode::FAILURE
        }
    }
}
