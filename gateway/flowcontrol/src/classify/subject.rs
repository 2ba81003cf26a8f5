//! Subjects: a user, a group, a service account, or all of them.

use alloc::boxed::Box;
use alloc::format;

use super::User;
use crate::objects;

/// A subject, ready to be compared.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    Everyone,
    User(Box<str>),
    Group(Box<str>),
    /// Every service account of a namespace: the user name begins so.
    ServiceAccounts(Box<str>),
}

/// What service accounts are called as users: this, namespace, colon, name.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

impl Subject {
    /// `None` if it can match nobody: an unknown kind, or the member that the kind asks for is missing.
    pub(super) fn compile(subject: &objects::Subject) -> Option<Self> {
        match subject.kind.as_str() {
            "User" => Some(match subject.user.as_ref()?.name.as_str() {
                "*" => Self::Everyone,
                name => Self::User(name.into()),
            }),
            // A user of no group at all belongs to `*` too.
            "Group" => Some(match subject.group.as_ref()?.name.as_str() {
                "*" => Self::Everyone,
                name => Self::Group(name.into()),
            }),
            "ServiceAccount" => {
                let account = subject.service_account.as_ref()?;
                let namespace = format!("{SERVICE_ACCOUNT}{}:", account.namespace);
                Some(match account.name.as_str() {
                    "*" => Self::ServiceAccounts(namespace.into()),
                    name => Self::User((namespace + name).into()),
                })
            }
            _ => None,
        }
    }

    pub(super) fn matches(&self, user: User<'_>) -> bool {
        match self {
            Self::Everyone => true,
            Self::User(name) => **name == *user.name,
            Self::Group(group) => user.groups.iter().any(|of_user| **of_user == **group),
            Self::ServiceAccounts(prefix) => user.name.starts_with(&**prefix),
        }
    }
}
