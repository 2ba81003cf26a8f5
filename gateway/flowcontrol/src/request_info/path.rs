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

/// Segments not read yet; `None` if there are none.
#[derive(Clone, Copy)]
struct Segments<'a> {
    path: &'a [u8],
    rest: Option<Span>,
}

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
            if inner.rest.is_some() && !matches!(inner.peek().of(path), b"status" | b"finalize") {
                segments = inner;
            }
        }
        self.parts = segments.rest.unwrap_or_default();
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
        let start = path.iter().position(inner);
        let last = path.iter().rposition(inner);
        Self { path, rest: start.zip(last).map(|(start, last)| Span { start, end: last + 1 }) }
    }

    /// Whether at least so many are left.
    fn has(&self, count: usize) -> bool {
        let Some(rest) = self.rest else { return false };
        let slashes = rest.of(self.path).iter().filter(|&&byte| byte == b'/');
        slashes.take(count - 1).count() == count - 1
    }

    /// The next one; empty if there is none.
    fn peek(&self) -> Span {
        let mut copy = *self;
        copy.take()
    }

    /// Reads the next one; empty if there is none.
    fn take(&mut self) -> Span {
        let Some(rest) = self.rest else { return Span::default() };
        match rest.of(self.path).iter().position(|&byte| byte == b'/') {
            Some(length) => {
                let end = rest.start + length;
                self.rest = Some(Span { start: end + 1, end: rest.end });
                Span { start: rest.start, end }
            }
            None => {
                self.rest = None;
                rest
            }
        }
    }
}

// === impl Span ===

impl Span {
    /// The bytes themselves.
    pub(super) fn of(self, path: &[u8]) -> &[u8] {
        path.get(self.start..self.end).unwrap_or_default()
    }
}
