//! What a room has to say of itself when `usher status` asks. Put together in `observe::status`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a room says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Section {
    /// For people: a sentence, or a few lines.
    pub summary: String,
    /// For programs.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

impl Section {
    /// Only a sentence.
    #[must_use]
    pub fn says(summary: impl Into<String>) -> Self {
        Self { summary: summary.into(), more: BTreeMap::new() }
    }
}
