//! `cargo xtask seeds`: simulated workers and clients, drawn at random, for as long as one likes.
//!
//! In a debug build, for its assertions: some eight thousand a minute.

use std::time::{Duration, Instant};

use crate::run::{cargo, run};
use crate::{Outcome, Task};

pub(crate) const TASK: Task = Task {
    name: "seeds",
    arguments: "[--minutes N] [--from SEED]",
    about: "as many simulated scenarios as fit into that time (1 minute); a failure tells how to replay it",
    run: seeds,
};

/// Seeds in one run of the test: a quarter of a minute's worth.
const BATCH: u64 = 2000;

#[expect(clippy::disallowed_methods, reason = "how long the task goes on is all that depends on it")]
fn seeds(arguments: &[String]) -> Outcome {
    let (mut minutes, mut from) = (1_u64, 0_u64);
    for pair in arguments.chunks(2) {
        let value = pair.get(1).and_then(|value| value.parse().ok());
        match (pair[0].as_str(), value) {
            ("--minutes", Some(value)) => minutes = value,
            ("--from", Some(value)) => from = value,
            (flag, _) => return Err(format!("{flag}: wanted --minutes N or --from SEED")),
        }
    }
    batch(from..from)?; // builds it: that is not in the time
    let (start, first) = (Instant::now(), from);
    while start.elapsed() < Duration::from_secs(60 * minutes) {
        batch(from..from + BATCH)?;
        from += BATCH;
    }
    println!("seeds {first} to {}: all kept the rules", from - 1);
    Ok(())
}

fn batch(seeds: std::ops::Range<u64>) -> Outcome {
    let test = "simulation::tests::whatever_is_drawn_keeps_the_rules";
    let mut command = cargo(["test", "--quiet", "--package", "usher", "--lib"]);
    command.args(["--", "--exact", test]);
    run(command.env("USHER_SEEDS", format!("{}..{}", seeds.start, seeds.end)))
}
