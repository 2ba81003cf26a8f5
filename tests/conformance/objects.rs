//! The two API kinds: what is filled in, what is built in, what is refused, what is written.

use serde::de::DeserializeOwned;
use serde_json::Value;
use usher_flowcontrol::objects::maintenance::{self, Action, Answer, Pass, SpecFrom, Verb};
use usher_flowcontrol::objects::status::{self, Limiter};
use usher_flowcontrol::objects::validation::{self, ErrorKind};
use usher_flowcontrol::objects::{
    AUTO_UPDATE, FlowSchema, PriorityLevelConfiguration, Status, Time, bootstrap, defaults,
};
use usher_flowcontrol::plan::Plan;
use usher_flowcontrol::units::Nanos;

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

/// `validation.json`: the same errors, details included. Their order is left open, as labels have none.
pub(crate) fn validation(file: &File) -> Vec<(String, Outcome)> {
    each(file, |case| {
        let expected = case["expect"]["outcome"].as_str().unwrap_or_default();
        let object = match Object::read(&case["object"]) {
            Ok(object) => object,
            Err(_) if expected == "undecodable" => return Ok(()),
            Err(error) => return Err(format!("cannot be decoded: {error}")),
        };
        let errors = match (case["operation"].as_str(), object.filled()) {
            (Some("validate"), Object::Schema(schema)) => validation::check_schema(&schema),
            (Some("validate"), Object::Level(level)) => validation::check_level(&level),
            (Some("create"), Object::Schema(schema)) => {
                validation::check_schema(&FlowSchema { status: Status::default(), ..schema })
            }
            (Some("create"), Object::Level(level)) => {
                validation::check_level(&PriorityLevelConfiguration { status: Status::default(), ..level })
            }
            (Some("update-status"), Object::Schema(schema)) => validation::check_status(&schema.status),
            (Some("update-status"), Object::Level(level)) => validation::check_status(&level.status),
            (operation, _) => return Err(format!("operation {operation:?}")),
        };
        let mut ours: Vec<_> = errors
            .iter()
            .map(|error| (error.field.as_str(), kind_name(error.kind), error.detail.as_str()))
            .collect();
        let theirs = array(&case["expect"]["errors"]);
        let mut theirs: Vec<_> = theirs
            .iter()
            .map(|error| (text(&error["field"]), text(&error["type"]), text(&error["detail"])))
            .collect();
        ours.sort_unstable();
        theirs.sort_unstable();
        expect_equal("errors", &ours, &theirs)?;
        expect_equal("outcome", &expected, &if ours.is_empty() { "accepted" } else { "rejected" })
    })
}

fn kind_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Required => "Required",
        ErrorKind::Invalid => "Invalid",
        ErrorKind::NotSupported => "NotSupported",
        ErrorKind::Forbidden => "Forbidden",
        ErrorKind::Duplicate => "Duplicate",
        ErrorKind::TooLong => "TooLong",
    }
}

/// `maintenance.json`: one decision, or the writes of a whole pass.
pub(crate) fn maintenance(file: &File) -> Vec<(String, Outcome)> {
    each(file, |case| match case["type"].as_str() {
        Some("object") => maintain_object(case),
        Some("pass") => maintain_all(case),
        other => Err(format!("type {other:?}")),
    })
}

fn maintain_object(case: &Value) -> Result<(), String> {
    let name = text(&case["object_name"]);
    let existing = Some(&case["existing"]).filter(|existing| !existing.is_null()).map(Object::read);
    let (ours, object, spec_from) = match (text(&case["kind"]), existing.transpose()?) {
        ("FlowSchema", None) => told(maintenance::decide(name, None), Object::Schema),
        ("FlowSchema", Some(Object::Schema(existing))) => {
            told(maintenance::decide(name, Some(&existing)), Object::Schema)
        }
        ("PriorityLevelConfiguration", None) => told(maintenance::decide(name, None), Object::Level),
        ("PriorityLevelConfiguration", Some(Object::Level(existing))) => {
            told(maintenance::decide(name, Some(&existing)), Object::Level)
        }
        other => return Err(format!("kind {other:?}")),
    };
    let expect = &case["expect"];
    expect_equal("action", &ours, &text(&expect["action"]))?;
    expect_equal("spec from", &spec_from, &expect["spec_from"].as_str())?;
    let annotation = object.as_ref().and_then(|object| match object {
        Object::Schema(schema) => schema.metadata.annotations.get(AUTO_UPDATE),
        Object::Level(level) => level.metadata.annotations.get(AUTO_UPDATE),
    });
    expect_equal("annotation", &annotation.map(String::as_str), &expect["annotation"].as_str())?;
    let theirs = Some(&expect["object"]).filter(|object| !object.is_null()).map(Object::read);
    expect_equal("object", &object, &theirs.transpose()?)
}

