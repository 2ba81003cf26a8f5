//! Rules beyond those that the golden vectors exercise.

use alloc::string::ToString;
use alloc::vec;

use super::*;
use crate::objects::ObjectMeta;

/// The errors' fields and details for a level called `x` with this metadata and a sound spec.
fn metadata_errors(metadata: ObjectMeta) -> Vec<(String, String)> {
    let name = if metadata.name.is_empty() { "x".into() } else { metadata.name.clone() };
    let mut level = bootstrap::suggested_levels().swap_remove(0);
    level.metadata = ObjectMeta { name, ..metadata };
    check_level(&level).into_iter().map(|error| (error.field, error.detail)).collect()
}

fn assert_one(errors: &[(String, String)], field: &str, starts: &str) {
    assert!(
        matches!(errors, [(at, detail)] if at == field && detail.starts_with(starts)),
        "expected {field}: {starts}…, found {errors:?}"
    );
}

#[test]
fn built_in_objects_are_valid() {
    for level in bootstrap::mandatory_levels().iter().chain(&bootstrap::suggested_levels()) {
        assert_eq!(check_level(level), []);
    }
    for schema in bootstrap::mandatory_schemas().iter().chain(&bootstrap::suggested_schemas()) {
        assert_eq!(check_schema(schema), []);
    }
}

#[test]
fn metadata_follows_the_rules_of_every_kind() {
    let with = |change: fn(&mut ObjectMeta)| {
        let mut metadata = ObjectMeta::default();
        change(&mut metadata);
        metadata_errors(metadata)
    };
    assert_eq!(with(|_| {}), []);
    assert_eq!(with(|m| m.generate_name = "team-".into()), []);
    assert_one(&with(|m| m.generate_name = "-".into()), "metadata.generateName", "a lowercase RFC 1123");
    assert_one(&with(|m| m.generate_name = "é-".into()), "metadata.generateName", "a lowercase RFC 1123");
    assert_one(&with(|m| m.generation = -1), "metadata.generation", "must be greater than or equal to 0");
    assert_eq!(with(|m| m.labels = [("a.b/c_D".into(), String::new())].into()), []);
    assert_one(
        &with(|m| m.labels = [("a".into(), "-".into())].into()),
        "metadata.labels",
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
         must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex",
    );
    assert_one(
        &with(|m| m.labels = [("a".into(), "x".repeat(64))].into()),
        "metadata.labels",
        "must be no more than 63 bytes",
    );
    assert_one(
        &with(|m| m.labels = [("A.b/c".into(), "v".into())].into()),
        "metadata.labels",
        "prefix part a lowercase RFC 1123 subdomain",
    );
    assert_eq!(with(|m| m.annotations = [("EXAMPLE.com/Note".into(), "v".into())].into()), []);
    assert_one(
        &with(|m| m.annotations = [("a".into(), "v".repeat(256 * 1024))].into()),
        "metadata.annotations",
        "may not be more than 262144 bytes",
    );
    assert_eq!(with(|m| m.finalizers = ["kubernetes".into(), "example.com/done".into()].into()), []);
    assert_one(
        &with(|m| m.finalizers = ["mine".into()].into()),
        "metadata.finalizers[0]",
        "name is neither a standard finalizer name",
    );
    assert_one(
        &with(|m| m.finalizers = ["orphan".into(), "foregroundDeletion".into()].into()),
        "metadata.finalizers",
        "finalizer orphan and foregroundDeletion cannot be both set",
    );
}

#[test]
fn an_empty_key_has_two_faults() {
    let errors = metadata_errors(ObjectMeta {
        labels: [(String::new(), String::new())].into(),
        ..ObjectMeta::default()
    });
    let details: Vec<&str> = errors.iter().map(|(_, detail)| detail.as_str()).collect();
    assert!(
        matches!(details[..], ["name part must be non-empty", form] if form.starts_with("name part must consist")),
        "{details:?}"
    );
}

#[test]
fn a_namespace_with_dots_is_told_so() {
    assert_eq!(names::label("a.b"), ["must not contain dots"]);
    assert_eq!(names::label(&"a".repeat(64)), ["must be no more than 63 characters"]);
    assert_eq!(names::label("").len(), 1);
}

#[test]
fn an_error_reads_as_the_api_prints_it() {
    let mut schema = bootstrap::suggested_schemas().swap_remove(0);
    schema.spec.matching_precedence = -9;
    schema.spec.rules[0].subjects[0].kind = "Robot".into();
    schema.spec.rules[0].resource_rules[0].verbs.clear();
    let errors: Vec<String> = check_schema(&schema).iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            "spec.matchingPrecedence: Invalid value: -9: must be a positive value",
            "spec.rules[0].subjects[0].kind: Unsupported value: \"Robot\": \
             supported values: \"Group\", \"ServiceAccount\", \"User\"",
            "spec.rules[0].resourceRules[0].verbs: Required value: verbs must contain at least one value",
        ]
    );
}

#[test]
fn errors_are_bounded() {
    let mut schema = bootstrap::suggested_schemas().swap_remove(0);
    schema.spec.rules = vec![PolicyRules::default(); 100_000];
    assert_eq!(check_schema(&schema).len(), 1000);
}
