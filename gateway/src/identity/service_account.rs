//! Service-account tokens: signed JSON (RFC 7519) that names a service account, verified with the cluster's keys.
//!
//! Two forms, as in kube-apiserver: tokens of the TokenRequest API (issuer `--service-account-issuer`, claims under
//! `kubernetes.io`, an audience, an end) and the older ones kept in Secrets (issuer `kubernetes/serviceaccount`).
//!
//! Not here: whether the account, Pod, Secret or Node that a token is bound to still exists. Only the apiserver
//! knows; it gets the token itself and answers 401. Until then the flow is the account's own.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::certificate::CREDENTIAL_ID;
use super::{Identity, Keys};

/// How far clocks may disagree, in seconds: kube-apiserver's.
const LEEWAY: i64 = 60;

const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// What a token must say besides being signed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Expectations {
    /// `--service-account-issuer`, all of them.
    pub(super) issuers: Vec<String>,
    /// `--api-audiences`; a token must be for one of them. Empty: any.
    pub(super) audiences: Vec<String>,
}

impl Expectations {
    /// `audiences` as given; empty: the issuers, as kube-apiserver has it.
    pub(super) fn new(issuers: Vec<String>, audiences: &[String]) -> Self {
        let audiences = if audiences.is_empty() { issuers.clone() } else { audiences.to_vec() };
        Self { issuers, audiences }
    }
}

/// Why a token was not taken. For counting and for tests; clients only ever see the apiserver's 401.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Malformed,
    Issuer,
    Signature,
    Audience,
    Expired,
    NotYetValid,
    IssuedInTheFuture,
    Claims,
}

/// A token taken apart, not yet believed.
pub(super) struct Token<'a> {
    header: Header,
    claims: Claims,
    signed: &'a str,
    signature: Vec<u8>,
}

impl<'a> Token<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Token<'a>, Refusal> {
        let (signed, signature) = text.rsplit_once('.').ok_or(Refusal::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(Refusal::Malformed)?;
        let bytes = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| Refusal::Malformed);
        let header: Header = serde_json::from_slice(&bytes(header)?).map_err(|_| Refusal::Malformed)?;
        if header.critical.is_some() {
            return Err(Refusal::Malformed); // an extension that must be understood, and is not
        }
        let claims = serde_json::from_slice(&bytes(claims)?).map_err(|_| Refusal::Malformed)?;
        Ok(Token { header, claims, signed, signature: bytes(signature)? })
    }

    /// Whose token this is, if it is what it says. The second value is the first second at which it no longer is.
    pub(super) fn verify(
        &self,
        keys: &Keys,
        expected: &Expectations,
        now: i64,
    ) -> Result<(Identity, i64), Refusal> {
        let legacy = self.claims.issuer == LEGACY_ISSUER;
        if !legacy && !expected.issuers.contains(&self.claims.issuer) {
            return Err(Refusal::Issuer);
        }
        let Header { kid, algorithm, .. } = &self.header;
        if !keys.verify(
            kid.as_deref().unwrap_or_default(),
            algorithm,
            self.signed.as_bytes(),
            &self.signature,
        ) {
            return Err(Refusal::Signature);
        }
        // Tokens without an audience are for the apiserver: the older ones have none.
        let audiences = self.claims.audiences();
        let ours = |audience: &String| expected.audiences.contains(audience);
        if !audiences.is_empty() && !expected.audiences.is_empty() && !audiences.iter().any(ours) {
            return Err(Refusal::Audience);
        }
        if legacy {
            return self.claims.legacy_user().map(|user| (user, i64::MAX)).ok_or(Refusal::Claims);
        }
        let until = self.claims.check_time(now)?;
        self.claims.user().map(|user| (user, until)).ok_or(Refusal::Claims)
    }
}

