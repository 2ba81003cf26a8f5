//! How many watches a write will wake.
//!
//! Watches are counted by API group, resource, namespace and name, as far as they name them. A write
//! interests those that watch all objects of its resource, all of its namespace, and its object. Watches
//! on pods of one node are left out: each pod interests only one of so many. Only the watches of this
//! server are known. Source: kube-apiserver's watch tracker, apf-behaviour 1.29.
//!
//! [`Watches`] is the table of one thread. Many threads that share one keep it in pieces ([`Shard`]), find the piece by a
//! key's hash, and ask each for what a write wakes ([`Keys::interests`]).

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::hash::{BuildHasher, Hash, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::request_info::{ListOptions, RequestInfo};

/// The watches that run now.
#[derive(Debug, Default)]
pub struct Watches {
    keys: Keys,
    counts: Shard,
}

/// One watch that runs. Give it back when it ends.
#[derive(Debug)]
#[must_use = "a watch that is not forgotten is counted for ever"]
pub struct Watch(Option<Scope>);

/// Counts of watches, or of some of them, by what they are about. All keys are made by the same [`Keys`].
///
/// Invariant: no count is 0; their sum is the number of watches added and not removed yet.
#[derive(Clone, Debug, Default)]
pub struct Shard {
    counts: HashTable<(Scope, u64)>,
}

/// Makes keys: hashes that nobody outside can foresee.
#[derive(Debug, Default)]
pub struct Keys(DefaultHashBuilder);

/// What a watch is about, and its hash. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Scope(Arc<(u64, Named)>);

#[derive(Debug)]
struct Named {
    group: Box<[u8]>,
    resource: Box<[u8]>,
    namespace: Box<[u8]>,
    name: Box<[u8]>,
}

/// The same, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    hash: u64,
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
        let watch = self.keys.watch(request)?;
        watch.scope().into_iter().for_each(|scope| self.counts.add(scope));
        Some(watch)
    }

    /// A watch has ended.
    pub fn forget(&mut self, watch: Watch) {
        watch.scope().into_iter().for_each(|scope| self.counts.remove(scope));
    }

    /// How many watches a request will wake; none if it only reads.
    #[must_use]
    pub fn interested(&self, request: &RequestInfo<'_>) -> u64 {
        self.keys.interests(request).map(|key| self.counts.count(key)).sum()
    }
}

// === impl Keys ===

impl Keys {
    /// A request, if it is a watch. It is not counted by that.
    #[must_use]
    pub fn watch(&self, request: &RequestInfo<'_>) -> Option<Watch> {
        if request.verb() != "watch" {
            return None;
        }
        let of_all = || self.key(&self.of_resource(request), request, request.namespace(), request.name());
        Some(Watch((!is_of_one_node(request)).then(|| of_all().to_owned())))
    }

    /// What watches are about that a request will wake: all objects of its resource, all of its namespace, its object.
    /// Nothing if it only reads.
    pub fn interests<'a>(&self, request: &'a RequestInfo<'_>) -> impl Iterator<Item = Key<'a>> {
        let writes = !matches!(request.verb(), "get" | "list" | "watch" | "proxy");
        let (namespace, name) = (request.namespace(), request.name());
        let scopes: [(bool, &[u8], &[u8]); 3] =
            [(true, b"", b""), (!namespace.is_empty(), namespace, b""), (!name.is_empty(), namespace, name)];
        let resource = self.of_resource(request);
        scopes
            .into_iter()
            .filter(move |(there_is, ..)| writes && *there_is)
            .map(move |(_, namespace, name)| self.key(&resource, request, namespace, name))
    }

    fn of_resource(&self, request: &RequestInfo<'_>) -> <DefaultHashBuilder as BuildHasher>::Hasher {
        let mut hasher = self.0.build_hasher();
        (request.api_group(), request.resource()).hash(&mut hasher);
        hasher
    }

    fn key<'a>(
        &self,
        resource: &<DefaultHashBuilder as BuildHasher>::Hasher,
        request: &'a RequestInfo<'_>,
        namespace: &'a [u8],
        name: &'a [u8],
    ) -> Key<'a> {
        let mut hasher = resource.clone();
        (namespace, name).hash(&mut hasher);
        Key {
            hash: hasher.finish(),
            group: request.api_group(),
            resource: request.resource(),
            namespace,
            name,
        }
    }
}

// === impl Shard ===

impl Shard {
    /// One more watch is about that.
    pub fn add(&mut self, scope: &Scope) {
        let key = scope.key();
        match self.counts.find_mut(key.hash, |(other, _)| key.is_of(other)) {
            Some((_, count)) => *count += 1,
            None => {
                self.counts.insert_unique(key.hash, (scope.clone(), 1), |(other, _)| other.key().hash);
            }
        }
    }

    /// One less is about that.
    pub fn remove(&mut self, scope: &Scope) {
        let key = scope.key();
        if let Ok(mut found) = self.counts.find_entry(key.hash, |(other, _)| key.is_of(other)) {
            let (_, count) = found.get_mut();
            *count -= 1;
            if *count == 0 {
                found.remove();
            }
        }
    }

    /// How many watches are about just that.
    #[must_use]
    pub fn count(&self, key: Key<'_>) -> u64 {
        self.counts.find(key.hash, |(scope, _)| key.is_of(scope)).map_or(0, |(_, count)| *count)
    }

    /// There is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

// === impl Watch ===

impl Watch {
    /// What it is about; `None` if it is not among those that are counted.
    #[must_use]
    pub fn scope(&self) -> Option<&Scope> {
        self.0.as_ref()
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

// === impl Scope ===

impl Scope {
    /// The same, borrowed.
    #[must_use]
    pub fn key(&self) -> Key<'_> {
        let (hash, Named { group, resource, namespace, name }) = &*self.0;
        Key { hash: *hash, group, resource, namespace, name }
    }
}

// === impl Key ===

impl Key<'_> {
    /// Whoever keeps the counts in pieces finds the piece by that.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    fn is_of(&self, scope: &Scope) -> bool {
        let (hash, Named { group, resource, namespace, name }) = &*scope.0;
        self.hash == *hash
            && *self.name == **name
            && *self.namespace == **namespace
            && *self.resource == **resource
            && *self.group == **group
    }

    fn to_owned(self) -> Scope {
        let Self { hash, group, resource, namespace, name } = self;
        let named = Named {
            group: group.into(),
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
        };
        Scope(Arc::new((hash, named)))
    }
}

#[cfg(test)]
mod tests;
