//! From documents to objects: lists are opened, other kinds and versions refused, members typed.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use usher_flowcontrol::objects::{API_VERSION, FlowSchema, PriorityLevelConfiguration};

use super::documents::Document;
use super::{FINDINGS_MAX, Finding, Findings, cut};

const SCHEMA: &str = "FlowSchema";
const LEVEL: &str = "PriorityLevelConfiguration";

/// An object of the folder and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Found<T> {
    /// File, document, item, kind and name; problem and remedy are empty.
    pub place: Finding,
    /// The object as written.
    pub object: T,
    /// Members that no object of its kind has: typing errors, most likely.
    pub unknown: Vec<String>,
}

/// An object of either kind.
#[derive(Clone, Debug)]
pub(super) enum Either {
    /// A flow schema.
    Schema(Found<FlowSchema>),
    /// A priority level.
    Level(Found<PriorityLevelConfiguration>),
}

/// The objects of a document, which may be a list of them.
pub(super) fn objects(document: Document, findings: &mut Findings) -> Vec<Either> {
    let Document { file, number, mut value } = document;
    let place = Finding { file: Some(file), document: Some(number), ..Finding::default() };
    let implied = match (text(&value, "apiVersion"), text(&value, "kind")) {
        (Some("v1"), Some("List")) => None,
        (Some(API_VERSION), Some("FlowSchemaList")) => Some(SCHEMA),
        (Some(API_VERSION), Some("PriorityLevelConfigurationList")) => Some(LEVEL),
        _ => return object(place, value, None, findings).into_iter().collect(),
    };
    let items = match value.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        None | Some(Value::Null) => Vec::new(),
        Some(_) => {
            findings.push(Finding {
                field: Some("items".into()),
                problem: "is not a list".into(),
                remedy: "list the objects here".into(),
                ..place
            });
            return Vec::new();
        }
    };
    let each = items.into_iter().enumerate();
    each.filter_map(|(index, item)| {
        let place = Finding { item: Some(index + 1), ..place.clone() };
        object(place, item, implied, findings)
    })
    .collect()
}

/// One object; `implied` is the kind of an item whose list knows it (the API leaves it out there).
fn object(
    mut place: Finding,
    value: Value,
    implied: Option<&'static str>,
    findings: &mut Findings,
) -> Option<Either> {
    let kind = text(&value, "kind").or(implied).unwrap_or_default().to_owned();
    let version = text(&value, "apiVersion").or(implied.map(|_| API_VERSION)).unwrap_or_default();
    if let Some((problem, remedy)) = wrong_kind(&kind, version) {
        findings.push(Finding { problem, remedy, ..place });
        return None;
    }
    let name = value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    place.object = Some(cut(format!("{kind} {name:?}")));
    let decoded = if kind == SCHEMA {
        typed(&place, &value).map(Either::Schema)
    } else {
        typed(&place, &value).map(Either::Level)
    };
    decoded.map_err(|finding| findings.push(*finding)).ok()
}

/// What is wrong with a kind and version, if usher does not serve them.
fn wrong_kind(kind: &str, version: &str) -> Option<(String, String)> {
    let expected = format!("write {SCHEMA} or {LEVEL} of {API_VERSION}, or lists of them");
    match (kind, version) {
        (SCHEMA | LEVEL, API_VERSION) => None,
        ("", _) => Some(("has no kind".into(), expected)),
        (SCHEMA | LEVEL, "") => Some((format!("{kind} without an apiVersion"), expected)),
        // v1beta3 reads an absent and a zero share differently: better refused than guessed.
        (SCHEMA | LEVEL, _) => Some((
            format!("{kind} of {version:?}, which is not served; {API_VERSION} is"),
            format!("fetch it from the cluster as {API_VERSION} (kubectl get -o yaml does), or rewrite it"),
        )),
        _ => Some((
            format!("kind {kind:?} of {version:?} is no flow-control object"),
            format!("take it out of the folder; {expected}"),
        )),
    }
}

fn typed<T: DeserializeOwned + Serialize>(place: &Finding, value: &Value) -> Result<Found<T>, Box<Finding>> {
    let object: T = serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        Finding {
            field: Some(path).filter(|path| path != "."),
            problem: error.inner().to_string(),
            remedy: "give a value of the type that the API takes here".into(),
            ..place.clone()
        }
    })?;
    let mut unknown = Vec::new();
    if let (Value::Object(given), Ok(kept)) = (value, serde_json::to_value(&object)) {
        for (name, member) in given {
            // The API's metadata has more members than usher reads; the first two have been looked at.
            if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                collect_unknown(name.clone(), member, kept.get(name), &mut unknown);
            }
        }
    }
    Ok(Found { place: place.clone(), object, unknown })
}

/// The paths of members that say something and were not taken.
fn collect_unknown(path: String, given: &Value, kept: Option<&Value>, unknown: &mut Vec<String>) {
    if says_nothing(given) || unknown.len() >= FINDINGS_MAX {
        return;
    }
    match given {
        Value::Object(given) => {
            for (name, member) in given {
                let kept = kept.and_then(|kept| kept.get(name));
                collect_unknown(format!("{path}.{name}"), member, kept, unknown);
            }
        }
        Value::Array(given) => {
            for (index, element) in given.iter().enumerate() {
                let kept = kept.and_then(|kept| kept.get(index));
                collect_unknown(format!("{path}[{index}]"), element, kept, unknown);
            }
        }
        _ if kept.is_none() => unknown.push(path),
        _ => {}
    }
}

/// Whether the API reads a member as if it were absent.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        Value::Object(members) => members.values().all(says_nothing),
    }
}

fn text<'a>(value: &'a Value, member: &str) -> Option<&'a str> {
    value.get(member)?.as_str()
}
