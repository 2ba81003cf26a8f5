//! Every priority level of one worker, put together: objects in, classification and verdicts out.
//!
//! This is what a worker owns. It keeps the compiled [`crate::plan`], the levels (those that are going
//! away too, until they are empty), the seat-demand statistics, the limits and the borrowing between
//! levels, and the Retry-After of each level. It decides; the worker acts.

pub use crate::classify::User;
use crate::level::{Dispatched, Finish, Reason, Ticket, Verdict};
use crate::objects::{FlowSchema, PriorityLevelConfiguration};
use crate::request_info::RequestInfo;
use crate::units::{FlowHash, Nanos, Seats, Work};

/// A level of this controller. Stable while the level lives; never reused while a request holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LevelId(pub u32);

/// A schema of the configuration in force when it was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SchemaId(pub u32);

/// Where a request belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Configuration it was classified with; a cache keyed by schema must check it.
    pub generation: u64,
    /// Its schema.
    pub schema: SchemaId,
    /// Its level.
    pub level: LevelId,
    /// Its flow: 0 where the level has at most one queue.
    pub flow: FlowHash,
    /// Whether a schema matched (else it is the one named `catch-all`).
    pub matched: bool,
}

/// Every priority level of one worker.
#[derive(Debug)]
pub struct Controller {}

#[expect(unused_variables, clippy::unimplemented, reason = "signatures first; the limits room fills them in")]
impl Controller {
    /// Only the two mandatory levels. `server_limit`: seats of the server, more than 0.
    pub fn new(now: Nanos, server_limit: Seats) -> Self {
        unimplemented!()
    }

    /// From now on exactly these objects exist. They are checked before they get here; what is
    /// unusable all the same counts as absent, as in kube-apiserver.
    pub fn configure(&mut self, now: Nanos, schemas: &[FlowSchema], levels: &[PriorityLevelConfiguration]) {
        unimplemented!()
    }

    /// Which schema, level and flow.
    pub fn classify(&self, user: User<'_>, request: &RequestInfo<'_>) -> Class {
        unimplemented!()
    }

    /// The widest request that the estimator may produce at a level; 0: none set.
    pub fn max_seats(&self, level: LevelId) -> Seats {
        unimplemented!()
    }

    /// A classified request asks for its seats.
    pub fn arrive(&mut self, now: Nanos, class: &Class, work: Work, tag: u64) -> Verdict {
        unimplemented!()
    }

    /// Gives up the waiting of a request; `false` if it did not wait any more.
    pub fn cancel(&mut self, now: Nanos, level: LevelId, ticket: Ticket, why: Reason) -> bool {
        unimplemented!()
    }

    /// The work of an executing request is done.
    pub fn finish(&mut self, now: Nanos, level: LevelId, ticket: Ticket) -> Finish {
        unimplemented!()
    }

    /// The lingering of a request is over.
    pub fn linger_end(&mut self, now: Nanos, level: LevelId, ticket: Ticket) {
        unimplemented!()
    }

    /// The next request that left a queue to run, at whatever level; drain after every `&mut` call.
    pub fn next_dispatched(&mut self) -> Option<(LevelId, Dispatched)> {
        unimplemented!()
    }

    /// Moves seats between levels. Every 10 s; `configure` does it by itself and says so, so that the
    /// caller restarts its period (KEP-1040, "Dispatching").
    pub fn borrow(&mut self, now: Nanos) {
        unimplemented!()
    }

    /// Counts a request turned away at `unix_second` and says how many seconds its client shall wait.
    pub fn retry_after(&mut self, unix_second: i64, level: LevelId) -> u32 {
        unimplemented!()
    }
}
