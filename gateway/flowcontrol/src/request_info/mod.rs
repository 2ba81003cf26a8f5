//! Method and request target to verb, group, resource, namespace, name; and whether a request runs long.
//!
//! Classification, estimates and time limits all begin here. A [`RequestInfo`] borrows from the request
//! line and owns nothing in the ordinary case; its parts are ranges of the percent-decoded path, which is
//! bytes because a path need not be UTF-8. The query is read when someone asks: [`Query`],
//! [`ListOptions`]. Everything is hostile until parsed: linear time, no panic, nothing stored per segment.
//!
//! Source: kube-apiserver's request info resolver with the prefixes `api` and `apis`, apf-behaviour 1.3
//! and 1.4. Absolute-form and authority-form targets are the gateway's business.

mod field_selector;
mod label_selector;
mod list_options;
mod path;
mod query;
mod target;

use alloc::borrow::Cow;
use core::fmt;

pub use list_options::{ListOptions, Malformed};
use path::{PathAttributes, Span};
pub use query::Query;
pub use target::TargetError;

/// What a request is about.
#[derive(Clone)]
pub struct RequestInfo<'a> {
    verb: Cow<'a, str>,
    path: Cow<'a, [u8]>,
    query: Cow<'a, str>,
    attributes: PathAttributes,
    /// The one name that a field selector admits, if the path holds none.
    selected_name: Option<Cow<'a, [u8]>>,
}

/// Verbs whose requests carry selectors.
const VERBS_WITH_SELECTORS: [&str; 3] = ["list", "watch", "deletecollection"];
/// Subresources whose requests last as long as their client likes.
const LONG_RUNNING_SUBRESOURCES: [&[u8]; 5] = [b"attach", b"exec", b"proxy", b"log", b"portforward"];
/// Profiles run as long as they are asked to.
const LONG_RUNNING_PATH: &[u8] = b"/debug/pprof/";

// === impl RequestInfo ===

impl<'a> RequestInfo<'a> {
    /// Reads a method and an origin-form request target, both as they stand on the request line.
    ///
    /// # Errors
    /// [`TargetError`]: the target is malformed (400), or it names a verb and no resource (500).
    pub fn parse(method: &'a str, target: &'a str) -> Result<Self, TargetError> {
        let (path, query) = target::split(target)?;
        let attributes = PathAttributes::of(&path).ok_or(TargetError::NoResource)?;
        let verb = match attributes.verb {
            Some(verb) => Cow::Borrowed(verb),
            None if attributes.is_resource_request => Cow::Borrowed(verb_of_method(method)),
            None => lower_case(method),
        };
        let mut info = Self { verb, path, query: Cow::Borrowed(query), attributes, selected_name: None };
        if info.is_resource_request() && info.name().is_empty() {
            match info.verb() {
                "get" => info.list_or_watch(Query::of(query)),
                "delete" => info.verb = Cow::Borrowed("deletecollection"),
                _ => {}
            }
        }
        Ok(info)
    }

    /// A get without a name lists or watches, and its field selector may admit a single name. Options
    /// that cannot be decoded say nothing, except that `watch` is then read by itself.
    fn list_or_watch(&mut self, query: Query<'a>) {
        let options = ListOptions::decode(query)
            .and_then(|options| Ok((options.watch, options.into_required(b"metadata.name")?)));
        let (watch, name) = match options {
            Ok((watch, name)) => (watch, name.filter(|name| is_path_segment(name))),
            Err(Malformed) => (query.first("watch").is_some_and(|value| !is_plainly_false(&value)), None),
        };
        self.verb = Cow::Borrowed(if watch { "watch" } else { "list" });
        self.selected_name = name;
    }

