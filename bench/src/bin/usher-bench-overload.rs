//! `cargo xtask bench overload` runs this.

use std::process::ExitCode;

use clap::Parser as _;
use usher_bench::overload;

fn main() -> ExitCode {
    let options = overload::Options::parse();
    // One thread: what it starts ends with it, and it stays on the load's core.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = overload::run(options) => outcome,
            // Everything that was started is dropped with the run, and so ended.
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("usher-bench-overload: {failure}");
            ExitCode::FAILURE
        }
    }
}
