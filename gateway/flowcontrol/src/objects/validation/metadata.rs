//! The rules for metadata that hold for every cluster-scoped kind of the API.
//!
//! Owners and managed fields are not looked at: nothing in flow control reads them, and the objects that
//! come from an API server have passed its own checks.

use alloc::format;
use alloc::string::String;

use super::{Errors, Path, names};
use crate::objects::ObjectMeta;

/// Bytes of all annotations of an object together: the API server's limit.
const ANNOTATIONS_MAX: usize = 256 * 1024;
/// Finalizers that need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", ORPHAN, FOREGROUND];
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

pub(super) fn check(errors: &mut Errors, metadata: &ObjectMeta) {
    let at = Path::root("metadata");
    let prefix = metadata.generate_name.as_str();
    if !prefix.is_empty() {
        errors.invalid_each(&at.child("generateName"), prefix, names::subdomain(&as_if_completed(prefix)));
    }
    match metadata.name.as_str() {
        "" => errors.required(&at.child("name"), "name or generateName is required"),
        name => errors.invalid_each(&at.child("name"), name, names::subdomain(name)),
    }
    if !metadata.namespace.is_empty() {
        errors.forbidden(&at.child("namespace"), "not allowed on this type");
    }
    if metadata.generation < 0 {
        let detail = "must be greater than or equal to 0";
        errors.invalid(&at.child("generation"), metadata.generation, detail);
    }
    for (key, value) in &metadata.labels {
        errors.invalid_each(&at.child("labels"), key, names::label_key(key));
        errors.invalid_each(&at.child("labels"), value, names::label_value(value));
    }
    check_annotations(errors, &at.child("annotations"), metadata);
    check_finalizers(errors, &at.child("finalizers"), &metadata.finalizers);
}

/// Letter case does not matter in the keys of annotations.
fn check_annotations(errors: &mut Errors, at: &Path, metadata: &ObjectMeta) {
    for key in metadata.annotations.keys() {
        // One character each: the API server's lower case never grows a string ('İ' becomes 'i').
        let lower: String = key.chars().flat_map(|letter| letter.to_lowercase().take(1)).collect();
        errors.invalid_each(at, key, names::label_key(&lower));
    }
    let bytes: usize = metadata.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > ANNOTATIONS_MAX {
        errors.too_long(at, ANNOTATIONS_MAX);
    }
}

fn check_finalizers(errors: &mut Errors, at: &Path, finalizers: &[String]) {
    for name in finalizers {
        errors.invalid_each(at, name, names::label_key(name));
    }
    let has = |wanted| finalizers.iter().any(|name| name == wanted);
    if has(ORPHAN) && has(FOREGROUND) {
        let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        errors.invalid(at, format!("{finalizers:?}"), detail);
    }
    for (index, name) in finalizers.iter().enumerate() {
        if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name.as_str()) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(&at.index(index), format!("{name:?}"), detail);
        }
    }
}

/// A prefix may end in a dash, because a generated name goes on after it.
fn as_if_completed(prefix: &str) -> String {
    match prefix.strip_suffix('-').and_then(|stem| stem.get(..stem.len().checked_sub(1)?)) {
        Some(stem) => format!("{stem}a"),
        None => prefix.into(),
    }
}
