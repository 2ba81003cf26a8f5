//! The histograms of a running usher, read by HdrHistogram's own Java and Python libraries: `cargo xtask hdr`.
//!
//! usher is put under load, killed in the middle, and its logs are read three times over. Percentiles, counts and
//! extremes of every tag must agree; and usher must read what the other two write. The libraries come from
//! Maven Central and PyPI, into `target/hdr`; without them nothing passes.

mod load;
mod tests;
mod witness;

use std::path::PathBuf;
use std::process::ExitCode;

use usher_tests::cluster::programs;
use usher_tests::runner::{self, Test};

use witness::{Java, Python};

/// What the tests share.
struct World {
    /// Logs of an usher that was killed under load.
    logs: PathBuf,
    /// For what tests write.
    scratch: PathBuf,
    usher: PathBuf,
    java: Java,
    python: Python,
}

const TESTS: &[Test<World>] = usher_tests::tests![
    tests::the_logs_hold_what_happened within 60 s,
    tests::the_java_library_reads_the_same within 60 s,
    tests::the_java_log_processor_prints_the_same_distribution within 60 s,
    tests::the_python_library_reads_the_same within 60 s,
    tests::merged_logs_are_read_the_same within 60 s,
    tests::usher_reads_what_the_java_library_writes within 60 s,
    tests::usher_reads_what_the_python_library_writes within 60 s,
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let filters: Vec<String> = std::env::args().skip(1).collect();
    match prepare() {
        Ok(world) => match runner::run(TESTS, &filters, &world).await {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        },
        Err(message) => {
            println!("{message}\n\n0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

/// The libraries, and logs for them to read.
fn prepare() -> Result<World, String> {
    let folder = programs::root().join("target/hdr");
    let java = Java::fetch(&folder)?;
    let python = Python::install(&folder)?;
    let scratch = folder.join("run");
    let cannot = |error| format!("{}: {error}", scratch.display());
    if scratch.exists() {
        std::fs::remove_dir_all(&scratch).map_err(cannot)?;
    }
    std::fs::create_dir_all(&scratch).map_err(cannot)?;
    let usher = load::program()?;
    let logs = load::run(&usher, &scratch)?;
    Ok(World { logs, scratch, usher, java, python })
}
