//! Non-resource rules.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Mismatch;
use super::list::{Verb, Verbs};
use crate::objects;

/// A rule about paths, ready to be compared.
#[derive(Clone, Debug)]
pub(super) struct PathRule {
    verbs: Verbs,
    patterns: Vec<Pattern>,
}

/// What a path must be, or begin with.
#[derive(Clone, Debug)]
enum Pattern {
    All,
    /// A path, and what is below it. With or without a `*` at the end: kube-apiserver makes no
    /// difference, but that the path itself is not meant where there is one.
    Path {
        exact: Box<[u8]>,
        /// Ends with a slash.
        prefix: Box<[u8]>,
    },
}

impl PathRule {
    pub(super) fn compile(rule: &objects::NonResourceRule) -> Self {
        let patterns = rule.non_resource_urls.iter().map(|url| Pattern::compile(url)).collect();
        Self { verbs: Verbs::compile(&rule.verbs), patterns }
    }

    pub(super) fn check(&self, verb: Verb<'_>, path: &[u8]) -> Result<(), Mismatch> {
        if !self.verbs.contains(verb) {
            Err(Mismatch::Verb)
        } else if !self.patterns.iter().any(|pattern| pattern.matches(path)) {
            Err(Mismatch::Path)
        } else {
            Ok(())
        }
    }
}

impl Pattern {
    fn compile(url: &str) -> Self {
        if url == "*" {
            return Self::All;
        }
        let mut prefix = url.strip_suffix('*').unwrap_or(url).as_bytes().to_vec();
        if !prefix.ends_with(b"/") {
            prefix.push(b'/');
        }
        Self::Path { exact: url.as_bytes().into(), prefix: prefix.into() }
    }

    fn matches(&self, path: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Path { exact, prefix } => *path == **exact || path.starts_with(prefix),
        }
    }
}
