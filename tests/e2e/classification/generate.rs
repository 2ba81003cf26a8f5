//! One request: who asks, and for what. Nothing it does leaves a trace: writes are dry runs.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, Method};
use usher_tests::Outcome;

use super::header_map;
use super::random::Random;
use super::words::{GROUPS, NAMESPACES, ODD_TARGETS, PATHS, RESOURCES, SERVICE_ACCOUNTS, USERS};
use crate::world::World;

/// One request of the comparison.
pub(super) struct Case {
    pub(super) proof: Proof,
    pub(super) http2: bool,
    pub(super) method: Method,
    pub(super) target: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// How the caller proves who it is. Whoever impersonates is a master: for others usher departs on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// A trusted front proxy tells the user.
    FrontProxy,
    /// A master impersonates the user.
    Impersonation,
    /// A client certificate, of this name.
    Certificate(&'static str),
    /// A bearer token, in the headers.
    Token,
    /// None.
    Anonymous,
}

impl Proof {
    pub(super) const NO_CERTIFICATE: &'static str = "";
    pub(super) const CERTIFICATES: [&'static str; 8] = [
        "front-proxy-client",
        "admin",
        "alice",
        "bob",
        "node-0",
        "kube-controller-manager",
        "kube-scheduler",
        "unicode",
    ];

    /// The certificate of its connection.
    pub(super) fn certificate(self) -> &'static str {
        match self {
            Self::FrontProxy => Self::CERTIFICATES[0],
            Self::Impersonation => Self::CERTIFICATES[1],
            Self::Certificate(name) => name,
            Self::Token | Self::Anonymous => Self::NO_CERTIFICATE,
        }
    }
}

impl Case {
    /// Whether its answer may never end.
    pub(super) fn endless(&self) -> bool {
        self.target.contains("watch") || self.target.contains("follow")
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = if self.http2 { "HTTP/2" } else { "HTTP/1.1" };
        write!(f, "{} {} {version}, {:?}", self.method, self.target, self.proof)?;
        for (name, value) in &self.headers {
            // A token that is 800 characters long tells nothing by its end.
            let value: String = String::from_utf8_lossy(value.as_bytes()).chars().take(60).collect();
            write!(f, "\n  {name}: {value}")?;
        }
        Ok(())
    }
}

/// Tokens of service accounts and of static users.
pub(super) async fn tokens(world: &World) -> Outcome<Vec<String>> {
    let mut tokens: Vec<String> =
        usher_tests::cluster::pki::TOKENS.iter().map(|(token, ..)| (*token).to_owned()).collect();
    for (namespace, name) in [("e2e", "robot"), ("kube-system", "kube-scheduler"), ("default", "default")] {
        tokens.push(world.cluster.service_account_token(namespace, name).await?);
    }
    Ok(tokens)
}

/// One request.
pub(super) fn case(random: &mut Random, tokens: &[String]) -> Case {
    let mut headers = Vec::new();
    let proof = proof(random, tokens, &mut headers);
    let (method, mut target) = match random.below(10) {
        0..=5 => on_resource(random),
        6 | 7 => (method(random), random.word(PATHS).to_owned()),
        _ => (method(random), random.word(ODD_TARGETS).to_owned()),
    };
    let mut body = Bytes::new();
    if !matches!(method, Method::GET | Method::HEAD | Method::OPTIONS) {
        // Nothing may change, whoever asks: the generated user may be a master.
        target.push_str(if target.contains('?') { "&dryRun=All" } else { "?dryRun=All" });
        if method != Method::DELETE {
            let kind =
                if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
            headers.push(("content-type".into(), kind.into()));
            body = Bytes::from_static(b"{}");
        }
    }
    Case { proof, http2: random.percent(50), method, target, headers: header_map(&headers), body }
}

fn proof(random: &mut Random, tokens: &[String], headers: &mut Vec<(String, String)>) -> Proof {
    match random.below(20) {
        0..=9 => {
            user(random, "x-remote-user", "x-remote-group", headers);
            Proof::FrontProxy
        }
        10..=13 => {
            user(random, "impersonate-user", "impersonate-group", headers);
            Proof::Impersonation
        }
        14 | 15 => Proof::Certificate(random.word(&Proof::CERTIFICATES[1..])),
        16..=18 => {
            headers.push(("authorization".into(), format!("Bearer {}", random.one(tokens))));
            Proof::Token
        }
        _ => Proof::Anonymous,
    }
}

/// A user and groups, or a service account with or without its groups.
fn user(random: &mut Random, user: &str, group: &str, headers: &mut Vec<(String, String)>) {
    if random.percent(35) {
        let (namespace, name) = random.one(SERVICE_ACCOUNTS);
        headers.push((user.into(), format!("system:serviceaccount:{namespace}:{name}")));
        if random.percent(70) {
            headers.push((group.into(), "system:serviceaccounts".into()));
            headers.push((group.into(), format!("system:serviceaccounts:{namespace}")));
        }
        return;
    }
    headers.push((user.into(), random.word(USERS).into()));
    if random.percent(60) {
        for name in random.some(GROUPS, 3) {
            headers.push((group.into(), (*name).into()));
        }
    }
}

/// A method, sometimes one that means nothing to Kubernetes.
fn method(random: &mut Random) -> Method {
    match random.below(20) {
        0..=10 => Method::GET,
        11 => Method::HEAD,
        12 => Method::OPTIONS,
        13 | 14 => Method::POST,
        15 => Method::PUT,
        16 => Method::PATCH,
        17 => Method::DELETE,
        _ => Method::from_bytes(random.word(&["FOO", "get", "TRACE"]).as_bytes()).unwrap_or(Method::GET),
    }
}

/// A well-formed request for a resource.
fn on_resource(random: &mut Random) -> (Method, String) {
    let resource = random.one(RESOURCES);
    let mut target = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };
    if resource.namespaced && random.percent(80) {
        target.push_str("/namespaces/");
        target.push_str(random.word(NAMESPACES));
    }
    target.push('/');
    target.push_str(resource.name);
    let method = method(random);
    let named = random.percent(55);
    if named {
        target.push_str(random.word(&["/none", "/e2e-no-such-object", "/kube-scheduler"]));
        if !resource.subresources.is_empty() && random.percent(40) {
            target.push('/');
            target.push_str(random.word(resource.subresources));
        }
    }
    if method == Method::GET && random.percent(20) {
        target.push_str(random.word(&[
            "?watch=true",
            "?watch=1&timeoutSeconds=5",
            "?limit=10",
            "?resourceVersion=0",
        ]));
    }
    (method, target)
}
