//! A controller from outside.

use alloc::vec::Vec;

use super::levels::{Entry, Presence};
use super::{Controller, LevelId};
use crate::level::{Part, Picture, RequestState};
use crate::snapshot::{Level, Past, PastLevel, Queue, Request, Snapshot};
use crate::units::Nanos;

impl<P: Part> Controller<P> {
    /// Everything as it is now. Costs what is active: see [`crate::snapshot`].
    #[must_use]
    pub fn snapshot(&mut self, now: Nanos) -> Snapshot {
        let levels: Vec<_> = self.levels.ids().collect();
        let levels = levels.into_iter().filter_map(|id| self.level(now, id)).collect();
        Snapshot {
            at: now,
            generation: self.generation,
            fair_proportion: self.fair_proportion,
            levels,
            schemas: self.schemas.met(),
            crowd: self.crowd.clone(),
        }
    }

    /// What it has counted that goes with it. Only plain numbers are read: it may have broken in the midst of a change.
    #[must_use]
    pub fn past(&self, now: Nanos) -> Past {
        let of_level = |entry: &Entry<P>| {
            let (counters, epochs) = entry.level.counted();
            PastLevel { name: entry.name.clone(), meters: entry.meters.clone().ended(now), counters, epochs }
        };
        let watches = |entry: &&Entry<P>| entry.level.totals().is_some();
        let levels: Vec<_> = self.levels.iter().filter(watches).map(of_level).collect();
        let crowd = (!levels.is_empty()).then(|| self.crowd.clone().ended(now));
        Past::new(self.schemas.met(), levels, crowd)
    }

    /// Requests that wait and that execute now, each reading and writing.
    #[must_use]
    pub fn crowd(&self) -> ([u64; 2], [u64; 2]) {
        let numerators =
            |meters: &[crate::meters::TimingHistogram<15>; 2]| [meters[0].numerator(), meters[1].numerator()];
        (numerators(&self.crowd.waiting), numerators(&self.crowd.executing))
    }

    fn level(&mut self, now: Nanos, id: LevelId) -> Option<Level> {
        let Picture {
            totals,
            counters,
            r,
            epochs,
            last_dispatch,
            robin_index: _,
            queue_count,
            queues,
            queueless,
        } = self.levels.get_mut(id)?.level.picture(now);
        let entry = self.levels.get(id)?;
        let level = &entry.level;
        let request = |state: RequestState| self.request(entry, &state);
        let queues = queues.into_iter().map(|(state, waiting, executing)| Queue {
            state,
            waiting: waiting.into_iter().map(request).collect(),
            executing: by_arrival(executing.into_iter().map(request).collect()),
        });
        Some(Level {
            name: entry.name.clone(),
            uid: entry.uid.clone(),
            mode: level.mode(),
            quiescing: entry.presence == Presence::Quiescing,
            idle: totals.waiting == 0 && totals.executing == 0,
            limits: entry.limits,
            limit: level.limit(),
            target: entry.target,
            demand: entry.demand,
            retry_after: entry.retry_after.seconds(),
            waiting: totals.waiting,
            executing: totals.executing,
            seats_in_use: totals.seats_in_use,
            seats_waiting: totals.seats_waiting,
            counters,
            r,
            epochs,
            last_dispatch,
            queue_count,
            queues: queues.collect(),
            queueless: by_arrival(queueless.into_iter().map(request).collect()),
            meters: entry.meters.clone(),
        })
    }

    /// A request of somebody else, as the coordinator sees it, has no schema here.
    fn request(&self, entry: &Entry<P>, state: &RequestState) -> Request {
        let ride = entry.find_ride(state.ticket);
        let schema = ride.map(|ride| self.schemas.get(ride.schema).meters.schema.clone());
        Request {
            tag: state.tag,
            slot: state.ticket.slot,
            schema: schema.unwrap_or_default(),
            distinguisher: ride.and_then(|ride| ride.distinguisher),
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
