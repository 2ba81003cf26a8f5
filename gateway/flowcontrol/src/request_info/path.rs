//! A decoded path to the ranges that its parts occupy.
//!
//! `/api/VERSION/…` and `/apis/GROUP/VERSION/…`, then perhaps `watch` or `proxy`, perhaps
//! `namespaces/NAMESPACE`, then resource, name, subresource. Slashes at both ends mean nothing; empty
//! segments between others are segments.

/// Bytes `start..end` of the path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    start: usize,
    end: usize,
}

/// What the path alone says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathAttributes {
    pub(super) is_resource_request: bool,
    /// The verb, if it stands in the path.
    pub(super) verb: Option<&'static str>,
    pub(super) api_prefix: Span,
    pub(super) api_group: Span,
    pub(super) api_version: Span,
    pub(super) namespace: Span,
    pub(super) resource: Span,
    pub(super) subresource: Span,
    pub(super) name: Span,
    /// From the resource to the end.
    pub(super) parts: Span,
}

/// A path's segments, found in one pass, and how many of them were read.
#[derive(Clone, Copy)]
struct Segments<'a> {
    path: &'a [u8],
    /// Where each of them ends, as far as they are looked at.
    ends: [usize; SEGMENTS_MAX],
    count: usize,
    read: usize,
    /// What was not read yet, without slashes at the ends.
    rest: Span,
}

/// Segments that are looked at: prefix, group, version, verb, `namespaces`, its name, resource, name, subresource.
const SEGMENTS_MAX: usize = 9;

// === impl PathAttributes ===

impl PathAttributes {
    /// Reads a path. `None` if it ends with a verb where a resource must follow.
    pub(super) fn of(path: &[u8]) -> Option<Self> {
        let mut found = Self::default();
        let mut segments = Segments::of(path);
        let prefix = segments.peek();
        let grouped = match prefix.of(path) {
            b"api" => false,
            b"apis" => true,
            _ => return Some(found),
        };
        if !segments.has(3) {
            return Some(found);
        }
        found.api_prefix = segments.take();
        if grouped {
            if !segments.has(3) {
                return Some(found);
            }
            found.api_group = segments.take();
        }
        found.is_resource_request = true;
        found.api_version = segments.take();
        found.verb = match segments.peek().of(path) {
            b"watch" => Some("watch"),
            b"proxy" => Some("proxy"),
            _ => None,
        };
        if found.verb.is_some() {
            if !segments.has(2) {
                return None;
            }
            segments.take();
        }
        found.find_object(segments);
        Some(found)
    }

    /// Namespace, resource, name and subresource, from at least one segment.
    fn find_object(&mut self, mut segments: Segments<'_>) {
        let path = segments.path;
        if segments.peek().of(path) == b"namespaces" && segments.has(2) {
            let mut inner = segments;
            inner.take();
            self.namespace = inner.take();
            // A namespace's own subresources leave it the resource.
            if inner.has(1) && !matches!(inner.peek().of(path), b"status" | b"finalize") {
                segments = inner;
            }
        }
        self.parts = segments.rest;
        self.resource = segments.take();
        self.name = segments.take();
        // What is proxied to has a path of its own.
        if self.verb != Some("proxy") {
            self.subresource = segments.take();
        }
    }
}

// === impl Segments ===

impl<'a> Segments<'a> {
    fn of(path: &'a [u8]) -> Self {
        let inner = |&byte: &u8| byte != b'/';
        let start = path.iter().position(inner).unwrap_or(path.len());
        let end = path.iter().rposition(inner).map_or(start, |last| last + 1);
        let mut segments =
            Self { path, ends: [end; SEGMENTS_MAX], count: 0, read: 0, rest: Span { start, end } };
        if start == end {
            return segments;
        }
        segments.count = 1;
        for (at, &byte) in (start..).zip(&path[start..end]) {
            if byte == b'/' {
                segments.ends[segments.count - 1] = at;
                if segments.count == SEGMENTS_MAX {
                    break;
                }
                segments.count += 1;
            }
        }
        segments
    }

    /// Whether at least so many are left.
    fn has(&self, count: usize) -> bool {
        self.count - self.read >= count
    }

    /// The next one; empty if there is none.
    fn peek(&self) -> Span {
        if self.has(1) { Span { start: self.rest.start, end: self.ends[self.read] } } else { Span::default() }
    }

    /// Reads the next one; empty if there is none.
    fn take(&mut self) -> Span {
        let next = self.peek();
        if self.has(1) {
            self.read += 1;
            self.rest.start = self.rest.end.min(next.end + 1);
        }
        next
    }
}

// === impl Span ===

impl Span {
    /// The bytes themselves.
    pub(super) fn of(self, path: &[u8]) -> &[u8] {
        path.get(self.start..self.end).unwrap_or_default()
    }
}
