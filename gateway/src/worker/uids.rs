//! The two headers that name, by UID, what a request was classified as.

use std::rc::Rc;

use http::{HeaderName, HeaderValue, Response};
use usher_flowcontrol::controller::Class;

use super::admission::Controller;
use super::body::Body;
use crate::http1::Lines;

/// UIDs of a request's level and schema; empty for imagined objects.
#[derive(Clone, Debug)]
pub(super) struct Uids(Rc<Written>);

/// The same, once as values and once as lines.
#[derive(Debug)]
struct Written {
    level: HeaderValue,
    schema: HeaderValue,
    lines: Lines,
}

/// Those of the schemas that requests have met, written once for each configuration.
#[derive(Debug, Default)]
pub(super) struct Ready {
    /// Of the configuration.
    generation: u64,
    /// By schema.
    written: Vec<Option<Uids>>,
}

pub(super) const LEVEL_NAME: &str = "x-kubernetes-pf-prioritylevel-uid";
pub(super) const SCHEMA_NAME: &str = "x-kubernetes-pf-flowschema-uid";
const LEVEL: HeaderName = HeaderName::from_static(LEVEL_NAME);
const SCHEMA: HeaderName = HeaderName::from_static(SCHEMA_NAME);

impl Uids {
    fn of(controller: &Controller, class: &Class) -> Self {
        let value = |uid: &str| HeaderValue::from_str(uid).unwrap_or(HeaderValue::from_static(""));
        let level = value(controller.level_uid(class.level));
        let schema = value(controller.schema_uid(class.schema));
        let lines = [(LEVEL, level.clone()), (SCHEMA, schema.clone())].into_iter().collect();
        Self(Rc::new(Written { level, schema, lines }))
    }

    /// Puts them on an answer. The apiserver's own go: they tell of flow control behind this one.
    pub(super) fn put_on(&self, answer: &mut Response<Body>) {
        if let Some(lines) = answer.body_mut().lines() {
            lines.append(&self.0.lines);
            return;
        }
        let headers = answer.headers_mut();
        headers.insert(LEVEL, self.0.level.clone());
        headers.insert(SCHEMA, self.0.schema.clone());
    }
}

impl Ready {
    pub(super) fn of(&mut self, controller: &Controller, class: &Class) -> Uids {
        if self.generation != class.generation {
            (self.generation, self.written) = (class.generation, Vec::new());
        }
        let index = class.schema.0 as usize;
        if index >= self.written.len() {
            self.written.resize(index + 1, None);
        }
        self.written[index].get_or_insert_with(|| Uids::of(controller, class)).clone()
    }
}
