//! Every priority level of one worker, put together: objects in, classification and verdicts out.
//!
//! This is what a worker owns. It keeps the compiled [`crate::plan`], the levels (those that are going
//! away too, until they are empty), the seat-demand statistics, the limits and the borrowing between
//! levels, the Retry-After of each level, and the counts that operators watch. It decides; the worker
//! acts. Drain [`Controller::next_event`] (and where workers share levels [`Controller::next_wake`]) after every
//! call that takes `&mut self`.
//!
//! One worker alone has the whole of each [`Level`]. Several have a controller each, over the [`Part`]s of levels
//! that they share; one more, the coordinator's, watches the levels as a whole and moves seats between them.

mod configure;
mod explain;
mod flow_cache;
mod levels;
mod look;
mod schemas;

pub use crate::classify::User;
pub use explain::{Explanation, Refusal};
pub use flow_cache::FlowCache;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::flow::Method;
use crate::level::{
    self, Arrival, Dispatched, Event, Finish, Level, Mode, Part, Phase, Reason, Ticket, Verdict,
};
use crate::limits::as_f64;
use crate::meters::CrowdMeters;
use crate::plan::{Match, Plan};
use crate::request_info::RequestInfo;
use crate::units::{FlowHash, Nanos, Seats, Work};
use levels::{Entry, Levels, Ride};
use schemas::Schemas;

/// A level of this controller. Stable while the level lives; never reused while a request holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LevelId(pub u32);

/// A schema of this controller, at one level. Stable while the schema is configured or a request of it
/// is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SchemaId(pub u32);

/// Where a request belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Configuration it was classified with. Under another one, classify again.
    pub generation: u64,
    /// Its schema.
    pub schema: SchemaId,
    /// Its level.
    pub level: LevelId,
    /// Its flow: 0 where flows are not told apart.
    pub flow: FlowHash,
    /// What told its flow apart, where flows are told apart.
    pub distinguisher: Option<Method>,
    /// Whether a schema matched (else it is the one named `catch-all`).
    pub matched: bool,
    /// Only its initialisation is seated.
    pub watch: bool,
    /// Counted among the writing requests: everything but get, list and watch.
    pub mutating: bool,
}

/// The schemas that concern a user, by [`Controller::concerning`]; those of one configuration.
#[derive(Clone, Debug)]
pub struct Concerning {
    generation: u64,
    schemas: Vec<usize>,
}

/// Every priority level of one worker.
#[derive(Debug)]
pub struct Controller<P = Level> {
    /// Seats of the server.
    server_limit: Seats,
    plan: Plan,
    /// Counts the configurations.
    generation: u64,
    levels: Levels<P>,
    schemas: Schemas,
    crowd: CrowdMeters,
    /// Of the last adjustment.
    fair_proportion: f64,
    /// When that was.
    adjusted_at: Nanos,
    /// What became of requests that had to wait, until it is handed out.
    events: VecDeque<(LevelId, Event)>,
    /// Workers that are to be woken, until they are handed out.
    wakes: Vec<usize>,
}

// === impl Controller: where a request belongs ===

impl<P: Part> Controller<P> {
    /// Which schema, level and flow.
    #[must_use]
    pub fn classify(&self, user: User<'_>, request: &RequestInfo<'_>) -> Class {
        self.classify_cached(&mut FlowCache::default(), user, request)
    }

    /// The same, for one of many requests of a connection: the cache spares it the flow hash.
    pub fn classify_cached(&self, cache: &mut FlowCache, user: User<'_>, request: &RequestInfo<'_>) -> Class {
        self.class_of(self.plan.classify(user, request), cache, user, request)
    }

    /// The schemas that concern a user: found once for many of its requests.
    #[must_use]
    pub fn concerning(&self, user: User<'_>) -> Concerning {
        Concerning { generation: self.generation, schemas: self.plan.concerning(user).collect() }
    }

    /// Whether they are of the configuration in force.
    #[must_use]
    pub fn is_current(&self, concerning: &Concerning) -> bool {
        concerning.generation == self.generation
    }

    /// The same as [`Self::classify_cached`], for the user whose schemas `concerning` are. Those of another
    /// configuration are of no use: all schemas are tried.
    pub fn classify_among(
        &self,
        concerning: &Concerning,
        cache: &mut FlowCache,
        user: User<'_>,
        request: &RequestInfo<'_>,
    ) -> Class {
        if !self.is_current(concerning) {
            return self.classify_cached(cache, user, request);
        }
        let found = self.plan.classify_among(concerning.schemas.iter().copied(), user, request);
        self.class_of(found, cache, user, request)
    }

