//! A controller from outside.

use alloc::vec::Vec;

use super::Controller;
use super::levels::{Entry, Presence};
use crate::level::RequestState;
use crate::snapshot::{Level, Queue, Request, Snapshot};
use crate::units::Nanos;

impl Controller {
    /// Everything as it is now. Costs what is active: see [`crate::snapshot`].
    #[must_use]
    pub fn snapshot(&self, now: Nanos) -> Snapshot {
        Snapshot {
            at: now,
            generation: self.generation,
            fair_proportion: self.fair_proportion,
            levels: self.levels.iter().map(|entry| self.level(entry)).collect(),
            schemas: self.schemas.met(),
            crowd: self.crowd.clone(),
        }
    }

    /// Requests that wait and that execute now, each reading and writing.
    #[must_use]
    pub fn crowd(&self) -> ([u64; 2], [u64; 2]) {
        let numerators =
            |meters: &[crate::meters::TimingHistogram<15>; 2]| [meters[0].numerator(), meters[1].numerator()];
        (numerators(&self.crowd.waiting), numerators(&self.crowd.executing))
    }

    fn level(&self, entry: &Entry) -> Level {
        let level = &entry.level;
        let request = |state: RequestState| self.request(entry, &state);
        let queues = level.queue_states().into_iter().map(|state| Queue {
            state,
            waiting: level.waiting_in(state.index).map(request).collect(),
            executing: by_arrival(level.executing_from(state.index).map(request).collect()),
        });
        Level {
            name: entry.name.clone(),
            uid: entry.uid.clone(),
            mode: level.mode(),
            quiescing: entry.presence == Presence::Quiescing,
            idle: level.is_idle(),
            limits: entry.limits,
            limit: level.limit(),
            target: entry.target,
            demand: entry.demand,
            retry_after: entry.retry_after.seconds(),
            waiting: level.waiting(),
            executing: level.executing(),
            seats_in_use: level.seats_in_use(),
            seats_waiting: level.seats_waiting(),
            counters: level.counters(),
            r: level.r(),
            epochs: level.epochs(),
            last_dispatch: level.last_dispatch(),
            queue_count: level.queue_count(),
            queues: queues.collect(),
            queueless: by_arrival(level.executing_queueless().map(request).collect()),
            meters: entry.meters.clone(),
        }
    }

    fn request(&self, entry: &Entry, state: &RequestState) -> Request {
        let ride = entry.ride(state.ticket);
        Request {
            tag: state.tag,
            schema: self.schemas.get(ride.schema).meters.schema.clone(),
            distinguisher: ride.distinguisher,
            arrived: state.arrived,
            started: state.started,
            work: state.work,
        }
    }
}

fn by_arrival(mut requests: Vec<Request>) -> Vec<Request> {
    requests.sort_by_key(|request| request.arrived);
    requests
}
