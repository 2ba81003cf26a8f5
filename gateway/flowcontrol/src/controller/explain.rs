//! Why a request goes where it goes.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Class, Controller, User};
use crate::classify::Mismatch;
use crate::level::{Mode, Part};
use crate::request_info::RequestInfo;
use crate::shuffle::Dealer;
use crate::units::Seats;

/// A classification with its reasons.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Where the request belongs.
    pub class: Class,
    /// Name of its schema.
    pub schema: String,
    /// Name of its level.
    pub level: String,
    /// What the level does with what does not fit.
    pub mode: Mode,
    /// What tells its flow from others of the schema; `None` where flows are not told apart.
    pub distinguisher: Option<Vec<u8>>,
    /// Queues that its flow may use, in dealing order; none where there is only one queue, or none.
    pub hand: Vec<u32>,
    /// The widest that it may be estimated; 0: the level says nothing.
    pub max_seats: Seats,
    /// Schemas that were tried before, in order.
    pub refusals: Vec<Refusal>,
}

/// A schema that did not match.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Its name.
    pub schema: String,
    /// Its precedence.
    pub precedence: i32,
    /// Which part of its rules failed.
    pub why: Mismatch,
}

impl<P: Part> Controller<P> {
    /// Classifies, and says why.
    #[must_use]
    pub fn explain(&self, user: User<'_>, request: &RequestInfo<'_>) -> Explanation {
        let class = self.classify(user, request);
        let schema = self.plan.classify(user, request).schema;
        let distinguisher = self.plan.distinguisher(schema, user, request);
        let mode = self.levels.get(class.level).map_or(Mode::Reject, |entry| entry.mode());
        let hand = match mode {
            Mode::Queue { queues: queues @ 2.., hand_size, .. } => {
                Dealer::clamped(queues, hand_size).deal(class.flow).cards().to_vec()
            }
            _ => Vec::new(),
        };
        let refusals = self.plan.mismatches(user, request).map(|(schema, why)| Refusal {
            schema: schema.name.clone(),
            precedence: schema.precedence,
            why,
        });
        Explanation {
            class,
            schema: self.schema_name(class.schema).into(),
            level: self.level_name(class.level).into(),
            mode,
            distinguisher: distinguisher.map(<[u8]>::to_vec),
            hand,
            max_seats: self.max_seats(class.level),
            refusals: refusals.collect(),
        }
    }

    /// The plan in force: schemas in order, levels, and what could not be used.
    #[must_use]
    pub fn plan(&self) -> &crate::plan::Plan {
        &self.plan
    }
}