    fn class_of(
        &self,
        found: Match,
        cache: &mut FlowCache,
        user: User<'_>,
        request: &RequestInfo<'_>,
    ) -> Class {
        let schema = self.schemas.of_plan(found.schema);
        let level = self.schemas.get(schema).level;
        let distinguisher = self.plan.distinguisher(found.schema, user, request);
        let flow = distinguisher.map_or(FlowHash(0), |distinguisher| {
            cache.flow(self.generation, schema, &self.schemas.get(schema).meters.schema, distinguisher)
        });
        Class {
            generation: self.generation,
            schema,
            level,
            flow,
            distinguisher: distinguisher.and(self.plan.schemas()[found.schema].distinguisher),
            matched: found.matched,
            watch: request.verb() == "watch",
            mutating: !matches!(request.verb(), "get" | "list" | "watch"),
        }
    }

    /// Which configuration is in force.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The widest request that the estimator may produce at a level; 0: none set.
    #[must_use]
    pub fn max_seats(&self, level: LevelId) -> Seats {
        self.levels.get(level).map_or(Seats(0), |entry| entry.limits.max_seats)
    }

    /// Name of a level; empty once it is gone.
    #[must_use]
    pub fn level_name(&self, level: LevelId) -> &str {
        self.levels.get(level).map_or("", |entry| &entry.name)
    }

    /// UID of a level, for its response header; empty if there is no object.
    #[must_use]
    pub fn level_uid(&self, level: LevelId) -> &str {
        self.levels.get(level).map_or("", |entry| &entry.uid)
    }

    /// Whether nothing ever waits at a level.
    #[must_use]
    pub fn is_exempt(&self, level: LevelId) -> bool {
        self.levels.get(level).is_some_and(|entry| entry.mode() == Mode::Exempt)
    }

    /// Name of a schema.
    #[must_use]
    pub fn schema_name(&self, schema: SchemaId) -> &str {
        self.schemas.find(schema).map_or("", |known| &known.meters.schema)
    }

    /// UID of a schema, for its response header; empty if there is no object.
    #[must_use]
    pub fn schema_uid(&self, schema: SchemaId) -> &str {
        self.schemas.find(schema).map_or("", |known| &known.uid)
    }
}

// === impl Controller: from arrival to the end ===

impl<P: Part> Controller<P> {
    /// A classified request asks for its seats. One whose level is gone since it was classified is
    /// turned away: classify under the configuration in force.
    pub fn arrive(&mut self, now: Nanos, class: &Class, work: Work, tag: u64) -> Verdict {
        let Some((entry, schema)) = find(&mut self.levels, &mut self.schemas, class) else {
            return Verdict::Reject(Reason::ConcurrencyLimit);
        };
        let work = level::believed(work);
        let seats = work.max_seats();
        schema.meters.widths.observe(as_f64(seats));
        let before = entry.level.totals();
        let verdict = entry.level.arrive(now, Arrival { flow: class.flow, work, tag });
        if let Verdict::Execute(ticket) | Verdict::Wait(ticket) = verdict {
            entry.board(ticket, Ride::of(class, seats));
            entry.crest(now, before, seats);
        }
        match verdict {
            Verdict::Execute(ticket) => {
                if let Mode::Queue { .. } = entry.mode() {
                    schema.meters.enqueued(seats);
                    schema.meters.joined(1);
                    schema.meters.dequeued(seats);
                }
                schema.meters.started(entry.seats_of(ticket), entry.waited(ticket));
                self.crowd.executing(now, class.mutating, true);
            }
            Verdict::Wait(ticket) => {
                schema.meters.enqueued(seats);
                match entry.level.queue_length(ticket) {
                    0 => entry.ask_for_queue(ticket),
                    length => schema.meters.joined(length),
                }
                self.crowd.waiting(now, class.mutating, true);
            }
            Verdict::Reject(why) => schema.meters.rejected(why, Nanos::ZERO),
        }
        self.settle(now, class.level);
        verdict
    }

    /// A classified request's wait was over before it could begin: it is counted, and never runs.
    pub fn refuse(&mut self, class: &Class, why: Reason) {
        if let Some((entry, schema)) = find(&mut self.levels, &mut self.schemas, class) {
            entry.level.refuse(why);
            schema.meters.rejected(why, Nanos::ZERO);
        }
    }

    /// Gives up the waiting of a request; `false` if it did not wait any more.
    pub fn cancel(&mut self, now: Nanos, level: LevelId, ticket: Ticket, why: Reason) -> bool {
        let Some(entry) = self.levels.get_mut(level) else { return false };
        let Some(request) = entry.in_phase(ticket, Phase::Waiting) else { return false };
        let (ride, joined) = (entry.ride(ticket), entry.joined_late(ticket));
        if !entry.level.cancel(now, ticket, why) {
            return false; // decided elsewhere in this very moment: the event is on its way
        }
        let meters = &mut self.schemas.get_mut(ride.schema).meters;
        joined.into_iter().for_each(|length| meters.joined(length));
        meters.dequeued(ride.seats);
        meters.rejected(why, now - request.arrived);
        self.crowd.waiting(now, ride.mutating, false);
        self.settle(now, level);
        true
    }

