//! Clients in a closed loop around one controller: when one's request is done, another sends its own.

use std::collections::VecDeque;

use usher_flowcontrol::controller::{LevelId, User};
use usher_flowcontrol::level::{Event, Finish, Ticket, Verdict};
use usher_flowcontrol::request_info::RequestInfo;
use usher_flowcontrol::units::{Nanos, Seats};

use super::clients::{Clients, Core};
use super::plan::{LEVEL, Plan};
use crate::Failure;

/// A controller and its clients.
pub(super) struct Crowd<'a> {
    plan: &'a Plan,
    core: Core,
    clients: Clients<'a>,
    /// Parse each request's line anew.
    parses: bool,
    /// Requests so far.
    arrived: u64,
    /// In the order in which they began, with their clients.
    executing: VecDeque<(LevelId, Ticket, usize)>,
    /// Who sends the next request.
    free: Option<usize>,
    turned_away: u64,
}

impl<'a> Crowd<'a> {
    /// All clients but one have sent their requests.
    pub(super) fn new(plan: &'a Plan, now: Nanos) -> Result<Self, Failure> {
        let mut crowd = Self {
            plan,
            core: Core::new(plan, now),
            clients: Clients::new(plan)?,
            parses: false,
            arrived: 0,
            executing: VecDeque::with_capacity(1024),
            free: None,
            turned_away: 0,
        };
        (1..plan.clients).for_each(|client| crowd.arrive(now, client));
        crowd.free = Some(0);
        Ok(crowd)
    }

    /// Request lines are parsed, too.
    pub(super) fn parses_lines(&mut self) {
        self.parses = true;
    }

    /// One decision: the free client's request arrives, the one that has executed longest is done, and who may run then
    /// begins to.
    /// Between the two the clock is read, as they are of different turns of a worker; the reading is returned.
    pub(super) fn decide(&mut self, now: Nanos, clock: impl FnOnce() -> Nanos) -> Nanos {
        if let Some(client) = self.free.take() {
            self.arrive(now, client);
        }
        let now = clock();
        self.finish(now);
        now
    }

    fn arrive(&mut self, now: Nanos, client: usize) {
        let tag = client as u64;
        let (user, line) = self.clients.next(client);
        let verdict = if self.parses {
            let (method, target) = self.plan.lines[line];
            match RequestInfo::parse(method, target) {
                Ok(info) => self.core.ask(now, user, &info, tag),
                Err(_) => return self.turned_away += 1,
            }
        } else {
            self.core.ask(now, user, self.clients.info(line), tag)
        };
        match verdict {
            (level, Verdict::Execute(ticket)) => self.executing.push_back((level, ticket, client)),
            (_, Verdict::Wait(_)) => {}
            (_, Verdict::Reject(_)) => self.turned_away += 1,
        }
        self.arrived += 1;
    }

    fn finish(&mut self, now: Nanos) {
        let Some((level, ticket, client)) = self.executing.pop_front() else { return };
        if self.core.controller.finish(now, level, ticket) != Finish::Released {
            self.turned_away += 1; // Nothing in a plan lingers.
        }
        self.free = Some(client);
        while let Some((level, Event::Dispatched(next))) = self.core.controller.next_event() {
            let client = usize::try_from(next.tag).unwrap_or(0);
            self.executing.push_back((level, next.ticket, client));
        }
    }

    /// The width of each line's requests.
    pub(super) fn widths(&self, now: Nanos) -> Vec<Seats> {
        let user = User { name: &self.plan.users[0], groups: &self.plan.groups };
        let width = |line| {
            let info = self.clients.info(line);
            let class = self.core.controller.classify(user, info);
            self.core.estimate(now, &class, info).max_seats()
        };
        (0..self.plan.lines.len()).map(width).collect()
    }

    /// An error unless every request was decided upon at its level, none was turned away, and all clients but one wait
    /// or execute; which they do as the plan has it. How many wait.
    pub(super) fn check(&mut self, now: Nanos) -> Result<usize, Failure> {
        if self.turned_away > 0 {
            return Err(format!("{} of {} requests were turned away", self.turned_away, self.arrived).into());
        }
        let snapshot = self.core.controller.snapshot(now);
        let level = snapshot.levels.iter().find(|level| *level.name == *LEVEL).ok_or("the level is gone")?;
        let (waiting, executing) = (level.waiting, level.executing);
        let accounted = level.counters.dispatched + waiting as u64 == self.arrived;
        if !accounted || waiting + executing + 1 != self.plan.clients || (waiting > 0) != self.plan.waits() {
            let begun = level.counters.dispatched;
            return Err(format!(
                "of {} requests {begun} began at {LEVEL}; {waiting} wait and {executing} execute",
                self.arrived
            )
            .into());
        }
        Ok(waiting)
    }
}
