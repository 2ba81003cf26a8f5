//! Who asks for what, and what decides about it.

use usher_flowcontrol::controller::{Class, Controller, FlowCache, LevelId, User};
use usher_flowcontrol::estimate::{self, Basis, Facts, Statistics, Stats};
use usher_flowcontrol::level::{self, Level, Verdict};
use usher_flowcontrol::plan;
use usher_flowcontrol::request_info::RequestInfo;
use usher_flowcontrol::units::{Nanos, Work};
use usher_shards::{Part, Shared};

use super::plan::Plan;
use crate::Failure;

/// The clients of a plan, and what each sends next.
pub(super) struct Clients<'a> {
    plan: &'a Plan,
    infos: Vec<RequestInfo<'a>>,
    /// Each client's next user. Client `c` has the users `c`, `c + clients`, `c + 2 clients` and so on in turn.
    users: Vec<usize>,
    /// Of the next request.
    line: usize,
}

/// What decides: of a worker's all that has to do with it.
pub(super) struct Core<P = Level> {
    pub(super) controller: Controller<P>,
    statistics: Statistics,
    /// Flows that the connection remembers: all requests come over one.
    flows: FlowCache,
}

/// Pods, and bytes of each: five of them are a seat.
const PODS: i64 = 5_000;
const POD_BYTES: i64 = 20_000;

impl<'a> Clients<'a> {
    pub(super) fn new(plan: &'a Plan) -> Result<Self, Failure> {
        let infos = plan.lines.iter().map(|(method, target)| RequestInfo::parse(method, target));
        Ok(Self {
            plan,
            infos: infos.collect::<Result<_, _>>().map_err(|error| format!("the plan's lines: {error}"))?,
            users: (0..plan.clients).map(|client| client % plan.users.len()).collect(),
            line: 0,
        })
    }

    /// The user and the line of that client's next request.
    pub(super) fn next(&mut self, client: usize) -> (User<'a>, usize) {
        let user = User { name: &self.plan.users[self.users[client]], groups: &self.plan.groups };
        let line = self.line;
        self.line = if line + 1 == self.plan.lines.len() { 0 } else { line + 1 };
        let next = self.users[client] + self.plan.clients;
        self.users[client] = if next < self.plan.users.len() { next } else { client % self.plan.users.len() };
        (user, line)
    }

    /// What a line asks for.
    pub(super) fn info(&self, line: usize) -> &RequestInfo<'a> {
        &self.infos[line]
    }
}

impl Core {
    pub(super) fn new(plan: &Plan, now: Nanos) -> Self {
        let mut controller = Controller::new(now, plan.server_limit);
        controller.configure(now, &plan.schemas, &plan.levels);
        Self::around(controller, now)
    }
}

impl Core<Part> {
    /// A worker's, of those that share their levels.
    pub(super) fn of_worker(plan: &Plan, now: Nanos, worker: usize, shared: &Shared) -> Self {
        let mut controller = Controller::empty(now, plan.server_limit);
        let part = |level: &plan::Level, known: Option<&Part>| shared.part(worker, level, known);
        controller.take_over(now, &plan.schemas, &plan.levels, part);
        Self::around(controller, now)
    }
}

impl<P: level::Part> Core<P> {
    fn around(controller: Controller<P>, now: Nanos) -> Self {
        let mut statistics = Statistics::default();
        statistics.report(now, b"pods", PODS, POD_BYTES);
        Self { controller, statistics, flows: FlowCache::default() }
    }

    /// From the digest to the verdict.
    pub(super) fn ask(
        &mut self,
        now: Nanos,
        user: User<'_>,
        info: &RequestInfo<'_>,
        tag: u64,
    ) -> (LevelId, Verdict) {
        let class = self.controller.classify_cached(&mut self.flows, user, info);
        let work = self.estimate(now, &class, info);
        (class.level, self.controller.arrive(now, &class, work, tag))
    }

    pub(super) fn estimate(&self, now: Nanos, class: &Class, info: &RequestInfo<'_>) -> Work {
        let statistics = match Basis::of(info) {
            Basis::Statistics => self.statistics.of(now, info),
            Basis::Watches | Basis::Nothing => Stats::Absent,
        };
        let max_seats = self.controller.max_seats(class.level);
        estimate::work(info, &Facts { statistics, watches: 0, max_seats, consistent_reads: true })
    }
}
