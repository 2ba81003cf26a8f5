//! The goals: what the figures are held against.

use super::{ALLOCATIONS, GO, MEAN, P99};
use crate::report::goals::{Base, Goal};

const KUBE_APISERVER: Base = Base::Contestant(GO);
/// A microsecond.
const US: f64 = 1000.0;

pub(super) const GOALS: &[Goal] = &[
    Goal { cell: "unsaturated", metric: MEAN, relative_to: KUBE_APISERVER, at_most: 1.0 / 20.0 },
    Goal { cell: "unsaturated", metric: P99, relative_to: Base::Nothing, at_most: US },
    Goal { cell: "unsaturated", metric: ALLOCATIONS, relative_to: Base::Nothing, at_most: 0.0 },
    Goal { cell: "saturated", metric: MEAN, relative_to: KUBE_APISERVER, at_most: 1.0 / 40.0 },
    Goal { cell: "saturated", metric: P99, relative_to: Base::Nothing, at_most: US },
    Goal { cell: "saturated", metric: ALLOCATIONS, relative_to: Base::Nothing, at_most: 0.0 },
    Goal {
        cell: "unsaturated-queues-8192",
        metric: MEAN,
        relative_to: Base::Cell("unsaturated-queues-128"),
        at_most: 1.1,
    },
    Goal {
        cell: "saturated-queues-8192",
        metric: MEAN,
        relative_to: Base::Cell("saturated-queues-128"),
        at_most: 1.1,
    },
    Goal {
        cell: "threads-unsaturated-2",
        metric: MEAN,
        relative_to: Base::Cell("threads-unsaturated-1"),
        at_most: 1.0 / 1.7,
    },
    Goal {
        cell: "threads-saturated-2",
        metric: MEAN,
        relative_to: Base::Cell("threads-saturated-1"),
        at_most: 1.0,
    },
];