    /// The work of an executing request is done (of a watch: it is initialised).
    pub fn finish(&mut self, now: Nanos, level: LevelId, ticket: Ticket) -> Finish {
        let Some(entry) = self.levels.get_mut(level) else { return Finish::Released };
        let Some(request) = entry.in_phase(ticket, Phase::Executing) else { return Finish::Released };
        let ride = entry.ride(ticket);
        let finish = entry.level.finish(now, ticket);
        let meters = &mut self.schemas.get_mut(ride.schema).meters;
        meters.finished(now - request.started.unwrap_or(now), ride.watch);
        if finish == Finish::Released {
            meters.released(request.work.max_seats());
        }
        self.crowd.executing(now, ride.mutating, false);
        self.settle(now, level);
        finish
    }

    /// The lingering of a request is over.
    pub fn linger_end(&mut self, now: Nanos, level: LevelId, ticket: Ticket) {
        let Some(entry) = self.levels.get_mut(level) else { return };
        let Some(request) = entry.in_phase(ticket, Phase::Lingering) else { return };
        let ride = entry.ride(ticket);
        entry.level.linger_end(now, ticket);
        self.schemas.get_mut(ride.schema).meters.released(request.work.max_seats());
        self.settle(now, level);
    }

    /// Once a turn, and when another worker has woken this one: looks at what others left at shared levels.
    pub fn poll(&mut self, now: Nanos) {
        for id in self.levels.all() {
            if let Some(entry) = self.levels.get_mut(id) {
                entry.level.poll(now);
                self.settle(now, id);
            }
        }
    }

    /// What became of the next request that had to wait, at whatever level, in order.
    pub fn next_event(&mut self) -> Option<(LevelId, Event)> {
        self.events.pop_front()
    }

    /// The next worker to be woken: others have left something for it at a level that it shares.
    pub fn next_wake(&mut self) -> Option<usize> {
        self.wakes.pop()
    }

    /// Counts a request turned away at `unix_second` and says how many seconds its client shall wait.
    pub fn retry_after(&mut self, unix_second: i64, level: LevelId) -> u32 {
        self.levels.get_mut(level).map_or(1, |entry| {
            entry.level.turned_away().unwrap_or_else(|| {
                entry.retry_after.record(unix_second);
                entry.retry_after.seconds()
            })
        })
    }

    /// So many watches have to be notified of what a writing request does.
    pub fn observe_watch_count(&mut self, class: &Class, watches: usize) {
        if let Some((_, schema)) = find(&mut self.levels, &mut self.schemas, class) {
            schema.meters.watch_counts.observe(as_f64(Seats(watches as u64)));
        }
    }

    /// Something happened at a level: collects what may run now, and counts.
    fn settle(&mut self, now: Nanos, id: LevelId) {
        let Some(entry) = self.levels.get_mut(id) else { return };
        while let Some(event) = entry.level.next_event() {
            let (Event::Dispatched(Dispatched { ticket, .. }) | Event::Rejected { ticket, .. }) = event;
            let ride = entry.ride(ticket);
            let meters = &mut self.schemas.get_mut(ride.schema).meters;
            meters.dequeued(ride.seats);
            self.crowd.waiting(now, ride.mutating, false);
            match event {
                Event::Dispatched(_) => {
                    entry.joined_late(ticket).into_iter().for_each(|length| meters.joined(length));
                    meters.started(entry.seats_of(ticket), entry.waited(ticket));
                    self.crowd.executing(now, ride.mutating, true);
                }
                // What was decided elsewhere was decided at once, but for the moment that it took to be heard of.
                Event::Rejected { why, .. } => meters.rejected(why, Nanos::ZERO),
            }
            self.events.push_back((id, event));
        }
        while let Some(worker) = entry.level.next_wake() {
            if !self.wakes.contains(&worker) {
                self.wakes.push(worker);
            }
        }
        if let Some((blocked, times)) = entry.newly_blocked() {
            self.schemas.get_mut(blocked.schema).meters.not_accommodated += times;
        }
        entry.observe(now);
        self.levels.free_if_gone(id);
    }
}

/// The level and schema of a class, unless the configuration has moved on without them.
fn find<'a, P: Part>(
    levels: &'a mut Levels<P>,
    schemas: &'a mut Schemas,
    class: &Class,
) -> Option<(&'a mut Entry<P>, &'a mut schemas::Schema)> {
    let entry = levels.get_mut(class.level).filter(|entry| entry.since <= class.generation)?;
    let schema = schemas.find_mut(class.schema).filter(|schema| schema.since <= class.generation)?;
    (schema.level == class.level).then_some((entry, schema))
}

#[cfg(test)]
mod tests;
