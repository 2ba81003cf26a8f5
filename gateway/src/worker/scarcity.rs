//! What a worker gives up as memory runs out: rung by rung, see [`crate::memory`].
//!
//! - Requests with large bodies are answered 429 before they wait: clients come back by themselves, and what was
//!   taken ahead of their bodies is free at once. Small ones go on (leases, status, reviews: without them a busy
//!   cluster would take its nodes for dead), and so do uploads that have begun: their end is what frees memory.
//! - New connections are accepted and closed at once. Left in the kernel's backlog they would look like a server that
//!   hangs, and come all together, with their handshakes, when there is hardly room again; closed, their clients try
//!   the next server.
//! - Idle connections are closed a part at a time, with GOAWAY over HTTP/2, until there is room.
//! - Answers of which nothing is taken are cut, the longest waiting first: see [`super::readers`].
//!
//! Memory that was freed goes back to the kernel as well: the allocator would keep it for the next wave, and the
//! ladder could not tell that from need.

use std::cell::Cell;

use http::HeaderMap;
use usher_flowcontrol::reply::Reply;
use usher_flowcontrol::units::Nanos;

use super::request::{Known, Refusal};
use super::{Worker, entrance, reply};
use crate::memory::{self, Rung};
use crate::ring;

/// How scarce memory is.
#[derive(Debug)]
pub(super) struct Scarcity {
    rung: Cell<Rung>,
    /// When freed memory was last given back to the kernel.
    given_back: Cell<Nanos>,
}

/// Bodies up to this size are let in always: leases, status of nodes, events, access reviews are smaller.
const SMALL_BODY: u64 = 32 * 1024;
/// With each reading, one of so many idle connections is told to go: all of them within some seconds.
const SHED_PART: usize = 8;
/// If it has been idle for so long. Who asks now and then keeps its place.
const SHED_IDLE_FOR: Nanos = Nanos::from_millis(1000);
/// But so many if there are as many.
const SHED_LEAST: usize = 8;
/// Giving memory back costs milliseconds when there is much of it.
const GIVE_BACK_EVERY: Nanos = Nanos::from_millis(500);
/// When to come back, in seconds: the ladder is descended no faster.
const RETRY_AFTER: u32 = 1;

impl Scarcity {
    pub(super) fn new() -> Self {
        Self { rung: Cell::default(), given_back: Cell::new(Nanos(0)) }
    }

    /// Whether that much is given up.
    pub(super) fn is_at(&self, rung: Rung) -> bool {
        self.rung.get() >= rung
    }

    /// A large body is not let in while memory is tight. `size`: what the client says, if it does.
    pub(super) fn refuse_body(
        &self,
        known: &Known<'_>,
        headers: &HeaderMap,
        size: Option<u64>,
    ) -> Option<Refusal> {
        if !self.is_at(Rung::Bodies) || size.is_some_and(|size| size <= SMALL_BODY) {
            return None;
        }
        let worker = &known.client.worker;
        worker.counters.rejected_memory.add();
        worker.turned_away.borrow_mut().count(entrance::labels(known, headers));
        Some(Box::new(reply::of_core(Reply::too_many_requests(RETRY_AFTER))))
    }
}

impl Worker {
    /// Memory has been measured again.
    pub(super) fn memory_is(&self, rung: Rung) {
        self.scarcity.rung.set(rung);
        let now = ring::now();
        if rung >= Rung::Idle {
            let told = self.roster.send_away(now - SHED_IDLE_FOR, SHED_PART, SHED_LEAST);
            self.counters.connections_shed.add_many(told as u64);
        }
        if rung >= Rung::Readers {
            self.cut_slowest_readers();
        }
        if now >= self.scarcity.given_back.get() + GIVE_BACK_EVERY {
            self.scarcity.given_back.set(now);
            memory::give_back();
        }
    }
}
