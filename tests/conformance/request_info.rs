//! request_info.json: method and target to attributes.

use std::borrow::Cow;

use serde_json::{Value, json};
use usher_flowcontrol::request_info::{RequestInfo, TargetError};

use crate::compare::compare;
use crate::numbers::{each_case, text};
use crate::{File, Outcome};

/// Runs every case.
pub(crate) fn run(file: &File) -> Vec<(String, Outcome)> {
    each_case(file, |case| {
        let parsed = RequestInfo::parse(text(case, "method")?, text(case, "url")?);
        let found = match &parsed {
            Ok(info) => json!({
                "error": null,
                "info": attributes(info, case["bytesAsLatin1"] == true),
                "longRunning": info.is_long_running(),
            }),
            Err(error) => json!({"error": kind(*error), "info": null, "longRunning": null}),
        };
        for key in ["error", "info", "longRunning"] {
            compare(key, &found[key], &case[key])?;
        }
        Ok(())
    })
}

fn kind(error: TargetError) -> &'static str {
    match error {
        TargetError::Malformed => "bad-request-target",
        TargetError::NoResource => "request-info",
    }
}

/// All thirteen, in the file's names. Bytes are text, or one character each.
fn attributes(info: &RequestInfo<'_>, latin1: bool) -> Value {
    let string = |bytes: &[u8]| match (latin1, std::str::from_utf8(bytes)) {
        (true, _) => Cow::Owned(bytes.iter().map(|&byte| char::from(byte)).collect::<String>()),
        (false, Ok(text)) => Cow::Owned(text.to_owned()),
        (false, Err(_)) => Cow::Borrowed("(not UTF-8)"),
    };
    json!({
        "isResourceRequest": info.is_resource_request(),
        "path": string(info.path()),
        "verb": info.verb(),
        "apiPrefix": string(info.api_prefix()),
        "apiGroup": string(info.api_group()),
        "apiVersion": string(info.api_version()),
        "namespace": string(info.namespace()),
        "resource": string(info.resource()),
        "subresource": string(info.subresource()),
        "name": string(info.name()),
        "parts": info.parts().map(string).collect::<Vec<_>>(),
        "fieldSelector": string(&info.field_selector()),
        "labelSelector": string(&info.label_selector()),
    })
}
