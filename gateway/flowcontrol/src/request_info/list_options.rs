//! Query to list options: the part of `metav1.ListOptions` that somebody here looks at.

use alloc::borrow::Cow;

use super::query::Query;
use super::{field_selector, label_selector};

/// Options of a list or a watch, as `metav1.ListOptions` holds them; selectors are not parsed.
#[derive(Clone, Debug, Default)]
pub struct ListOptions<'a> {
    /// As written.
    pub label_selector: Cow<'a, [u8]>,
    /// As written.
    pub field_selector: Cow<'a, [u8]>,
    /// Whether to watch.
    pub watch: bool,
    /// Empty: the newest.
    pub resource_version: Cow<'a, [u8]>,
    /// `Exact`, `NotOlderThan`, empty, or anything else that a client writes.
    pub resource_version_match: Cow<'a, [u8]>,
    /// Most objects that the client wants; 0 or less: all.
    pub limit: i64,
    /// Where to go on.
    pub continue_token: Cow<'a, [u8]>,
    /// Whether a watch begins with what exists.
    pub send_initial_events: Option<bool>,
    /// Whether a watch is told of progress.
    pub allow_watch_bookmarks: bool,
}

/// The options cannot be decoded: a number is none, or a selector breaks its grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

// === impl ListOptions ===

impl<'a> ListOptions<'a> {
    /// Decodes a query. Of each name the first value counts; names nobody knows are ignored.
    ///
    /// # Errors
    /// [`Malformed`] if `limit` or `timeoutSeconds` is no 64-bit integer in decimal (empty is none).
    pub fn decode(query: Query<'a>) -> Result<Self, Malformed> {
        let mut values: [Option<Cow<'a, [u8]>>; NAMES.len()] = Default::default();
        for (name, value) in query.pairs() {
            if let Some(at) = NAMES.iter().position(|known| known.as_bytes() == &*name) {
                values[at].get_or_insert(value);
            }
        }
        let [label, field, watch, bookmarks, version, version_match, timeout, limit, token, initial] = values;
        timeout.as_deref().map_or(Ok(0), integer)?;
        Ok(Self {
            label_selector: label.unwrap_or_default(),
            field_selector: field.unwrap_or_default(),
            watch: watch.as_deref().is_some_and(boolean),
            resource_version: version.unwrap_or_default(),
            resource_version_match: version_match.unwrap_or_default(),
            limit: limit.as_deref().map_or(Ok(0), integer)?,
            continue_token: token.unwrap_or_default(),
            send_initial_events: initial.as_deref().map(boolean),
            allow_watch_bookmarks: bookmarks.as_deref().is_some_and(boolean),
        })
    }

    /// The value that the field selector requires `field` to have, if it requires one.
    ///
    /// # Errors
    /// [`Malformed`] if either selector breaks its grammar.
    pub fn into_required(self, field: &[u8]) -> Result<Option<Cow<'a, [u8]>>, Malformed> {
        label_selector::check(&self.label_selector)?;
        match self.field_selector {
            Cow::Borrowed(selector) => field_selector::required(selector, field),
            Cow::Owned(selector) => {
                Ok(field_selector::required(&selector, field)?.map(|value| Cow::Owned(value.into_owned())))
            }
        }
    }
}

/// The options in the order in which `decode` takes them apart.
const NAMES: [&str; 10] = [
    "labelSelector",
    "fieldSelector",
    "watch",
    "allowWatchBookmarks",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
    "limit",
    "continue",
    "sendInitialEvents",
];

/// Everything is true but `0` and what Unicode folds to `false` (the long s folds to s).
fn boolean(value: &[u8]) -> bool {
    let folds_to_false = match value {
        [head @ .., 0xC5, 0xBF, last] => {
            head.eq_ignore_ascii_case(b"fal") && last.eq_ignore_ascii_case(&b'e')
        }
        _ => value.eq_ignore_ascii_case(b"false"),
    };
    value != b"0" && !folds_to_false
}

/// A signed decimal integer of 64 bits; a plus sign is allowed, nothing else.
pub(super) fn integer(text: &[u8]) -> Result<i64, Malformed> {
    core::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Malformed)
}