/// A decision in the words of the vectors.
fn told<T>(action: Action<T>, wrap: fn(T) -> Object) -> (&'static str, Option<Object>, Option<&'static str>) {
    match action {
        Action::Leave => ("leave", None, None),
        Action::Delete => ("delete", None, None),
        Action::Create(object) => ("create", Some(wrap(object)), Some("builtin")),
        Action::Update(object, SpecFrom::BuiltIn) => ("update", Some(wrap(object)), Some("builtin")),
        Action::Update(object, SpecFrom::Existing) => ("update", Some(wrap(object)), Some("existing")),
    }
}

fn maintain_all(case: &Value) -> Result<(), String> {
    let (mut schemas, mut levels) = (Vec::new(), Vec::new());
    let show = |object: &Value, schemas: &mut Vec<FlowSchema>, levels: &mut Vec<_>| {
        match Object::read(object)? {
            Object::Schema(schema) => schemas.push(schema),
            Object::Level(level) => levels.push(level),
        }
        Ok::<(), String>(())
    };
    for object in array(&case["existing"]) {
        show(object, &mut schemas, &mut levels)?;
    }
    let mut pass = Pass::default();
    let mut writes = Vec::new();
    while let Some(write) = pass.next(&schemas, &levels) {
        let verb = match write.verb {
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Delete => "delete",
        };
        let (kind, name) = match &write.object {
            maintenance::Object::Schema(schema) => ("FlowSchema", schema.metadata.name.clone()),
            maintenance::Object::Level(level) => ("PriorityLevelConfiguration", level.metadata.name.clone()),
        };
        let listed = array(&case["api_answers"]).iter().find(|answer| {
            (text(&answer["verb"]), text(&answer["kind"]), text(&answer["object_name"]))
                == (verb, kind, name.as_str())
        });
        let answer = match listed.map(|answer| text(&answer["answer"])) {
            None => Answer::Done,
            Some("conflict") => Answer::Conflict,
            Some("not-found") => Answer::NotFound,
            Some("already-exists") => Answer::AlreadyExists,
            Some("server-error") => Answer::Failed,
            Some(other) => return Err(format!("answer {other}")),
        };
        if answer == Answer::AlreadyExists {
            show(&case["cache_then_shows"], &mut schemas, &mut levels)?;
        }
        writes.push((verb, kind, name));
        if writes.len() > 1000 {
            return Err("the pass does not end".into());
        }
        pass.answered(answer);
    }
    let theirs: Vec<_> = array(&case["expect"]["writes"])
        .iter()
        .map(|write| (text(&write["verb"]), text(&write["kind"]), text(&write["object_name"]).to_owned()))
        .collect();
    expect_equal("writes", &writes, &theirs)?;
    expect_equal("pass fails", &Some(pass.failed()), &case["expect"]["pass_fails"].as_bool())
}

/// `status.json`: the wanted condition and its write, or a sequence through the limiter.
pub(crate) fn status(file: &File) -> Vec<(String, Outcome)> {
    each(file, |case| match case["type"].as_str() {
        Some("single") => status_single(case),
        Some("sequence") => status_sequence(case),
        other => Err(format!("type {other:?}")),
    })
}

fn status_single(case: &Value) -> Result<(), String> {
    let schema: FlowSchema = decode(&case["schema"])?;
    let levels: Vec<PriorityLevelConfiguration> = decode(&case["levels"])?;
    let expect = &case["expect"];
    let dangles = !Plan::compile_as_given(std::slice::from_ref(&schema), &levels).dangling().is_empty();
    let wanted = status::wanted(&schema, dangles);
    expect_equal("condition", &wanted, &decode(&expect["condition"])?)?;
    let write = status::must_write(&schema, &wanted);
    expect_equal("write", &Some(write), &expect["write"].as_bool())?;
    if write {
        let now = Time::parse(text(&case["now"])).ok_or("now is no time")?;
        let body = status::apply_body(&schema, wanted, now);
        expect_equal("apply body", &body, &decode(&expect["apply_body"])?)?;
    }
    Ok(())
}

fn status_sequence(case: &Value) -> Result<(), String> {
    let mut limiter = Limiter::default();
    for step in array(&case["steps"]) {
        let now = Nanos::from_millis(step["at_ms"].as_i64().ok_or("no time")?);
        let wrong: Vec<&str> = array(&step["wrong"]).iter().map(text).collect();
        let (written, skipped): (Vec<&str>, Vec<&str>) =
            wrong.into_iter().partition(|schema| limiter.admit(now, schema));
        let expected = |list: &str| -> Vec<_> { array(&step[list]).iter().map(text).collect() };
        expect_equal("written", &written, &expected("written"))?;
        expect_equal("skipped", &skipped, &expected("skipped"))?;
        let later = step["redigest_later"].as_bool();
        expect_equal("again later", &Some(!skipped.is_empty()), &later)?;
    }
    Ok(())
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
