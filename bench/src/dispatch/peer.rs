//! kube-apiserver's side: the program of `bench/peer`, built with Go, a process for each round.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use usher_tests::cluster::programs::root;

use super::plan::Plan;
use super::{Options, Round, distributions, usher};
use crate::Failure;

/// The program, built.
#[derive(Debug)]
pub(super) struct Peer {
    program: PathBuf,
    log: PathBuf,
    version: String,
}

impl Peer {
    /// Builds it. `None`, said aloud, where it is not wanted or there is no Go.
    pub(super) fn build(options: &Options, folder: &Path) -> Result<Option<Self>, Failure> {
        if options.quick || options.without_go {
            println!(
                "kube-apiserver's own implementation is left out, as is usual for --quick and --without-go"
            );
            return Ok(None);
        }
        let Some(version) = version() else {
            println!(
                "Go is missing (https://go.dev/dl): kube-apiserver's own implementation is NOT measured"
            );
            return Ok(None);
        };
        println!("building kube-apiserver's own implementation with {version}; minutes the first time");
        let program = folder.join("peer");
        let status = Command::new("go")
            .args(["build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-o"])
            .arg(std::path::absolute(&program)?)
            .arg(".")
            .current_dir(root().join("bench/peer"))
            .status()?;
        if !status.success() {
            return Err(format!("go build of bench/peer: {status}; --without-go leaves it out").into());
        }
        Ok(Some(Self { program, log: folder.join("peer.log"), version }))
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// One round.
    pub(super) fn measure(&self, plan: &Plan, millis: u32) -> Result<Round, Failure> {
        let document = plan.document(&usher::widths(plan)?, millis);
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut child =
            Command::new(&self.program).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
        // Dropped at once: the program reads to the end before it prints anything.
        let sent = child.stdin.take().map(|mut to| to.write_all(document.to_string().as_bytes()));
        let output = child.wait_with_output()?;
        if !output.status.success() {
            return Err(format!("the peer ended with {}; see {}", output.status, self.log.display()).into());
        }
        sent.transpose()?;
        round(&serde_json::from_slice(&output.stdout)?).ok_or_else(|| "the peer's answer is no result".into())
    }
}

fn round(result: &Value) -> Option<Round> {
    let per_decision = |name: &str| Some(result[name].as_f64()? / result["decisions"].as_f64()?);
    let mut singles = distributions::empty();
    for single in result["singles"].as_array()? {
        singles.saturating_record(single.as_u64()?);
    }
    Some(Round {
        mean: per_decision("nanos")?,
        allocations: per_decision("allocations")?,
        waiting: result["waiting"].as_f64()?,
        singles,
    })
}

fn version() -> Option<String> {
    let output = Command::new("go").args(["env", "GOVERSION"]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn a_result_is_divided_by_its_decisions() {
        let result =
            json!({"decisions": 4, "nanos": 10, "allocations": 8, "waiting": 3.5, "singles": [2, 3]});
        let round = super::round(&result).expect("a result");
        assert_eq!((round.mean, round.allocations, round.waiting, round.singles.max()), (2.5, 2.0, 3.5, 3));
        assert!(super::round(&json!({"decisions": 4})).is_none());
    }
}
