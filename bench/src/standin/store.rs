//! The stand-in's objects: a few kinds in memory, one version counter, one stream of events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::broadcast;

/// A kind that the stand-in serves.
#[derive(Debug)]
pub struct Kind {
    /// Plural, lower case: `pods`.
    pub resource: &'static str,
    /// `Pod`.
    pub kind: &'static str,
    /// API group; empty for core.
    pub group: &'static str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Short names that kubectl accepts.
    pub short: &'static [&'static str],
}

/// Everything it serves.
pub const KINDS: &[Kind] = &[
    Kind { resource: "configmaps", kind: "ConfigMap", group: "", namespaced: true, short: &["cm"] },
    Kind { resource: "events", kind: "Event", group: "", namespaced: true, short: &["ev"] },
    Kind { resource: "namespaces", kind: "Namespace", group: "", namespaced: false, short: &["ns"] },
    Kind { resource: "nodes", kind: "Node", group: "", namespaced: false, short: &["no"] },
    Kind { resource: "pods", kind: "Pod", group: "", namespaced: true, short: &["po"] },
    Kind { resource: "leases", kind: "Lease", group: "coordination.k8s.io", namespaced: true, short: &[] },
];

/// Events that a slow watcher may fall behind before it is told to start again (410).
const EVENTS_BUFFERED: usize = 4096;

/// One change.
#[derive(Clone, Debug)]
pub struct Event {
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub change: &'static str,
    /// The kind's plural.
    pub resource: &'static str,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: String,
    /// The object afterwards (before, if it was deleted).
    pub object: Arc<Value>,
}

/// The objects and their history's end.
#[derive(Debug)]
pub struct Store {
    inner: Mutex<Inner>,
    events: broadcast::Sender<Event>,
}

#[derive(Debug, Default)]
struct Inner {
    version: u64,
    objects: BTreeMap<(&'static str, String, String), Arc<Value>>,
}

/// Why a write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such object.
    NotFound,
    /// There is one already.
    AlreadyExists,
    /// The body is not an object with a name.
    Invalid,
}

impl Kind {
    /// `v1` or `group/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { "v1".to_owned() } else { format!("{}/v1", self.group) }
    }

    /// The kind of that group and plural.
    pub fn find(group: &str, resource: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.group == group && kind.resource == resource)
    }
}

impl Default for Store {
    fn default() -> Self {
        Self { inner: Mutex::default(), events: broadcast::channel(EVENTS_BUFFERED).0 }
    }
}

impl Store {
    /// Its version now and the objects of a kind, of one namespace if that is not empty.
    pub fn list(&self, kind: &Kind, namespace: &str) -> (u64, Vec<Arc<Value>>) {
        let inner = self.inner.lock().expect("no holder panics");
        let objects = inner
            .objects
            .iter()
            .filter(|((resource, space, _), _)| {
                *resource == kind.resource && (namespace.is_empty() || space == namespace)
            })
            .map(|(_, object)| Arc::clone(object))
            .collect();
        (inner.version, objects)
    }

    /// One object.
    pub fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let inner = self.inner.lock().expect("no holder panics");
        inner.objects.get(&(kind.resource, namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Writes an object: `create` if there must be none yet. A patch is a write of the merged object.
    pub fn write(
        &self,
        kind: &Kind,
        namespace: &str,
        name: Option<&str>,
        mut object: Value,
        create: bool,
    ) -> Result<Arc<Value>, Refusal> {
        let named = object.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned);
        let name = name.map(str::to_owned).or(named).ok_or(Refusal::Invalid)?;
        let Some(members) = object.as_object_mut() else { return Err(Refusal::Invalid) };
        members.insert("apiVersion".to_owned(), kind.api_version().into());
        members.insert("kind".to_owned(), kind.kind.into());
        let mut inner = self.inner.lock().expect("no holder panics");
        let key = (kind.resource, namespace.to_owned(), name.clone());
        let present = inner.objects.get(&key).cloned();
        match (&present, create) {
            (Some(_), true) => return Err(Refusal::AlreadyExists),
            (None, false) => return Err(Refusal::NotFound),
            _ => {}
        }
        inner.version += 1;
        let uid = present.as_ref().map_or_else(
            || json!(format!("00000000-0000-4000-8000-{:012x}", inner.version)),
            |old| old["metadata"]["uid"].clone(),
        );
        let metadata = object["metadata"].take();
        let mut metadata = if metadata.is_object() { metadata } else { json!({}) };
        metadata["name"] = name.into();
        if kind.namespaced {
            metadata["namespace"] = namespace.into();
        }
        metadata["uid"] = uid;
        metadata["resourceVersion"] = inner.version.to_string().into();
        if metadata["creationTimestamp"].is_null() {
            metadata["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        object["metadata"] = metadata;
        let object = Arc::new(object);
        inner.objects.insert(key, Arc::clone(&object));
        let change = if present.is_some() { "MODIFIED" } else { "ADDED" };
        self.announce(change, kind, namespace, &object);
        Ok(object)
    }

    /// Deletes an object.
    pub fn delete(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Value>, Refusal> {
        let mut inner = self.inner.lock().expect("no holder panics");
        inner.version += 1;
        let key = (kind.resource, namespace.to_owned(), name.to_owned());
        let object = inner.objects.remove(&key).ok_or(Refusal::NotFound)?;
        self.announce("DELETED", kind, namespace, &object);
        Ok(object)
    }

    /// The changes from now on.
    pub fn watch(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    fn announce(&self, change: &'static str, kind: &Kind, namespace: &str, object: &Arc<Value>) {
        let resource =
            KINDS.iter().find(|known| known.resource == kind.resource).map_or("", |known| known.resource);
        // Nobody listening is no error.
        let _ = self.events.send(Event {
            change,
            resource,
            namespace: namespace.to_owned(),
            object: Arc::clone(object),
        });
    }
}
