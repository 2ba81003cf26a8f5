//! `Audit-ID`: the name of a request in audit logs, told with every answer as kube-apiserver does.
//!
//! Answers of the apiserver bring it along. Usher's own get the one that the client chose, or a new one.

use aws_lc_rs::rand;
use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::request::Answer;

/// The `Audit-ID` that a request came with.
#[derive(Clone, Debug)]
pub(super) struct AuditId(Option<HeaderValue>);

/// Its name.
pub(super) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

impl AuditId {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self(headers.get(AUDIT_ID).filter(|id| !id.is_empty()).cloned())
    }

    /// Puts it, or a new one, on an answer of our own.
    pub(super) fn put_on(self, mut answer: Answer) -> Answer {
        if let Some(id) = self.0.or_else(new) {
            answer.headers_mut().insert(AUDIT_ID, id);
        }
        answer
    }
}

/// A random UUID (RFC 9562, version 4).
fn new() -> Option<HeaderValue> {
    let mut bytes = [0; 16];
    rand::fill(&mut bytes).ok()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    let text = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
    HeaderValue::try_from(text).ok()
}

#[cfg(test)]
mod tests {
    use super::super::body::Body;
    use super::*;
    use http::Response;

    #[test]
    fn the_clients_own_is_kept_and_others_get_a_new_one_each() {
        let answer = |asked: &HeaderMap| {
            let response = AuditId::of(asked).put_on(Box::new(Response::new(Body::here(""))));
            response.headers()[AUDIT_ID].to_str().unwrap().to_owned()
        };
        let mut asked = HeaderMap::new();
        let (one, other) = (answer(&asked), answer(&asked));
        assert_ne!(one, other);
        let shape: Vec<usize> = one.split('-').map(str::len).collect();
        assert_eq!((shape, one.as_bytes()[14]), (vec![8, 4, 4, 4, 12], b'4'), "{one}");
        asked.insert(AUDIT_ID, HeaderValue::from_static("mine"));
        assert_eq!(answer(&asked), "mine");
    }
}
