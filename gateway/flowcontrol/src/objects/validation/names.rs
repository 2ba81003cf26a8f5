//! The forms of names that the whole Kubernetes API shares: each function says what is wrong with a name.
//!
//! RFC 1123 labels and subdomains; label keys ("qualified names": an optional subdomain, `/`, a name) and
//! label values. Lengths are in bytes. Facts from `k8s.io/apimachinery`, `validate/content`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Length of a DNS label.
const LABEL_MAX: usize = 63;
/// Length of a DNS name.
const SUBDOMAIN_MAX: usize = 253;
/// Length of a label key's name part, and of a label value.
const LABEL_KEY_MAX: usize = 63;

const LABEL_FORM: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const KEY_FORM: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                        with an alphanumeric character";

/// What lengths are called in the names of objects, and in the keys and values of labels: two generations
/// of the API's own checks, which count alike.
const CHARACTERS: &str = "characters";
const BYTES: &str = "bytes";

/// An RFC 1123 subdomain: labels between dots.
pub(super) fn subdomain(name: &str) -> Vec<String> {
    subdomain_in(name, CHARACTERS)
}

fn subdomain_in(name: &str, unit: &str) -> Vec<String> {
    let mut wrong = too_long(name, SUBDOMAIN_MAX, unit);
    if !is_subdomain(name) {
        wrong.push(form(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character",
            &format!("{LABEL_FORM}(\\.{LABEL_FORM})*"),
            &["example.com"],
        ));
    }
    wrong
}

/// An RFC 1123 label.
pub(super) fn label(name: &str) -> Vec<String> {
    let mut wrong = too_long(name, LABEL_MAX, CHARACTERS);
    if is_label(name) {
        return wrong;
    }
    wrong.push(if is_subdomain(name) {
        "must not contain dots".into()
    } else {
        form(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
             start and end with an alphanumeric character",
            LABEL_FORM,
            &["my-name", "123-abc"],
        )
    });
    wrong
}

/// A label key, which is also the form of annotation keys and finalizers.
pub(super) fn label_key(key: &str) -> Vec<String> {
    let examples = &["MyName", "my.name", "123-abc"];
    let mut parts = key.split('/');
    let (prefix, name) = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => (None, name),
        (Some(prefix), Some(name), None) => (Some(prefix), name),
        _ => {
            let form = form(KEY_RULE, KEY_FORM, examples);
            let prefix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return [format!("a valid label key {form} {prefix}")].into();
        }
    };
    let mut wrong = match prefix {
        None => Vec::new(),
        Some("") => ["prefix part must be non-empty".into()].into(),
        Some(prefix) => {
            subdomain_in(prefix, BYTES).iter().map(|wrong| format!("prefix part {wrong}")).collect()
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".into());
    }
    wrong.extend(too_long(name, LABEL_KEY_MAX, BYTES).iter().map(|wrong| format!("name part {wrong}")));
    if !is_key_name(name) {
        wrong.push(format!("name part {}", form(KEY_RULE, KEY_FORM, examples)));
    }
    wrong
}

/// A label value, which may be empty.
pub(super) fn label_value(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, LABEL_KEY_MAX, BYTES);
    if !value.is_empty() && !is_key_name(value) {
        let rule = format!("a valid label must be an empty string or {}", &KEY_RULE["must ".len()..]);
        wrong.push(form(&rule, &format!("({KEY_FORM})?"), &["MyValue", "my_value", "12345"]));
    }
    wrong
}

fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.bytes().all(inner) && !name.is_empty() && !name.starts_with('-') && !name.ends_with('-')
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

fn is_key_name(name: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    edge(name.bytes().next())
        && edge(name.bytes().last())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn too_long(name: &str, max: usize, unit: &str) -> Vec<String> {
    if name.len() > max { [format!("must be no more than {max} {unit}")].into() } else { Vec::new() }
}

/// The API's way of showing a form. Two blanks stand before every `or`, as they do there.
fn form(rule: &str, expression: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}'")).collect();
    format!("{rule} (e.g. {}, regex used for validation is '{expression}')", examples.join(",  or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_too_long_in_characters_and_labels_in_bytes() {
        let long = "a".repeat(254);
        assert_eq!(subdomain(&long), ["must be no more than 253 characters"]);
        assert_eq!(label(&long), ["must be no more than 63 characters"]);
        assert_eq!(label_value(&long), ["must be no more than 63 bytes"]);
        assert_eq!(
            label_key(&format!("{long}/{long}")),
            ["prefix part must be no more than 253 bytes", "name part must be no more than 63 bytes"]
        );
    }
}
