//! How many watches a write will wake.
//!
//! Watches are counted by API group, resource, namespace and name, as far as they name them. A write
//! interests those that watch all objects of its resource, all of its namespace, and its object. Watches
//! on pods of one node are left out: each pod interests only one of so many. Only the watches of this
//! server are known. Source: kube-apiserver's watch tracker, apf-behaviour 1.29.

use alloc::boxed::Box;
use core::hash::Hash;

use hashbrown::{Equivalent, HashMap};

use crate::request_info::{ListOptions, RequestInfo};

/// The watches that run now.
///
/// Invariant: no count is 0; their sum is the number of counted [`Watch`]es not forgotten yet.
#[derive(Debug, Default)]
pub struct Watches {
    counts: HashMap<Scope, u64>,
}

/// One watch that runs. Give it back to [`Watches::forget`] when it ends.
#[derive(Debug)]
#[must_use = "a watch that is not forgotten is counted for ever"]
pub struct Watch(Option<Scope>);

/// What a watch is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Scope {
    group: Box<[u8]>,
    resource: Box<[u8]>,
    namespace: Box<[u8]>,
    name: Box<[u8]>,
}

/// The same, borrowed. Hashes as [`Scope`] does, member by member.
#[derive(Clone, Copy, Hash)]
struct ScopeRef<'a> {
    group: &'a [u8],
    resource: &'a [u8],
    namespace: &'a [u8],
    name: &'a [u8],
}

/// The resource that is indexed (of any API group, as in kube-apiserver), and by which field.
const INDEXED: (&[u8], &[u8]) = (b"pods", b"spec.nodeName");
/// What the index calls watches that name no node; a client that writes it is counted among them.
const UNSET: &[u8] = b"<unset>";

// === impl Watches ===

impl Watches {
    /// Counts a request if it is a watch.
    pub fn register(&mut self, request: &RequestInfo<'_>) -> Option<Watch> {
        if request.verb() != "watch" {
            return None;
        }
        if is_of_one_node(request) {
            return Some(Watch(None));
        }
        let scope = ScopeRef::of(request).to_owned();
        *self.counts.entry(scope.clone()).or_insert(0) += 1;
        Some(Watch(Some(scope)))
    }

    /// A watch has ended.
    pub fn forget(&mut self, watch: Watch) {
        let Some(scope) = watch.0 else { return };
        if let Some(count) = self.counts.get_mut(&scope) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&scope);
            }
        }
    }

    /// How many watches a request will wake; none if it only reads.
    #[must_use]
    pub fn interested(&self, request: &RequestInfo<'_>) -> u64 {
        if self.counts.is_empty() || matches!(request.verb(), "get" | "list" | "watch" | "proxy") {
            return 0;
        }
        let object = ScopeRef::of(request);
        let all = ScopeRef { namespace: b"", name: b"", ..object };
        let mut count = self.count(all);
        if !object.namespace.is_empty() {
            count += self.count(ScopeRef { name: b"", ..object });
        }
        if !object.name.is_empty() {
            count += self.count(object);
        }
        count
    }

    fn count(&self, scope: ScopeRef<'_>) -> u64 {
        self.counts.get(&scope).copied().unwrap_or(0)
    }
}

/// Whether the request watches the pods of one node. Options that cannot be decoded name none.
fn is_of_one_node(request: &RequestInfo<'_>) -> bool {
    let (resource, field) = INDEXED;
    if request.resource() != resource {
        return false;
    }
    let options = ListOptions::decode(request.query());
    let node = options.and_then(|options| options.into_required(field));
    node.is_ok_and(|node| node.is_some_and(|node| !node.is_empty() && *node != *UNSET))
}

// === impl ScopeRef ===

impl<'a> ScopeRef<'a> {
    fn of(request: &'a RequestInfo<'_>) -> Self {
        Self {
            group: request.api_group(),
            resource: request.resource(),
            namespace: request.namespace(),
            name: request.name(),
        }
    }

    fn to_owned(self) -> Scope {
        Scope {
            group: self.group.into(),
            resource: self.resource.into(),
            namespace: self.namespace.into(),
            name: self.name.into(),
        }
    }
}

impl Equivalent<Scope> for ScopeRef<'_> {
    fn equivalent(&self, scope: &Scope) -> bool {
        *self.name == *scope.name
            && *self.namespace == *scope.namespace
            && *self.resource == *scope.resource
            && *self.group == *scope.group
    }
}

#[cfg(test)]
mod tests;
