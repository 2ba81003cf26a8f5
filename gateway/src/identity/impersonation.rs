//! Whom a member of `system:masters` acts for: the user that its flow follows.
//!
//! Only for them, because they may impersonate anybody; for others the apiserver must be asked first, and until
//! that is done they pay with their own flow. The headers themselves are passed on untouched, malformed ones too.
//!
//! Follows kube-apiserver v1.36, whose constrained impersonation (KEP-5284) is on by default: a node named alone
//! gets the group `system:nodes`, unless the same requestor's last impersonation needed the older way, which knows
//! no such group. The apiserver remembers that by requestor's name, in its memory; [`OldWay`] does the same.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName};

use super::front_proxy::{NotText, unescape};
use super::service_account::account_groups;
use super::{ANONYMOUS, AUTHENTICATED, Identity, MASTERS, NODES, UNAUTHENTICATED};

/// How many requestors' ways are remembered; kube-apiserver remembers 10 000. A collision costs one requestor's
/// nodes their group in classification.
const REQUESTORS: usize = 16_384;

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const EXTRA: &str = "impersonate-extra-";

/// Requestors whose last impersonation was of the older kind, in a table of fixed size without locks. Once there,
/// always there: the older way allows everything that a master asks for, so the apiserver never leaves it.
pub(super) struct OldWay {
    hasher: RandomState,
    names: Box<[AtomicU64]>,
}

impl OldWay {
    pub(super) fn new() -> OldWay {
        OldWay { hasher: RandomState::new(), names: (0..REQUESTORS).map(|_| AtomicU64::new(0)).collect() }
    }

    fn slot(&self, name: &str) -> (&AtomicU64, u64) {
        let hash = self.hasher.hash_one(name) | 1; // never 0, which is "nobody"
        let index = usize::try_from(hash >> 32).unwrap_or_default() % REQUESTORS;
        (&self.names[index], hash)
    }

    fn holds(&self, name: &str) -> bool {
        let (slot, hash) = self.slot(name);
        slot.load(Ordering::Relaxed) == hash
    }

    fn remember(&self, name: &str) {
        let (slot, hash) = self.slot(name);
        slot.store(hash, Ordering::Relaxed);
    }
}

/// The user that `requestor` impersonates, as the apiserver will see it. `None` if it does not, may not, or says
/// so in a way that the apiserver will refuse.
pub(super) fn impersonated(headers: &HeaderMap, requestor: &Identity, old_way: &OldWay) -> Option<Identity> {
    if !requestor.groups.iter().any(|group| group == MASTERS) {
        return None;
    }
    headers.get(USER).filter(|name| !name.is_empty())?;
    let wanted = wanted(headers).ok()?;
    Some(granted(wanted, requestor, old_way))
}

/// What the headers ask for, as they stand.
fn wanted(headers: &HeaderMap) -> Result<Identity, NotText> {
    let text =
        |value: &http::HeaderValue| str::from_utf8(value.as_bytes()).map(str::to_owned).map_err(|_| NotText);
    let first = |name: &str| headers.get(name).map_or(Ok(String::new()), text);
    let groups = headers.get_all("impersonate-group").iter().map(text).collect::<Result<_, _>>()?;
    let mut extra = Vec::new();
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            let values = headers.get_all(name).iter().map(text).collect::<Result<_, _>>()?;
            extra.push((unescape(key)?, values));
        }
    }
    Ok(Identity { name: first(USER.as_str())?, uid: first("impersonate-uid")?, groups, extra })
}

fn granted(wanted: Identity, requestor: &Identity, old_way: &OldWay) -> Identity {
    let mut user = wanted;
    if needs_old_way(&user) {
        old_way.remember(&requestor.name);
    }
    let account = account_namespace(&user.name);
    if user.groups.is_empty() {
        if let Some(namespace) = account {
            user.groups = account_groups(namespace);
        } else if is_node(&user.name) && only_named(&user) && !old_way.holds(&requestor.name) {
            user.groups = vec![NODES.to_owned()];
        }
    }
    let has = |group: &str| user.groups.iter().any(|known| known == group);
    let added = match user.name.as_str() {
        ANONYMOUS if !has(UNAUTHENTICATED) => Some(UNAUTHENTICATED),
        ANONYMOUS => None,
        _ if !has(UNAUTHENTICATED) && !has(AUTHENTICATED) => Some(AUTHENTICATED),
        _ => None,
    };
    user.groups.extend(added.map(str::to_owned));
    user
}

/// Whether none of the constrained ways takes it: they know nodes and service accounts only by name, and refuse
/// groups and extras that the older way let pass.
fn needs_old_way(user: &Identity) -> bool {
    if is_node(&user.name) || account_namespace(&user.name).is_some() {
        return !only_named(user);
    }
    let odd_group = |group: &String| group.is_empty() || group == MASTERS;
    let odd_extra = |(key, values): &(String, Vec<String>)| {
        !is_domain_path(key)
            || *key != key.to_lowercase()
            || values.is_empty()
            || values.iter().any(String::is_empty)
    };
    user.groups.iter().any(odd_group) || user.extra.iter().any(odd_extra)
}

fn only_named(user: &Identity) -> bool {
    user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty()
}

fn is_node(name: &str) -> bool {
    name.strip_prefix("system:node:").is_some_and(is_subdomain)
}

/// The namespace of a service account's user name; `None` for other users.
fn account_namespace(name: &str) -> Option<&str> {
    let (namespace, account) = name.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (is_label(namespace) && namespace.len() <= 63 && is_subdomain(account)).then_some(namespace)
}

/// A DNS label without its length limit (RFC 1123).
fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

/// `acme.io/foo`: what the key of an extra must look like.
fn is_domain_path(key: &str) -> bool {
    let in_path = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    key.split_once('/')
        .is_some_and(|(host, path)| is_subdomain(host) && !path.is_empty() && path.bytes().all(in_path))
}

impl std::fmt::Debug for OldWay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OldWay").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
