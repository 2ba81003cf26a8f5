//! Which flow a request belongs to: the distinguisher, and the hash that a hand is dealt for.
//!
//! KEP-1040, "Assignment to a Queue": requests of one schema and one distinguisher are one flow. The
//! hash costs a SHA-256, so callers keep it per connection and schema; it stays right for as long as
//! schema name, user and namespace do.

use crate::units::FlowHash;
use sha2::{Digest, Sha256};

/// What tells the flows of a schema apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Every user is a flow.
    ByUser,
    /// Every namespace is a flow; requests without one are a flow together.
    ByNamespace,
}

impl Method {
    /// As the API spells it; `None` for anything else.
    #[must_use]
    pub fn parse(kind: &str) -> Option<Self> {
        match kind {
            "ByUser" => Some(Self::ByUser),
            "ByNamespace" => Some(Self::ByNamespace),
            _ => None,
        }
    }
}

/// The part of a request that names its flow within a schema. Without a method all is one flow. It is
/// bytes because a namespace comes out of a path, which need not be UTF-8.
#[must_use]
pub fn distinguisher<'a>(method: Option<Method>, user_name: &'a str, namespace: &'a [u8]) -> &'a [u8] {
    match method {
        Some(Method::ByUser) => user_name.as_bytes(),
        Some(Method::ByNamespace) => namespace,
        None => b"",
    }
}

/// The first eight bytes, read little-endian, of SHA-256 over schema name, a zero byte, distinguisher.
#[must_use]
pub fn flow_hash(schema_name: &str, distinguisher: impl AsRef<[u8]>) -> FlowHash {
    let digest =
        Sha256::new().chain_update(schema_name).chain_update([0]).chain_update(distinguisher).finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    FlowHash(u64::from_le_bytes(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_kube_apiservers() {
        assert_eq!(flow_hash("", "").0, 0x987a_b3ff_9c0b_346e);
        assert_eq!(flow_hash("global-default", "alice").0, 0xf4de_3bd4_2ccd_f6b7);
        assert_eq!(flow_hash("fs-ü", "naïve").0, 15_394_445_902_166_831_465);
    }

    #[test]
    fn the_method_picks_the_distinguisher() {
        assert_eq!(distinguisher(Method::parse("ByUser"), "alice", b"kube-system"), b"alice");
        assert_eq!(distinguisher(Method::parse("ByNamespace"), "alice", b"kube-system"), b"kube-system");
        assert_eq!(distinguisher(None, "alice", b"kube-system"), b"");
        assert_eq!(Method::parse("byuser"), None);
    }
}
