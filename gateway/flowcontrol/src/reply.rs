//! The exact words of answers that flow control gives itself: turned away, or asked nonsense.
//!
//! Clients of kube-apiserver know these by heart: client-go retries a 429 that carries `Retry-After`,
//! people search for the sentence. Also the labels under which such answers are counted.

use crate::objects::status::quoted;
use crate::request_info::RequestInfo;
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Header with the UID of the priority level, on every managed response; empty for an imagined level.
pub const LEVEL_UID_HEADER: &str = "X-Kubernetes-PF-PriorityLevel-UID";
/// Header with the UID of the flow schema.
pub const SCHEMA_UID_HEADER: &str = "X-Kubernetes-PF-FlowSchema-UID";
/// [`LEVEL_UID_HEADER`] as kube-apiserver spells it on an HTTP/1.1 connection.
pub const LEVEL_UID_HEADER_ON_THE_WIRE: &str = "X-Kubernetes-Pf-Prioritylevel-Uid";
/// [`SCHEMA_UID_HEADER`] as kube-apiserver spells it on an HTTP/1.1 connection.
pub const SCHEMA_UID_HEADER_ON_THE_WIRE: &str = "X-Kubernetes-Pf-Flowschema-Uid";

/// Body of a 429.
const TOO_MANY_REQUESTS: &str = "Too many requests, please try again later.\n";

/// An answer of our own; the connection adds its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Headers, spelt as on an HTTP/1.1 connection.
    pub headers: Vec<(&'static str, String)>,
    /// Plain text.
    pub body: Cow<'static, str>,
}

impl Reply {
    /// Come back later: 429.
    pub fn too_many_requests(retry_after: u32) -> Self {
        let mut reply = Self::text(429, Cow::Borrowed(TOO_MANY_REQUESTS));
        reply.headers.push(("Retry-After", retry_after.to_string()));
        reply
    }

    /// A request without user or attributes got here: 500. `target` is the one of its request line.
    pub fn internal_server_error(target: &str) -> Self {
        Self::text(500, Cow::Owned(format!("Internal Server Error: {}\n", quoted(target))))
    }

    fn text(status: u16, body: Cow<'static, str>) -> Self {
        let headers = [
            ("Content-Type", String::from("text/plain; charset=utf-8")),
            ("X-Content-Type-Options", String::from("nosniff")),
        ];
        Self { status, headers: headers.into(), body }
    }
}

/// How an answer that the upstream did not give is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestLabels {
    /// Method in upper case, with `LIST` and `WATCH` told apart; `other` for methods of one's own.
    verb: String,
    /// What the path of a resource says.
    group: String,
    version: String,
    resource: String,
    subresource: String,
    /// `resource`, `namespace`, `cluster` or empty.
    scope: &'static str,
    /// `All`, `invalid` or empty.
    dry_run: &'static str,
    /// Path of a request about no resource.
    path: Option<String>,
}

/// Label `component` of what is counted here.
const COMPONENT: &str = "apiserver";

/// Methods and verbs that have a label value of their own.
const VERBS: [&str; 14] = [
    "APPLY",
    "CONNECT",
    "CREATE",
    "DELETE",
    "DELETECOLLECTION",
    "GET",
    "LIST",
    "PATCH",
    "POST",
    "PROXY",
    "PUT",
    "UPDATE",
    "WATCH",
    "WATCHLIST",
];

// === impl RequestLabels ===

impl RequestLabels {
    /// Labels of a request; `content_type` tells an apply from a patch.
    pub fn of(method: &str, request: &RequestInfo<'_>, content_type: &str) -> Self {
        let scope = scope(request);
        let of_resource = |bytes: &[u8]| {
            if request.is_resource_request() { text(bytes) } else { String::new() }
        };
        Self {
            verb: verb(method, scope, request, content_type),
            group: of_resource(request.api_group()),
            version: of_resource(request.api_version()),
            resource: of_resource(request.resource()),
            subresource: text(request.subresource()),
            scope,
            dry_run: dry_run(request),
            path: (!request.is_resource_request()).then(|| text(request.path())),
        }
    }

    /// Labels of `apiserver_request_total`, sorted. `code` is the answer's status.
    pub fn of_total<'a>(&'a self, code: &'a str) -> [(&'static str, &'a str); 10] {
        [
            ("code", code),
            ("component", COMPONENT),
            ("dry_run", self.dry_run),
            ("group", &self.group),
            ("resource", &self.resource),
            ("scope", self.scope),
            ("subresource", &self.subresource),
            ("system_client", ""), // kube-apiserver leaves it empty where flow control answers
            ("verb", &self.verb),
            ("version", &self.version),
        ]
    }

    /// Labels of `apiserver_request_terminations_total`, sorted.
    pub fn of_termination<'a>(&'a self, code: &'a str) -> [(&'static str, &'a str); 8] {
        [
            ("code", code),
            ("component", COMPONENT),
            ("group", &self.group),
            ("resource", &self.resource),
            ("scope", self.scope),
            ("subresource", self.path.as_deref().unwrap_or(&self.subresource)),
            ("verb", &self.verb),
            ("version", &self.version),
        ]
    }
}

