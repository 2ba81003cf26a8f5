//! `retry_after.json`: when clients shall come back.

use std::collections::BTreeMap;

use serde_json::Value;
use usher_flowcontrol::retry_after::RetryAfter;

use crate::numbers::{count, each_case, integer, list, text};
use crate::{File, Outcome};

pub(crate) fn run(file: &File) -> Vec<(String, Outcome)> {
    each_case(file, case)
}

fn case(case: &Value) -> Result<(), String> {
    let mut levels: BTreeMap<&str, RetryAfter> = BTreeMap::new();
    for (index, step) in list(case, "steps")?.iter().enumerate() {
        let level = levels.entry(text(step, "level")?).or_default();
        let second = integer(step, "second")?;
        for _ in 0..count::<u64>(step, "drops")? {
            level.record(second);
        }
        let expected: u32 = count(step, "retryAfter")?;
        if level.seconds() != expected {
            return Err(format!("step {index}: {} instead of {expected}", level.seconds()));
        }
    }
    Ok(())
}