#[derive(Deserialize)]
struct Header {
    #[serde(rename = "alg")]
    algorithm: String,
    kid: Option<String>,
    #[serde(rename = "crit")]
    critical: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Claims {
    #[serde(rename = "iss")]
    issuer: String,
    #[serde(rename = "sub", default)]
    subject: String,
    #[serde(rename = "aud", default)]
    audience: Option<Audience>,
    #[serde(rename = "exp")]
    expires: Option<f64>,
    #[serde(rename = "nbf")]
    not_before: Option<f64>,
    #[serde(rename = "iat")]
    issued_at: Option<f64>,
    #[serde(rename = "jti", default)]
    id: String,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Option<Kubernetes>,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name", default)]
    legacy_name: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid", default)]
    legacy_uid: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name", default)]
    legacy_secret: String,
    #[serde(rename = "kubernetes.io/serviceaccount/namespace", default)]
    legacy_namespace: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
struct Kubernetes {
    #[serde(default)]
    namespace: String,
    #[serde(rename = "serviceaccount")]
    account: Option<Reference>,
    pod: Option<Reference>,
    node: Option<Reference>,
}

#[derive(Deserialize)]
struct Reference {
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
}

impl Claims {
    fn audiences(&self) -> &[String] {
        match &self.audience {
            None => &[],
            Some(Audience::One(one)) => std::slice::from_ref(one),
            Some(Audience::Many(many)) => many,
        }
    }

    /// The first second at which the token has expired, if it is valid now.
    fn check_time(&self, now: i64) -> Result<i64, Refusal> {
        if seconds(self.not_before).is_some_and(|from| now.saturating_add(LEEWAY) < from) {
            return Err(Refusal::NotYetValid);
        }
        let end = seconds(self.expires).map_or(i64::MAX, |end| end.saturating_add(LEEWAY));
        if now > end {
            return Err(Refusal::Expired);
        }
        if seconds(self.issued_at).is_some_and(|at| now.saturating_add(LEEWAY) < at) {
            return Err(Refusal::IssuedInTheFuture);
        }
        Ok(end.saturating_add(1))
    }

    fn user(&self) -> Option<Identity> {
        let kubernetes = self.kubernetes.as_ref()?;
        let account = kubernetes.account.as_ref()?;
        let mut user = account_user(&kubernetes.namespace, &account.name, &account.uid)?;
        let mut extra = |key: &str, value: &str| user.extra.push((key.to_owned(), vec![value.to_owned()]));
        if !self.id.is_empty() {
            extra(CREDENTIAL_ID, &format!("JTI={}", self.id));
        }
        if let Some(pod) = kubernetes.pod.as_ref().filter(|pod| !pod.name.is_empty() && !pod.uid.is_empty()) {
            extra("authentication.kubernetes.io/pod-name", &pod.name);
            extra("authentication.kubernetes.io/pod-uid", &pod.uid);
        }
        if let Some(node) = kubernetes.node.as_ref().filter(|node| !node.name.is_empty()) {
            extra("authentication.kubernetes.io/node-name", &node.name);
            if !node.uid.is_empty() {
                extra("authentication.kubernetes.io/node-uid", &node.uid);
            }
        }
        Some(user)
    }

    fn legacy_user(&self) -> Option<Identity> {
        if self.legacy_secret.is_empty() || self.legacy_uid.is_empty() {
            return None;
        }
        let user = account_user(&self.legacy_namespace, &self.legacy_name, &self.legacy_uid)?;
        (user.name == self.subject).then_some(user)
    }
}

fn account_user(namespace: &str, name: &str, uid: &str) -> Option<Identity> {
    if namespace.is_empty() || name.is_empty() {
        return None;
    }
    Some(Identity {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        uid: uid.to_owned(),
        groups: account_groups(namespace),
        extra: Vec::new(),
    })
}

/// The groups of all service accounts of a namespace.
pub(super) fn account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// Whole seconds; a fraction is cut off, as in kube-apiserver.
#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` saturates, which is what a date far away should do"
)]
fn seconds(date: Option<f64>) -> Option<i64> {
    date.map(|date| date as i64)
}

#[cfg(test)]
mod tests;
