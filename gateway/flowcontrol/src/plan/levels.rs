//! Level objects to what runs them; which objects are no good, and why.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::mandatory_levels;
use crate::level::Mode;
use crate::limits::Share;
use crate::objects::{EXEMPT, PriorityLevelConfiguration, PriorityLevelSpec, Queuing, defaults};
use crate::shuffle::{Dealer, InvalidHand};

/// A level as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// Name of the object.
    pub name: String,
    /// UID of the object; empty for one that is built in.
    pub uid: String,
    /// What it does with what does not fit.
    pub mode: Mode,
    /// What it says about seats.
    pub share: Share,
    /// Whether its flows have hashes: it has more than one queue, and its response type says so.
    pub tells_flows_apart: bool,
    /// Whether there is no object: the level is there because it is mandatory.
    pub built_in: bool,
}

/// Why a level object counts as absent. Validation refuses such objects, but for an `exempt` without
/// `spec.exempt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// `spec.type` and the member beside it disagree, or the type is unknown.
    Kind,
    /// `Exempt` is for the level named `exempt`, and for it alone.
    Name,
    /// `spec.limited.limitResponse.type` and `queuing` disagree.
    Response,
    /// Queues and hand size do not go together.
    Hand(InvalidHand),
}

/// Compiles what is usable; both lists sorted by name. Of several of a name the first counts.
pub(super) fn compile(objects: &[PriorityLevelConfiguration]) -> (Vec<Level>, Vec<(String, Unusable)>) {
    let (mut usable, mut unusable) = (Vec::new(), Vec::new());
    for object in objects {
        match mode(object) {
            Ok(mode) => usable.push(Level::of(object, mode)),
            Err(why) => unusable.push((object.metadata.name.clone(), why)),
        }
    }
    sort(&mut usable);
    usable.dedup_by(|later, first| later.name == first.name);
    unusable.sort_by(|one, other| one.0.cmp(&other.0));
    (usable, unusable)
}

/// Adds the mandatory levels that are missing, in their places.
pub(super) fn with_mandatory(mut levels: Vec<Level>) -> Vec<Level> {
    for object in mandatory_levels() {
        if let (None, Ok(mode)) = (find(&levels, &object.metadata.name), mode(&object)) {
            levels.push(Level { built_in: true, ..Level::of(&object, mode) });
            sort(&mut levels);
        }
    }
    levels
}

/// Index of the level of that name, in a sorted list.
pub(super) fn find(levels: &[Level], name: &str) -> Option<usize> {
    levels.binary_search_by(|level| level.name.as_str().cmp(name)).ok()
}

/// The object with the member filled in that valid `exempt` objects may lack; nothing else has it.
pub(super) fn with_exempt_member(object: &PriorityLevelConfiguration) -> PriorityLevelConfiguration {
    let mut object = object.clone();
    if object.metadata.name == EXEMPT && object.spec.kind == "Exempt" {
        object.spec.exempt.get_or_insert_default();
    }
    object
}

/// What it does with what does not fit: kube-apiserver's own checks, in its order.
fn mode(object: &PriorityLevelConfiguration) -> Result<Mode, Unusable> {
    let spec = &object.spec;
    let (limited, exempt) = (spec.kind == "Limited", spec.kind == "Exempt");
    if limited != spec.limited.is_some() || exempt != spec.exempt.is_some() || limited == exempt {
        return Err(Unusable::Kind);
    }
    if exempt != (object.metadata.name == EXEMPT) {
        return Err(Unusable::Name);
    }
    let Some(limited) = &spec.limited else { return Ok(Mode::Exempt) };
    match &limited.limit_response.queuing {
        queuing if (limited.limit_response.kind == "Reject") != queuing.is_none() => Err(Unusable::Response),
        Some(queuing) => queues(queuing).map_err(Unusable::Hand),
        None => Ok(Mode::Reject),
    }
}

/// parity: kube-apiserver checks no hand where there are no queues, and takes fewer than none for
/// "unlimited". Validation refuses both; here either is a level without queues.
fn queues(queuing: &Queuing) -> Result<Mode, InvalidHand> {
    if queuing.queues <= 0 {
        return Ok(Mode::Reject);
    }
    let dealer = Dealer::new(queuing.queues.into(), queuing.hand_size.into())?;
    Ok(Mode::Queue {
        queues: dealer.deck_size(),
        hand_size: dealer.hand_size(),
        queue_length_limit: not_negative(queuing.queue_length_limit),
    })
}

fn sort(levels: &mut [Level]) {
    levels.sort_by(|one, other| one.name.cmp(&other.name));
}

fn not_negative(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// Queues of a response type that does not exist are used, with one hand for all: 0 is everybody's hash.
fn tells_flows_apart(spec: &PriorityLevelSpec) -> bool {
    let response = spec.limited.as_ref().map(|limited| &limited.limit_response);
    let queuing =
        response.filter(|response| response.kind == "Queue").and_then(|queue| queue.queuing.as_ref());
    queuing.is_some_and(|queuing| queuing.queues > 1)
}

/// What it says about seats. What is absent has the API's default.
fn share(spec: &PriorityLevelSpec) -> Share {
    if let Some(limited) = &spec.limited {
        let shares = limited.nominal_concurrency_shares.unwrap_or(defaults::NOMINAL_CONCURRENCY_SHARES);
        let queuing = limited.limit_response.queuing.as_ref();
        return Share {
            shares: not_negative(shares),
            lendable_percent: not_negative(limited.lendable_percent.unwrap_or(0)),
            borrowing_limit_percent: limited.borrowing_limit_percent.map(not_negative),
            hand_size: queuing.map(|queuing| not_negative(queuing.hand_size)),
        };
    }
    let exempt = spec.exempt.clone().unwrap_or_default();
    Share {
        shares: not_negative(exempt.nominal_concurrency_shares.unwrap_or(0)),
        lendable_percent: not_negative(exempt.lendable_percent.unwrap_or(0)),
        ..Share::default()
    }
}

// === impl Level ===

impl Level {
    fn of(object: &PriorityLevelConfiguration, mode: Mode) -> Self {
        Self {
            name: object.metadata.name.clone(),
            uid: object.metadata.uid.clone(),
            mode,
            share: share(&object.spec),
            tells_flows_apart: tells_flows_apart(&object.spec),
            built_in: false,
        }
    }
}

// === impl Unusable ===

impl fmt::Display for Unusable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind => formatter.write_str(
                "spec.type must be Limited, beside spec.limited alone, or Exempt, beside spec.exempt alone",
            ),
            Self::Name => formatter.write_str("spec.type must be Exempt for the level exempt, and for no other"),
            Self::Response => formatter.write_str(
                "spec.limited.limitResponse.queuing must be there unless spec.limited.limitResponse.type is Reject",
            ),
            Self::Hand(why) => write!(formatter, "spec.limited.limitResponse.queuing: {why}"),
        }
    }
}
