//! What goes wrong while clients ask, and what is changed under their feet.

use serde::Deserialize;

use super::span::{Span, Step};

/// A worker does nothing for a while.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Stall {
    /// Which one.
    pub worker: usize,
    /// From when.
    pub at: Span,
    /// How long.
    #[serde(rename = "for")]
    pub lasts: Span,
}

/// A worker dies. The last one alive does not.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Death {
    /// Which one.
    pub worker: usize,
    /// When.
    pub at: Span,
}

/// The coordinator is gone for a while: nobody moves seats, applies changes or buries the dead; the limits stay.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Absence {
    /// From when.
    pub at: Span,
    /// How long.
    #[serde(rename = "for")]
    pub lasts: Span,
}

/// A worker's clock jumps, and stays beside the others'.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ClockStep {
    /// Whose.
    pub worker: usize,
    /// When.
    pub at: Span,
    /// How far; back if negative.
    pub by: Step,
}

/// A level is configured anew. What is not said stays.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Change {
    /// When.
    pub at: Span,
    /// Which level; the first if there is one only.
    #[serde(default)]
    pub level: String,
    /// A limit, where levels do not lend.
    pub seats: Option<u64>,
    /// Shares, where levels lend.
    pub shares: Option<u32>,
    /// Queues; surplus ones drain.
    pub queues: Option<u32>,
    /// Queues dealt to a flow.
    pub hand_size: Option<u8>,
    /// Requests that may wait in a queue.
    pub queue_length_limit: Option<u32>,
    /// It is there no more: its flows go to the first level, and what it has is finished.
    #[serde(default)]
    pub removed: bool,
}
