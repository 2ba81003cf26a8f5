//! Schema and distinguisher to flow hash.

use crate::numbers::{decimal, each_case, text};
use crate::{File, Outcome};
use usher_flowcontrol::flow::flow_hash;

pub(crate) fn run(file: &File) -> Vec<(String, Outcome)> {
    each_case(file, |case| {
        let found = flow_hash(text(case, "schema")?, text(case, "distinguisher")?).0;
        let expected = decimal(case, "hash")?;
        if found == expected { Ok(()) } else { Err(format!("{found} is not {expected}")) }
    })
}
