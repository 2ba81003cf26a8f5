//! Lists of names in rules. `*` counts as a wildcard only where it is the whole list; elsewhere it is a
//! name like any other.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// A list of names.
#[derive(Clone, Debug)]
pub(super) enum Names {
    All,
    Of(Vec<Box<[u8]>>),
}

/// A list of verbs. Those that usually occur are one bit each.
#[derive(Clone, Debug)]
pub(super) struct Verbs {
    usual: u32,
    others: Names,
}

/// A verb of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb<'a> {
    /// By its bit.
    Usual(u32),
    Other(&'a str),
}

/// Verbs of resources, then methods in lower case. Their places are their bits.
const USUAL: [&str; 14] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "proxy",
    "post",
    "put",
    "head",
    "options",
    "connect",
];

// === impl Names ===

impl Names {
    pub(super) fn compile(names: &[String]) -> Self {
        if is_wildcard(names) {
            return Self::All;
        }
        Self::Of(names.iter().map(|name| name.as_bytes().into()).collect())
    }

    pub(super) fn contains(&self, name: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Of(names) => names.iter().any(|known| **known == *name),
        }
    }
}

/// Whether the list stands for everything.
pub(super) fn is_wildcard(names: &[String]) -> bool {
    matches!(names, [only] if only == "*")
}

// === impl Verbs ===

impl Verbs {
    pub(super) fn compile(verbs: &[String]) -> Self {
        if is_wildcard(verbs) {
            return Self { usual: u32::MAX, others: Names::All };
        }
        let usual = verbs.iter().filter_map(|verb| bit(verb)).fold(0, |all, bit| all | bit);
        let others = verbs.iter().filter(|verb| bit(verb).is_none());
        Self { usual, others: Names::Of(others.map(|verb| verb.as_bytes().into()).collect()) }
    }

    pub(super) fn contains(&self, verb: Verb<'_>) -> bool {
        match verb {
            Verb::Usual(bit) => self.usual & bit != 0,
            Verb::Other(name) => self.others.contains(name.as_bytes()),
        }
    }
}

impl<'a> Verb<'a> {
    pub(crate) fn of(verb: &'a str) -> Self {
        bit(verb).map_or(Self::Other(verb), Self::Usual)
    }
}

fn bit(verb: &str) -> Option<u32> {
    USUAL.iter().position(|usual| *usual == verb).map(|place| 1 << place)
}