    /// The same, borrowing from nothing.
    pub fn into_owned(self) -> RequestInfo<'static> {
        RequestInfo {
            verb: Cow::Owned(self.verb.into_owned()),
            path: Cow::Owned(self.path.into_owned()),
            query: Cow::Owned(self.query.into_owned()),
            attributes: self.attributes,
            selected_name: self.selected_name.map(|name| Cow::Owned(name.into_owned())),
        }
    }

    /// Whether it is about a resource; else about a path, such as `/healthz`.
    pub fn is_resource_request(&self) -> bool {
        self.attributes.is_resource_request
    }

    /// For resources `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`,
    /// `proxy`, or empty for any other method; else the method in lower case.
    pub fn verb(&self) -> &str {
        &self.verb
    }

    /// The path, percent-decoded, with every slash.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// `api`, `apis` or empty.
    pub fn api_prefix(&self) -> &[u8] {
        self.bytes(self.attributes.api_prefix)
    }

    /// The API group; empty for the core group.
    pub fn api_group(&self) -> &[u8] {
        self.bytes(self.attributes.api_group)
    }

    /// The version of the API.
    pub fn api_version(&self) -> &[u8] {
        self.bytes(self.attributes.api_version)
    }

    /// The namespace; for a namespace object its own name.
    pub fn namespace(&self) -> &[u8] {
        self.bytes(self.attributes.namespace)
    }

    /// The resource, plural as in the path.
    pub fn resource(&self) -> &[u8] {
        self.bytes(self.attributes.resource)
    }

    /// The subresource.
    pub fn subresource(&self) -> &[u8] {
        self.bytes(self.attributes.subresource)
    }

    /// The name of the object: from the path, or from a field selector on `metadata.name`.
    pub fn name(&self) -> &[u8] {
        match &self.selected_name {
            Some(name) => name,
            None => self.bytes(self.attributes.name),
        }
    }

    /// Resource, name, subresource and what follows them; nothing for requests about no resource.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let parts = self.bytes(self.attributes.parts);
        parts.split(|&byte| byte == b'/').filter(move |_| !parts.is_empty())
    }

    /// The query.
    pub fn query(&self) -> Query<'_> {
        Query::of(&self.query)
    }

    /// The field selector as written; empty where selectors mean nothing.
    pub fn field_selector(&self) -> Cow<'_, [u8]> {
        self.selector("fieldSelector")
    }

    /// The label selector as written; empty where selectors mean nothing.
    pub fn label_selector(&self) -> Cow<'_, [u8]> {
        self.selector("labelSelector")
    }

    /// Whether it lasts as long as its client likes (kube-apiserver's own test).
    pub fn is_long_running(&self) -> bool {
        if matches!(self.verb(), "watch" | "proxy") {
            return true;
        }
        if self.is_resource_request() {
            LONG_RUNNING_SUBRESOURCES.contains(&self.subresource())
        } else {
            self.path.starts_with(LONG_RUNNING_PATH)
        }
    }

    /// Whether flow control never sees it: it runs long and is no watch (of a watch, the initialisation
    /// is seated).
    pub fn bypasses_flow_control(&self) -> bool {
        self.is_long_running() && self.verb() != "watch"
    }

    fn selector(&self, name: &str) -> Cow<'_, [u8]> {
        let by_method = self.is_resource_request() && self.attributes.verb.is_none();
        if by_method && VERBS_WITH_SELECTORS.contains(&self.verb()) {
            self.query().first(name).unwrap_or_default()
        } else {
            Cow::Borrowed(&[])
        }
    }

    fn bytes(&self, span: Span) -> &[u8] {
        span.of(&self.path)
    }
}

impl fmt::Debug for RequestInfo<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "RequestInfo({} {}?{})",
            self.verb(),
            self.path().escape_ascii(),
            self.query.escape_debug()
        )
    }
}

/// The verb of a resource request that says none in its path.
fn verb_of_method(method: &str) -> &'static str {
    match method {
        "GET" | "HEAD" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// The method in lower case, without a copy for those that are common.
fn lower_case(method: &str) -> Cow<'_, str> {
    match method {
        "GET" => Cow::Borrowed("get"),
        "HEAD" => Cow::Borrowed("head"),
        "POST" => Cow::Borrowed("post"),
        "PUT" => Cow::Borrowed("put"),
        "PATCH" => Cow::Borrowed("patch"),
        "DELETE" => Cow::Borrowed("delete"),
        "OPTIONS" => Cow::Borrowed("options"),
        _ if method.bytes().any(|byte| byte.is_ascii_uppercase()) => Cow::Owned(method.to_ascii_lowercase()),
        _ => Cow::Borrowed(method),
    }
}

/// Whether a name may stand as one segment of a path; only such names are taken from a selector.
fn is_path_segment(name: &[u8]) -> bool {
    !matches!(name, b"." | b"..") && !name.iter().any(|&byte| matches!(byte, b'/' | b'%'))
}

/// How `watch` is read when the options cannot be decoded: without the foldings of Unicode.
fn is_plainly_false(value: &[u8]) -> bool {
    value == b"0" || value.eq_ignore_ascii_case(b"false")
}

#[cfg(test)]
mod tests;
