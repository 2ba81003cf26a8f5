//! Resource rules.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::list::{Names, Verbs, is_wildcard};
use super::{Digest, Mismatch, Target};
use crate::objects;

/// A resource rule, ready to be compared.
#[derive(Clone, Debug)]
pub(super) struct ResourceRule {
    verbs: Verbs,
    groups: Names,
    resources: Resources,
    cluster_scope: bool,
    namespaces: Names,
}

/// A list of resources. `pods` is the resource alone, `pods/status` the subresource alone.
#[derive(Clone, Debug)]
enum Resources {
    All,
    Of(Vec<Resource>),
}

#[derive(Clone, Debug)]
struct Resource {
    name: Box<[u8]>,
    /// Empty: the resource itself.
    subresource: Box<[u8]>,
}

impl ResourceRule {
    pub(super) fn compile(rule: &objects::ResourceRule) -> Self {
        Self {
            verbs: Verbs::compile(&rule.verbs),
            groups: Names::compile(&rule.api_groups),
            resources: Resources::compile(&rule.resources),
            cluster_scope: rule.cluster_scope,
            namespaces: Names::compile(&rule.namespaces),
        }
    }

    /// Whether it matches; never, if the request is about a path.
    pub(super) fn check(&self, digest: &Digest<'_>) -> Result<(), Mismatch> {
        let Target::Resource { group, resource, subresource, namespace } = digest.target else {
            return Err(Mismatch::Sort);
        };
        if !self.verbs.contains(digest.verb) {
            Err(Mismatch::Verb)
        } else if !self.resources.contains(resource, subresource) {
            Err(Mismatch::Resource)
        } else if !self.groups.contains(group) {
            Err(Mismatch::ApiGroup)
        } else if namespace.is_empty() && self.cluster_scope
            || !namespace.is_empty() && self.namespaces.contains(namespace)
        {
            Ok(())
        } else {
            Err(Mismatch::Namespace)
        }
    }
}

impl Resources {
    fn compile(names: &[String]) -> Self {
        if is_wildcard(names) {
            return Self::All;
        }
        Self::Of(names.iter().filter_map(|name| Resource::compile(name)).collect())
    }

    fn contains(&self, name: &[u8], subresource: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Of(list) => {
                list.iter().any(|known| *known.name == *name && *known.subresource == *subresource)
            }
        }
    }
}

impl Resource {
    /// `None` if it can match nothing: a slash with nothing behind it.
    fn compile(text: &str) -> Option<Self> {
        let (name, subresource) = match text.split_once('/') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (text, ""),
        };
        Some(Self { name: name.as_bytes().into(), subresource: subresource.as_bytes().into() })
    }
}
