//! The two headers that name, by UID, what a request was classified as.

use http::{HeaderMap, HeaderName, HeaderValue};
use usher_flowcontrol::controller::Class;

use super::admission::Controller;

/// UIDs of a request's level and schema; empty for imagined objects.
#[derive(Clone, Debug)]
pub(super) struct Uids {
    level: HeaderValue,
    schema: HeaderValue,
}

const LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
const SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");

impl Uids {
    pub(super) fn of(controller: &Controller, class: &Class) -> Self {
        let value = |uid: &str| HeaderValue::from_str(uid).unwrap_or(HeaderValue::from_static(""));
        Self {
            level: value(controller.level_uid(class.level)),
            schema: value(controller.schema_uid(class.schema)),
        }
    }

    /// Puts them on an answer. The apiserver's own go: they tell of flow control behind this one.
    pub(super) fn put_on(self, headers: &mut HeaderMap) {
        headers.insert(LEVEL, self.level);
        headers.insert(SCHEMA, self.schema);
    }
}
