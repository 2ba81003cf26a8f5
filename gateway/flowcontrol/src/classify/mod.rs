//! Whether the rules of a flow schema match a request: subjects against a user, rules against a digest.
//!
//! KEP-1040, "Request Categorization". Rules are compiled once, when a [`crate::plan::Plan`] is, so that
//! a request costs comparisons only: no allocation, no search for wildcards, no joining of names. A rule
//! matches if one of its subjects and one of its resource rules (for requests about a path: non-resource
//! rules) do; a schema matches if one of its rules does.

mod list;
mod path;
mod resource;
mod subject;

use alloc::string::String;
use alloc::vec::Vec;

pub(crate) use list::Verb;

use crate::objects::PolicyRules;
use crate::request_info::RequestInfo;
use path::PathRule;
use resource::ResourceRule;
use subject::Subject;

/// Who asks: all that matching looks at.
#[derive(Clone, Copy, Debug)]
pub struct User<'a> {
    /// User name.
    pub name: &'a str,
    /// Groups, `system:authenticated` included.
    pub groups: &'a [String],
}

/// How far a request got with the rules of a schema that did not match it. Later is farther.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mismatch {
    /// There is no rule.
    NoRules,
    /// No subject is the user.
    Subject,
    /// The rules about subjects that match are all of the other sort: resources, or paths.
    Sort,
    /// No such verb.
    Verb,
    /// Verbs match, resources (and subresources) do not.
    Resource,
    /// These match, API groups do not.
    ApiGroup,
    /// These match, namespaces do not (or the request has none, and cluster scope is not included).
    Namespace,
    /// Verbs match, paths do not.
    Path,
}

/// The rules of one schema.
#[derive(Clone, Debug)]
pub(crate) struct Rules(Vec<Rule>);

/// What rules look at in a request, found out once for all schemas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest<'a> {
    verb: Verb<'a>,
    target: Target<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Target<'a> {
    Resource { group: &'a [u8], resource: &'a [u8], subresource: &'a [u8], namespace: &'a [u8] },
    Path(&'a [u8]),
}

#[derive(Clone, Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

// === impl Rules ===

impl Rules {
    /// Rules as written. What can match nothing is dropped.
    pub(crate) fn compile(rules: &[PolicyRules]) -> Self {
        Self(rules.iter().map(Rule::compile).collect())
    }

    /// Whether they match.
    pub(crate) fn check(&self, user: User<'_>, digest: &Digest<'_>) -> Result<(), Mismatch> {
        first_match(Mismatch::NoRules, self.0.iter().map(|rule| rule.check(user, digest)))
    }

    /// Whether a user is a subject of them; whatever it asks for, they match nobody else.
    pub(crate) fn concern(&self, user: User<'_>) -> bool {
        self.0.iter().any(|rule| rule.concerns(user))
    }
}

impl Rule {
    fn compile(rules: &PolicyRules) -> Self {
        Self {
            subjects: rules.subjects.iter().filter_map(Subject::compile).collect(),
            resources: rules.resource_rules.iter().map(ResourceRule::compile).collect(),
            paths: rules.non_resource_rules.iter().map(PathRule::compile).collect(),
        }
    }

    fn concerns(&self, user: User<'_>) -> bool {
        self.subjects.iter().any(|subject| subject.matches(user))
    }

    fn check(&self, user: User<'_>, digest: &Digest<'_>) -> Result<(), Mismatch> {
        if !self.concerns(user) {
            return Err(Mismatch::Subject);
        }
        match digest.target {
            Target::Resource { .. } => {
                first_match(Mismatch::Sort, self.resources.iter().map(|rule| rule.check(digest)))
            }
            Target::Path(path) => {
                first_match(Mismatch::Sort, self.paths.iter().map(|rule| rule.check(digest.verb, path)))
            }
        }
    }
}

/// Whether one matches; else how far the best one got.
fn first_match(
    none: Mismatch,
    mut rules: impl Iterator<Item = Result<(), Mismatch>>,
) -> Result<(), Mismatch> {
    let best = rules.try_fold(none, |best, rule| match rule {
        Ok(()) => None,
        Err(mismatch) => Some(best.max(mismatch)),
    });
    best.map_or(Ok(()), Err)
}

// === impl Digest ===

impl<'a> Digest<'a> {
    /// What matters of a request.
    pub(crate) fn of(info: &'a RequestInfo<'_>) -> Self {
        let target = if info.is_resource_request() {
            Target::Resource {
                group: info.api_group(),
                resource: info.resource(),
                subresource: info.subresource(),
                namespace: info.namespace(),
            }
        } else {
            Target::Path(info.path())
        };
        Self { verb: Verb::of(info.verb()), target }
    }
}

#[cfg(test)]
mod tests;
