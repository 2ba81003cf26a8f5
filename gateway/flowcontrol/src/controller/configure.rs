//! Configuration taken over, and seats moved between levels.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::levels::{Entry, Levels, Presence};
use super::schemas::Schemas;
use super::{Controller, LevelId};
use crate::borrowing::{self, Claim, adjust};
use crate::level::{Level, Mode, Part};
use crate::limits;
use crate::meters::CrowdMeters;
use crate::objects::{FlowSchema, PriorityLevelConfiguration};
use crate::plan::{self, Plan};
use crate::units::{Nanos, Seats};

impl Controller {
    /// Only the two mandatory levels. `server_limit`: seats of the server, more than 0.
    #[must_use]
    pub fn new(now: Nanos, server_limit: Seats) -> Self {
        let mut controller = Self::empty(now, server_limit);
        controller.configure(now, &[], &[]);
        controller
    }

    /// [`Controller::take_over`], by a worker that has the levels for itself; seats are moved at once, and the
    /// adjustment period starts anew: see [`Controller::borrow_due`].
    pub fn configure(&mut self, now: Nanos, schemas: &[FlowSchema], levels: &[PriorityLevelConfiguration]) {
        self.take_over(now, schemas, levels, |level, known| {
            known.is_none().then(|| Level::new(now, level.mode, Seats(0)))
        });
        self.adjust(now);
    }
}

impl<P: Part> Controller<P> {
    /// Nothing at all: [`Controller::take_over`] must follow. `server_limit`: seats of the server, more than 0.
    #[must_use]
    pub fn empty(now: Nanos, server_limit: Seats) -> Self {
        Self {
            server_limit,
            plan: Plan::compile(&[], &[]),
            generation: 0,
            levels: Levels::default(),
            schemas: Schemas::default(),
            crowd: CrowdMeters::new(now),
            fair_proportion: 0.0,
            adjusted_at: now,
            events: VecDeque::new(),
            wakes: Vec::new(),
        }
    }

    /// From now on exactly these objects exist. They are checked before they get here; what is
    /// unusable all the same counts as absent, as in kube-apiserver.
    ///
    /// A level without an object stays until nothing waits or executes there, and takes part in
    /// borrowing. (parity: it goes with the adjustment that finds it idle; kube-apiserver looks again as
    /// soon as it is.) Mandatory levels are always there.
    ///
    /// `part` is asked for a part of each level, and shown the one that is there under that name; `None` keeps
    /// that one. No limit is changed: who watches the levels calls [`Controller::borrow`] next.
    pub fn take_over(
        &mut self,
        now: Nanos,
        schemas: &[FlowSchema],
        levels: &[PriorityLevelConfiguration],
        part: impl FnMut(&plan::Level, Option<&P>) -> Option<P>,
    ) {
        self.generation += 1;
        self.plan = Plan::compile(schemas, levels);
        let ids = self.take_over_levels(now, part);
        let of_plan = self.plan.schemas().iter().map(|schema| {
            let level = ids[schema.level];
            let level_name = self.levels.get(level).map_or_else(|| "".into(), |entry| entry.name.clone());
            (&*schema.name, &*schema.uid, level, level_name)
        });
        self.schemas.configure(self.generation, of_plan);
        self.set_limits(now);
    }

    /// Moves seats between levels, and forgets levels that nobody needs any more. Every
    /// [`borrowing::PERIOD`], when [`Controller::borrow_due`] says so.
    pub fn borrow(&mut self, now: Nanos) {
        self.tidy(now);
        self.adjust(now);
    }

    /// When seats are to be moved next.
    ///
    /// parity: C12. A configuration change starts the period anew, as the KEP says; in kube-apiserver
    /// the next regular adjustment may follow at once.
    #[must_use]
    pub fn borrow_due(&self) -> Nanos {
        self.adjusted_at + borrowing::PERIOD
    }

    /// Forgets levels without an object that nobody needs any more: [`Controller::borrow`] does that, too.
    pub fn tidy(&mut self, now: Nanos) {
        if self.levels.retire_idle() {
            self.set_limits(now);
        }
    }

