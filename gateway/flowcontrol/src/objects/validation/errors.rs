//! Field errors, as kube-apiserver prints them, and how they are collected.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Display};

/// Errors reported of one object: a list of a million broken elements shall not become as many messages.
const ERRORS_MAX: usize = 1000;

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, such as `spec.rules[0].subjects[1].user`.
    pub field: String,
    /// What sort of error it is.
    pub kind: ErrorKind,
    /// The refused value, where there is one to show.
    pub value: Option<String>,
    /// What would be right; may be empty where the kind says it all.
    pub detail: String,
}

/// The sorts of field errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorKind {
    /// It must be there and is not.
    Required,
    /// Its value is against a rule.
    Invalid,
    /// Its value is none of the few possible ones.
    NotSupported,
    /// It must not be there.
    Forbidden,
    /// It must be unique in its list and is not.
    Duplicate,
    /// It is longer than allowed.
    TooLong,
}

/// Path of a field.
pub(super) struct Path(String);

impl Path {
    pub(super) fn root(name: &str) -> Self {
        Self(name.to_string())
    }

    pub(super) fn child(&self, name: &str) -> Self {
        Self(format!("{}.{name}", self.0))
    }

    pub(super) fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }
}

/// The errors found so far. Invariant: at most [`ERRORS_MAX`].
#[derive(Default)]
pub(super) struct Errors(Vec<FieldError>);

impl Errors {
    /// All of them.
    pub(super) fn into_list(self) -> Vec<FieldError> {
        self.0
    }

    fn push(&mut self, at: &Path, kind: ErrorKind, value: Option<String>, detail: String) {
        if self.0.len() < ERRORS_MAX {
            self.0.push(FieldError { field: at.0.clone(), kind, value, detail });
        }
    }

    pub(super) fn required(&mut self, at: &Path, detail: &str) {
        self.push(at, ErrorKind::Required, None, detail.to_string());
    }

    pub(super) fn duplicate(&mut self, at: &Path, value: &str) {
        self.push(at, ErrorKind::Duplicate, Some(format!("{value:?}")), String::new());
    }

    pub(super) fn too_long(&mut self, at: &Path, bytes_max: usize) {
        self.push(at, ErrorKind::TooLong, None, format!("may not be more than {bytes_max} bytes"));
    }

    pub(super) fn required_member(&mut self, at: &Path, member: &str, kind: &str) {
        self.required(&at.child(member), &format!("{member} is required when subject kind is '{kind}'"));
    }

    pub(super) fn forbidden(&mut self, at: &Path, detail: &str) {
        self.push(at, ErrorKind::Forbidden, None, detail.to_string());
    }

    /// `value` may be empty where it would be too long to show.
    pub(super) fn invalid(&mut self, at: &Path, value: impl Display, detail: impl Into<String>) {
        let value = Some(value.to_string()).filter(|value| !value.is_empty());
        self.push(at, ErrorKind::Invalid, value, detail.into());
    }

    /// One error for each thing that is wrong with the value.
    pub(super) fn invalid_each<T: Into<String>>(
        &mut self,
        at: &Path,
        value: &str,
        wrong: impl IntoIterator<Item = T>,
    ) {
        for detail in wrong {
            self.invalid(at, format!("{value:?}"), detail);
        }
    }

    pub(super) fn mixed_wildcard(&mut self, at: &Path, list: &[String], others: &str) {
        let detail = format!("if '*' is present, must not specify other {others}");
        self.invalid(at, format!("{list:?}"), detail);
    }

    /// `supported` is sorted.
    pub(super) fn one_of(&mut self, at: &Path, value: &str, supported: &[&str]) {
        if !supported.contains(&value) {
            self.not_supported(at, format!("{value:?}"), supported);
        }
    }

    pub(super) fn not_supported(&mut self, at: &Path, value: String, supported: &[&str]) {
        let quoted: Vec<String> = supported.iter().map(|one| format!("\"{one}\"")).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        self.push(at, ErrorKind::NotSupported, Some(value), detail);
    }
}

impl Display for FieldError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: {}", self.field, self.kind)?;
        if let Some(value) = &self.value {
            write!(to, ": {value}")?;
        }
        if !self.detail.is_empty() {
            write!(to, ": {}", self.detail)?;
        }
        Ok(())
    }
}

impl Display for ErrorKind {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::TooLong => "Too long",
        })
    }
}
