//! The two API kinds: what is filled in, what is built in, what is refused, what is written.

use serde::de::DeserializeOwned;
use serde_json::Value;
use usher_flowcontrol::objects::{FlowSchema, PriorityLevelConfiguration, bootstrap, defaults};

use crate::{File, Outcome};

/// An object of either kind.
#[derive(Clone, Debug, PartialEq)]
enum Object {
    Schema(FlowSchema),
    Level(PriorityLevelConfiguration),
}

impl Object {
    /// Decodes an object as the API does; an error is what the API calls undecodable.
    fn read(value: &Value) -> Result<Self, String> {
        match value["kind"].as_str() {
            Some("FlowSchema") => decode(value).map(Self::Schema),
            Some("PriorityLevelConfiguration") => decode(value).map(Self::Level),
            other => Err(format!("kind {other:?}")),
        }
    }

    fn filled(mut self) -> Self {
        match &mut self {
            Self::Schema(schema) => defaults::fill_schema(schema),
            Self::Level(level) => defaults::fill_level(level),
        }
        self
    }
}

fn decode<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_json::from_value(value.clone()).map_err(|error| error.to_string())
}

/// Runs one check per case; an `Err` says what differed.
fn each(file: &File, check: impl Fn(&Value) -> Result<(), String>) -> Vec<(String, Outcome)> {
    let cases = file.document["cases"].as_array().map_or(&[][..], Vec::as_slice);
    cases.iter().map(|case| (case["name"].as_str().unwrap_or("?").to_owned(), outcome(check(case)))).collect()
}

fn outcome(result: Result<(), String>) -> Outcome {
    result.map_or_else(Outcome::Failed, |()| Outcome::Agreed)
}

fn expect_equal<T: PartialEq + std::fmt::Debug>(what: &str, ours: &T, theirs: &T) -> Result<(), String> {
    if ours == theirs { Ok(()) } else { Err(format!("{what}: ours {ours:?}, theirs {theirs:?}")) }
}

/// `defaulting.json`: filled in once it is the output, filled in twice it stays.
pub(crate) fn defaulting(file: &File) -> Vec<(String, Outcome)> {
    each(file, |case| {
        let output = Object::read(&case["output"])?;
        expect_equal("filled in", &Object::read(&case["input"])?.filled(), &output)?;
        expect_equal("filled in twice", &output.clone().filled(), &output)
    })
}

/// Every built-in object in the order of maintenance, with its class.
fn built_in() -> Vec<(&'static str, Object)> {
    let levels = |class, list: Vec<_>| list.into_iter().map(move |level| (class, Object::Level(level)));
    let schemas = |class, list: Vec<_>| list.into_iter().map(move |schema| (class, Object::Schema(schema)));
    levels("suggested", bootstrap::suggested_levels())
        .chain(schemas("suggested", bootstrap::suggested_schemas()))
        .chain(levels("mandatory", bootstrap::mandatory_levels()))
        .chain(schemas("mandatory", bootstrap::mandatory_schemas()))
        .collect()
}

/// `bootstrap.json`: the same objects, and as many, in the same order.
pub(crate) fn bootstrap_json(file: &File) -> Vec<(String, Outcome)> {
    let ours = built_in();
    let mut outcomes = each(file, |case| {
        let order = case["order"].as_u64().and_then(|order| usize::try_from(order).ok()).ok_or("no order")?;
        let (class, object) = ours.get(order).ok_or("ours are fewer")?;
        expect_equal("class", &Some(*class), &case["class"].as_str())?;
        expect_equal("object", object, &Object::read(&case["object"])?)?;
        expect_equal("filled in", &object.clone().filled(), object)
    });
    if outcomes.len() != ours.len() {
        outcomes.push(("number of objects".into(), Outcome::Failed(format!("ours {}", ours.len()))));
    }
    outcomes
}

/// `bootstrap.yaml`: the same as documents.
pub(crate) fn bootstrap_yaml(file: &File) -> Vec<(String, Outcome)> {
    let ours = built_in();
    let documents: Vec<Value> = match serde_saphyr::from_multiple(&file.text) {
        Ok(documents) => documents,
        Err(error) => return vec![("the file".into(), Outcome::Failed(error.to_string()))],
    };
    let mut outcomes: Vec<(String, Outcome)> = ours
        .iter()
        .zip(&documents)
        .map(|((_, ours), theirs)| {
            let name = format!("{} {}", theirs["kind"], theirs["metadata"]["name"]);
            (name, outcome(Object::read(theirs).and_then(|theirs| expect_equal("object", ours, &theirs))))
        })
        .collect();
    if documents.len() != ours.len() {
        outcomes.push(("number of objects".into(), Outcome::Failed(format!("ours {}", ours.len()))));
    }
    outcomes
}
