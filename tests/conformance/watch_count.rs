//! watch_count.json: operations on one tracker of watches.

use std::collections::BTreeMap;

use serde_json::json;
use usher_flowcontrol::request_info::RequestInfo;
use usher_flowcontrol::watches::{Watch, Watches};

use crate::compare::compare;
use crate::numbers::{each_case, list, text};
use crate::{File, Outcome};

/// Runs every case.
pub(crate) fn run(file: &File) -> Vec<(String, Outcome)> {
    each_case(file, |case| {
        let mut watches = Watches::default();
        let mut running: BTreeMap<&str, Watch> = BTreeMap::new();
        for (step, op) in list(case, "ops")?.iter().enumerate() {
            let request = || {
                RequestInfo::parse(text(op, "method")?, text(op, "url")?).map_err(|error| error.to_string())
            };
            match text(op, "op")? {
                "register" => {
                    let watch = watches.register(&request()?);
                    compare(&format!("registered at {step}"), &json!(watch.is_some()), &op["registered"])?;
                    running.extend(watch.map(|watch| (op["id"].as_str().unwrap_or_default(), watch)));
                }
                "forget" => {
                    let watch = running.remove(text(op, "id")?);
                    watches.forget(watch.ok_or_else(|| format!("nothing to forget at {step}"))?);
                }
                "count" => {
                    let found = watches.interested(&request()?);
                    compare(&format!("count at {step}"), &json!(found), &op["count"])?;
                }
                other => return Err(format!("unknown operation {other}")),
            }
        }
        Ok(())
    })
}
