//! `cargo xtask demo` runs this.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let options = usher_bench::demo::Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    match runtime.block_on(usher_bench::demo::run(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("usher-demo: {error}");
            ExitCode::FAILURE
        }
    }
}
