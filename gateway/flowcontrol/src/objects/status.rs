//! The `Dangling` condition of a flow schema, and how often it may be written.
//!
//! A schema dangles while the level that it refers to does not exist; an object that is there but unusable,
//! or a level that is only draining, does not count. The judgement is kube-apiserver's, so that two
//! controllers that write the same status agree. apf-behaviour §1.25, §1.20 step 1.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};

use super::validation::hash_suffices;
use super::{Condition, EXEMPT, FlowSchema, ObjectMeta, PriorityLevelConfiguration, Status, Time};
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
/// Largest deck that a hand is dealt from.
const DECK_MAX: i32 = 1 << 26;

/// The condition that a schema should have, given the levels that exist. It has no transition time yet.
pub fn wanted(schema: &FlowSchema, levels: &[PriorityLevelConfiguration]) -> Condition {
    let name = &schema.spec.priority_level_configuration.name;
    let found = levels.iter().any(|level| level.metadata.name == *name && counts(level));
    let (status, reason, what) = match found {
        true => ("False", "Found", "and it exists"),
        false => ("True", "NotFound", "but there is no such object"),
    };
    let name = quoted(name);
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

/// Whether a level's object counts as existing: its unions are consistent and a hand can be dealt.
///
/// This is less than [`super::validation`] asks, because a controller must make do with what is stored.
/// As in kube-apiserver, a level with no queues to deal from passes; validation refuses it.
pub fn counts(level: &PriorityLevelConfiguration) -> bool {
    let spec = &level.spec;
    let (limited, exempt) = (spec.kind == "Limited", spec.kind == "Exempt");
    if !(limited || exempt)
        || limited != spec.limited.is_some()
        || exempt != spec.exempt.is_some()
        || exempt != (level.metadata.name == EXEMPT)
    {
        return false;
    }
    let Some(limited) = &spec.limited else { return true };
    match &limited.limit_response.queuing {
        None => limited.limit_response.kind == "Reject",
        Some(_) if limited.limit_response.kind == "Reject" => false,
        Some(queuing) => {
            queuing.queues <= 0
                || (1..=queuing.queues).contains(&queuing.hand_size)
                    && queuing.queues <= DECK_MAX
                    && hash_suffices(queuing.queues, queuing.hand_size)
        }
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