fn scope(request: &RequestInfo<'_>) -> &'static str {
    if !request.name().is_empty() || request.verb() == "create" {
        "resource"
    } else if !request.namespace().is_empty() {
        "namespace"
    } else if request.is_resource_request() {
        "cluster"
    } else {
        ""
    }
}

fn verb(method: &str, scope: &str, request: &RequestInfo<'_>, content_type: &str) -> String {
    let method = method.to_ascii_uppercase();
    let verb = match method.as_str() {
        _ if connects(request) => "CONNECT",
        "GET" | "LIST" if asks_to_watch(request) => "WATCH",
        "GET" | "HEAD" if matches!(scope, "resource" | "") => "GET",
        "GET" | "HEAD" => "LIST",
        "PATCH" if content_type == "application/apply-patch+yaml" => "APPLY",
        "WATCHLIST" => "WATCH",
        other => other,
    };
    String::from(if VERBS.contains(&verb) { verb } else { "other" })
}

/// Whether it is about a subresource whose connection is kept.
fn connects(request: &RequestInfo<'_>) -> bool {
    request.is_resource_request()
        && matches!(request.subresource(), b"attach" | b"exec" | b"log" | b"portforward" | b"proxy")
}

fn asks_to_watch(request: &RequestInfo<'_>) -> bool {
    let value = request.query().first("watch");
    value.is_some_and(|value| *value != *b"0" && !value.eq_ignore_ascii_case(b"false"))
}

fn dry_run(request: &RequestInfo<'_>) -> &'static str {
    let values = request.query().pairs().filter(|(name, _)| **name == *b"dryRun");
    values.fold(
        "",
        |so_far, (_, value)| if so_far != "invalid" && *value == *b"All" { "All" } else { "invalid" },
    )
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, target: &str, verb: &str, scope: &str, dry_run: &str) {
        let request = RequestInfo::parse(method, target).unwrap();
        let labels = RequestLabels::of(method, &request, "");
        assert_eq!((&*labels.verb, labels.scope, labels.dry_run), (verb, scope, dry_run));
    }

    #[test]
    fn verbs_and_scopes_are_kube_apiservers() {
        check("GET", "/api/v1/namespaces/a/pods/b", "GET", "resource", "");
        check("GET", "/api/v1/namespaces/a/pods", "LIST", "namespace", "");
        check("GET", "/api/v1/pods?watch=1", "WATCH", "cluster", "");
        check("GET", "/api/v1/pods?watch=FALSE", "LIST", "cluster", "");
        check("POST", "/api/v1/namespaces/a/pods?dryRun=All", "POST", "resource", "All");
        check("DELETE", "/api/v1/namespaces/a/pods?dryRun=x", "DELETE", "namespace", "invalid");
        check("DELETE", "/api/v1/pods/a?dryRun=All&dryRun=All", "DELETE", "resource", "All");
        check("DELETE", "/api/v1/pods/a?dryRun=All&dryRun=", "DELETE", "resource", "invalid");
        check("GET", "/healthz", "GET", "", "");
        check("HEAD", "/api/v1/pods?watch=1", "LIST", "cluster", "");
        check("LIST", "/api/v1/pods?watch=1", "WATCH", "cluster", "");
        check("GET", "/api/v1/watch/namespaces/a/pods/b/log", "CONNECT", "resource", "");
        check("FROB", "/api/v1/pods", "other", "cluster", "");
    }

    #[test]
    fn a_path_stands_in_for_the_subresource_of_a_termination() {
        let request = RequestInfo::parse("GET", "/healthz").unwrap();
        let labels = RequestLabels::of("GET", &request, "");
        assert_eq!(labels.of_termination("429")[5], ("subresource", "/healthz"));
        assert_eq!(labels.of_total("429")[6], ("subresource", ""));
    }

    #[test]
    fn an_apply_is_no_patch() {
        let request = RequestInfo::parse("PATCH", "/api/v1/namespaces/a/pods/b").unwrap();
        assert_eq!(RequestLabels::of("PATCH", &request, "application/apply-patch+yaml").verb, "APPLY");
        assert_eq!(RequestLabels::of("PATCH", &request, "application/json").verb, "PATCH");
    }
}
