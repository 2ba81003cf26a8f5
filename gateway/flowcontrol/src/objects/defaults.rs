//! What the API fills in where an object says nothing.
//!
//! Defaulting happens before validation, touches only members of structs that are present (it creates
//! none), and filling in twice changes nothing. `flowcontrol.apiserver.k8s.io/v1`, `defaults.go`.

use super::{FlowSchema, PriorityLevelConfiguration};

/// Precedence of a schema that names none (or 0: the two cannot be told apart).
pub const MATCHING_PRECEDENCE: i32 = 1000;
/// Shares of a limited level that names none; an explicit 0 is kept.
pub const NOMINAL_CONCURRENCY_SHARES: i32 = 30;
/// Queues of a level that queues and does not say how many.
pub const QUEUES: i32 = 64;
/// Queues dealt to a flow of such a level: 8 of 64 need 48 of the 60 bits that there are.
pub const HAND_SIZE: i32 = 8;
/// Requests that may wait in one queue of such a level.
pub const QUEUE_LENGTH_LIMIT: i32 = 50;

/// Fills in a flow schema.
pub fn fill_schema(schema: &mut FlowSchema) {
    fill(&mut schema.spec.matching_precedence, MATCHING_PRECEDENCE);
}

/// Fills in a priority level.
pub fn fill_level(level: &mut PriorityLevelConfiguration) {
    if let Some(exempt) = &mut level.spec.exempt {
        exempt.nominal_concurrency_shares.get_or_insert(0);
        exempt.lendable_percent.get_or_insert(0);
    }
    let Some(limited) = &mut level.spec.limited else { return };
    limited.nominal_concurrency_shares.get_or_insert(NOMINAL_CONCURRENCY_SHARES);
    limited.lendable_percent.get_or_insert(0);
    if let Some(queuing) = &mut limited.limit_response.queuing {
        fill(&mut queuing.queues, QUEUES);
        fill(&mut queuing.hand_size, HAND_SIZE);
        fill(&mut queuing.queue_length_limit, QUEUE_LENGTH_LIMIT);
    }
}

/// Fills in an integer for which 0 means that nothing was said.
fn fill(member: &mut i32, default: i32) {
    if *member == 0 {
        *member = default;
    }
}
