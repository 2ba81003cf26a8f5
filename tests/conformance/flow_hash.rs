//! Schema and distinguisher to flow hash.

use crate::{File, Outcome, decimal, each, text};
use usher_flowcontrol::flow::flow_hash;

pub(crate) fn run(file: &File) -> Vec<(String, Outcome)> {
    each(file, |case| {
        let found = flow_hash(text(&case["schema"])?, text(&case["distinguisher"])?).0;
        let expected = decimal(&case["hash"])?;
        if found == expected { Ok(Outcome::Agreed) } else { Err(format!("{found} is not {expected}")) }
    })
}
