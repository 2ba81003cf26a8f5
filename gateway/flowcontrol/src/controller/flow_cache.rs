//! Flow hashes that a connection has needed before.
//!
//! A connection mostly speaks for one user about a few namespaces, and a flow hash is a SHA-256: worth
//! remembering, for a handful of flows.

use alloc::vec::Vec;

use super::SchemaId;
use crate::flow::flow_hash;
use crate::units::FlowHash;

/// Flows remembered per connection: a controller that works on several namespaces through several
/// schemas still finds them, and a look costs less than a hash.
const FLOWS_MAX: usize = 4;
/// Longest distinguisher that is remembered. Names are shorter; what is longer is hashed each time, so
/// that a connection's cache stays small.
const DISTINGUISHER_MAX: usize = 256;

/// The latest flows of one connection.
#[derive(Clone, Debug, Default)]
pub struct FlowCache {
    flows: Vec<Flow>,
    /// Where the next one goes.
    oldest: usize,
}

#[derive(Clone, Debug)]
struct Flow {
    generation: u64,
    schema: SchemaId,
    distinguisher: Vec<u8>,
    hash: FlowHash,
}

impl FlowCache {
    /// The hash of a flow, computed if it is not remembered. Memory is only needed until it is full.
    pub(super) fn flow(
        &mut self,
        generation: u64,
        schema: SchemaId,
        schema_name: &str,
        distinguisher: &[u8],
    ) -> FlowHash {
        let same = |flow: &&Flow| {
            flow.schema == schema && flow.generation == generation && flow.distinguisher == distinguisher
        };
        if let Some(flow) = self.flows.iter().find(same) {
            return flow.hash;
        }
        let hash = flow_hash(schema_name, distinguisher);
        if distinguisher.len() <= DISTINGUISHER_MAX {
            self.remember(generation, schema, distinguisher, hash);
        }
        hash
    }

    fn remember(&mut self, generation: u64, schema: SchemaId, distinguisher: &[u8], hash: FlowHash) {
        if self.flows.len() < FLOWS_MAX {
            self.flows.push(Flow { generation, schema, distinguisher: distinguisher.to_vec(), hash });
            return;
        }
        let flow = &mut self.flows[self.oldest];
        flow.distinguisher.clear();
        flow.distinguisher.extend_from_slice(distinguisher);
        (flow.generation, flow.schema, flow.hash) = (generation, schema, hash);
        self.oldest = (self.oldest + 1) % FLOWS_MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_what_would_be_computed() {
        let mut cache = FlowCache::default();
        for round in 0..100_u32 {
            let schema = SchemaId(round % 3);
            let name = ["a", "b", "c"][schema.0 as usize];
            let user = alloc::format!("user-{}", round % 7);
            let long = "x".repeat(300);
            for user in [user.as_bytes(), long.as_bytes(), b""] {
                assert_eq!(cache.flow(u64::from(round / 50), schema, name, user), flow_hash(name, user));
            }
            assert!(cache.flows.len() <= FLOWS_MAX);
        }
    }

    #[test]
    fn another_configuration_is_another_flow() {
        let mut cache = FlowCache::default();
        let before = cache.flow(1, SchemaId(0), "old", b"u");
        assert_ne!(before, cache.flow(2, SchemaId(0), "new", b"u"), "the slot has another owner now");
    }
}
