//! The goals: what the figures are held against.

use super::{LOST, PROTECTED_P99, UNLOADED};
use crate::report::goals::{Base, Goal};

pub(super) const GOALS: &[Goal] =
    &[lost("workers-1"), protected("workers-1"), lost("workers-2"), protected("workers-2")];

/// At least 95 % of what the apiserver can do alone.
const fn lost(cell: &'static str) -> Goal {
    Goal { cell, metric: LOST, relative_to: Base::Nothing, at_most: 5.0 }
}

const fn protected(cell: &'static str) -> Goal {
    Goal { cell, metric: PROTECTED_P99, relative_to: Base::Contestant(UNLOADED), at_most: 1.3 }
}