    /// A part of each level that shares the seats, by name.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &P)> {
        self.levels.iter().map(|entry| (&*entry.name, &entry.level))
    }

    /// Does something to each part, those included of levels that only linger; [`Controller::poll`] hears what comes of it.
    pub fn each_part(&mut self, mut action: impl FnMut(&mut P)) {
        for id in self.levels.all() {
            if let Some(entry) = self.levels.get_mut(id) {
                action(&mut entry.level);
            }
        }
    }

    /// Time has passed at levels that are watched from here without being asked about every request: `waiting` and
    /// `executing` are the requests of all workers, reading and writing; `unix_second` is for Retry-After.
    pub fn observe(&mut self, now: Nanos, unix_second: i64, waiting: [u64; 2], executing: [u64; 2]) {
        self.crowd.set(now, waiting, executing);
        for id in self.levels.all() {
            if let Some(entry) = self.levels.get_mut(id) {
                entry.level.poll(now);
                entry.observe(now);
                entry.count_turned_away(unix_second);
            }
            self.settle(now, id);
        }
    }

    /// The levels of the plan, created where they are new; those that lost their object quiesce.
    fn take_over_levels(
        &mut self,
        now: Nanos,
        mut part: impl FnMut(&plan::Level, Option<&P>) -> Option<P>,
    ) -> Vec<LevelId> {
        for id in self.levels.ids().collect::<Vec<_>>() {
            if let Some(entry) = self.levels.get_mut(id) {
                entry.presence = Presence::Quiescing;
            }
        }
        let mut ids = Vec::with_capacity(self.plan.levels().len());
        for level in self.plan.levels() {
            let known = self.levels.find(&level.name);
            let fresh = part(level, known.and_then(|id| self.levels.get(id)).map(|entry| &entry.level));
            let id = match (known, fresh) {
                (Some(id), None) => id,
                (known, Some(fresh)) => {
                    if let Some(former) = known.and_then(|id| self.levels.get_mut(id)) {
                        former.presence = Presence::Gone;
                    }
                    let entry = Entry::new(now, self.generation, level, fresh, self.server_limit);
                    self.levels.add(entry)
                }
                (None, None) => unreachable!("a part is given where there is none"),
            };
            if let Some(entry) = self.levels.get_mut(id) {
                entry.update(level);
            }
            ids.push(id);
        }
        self.levels.retire_idle();
        ids
    }

    /// Limits by configuration, of all levels that share the seats.
    fn set_limits(&mut self, now: Nanos) {
        let shares: Vec<_> = self.levels.iter().map(|entry| entry.share).collect();
        let ids: Vec<_> = self.levels.ids().collect();
        let (mut room_waiting, mut room_executing) = (0.0, 0.0);
        for (id, limits) in ids.into_iter().zip(limits::all(self.server_limit, &shares)) {
            let Some(entry) = self.levels.get_mut(id) else { continue };
            // parity: C15. The widest request goes with the queues; kube-apiserver keeps it.
            entry.limits = limits;
            if let Mode::Queue { queues, queue_length_limit, .. } = entry.mode() {
                room_waiting += f64::from(queues) * f64::from(queue_length_limit);
            }
            room_executing += limits::as_f64(limits.nominal);
        }
        self.crowd.reconfigured(now, room_waiting, room_executing);
    }

    /// Ends the adjustment period: reads the demand, divides the seats, and starts what fits now.
    fn adjust(&mut self, now: Nanos) {
        self.adjusted_at = now;
        let ids: Vec<_> = self.levels.ids().collect();
        let mut claims = Vec::with_capacity(ids.len());
        for id in &ids {
            let Some(entry) = self.levels.get_mut(*id) else { continue };
            let period = entry.integrator.reset(now);
            entry.demand.update(&period);
            claims.push(Claim {
                exempt: entry.mode() == Mode::Exempt,
                limits: entry.limits,
                high_watermark: entry.demand.high_watermark,
                smoothed: entry.demand.smoothed,
            });
        }
        let adjustment = adjust(&claims);
        self.fair_proportion = adjustment.fair_proportion;
        for (id, allocation) in ids.into_iter().zip(adjustment.allocations) {
            if let Some(entry) = self.levels.get_mut(id) {
                entry.target = allocation.target;
                entry.adjust(now, allocation.current, self.server_limit);
            }
            self.settle(now, id);
        }
    }
}
