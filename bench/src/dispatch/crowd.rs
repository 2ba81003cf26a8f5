//! Clients in a closed loop around one controller: when one's request is done, another sends its own.

use std::collections::VecDeque;

use usher_flowcontrol::controller::{Class, Controller, FlowCache, LevelId, User};
use usher_flowcontrol::estimate::{self, Basis, Facts, Statistics, Stats};
use usher_flowcontrol::level::{Finish, Ticket, Verdict};
use usher_flowcontrol::request_info::RequestInfo;
use usher_flowcontrol::units::{Nanos, Seats, Work};

use super::plan::{LEVEL, Plan};
use crate::Failure;

/// A controller and its clients.
pub(super) struct Crowd<'a> {
    plan: &'a Plan,
    core: Core,
    infos: Vec<RequestInfo<'a>>,
    /// Parse each request's line anew.
    parses: bool,
    /// Each client's next user. Client `c` has the users `c`, `c + clients`, `c + 2 clients` and so on in turn.
    users: Vec<usize>,
    /// Of the next request.
    line: usize,
    /// Requests so far.
    arrived: u64,
    /// In the order in which they began, with their clients.
    executing: VecDeque<(LevelId, Ticket, usize)>,
    /// Who sends the next request.
    free: Option<usize>,
    turned_away: u64,
}

/// What decides: of a worker's all that has to do with it.
struct Core {
    controller: Controller,
    statistics: Statistics,
    /// Flows that the connection remembers: all requests come over one.
    flows: FlowCache,
}

/// Pods, and bytes of each: five of them are a seat.
const PODS: i64 = 5_000;
const POD_BYTES: i64 = 20_000;

impl<'a> Crowd<'a> {
    /// All clients but one have sent their requests.
    pub(super) fn new(plan: &'a Plan, now: Nanos) -> Result<Self, Failure> {
        let mut core = Core {
            controller: Controller::new(now, plan.server_limit),
            statistics: Statistics::default(),
            flows: FlowCache::default(),
        };
        core.controller.configure(now, &plan.schemas, &plan.levels);
        core.statistics.report(now, b"pods", PODS, POD_BYTES);
        let infos = plan.lines.iter().map(|(method, target)| RequestInfo::parse(method, target));
        let mut crowd = Self {
            plan,
            core,
            infos: infos.collect::<Result<_, _>>().map_err(|error| format!("the plan's lines: {error}"))?,
            parses: false,
            users: (0..plan.clients).map(|client| client % plan.users.len()).collect(),
            line: 0,
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
        let user = User { name: &self.plan.users[self.users[client]], groups: &self.plan.groups };
        let tag = client as u64;
        let verdict = if self.parses {
            let (method, target) = self.plan.lines[self.line];
            match RequestInfo::parse(method, target) {
                Ok(info) => self.core.ask(now, user, &info, tag),
                Err(_) => return self.turned_away += 1,
            }
        } else {
            self.core.ask(now, user, &self.infos[self.line], tag)
        };
        match verdict {
            (level, Verdict::Execute(ticket)) => self.executing.push_back((level, ticket, client)),
            (_, Verdict::Wait(_)) => {}
            (_, Verdict::Reject(_)) => self.turned_away += 1,
        }
        self.arrived += 1;
        self.line = if self.line + 1 == self.plan.lines.len() { 0 } else { self.line + 1 };
        let next = self.users[client] + self.plan.clients;
        self.users[client] = if next < self.plan.users.len() { next } else { client % self.plan.users.len() };
    }

    fn finish(&mut self, now: Nanos) {
        let Some((level, ticket, client)) = self.executing.pop_front() else { return };
        if self.core.controller.finish(now, level, ticket) != Finish::Released {
            self.turned_away += 1; // Nothing in a plan lingers.
        }
        self.free = Some(client);
        while let Some((level, next)) = self.core.controller.next_dispatched() {
            let client = usize::try_from(next.tag).unwrap_or(0);
            self.executing.push_back((level, next.ticket, client));
        }
    }

    /// The width of each line's requests.
    pub(super) fn widths(&self, now: Nanos) -> Vec<Seats> {
        let user = User { name: &self.plan.users[0], groups: &self.plan.groups };
        let width = |info| {
            let class = self.core.controller.classify(user, info);
            self.core.estimate(now, &class, info).max_seats()
        };
        self.infos.iter().map(width).collect()
    }

    /// An error unless every request was decided upon at its level, none was turned away, and all clients but one wait
    /// or execute; which they do as the plan has it. How many wait.
    pub(super) fn check(&self, now: Nanos) -> Result<usize, Failure> {
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

impl Core {
    /// From the digest to the verdict.
    fn ask(&mut self, now: Nanos, user: User<'_>, info: &RequestInfo<'_>, tag: u64) -> (LevelId, Verdict) {
        let class = self.controller.classify_cached(&mut self.flows, user, info);
        let work = self.estimate(now, &class, info);
        (class.level, self.controller.arrive(now, &class, work, tag))
    }

    fn estimate(&self, now: Nanos, class: &Class, info: &RequestInfo<'_>) -> Work {
        let statistics = match Basis::of(info) {
            Basis::Statistics => self.statistics.of(now, info),
            Basis::Watches | Basis::Nothing => Stats::Absent,
        };
        let max_seats = self.controller.max_seats(class.level);
        estimate::work(info, &Facts { statistics, watches: 0, max_seats, consistent_reads: true })
    }
}
