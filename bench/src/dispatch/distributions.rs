//! Decisions one by one as HdrHistogram's tools read them: a `.hgrm` for each contestant in each cell with all rounds
//! together, and one `.hlog` with every round.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use hdrhistogram::Histogram;
use usher::observe::hdr::{formats, hlog};
use usher::ring;

use super::cells::Cell;
use crate::Failure;
use crate::report::put;

/// Every round so far.
pub(super) struct Distributions {
    log: String,
    /// When the last round ended, since 1970.
    last: Duration,
    together: BTreeMap<String, Histogram<u64>>,
}

/// A decision that takes longer than this counts as this: the machine did something else.
const LONGEST: u64 = 10_000_000_000;

/// A histogram of nanoseconds with three digits.
pub(super) fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("these bounds are good")
}

impl Distributions {
    pub(super) fn begin() -> Self {
        let last = ring::date();
        let log = hlog::header(last) + "#[here tags are CELL/CONTESTANT]\n";
        Self { log, last, together: BTreeMap::new() }
    }

    /// A round that has just ended.
    pub(super) fn add(
        &mut self,
        cell: Cell,
        contestant: &str,
        round: &Histogram<u64>,
    ) -> Result<(), Failure> {
        let (began, ended) = (self.last, ring::date());
        let encoded = hlog::encode(round);
        let length = ended.saturating_sub(began);
        hlog::put_line(&mut self.log, &format!("{cell}/{contestant}"), began, length, round.max(), &encoded);
        self.last = ended;
        self.together.entry(format!("{cell}-{contestant}")).or_insert_with(empty).add(round)?;
        Ok(())
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), Failure> {
        put(&folder.join("dispatch.hlog"), &self.log)?;
        for (name, histogram) in &self.together {
            put(&folder.join(format!("{name}.hgrm")), formats::hgrm(histogram, 1.0))?;
        }
        Ok(())
    }
}
