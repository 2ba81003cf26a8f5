//! The goals: what the figures are held against.

use super::closed;
use super::contestant::BASE;
use super::idle;
use super::open;
use super::workers::{self, ONE_SHARE};
use crate::report::goals::{Base, Goal};

const HAPROXY: Base = Base::Contestant(BASE);

/// The other path, against which the ring is held.
const EPOLL: Base = Base::Contestant("usher-epoll");

pub(super) const GOALS: &[Goal] = &[
    Goal { cell: "plain-1k", metric: closed::CPU, relative_to: HAPROXY, at_most: 0.85 },
    Goal { cell: "tls-1k", metric: closed::CPU, relative_to: HAPROXY, at_most: 0.80 },
    Goal { cell: "http2-1k", metric: closed::CPU, relative_to: HAPROXY, at_most: 0.95 },
    Goal { cell: "plain-1k", metric: closed::CPU, relative_to: EPOLL, at_most: 0.85 },
    Goal { cell: "apiserver-get-tls", metric: closed::CPU, relative_to: HAPROXY, at_most: 0.85 },
    Goal { cell: "apiserver-list-tls", metric: closed::CPU, relative_to: HAPROXY, at_most: 0.85 },
    Goal { cell: "apiserver-get-http2", metric: closed::CPU, relative_to: HAPROXY, at_most: 0.85 },
    Goal { cell: "apiserver-list-http2", metric: closed::CPU, relative_to: HAPROXY, at_most: 0.85 },
    second_worker("workers-plain"),
    second_worker("workers-http2"),
    Goal { cell: "latency", metric: open::ADDED_P50, relative_to: Base::Nothing, at_most: 60.0 },
    Goal { cell: "latency", metric: open::ADDED_P99, relative_to: Base::Nothing, at_most: 1000.0 },
    Goal { cell: "idle-watches-100", metric: idle::MEMORY, relative_to: Base::Nothing, at_most: 16.0 },
    Goal { cell: "idle-watches-100", metric: idle::CPU, relative_to: Base::Nothing, at_most: 0.5 },
    Goal { cell: "idle-connections-plain", metric: idle::MEMORY, relative_to: Base::Nothing, at_most: 24.0 },
    Goal { cell: "idle-connections-tls", metric: idle::MEMORY, relative_to: Base::Nothing, at_most: 24.0 },
];

/// 1.6 times the requests per second of one.
const fn second_worker(cell: &'static str) -> Goal {
    Goal { cell, metric: workers::WALL, relative_to: Base::Contestant(ONE_SHARE), at_most: 1.0 / 1.6 }
}
