//! The `Dangling` condition of a flow schema, and how often it may be written.
//!
//! A schema dangles while the level that it refers to does not exist; an object that is there but unusable,
//! or a level that is only draining, does not count. Who dangles is [`crate::plan::Plan::dangling`]'s to say;
//! how that is said, and when, is kube-apiserver's, so that two controllers that write the same status
//! agree. apf-behaviour §1.25.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};

use super::{Condition, FlowSchema, ObjectMeta, Status, Time};
use crate::units::Nanos;

mod quote;

pub use quote::quoted;

/// The type of the condition.
pub const DANGLING: &str = "Dangling";
/// The field manager with which the condition is applied.
pub const FIELD_MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
/// After a write was put off, digest again after a random whole number of seconds out of these: several
/// controllers that disagree shall not answer one another at once.
pub const REDIGEST_AFTER_SECONDS: core::ops::Range<u32> = 30..75;

/// Writes to one schema within [`WINDOW`]: enough to settle, too few to fight.
const WRITES_MAX: usize = 6;
/// The span in which writes are counted; a write exactly as old still counts.
const WINDOW: Nanos = Nanos::from_secs(60);

/// The condition that a schema should have, given whether it dangles. It has no transition time yet.
pub fn wanted(schema: &FlowSchema, dangles: bool) -> Condition {
    let (status, reason, what) = match dangles {
        true => ("True", "NotFound", "but there is no such object"),
        false => ("False", "Found", "and it exists"),
    };
    let name = quoted(&schema.spec.priority_level_configuration.name);
    Condition {
        kind: DANGLING.to_string(),
        status: status.to_string(),
        last_transition_time: None,
        reason: reason.to_string(),
        message: format!(
            "This FlowSchema references the PriorityLevelConfiguration object named {name} {what}"
        ),
    }
}

/// Whether the schema's present condition differs from the wanted one (its time does not matter).
pub fn must_write(schema: &FlowSchema, wanted: &Condition) -> bool {
    let present = schema.status.conditions.iter().find(|condition| condition.kind == wanted.kind);
    present.is_none_or(|present| {
        (&present.status, &present.reason, &present.message)
            != (&wanted.status, &wanted.reason, &wanted.message)
    })
}

/// What to apply to the schema's status subresource (server-side, forced, as [`FIELD_MANAGER`]): nothing
/// but its name and this condition, so that the conditions of others stay.
pub fn apply_body(schema: &FlowSchema, wanted: Condition, now: Time) -> FlowSchema {
    let condition = Condition { last_transition_time: Some(now), ..wanted };
    FlowSchema {
        metadata: ObjectMeta { name: schema.metadata.name.clone(), ..ObjectMeta::default() },
        status: Status { conditions: [condition].into() },
        ..FlowSchema::default()
    }
}

/// Keeps controllers that disagree from fighting over a schema's status.
#[derive(Clone, Debug, Default)]
pub struct Limiter {
    /// When each schema was written lately, oldest first. Invariant: at most [`WRITES_MAX`] times each.
    writes: BTreeMap<String, VecDeque<Nanos>>,
}

impl Limiter {
    /// Whether the schema's status may be written now. If so, the write counts, whether it succeeds or not.
    /// If not, digest again after [`REDIGEST_AFTER_SECONDS`]. `now` is monotonic.
    pub fn admit(&mut self, now: Nanos, schema: &str) -> bool {
        self.writes.retain(|_, times| {
            times.retain(|&time| now - time <= WINDOW);
            !times.is_empty()
        });
        match self.writes.get_mut(schema) {
            Some(times) if times.len() >= WRITES_MAX => return false,
            Some(times) => times.push_back(now),
            None => _ = self.writes.insert(schema.to_string(), [now].into()),
        }
        true
    }
}

#[cfg(test)]
mod tests;
