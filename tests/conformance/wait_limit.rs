//! wait_limit.json: deadlines of execution and of waiting.

use serde_json::{Value, json};
use usher_flowcontrol::request_info::RequestInfo;
use usher_flowcontrol::units::Nanos;
use usher_flowcontrol::wait_limit::{Execution, default_limit};

use crate::compare::compare;
use crate::numbers::{each_case, integer, text};
use crate::{File, Outcome};

/// Runs every case.
pub(crate) fn run(file: &File) -> Vec<(String, Outcome)> {
    each_case(file, |case| {
        let found = match text(case, "kind")? {
            "request" => request(case)?,
            "context" => context(case)?,
            other => return Err(format!("unknown kind {other}")),
        };
        compare("expect", &found, &case["expect"])
    })
}

/// The chain of filters. Reception is the origin of time.
fn request(case: &Value) -> Result<Value, String> {
    let refused = |status: u16| {
        json!({"status": status, "managed": false, "deadlineNs": null, "waitDeadlineNs": null,
            "expired": false, "waitExpired": false})
    };
    let timeout_max = Nanos(integer(case, "requestTimeoutNs")?);
    let info = match RequestInfo::parse(text(case, "method")?, text(case, "url")?) {
        Ok(info) => info,
        Err(error) => return Ok(refused(error.status())),
    };
    Ok(match Execution::of(&info, Nanos::ZERO, timeout_max) {
        Ok(execution) => {
            let managed = !info.bypasses_flow_control();
            let now = Nanos(integer(case, "elapsedNs")?);
            answer(execution, managed, now, Nanos::ZERO, default_limit(timeout_max))
        }
        Err(_) => refused(400),
    })
}

/// The rule for waiting alone.
fn context(case: &Value) -> Result<Value, String> {
    let execution = Execution {
        deadline: case["contextDeadlineNs"].as_i64().map(Nanos),
        cancelled: case["cancelled"] == true,
    };
    let now = if case["receivedRecorded"] == true { integer(case, "elapsedNs")? } else { 0 };
    let default = Nanos(integer(case, "defaultWaitLimitNs")?);
    Ok(answer(execution, true, Nanos(now), Nanos::ZERO, default))
}

fn answer(execution: Execution, managed: bool, now: Nanos, received: Nanos, default: Nanos) -> Value {
    let wait = if managed { execution.wait_deadline(now, received, default) } else { None };
    let expired = execution.is_over(now);
    json!({
        "status": 200,
        "managed": managed,
        "deadlineNs": execution.deadline.map(|deadline| deadline.0),
        "waitDeadlineNs": wait.map(|wait| wait.0),
        "expired": expired,
        "waitExpired": expired || wait.is_some_and(|wait| wait <= now),
    })
}
