//! From the folder's objects to a whole set: filled in, validated, unique, completed by the built-in ones.
//!
//! The maintenance loop of an API server would restore some objects and delete others; a folder is its
//! operator's, so what the loop would do is said as a warning and the folder's word holds. Only the mandatory
//! objects are fixed, and validation sees to that.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use usher_flowcontrol::objects::maintenance::{Action, Class, Maintained, SpecFrom, decide};
use usher_flowcontrol::objects::validation::{self, ErrorKind, FieldError};
use usher_flowcontrol::objects::{EXEMPT, FlowSchema, PriorityLevelConfiguration, bootstrap, defaults};

use super::decode::{Either, Found};
use super::{Finding, Findings, Objects, Refusal};

/// Most objects of a kind: every request is held against every schema until one matches.
pub(super) const OBJECTS_MAX: usize = 2000;

/// The folder's objects by name.
type ByName<T> = BTreeMap<String, Found<T>>;

/// Makes the set, or refuses with these findings and those made here.
pub(super) fn complete(
    found: Vec<Either>,
    suggested: bool,
    mut findings: Findings,
) -> Result<Objects, Refusal> {
    let (mut schemas, mut levels) = (ByName::new(), ByName::new());
    for object in found {
        match object {
            Either::Schema(mut found) => {
                defaults::fill_schema(&mut found.object);
                report(&found.place, &validation::check_schema(&found.object), &mut findings);
                add(found, &mut schemas, &mut findings);
            }
            Either::Level(mut found) => {
                defaults::fill_level(&mut found.object);
                report(&found.place, &validation::check_level(&found.object), &mut findings);
                add(found, &mut levels, &mut findings);
            }
        }
    }
    if schemas.len().max(levels.len()) > OBJECTS_MAX {
        findings.push(Finding {
            problem: format!("more than {OBJECTS_MAX} objects of one kind"),
            remedy: "merge schemas: one may have many rules".into(),
            ..Finding::default()
        });
    }
    findings.refuse(false)?;
    let mut warnings = Findings::default();
    warnings.extend(oddities(&schemas));
    warnings.extend(oddities(&levels));
    let mut levels = with_built_in(levels, suggested);
    complete_exempt(&mut levels);
    let schemas = with_built_in(schemas, suggested);
    warnings.extend(dangling(&schemas, &levels));
    let schemas = schemas.into_values().map(|found| found.object).collect();
    let levels = levels.into_values().map(|found| found.object).collect();
    Ok(Objects { schemas, levels, warnings: warnings.listed })
}

/// Adds an object unless there is one of its kind and name already.
fn add<T: Maintained>(found: Found<T>, all: &mut ByName<T>, findings: &mut Findings) {
    match all.entry(found.object.metadata().name.clone()) {
        Entry::Vacant(entry) => _ = entry.insert(found),
        Entry::Occupied(entry) => {
            let first = &entry.get().place;
            let (file, document) = (first.file.as_deref().unwrap_or("?"), first.document.unwrap_or_default());
            findings.push(Finding {
                field: Some("metadata.name".into()),
                problem: format!("Duplicate value: is also in {file}, document {document}"),
                remedy: "rename one of the two, or take it away".into(),
                ..found.place
            });
        }
    }
}

fn report(place: &Finding, errors: &[FieldError], findings: &mut Findings) {
    findings.extend(errors.iter().map(|error| {
        let text = error.to_string();
        let problem = text.strip_prefix(&format!("{}: ", error.field)).unwrap_or(&text).to_owned();
        Finding { field: Some(error.field.clone()), problem, remedy: remedy(error).into(), ..place.clone() }
    }));
}

fn remedy(error: &FieldError) -> &'static str {
    match error.kind {
        _ if error.field == "spec" => {
            "take the object out of the folder (it is built in), or restore its spec"
        }
        ErrorKind::Required => "add it",
        ErrorKind::Invalid => "correct the value",
        ErrorKind::NotSupported => "use one of the supported values",
        ErrorKind::Forbidden => "remove it",
        ErrorKind::Duplicate => "remove one of them",
        ErrorKind::TooLong => "shorten it",
    }
}

/// What is valid and yet hardly meant.
fn oddities<T: Maintained>(all: &ByName<T>) -> Vec<Finding> {
    let mut warnings = Vec::new();
    for found in all.values() {
        warnings.extend(found.unknown.iter().map(|field| Finding {
            field: Some(field.clone()),
            problem: "is no field of this kind and was ignored".into(),
            remedy: "check its spelling and its place".into(),
            ..found.place.clone()
        }));
        let what_an_api_server_would_do = match decide(&found.object.metadata().name, Some(&found.object)) {
            Action::Update(_, SpecFrom::BuiltIn) => "would restore its built-in spec",
            Action::Delete => "would delete it, because it is built in no more",
            _ => continue,
        };
        warnings.push(Finding {
            problem: format!("an API server {what_an_api_server_would_do}; usher takes it as it is here"),
            remedy: "set its annotation apf.kubernetes.io/autoupdate-spec to \"false\" if it is meant so"
                .into(),
            ..found.place.clone()
        });
    }
    warnings
}

/// The folder's objects, and the built-in ones that it does not replace.
///
/// parity: C19, the mandatory levels always exist here, so that no schema that refers to them dangles.
fn with_built_in<T: Maintained>(mut all: ByName<T>, suggested: bool) -> ByName<T> {
    let mut built_in = T::built_in(Class::Mandatory);
    if suggested {
        built_in.extend(T::built_in(Class::Suggested));
    }
    for object in built_in {
        let name = object.metadata().name.clone();
        let place = Finding { object: Some(format!("built-in {name:?}")), ..Finding::default() };
        all.entry(name).or_insert(Found { place, object, unknown: Vec::new() });
    }
    all
}

/// Gives the exempt level a struct of its own: the API allows it to be absent.
///
/// parity: C18, kube-apiserver ignores such a level.
fn complete_exempt(levels: &mut ByName<PriorityLevelConfiguration>) {
    let built_in = bootstrap::mandatory_levels().into_iter().find(|level| level.metadata.name == EXEMPT);
    if let (Some(found), Some(built_in)) = (levels.get_mut(EXEMPT), built_in)
        && found.object.spec.exempt.is_none()
    {
        found.object.spec.exempt = built_in.spec.exempt;
    }
}

/// The schemas whose level does not exist: no request comes to them.
fn dangling<'a>(
    schemas: &'a ByName<FlowSchema>,
    levels: &'a ByName<PriorityLevelConfiguration>,
) -> impl Iterator<Item = Finding> + 'a {
    let level_of = |schema: &FlowSchema| schema.spec.priority_level_configuration.name.clone();
    schemas.values().filter(move |found| !levels.contains_key(&level_of(&found.object))).map(move |found| {
        Finding {
            field: Some("spec.priorityLevelConfiguration.name".into()),
            problem: format!(
                "Dangling: there is no PriorityLevelConfiguration {:?}, so this schema matches nothing",
                level_of(&found.object)
            ),
            remedy: "add that level, or refer to another".into(),
            ..found.place.clone()
        }
    })
}
