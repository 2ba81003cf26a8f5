//! Who answers a case: one worker who has everything for himself, or four who share it.
//!
//! The four are in exact mode: every request is decided in the one order. Requests are dealt to them in turn; each
//! finishes and cancels what it has. After every event all of them look, and the coordinator observes, so that nothing
//! that a case compares depends on who looked when.

use std::collections::{HashMap, VecDeque};

use usher_flowcontrol::controller::{Controller, LevelId};
use usher_flowcontrol::level::{
    self, Arrival, Dispatched, Event, Finish, Held, Level, Mode, Part as _, Picture, Reason, RequestState,
    Ticket, Totals, Verdict,
};
use usher_flowcontrol::objects::{FlowSchema, PriorityLevelConfiguration};
use usher_flowcontrol::snapshot::{self, Snapshot};
use usher_flowcontrol::units::{Nanos, Seats};
use usher_shards::{Coordinator, Options, Part};

/// Workers that share.
const WORKERS: usize = 4;

// === a level ===

/// A level that a case can be played on.
pub(crate) trait Subject: level::Part {
    /// With nothing in it.
    fn new(mode: Mode, limit: Seats) -> Self;
    /// The queue of an accepted request; `None` if it has none.
    fn queue_of(&mut self, ticket: Ticket) -> Option<u32>;
}

impl Subject for Level {
    fn new(mode: Mode, limit: Seats) -> Self {
        Self::new(Nanos(0), mode, limit)
    }

    fn queue_of(&mut self, ticket: Ticket) -> Option<u32> {
        self.request(ticket)?.queue
    }
}

/// A level on four workers. Its tickets' slots have the worker as their last digit.
///
/// What one event starts at several workers starts in an order that nobody can see: each worker hears of its own. A
/// level of one worker, to which the same happens, tells it, if every worker's own are in that order.
pub(crate) struct Four {
    parts: Vec<Part>,
    /// The coordinator's.
    whole: Part,
    now: Nanos,
    arrived: usize,
    twin: Level,
    /// The twin's tickets.
    twins: HashMap<Ticket, Ticket>,
    events: VecDeque<Event>,
}

impl Subject for Four {
    fn new(mode: Mode, limit: Seats) -> Self {
        let options = Options { workers: WORKERS + 1, slots: 1024, bypass: false, ..Options::default() };
        let level = usher_shards::Level::new(Nanos(0), mode, limit, options);
        let shard = |worker| level.shard(worker).expect("nobody has it");
        Self {
            parts: (0..WORKERS).map(|worker| Part::of_worker(shard(worker))).collect(),
            whole: Part::of_coordinator(shard(WORKERS)),
            now: Nanos(0),
            arrived: 0,
            twin: Level::new(Nanos(0), mode, limit),
            twins: HashMap::new(),
            events: VecDeque::new(),
        }
    }

    fn queue_of(&mut self, ticket: Ticket) -> Option<u32> {
        let tag = (worker(ticket) as u64) << 32 | u64::from(inner(ticket).slot);
        let queues = self.whole.picture(self.now).queues;
        let holds = |requests: &[RequestState]| requests.iter().any(|request| request.tag == tag);
        queues.iter().find_map(|(state, waiting, executing)| {
            (holds(waiting) || holds(executing)).then_some(state.index)
        })
    }
}

impl Four {
    fn part(&mut self, ticket: Ticket) -> &mut Part {
        &mut self.parts[worker(ticket)]
    }

    /// Everybody looks, until nobody has left anything for anybody.
    fn settle(&mut self, now: Nanos) {
        self.now = now;
        let mut found = Vec::new();
        loop {
            let mut woken = self.whole.next_wake().is_some();
            for (worker, part) in self.parts.iter_mut().enumerate() {
                part.poll(now);
                found.extend(std::iter::from_fn(|| part.next_event()).map(|event| outer(worker, event)));
                while part.next_wake().is_some() {
                    woken = true;
                }
            }
            if !woken {
                break;
            }
        }
        while let Some(Dispatched { tag, .. }) = self.twin.next_dispatched() {
            let this = |event: &Event| matches!(event, Event::Dispatched(it) if it.tag == tag);
            let Some(place) = found.iter().position(this) else { break };
            let is_before = |event: &Event| worker(ticket(*event)) == worker(ticket(found[place]));
            if found[..place].iter().any(is_before) {
                break;
            }
            self.events.push_back(found.remove(place));
        }
        self.events.extend(found);
    }

    fn twin_of(&self, ticket: Ticket) -> Ticket {
        self.twins.get(&ticket).copied().unwrap_or(Ticket { slot: u32::MAX, generation: 0 })
    }
}

impl level::Part for Four {
    fn arrive(&mut self, now: Nanos, arrival: Arrival) -> Verdict {
        let worker = self.arrived % WORKERS;
        self.arrived += 1;
        let verdict = match self.parts[worker].arrive(now, arrival) {
            Verdict::Execute(ticket) => Verdict::Execute(outer_ticket(worker, ticket)),
            Verdict::Wait(ticket) => Verdict::Wait(outer_ticket(worker, ticket)),
            reject @ Verdict::Reject(_) => reject,
        };
        if let (
            Verdict::Execute(ticket) | Verdict::Wait(ticket),
            Verdict::Execute(twin) | Verdict::Wait(twin),
        ) = (verdict, self.twin.arrive(now, arrival))
        {
            self.twins.insert(ticket, twin);
        }
        self.settle(now);
        verdict
    }

    fn refuse(&mut self, why: Reason) {
        self.parts[self.arrived % WORKERS].refuse(why);
    }

    fn cancel(&mut self, now: Nanos, ticket: Ticket, why: Reason) -> bool {
        let cancelled = self.part(ticket).cancel(now, inner(ticket), why);
        self.twin.cancel(now, self.twin_of(ticket), why);
        self.settle(now);
        cancelled
    }

    fn finish(&mut self, now: Nanos, ticket: Ticket) -> Finish {
        let finish = self.part(ticket).finish(now, inner(ticket));
        let _ = self.twin.finish(now, self.twin_of(ticket));
        self.settle(now);
        finish
    }

    fn linger_end(&mut self, now: Nanos, ticket: Ticket) {
        self.part(ticket).linger_end(now, inner(ticket));
        self.twin.linger_end(now, self.twin_of(ticket));
        self.settle(now);
    }

    fn reconfigure(&mut self, now: Nanos, mode: Mode, limit: Seats) {
        self.whole.reconfigure(now, mode, limit);
        self.twin.reconfigure(now, mode, limit);
        self.settle(now);
    }

    fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn mode(&self) -> Mode {
        self.whole.mode()
    }

    fn limit(&self) -> Seats {
        self.whole.limit()
    }

    fn held(&self, ticket: Ticket) -> Option<Held> {
        self.parts[worker(ticket)].held(inner(ticket))
    }

    fn queue_length(&self, ticket: Ticket) -> u32 {
        self.parts[worker(ticket)].queue_length(inner(ticket))
    }

    /// Which one it was is known to one of the workers only.
    fn blocked(&self) -> (u64, Option<Ticket>) {
        (self.parts.iter().map(|part| part.blocked().0).sum(), None)
    }

    fn totals(&self) -> Option<Totals> {
        self.whole.totals()
    }

    fn is_idle(&self) -> bool {
        self.whole.is_idle()
    }

    fn is_empty(&self) -> bool {
        self.whole.level().is_empty()
    }

    fn picture(&mut self, now: Nanos) -> Picture {
        self.whole.picture(now)
    }
}

fn worker(ticket: Ticket) -> usize {
    ticket.slot as usize % WORKERS
}

fn ticket(event: Event) -> Ticket {
    let (Event::Dispatched(Dispatched { ticket, .. }) | Event::Rejected { ticket, .. }) = event;
    ticket
}

fn outer_ticket(worker: usize, Ticket { slot, generation }: Ticket) -> Ticket {
    let (worker, workers) = (u32::try_from(worker).expect("four"), u32::try_from(WORKERS).expect("four"));
    Ticket { slot: slot * workers + worker, generation }
}

fn inner(Ticket { slot, generation }: Ticket) -> Ticket {
    Ticket { slot: slot / u32::try_from(WORKERS).expect("four"), generation }
}

fn outer(worker: usize, event: Event) -> Event {
    match event {
        Event::Dispatched(Dispatched { ticket, tag }) => {
            Event::Dispatched(Dispatched { ticket: outer_ticket(worker, ticket), tag })
        }
        Event::Rejected { ticket, tag, why } => {
            Event::Rejected { ticket: outer_ticket(worker, ticket), tag, why }
        }
    }
}

// === all levels ===

/// Workers, and whoever leads them.
pub(crate) struct Crew<L: Lead> {
    workers: Vec<Controller<L::Part>>,
    lead: L,
    sent: usize,
}

/// Who decides for all workers.
pub(crate) trait Lead: Sized {
    /// What a worker has of each level.
    type Part: level::Part;
    /// Him, and his workers, with the mandatory levels.
    fn new(server_limit: Seats) -> (Self, Vec<Controller<Self::Part>>);
    /// From now on exactly these objects exist.
    fn configure(
        &mut self,
        workers: &mut [Controller<Self::Part>],
        now: Nanos,
        schemas: &[FlowSchema],
        levels: &[PriorityLevelConfiguration],
    );
    /// Something happened: everybody looks.
    fn settle(&mut self, workers: &mut [Controller<Self::Part>], now: Nanos, unix_second: i64);
    /// All of it. Tags are those that requests came with.
    fn snapshot(&mut self, workers: &mut [Controller<Self::Part>], now: Nanos) -> Snapshot;
}

/// Nobody: there is one worker.
pub(crate) struct Nobody;

/// A coordinator of four.
pub(crate) struct OfFour(Coordinator);

impl Lead for Nobody {
    type Part = Level;

    fn new(server_limit: Seats) -> (Self, Vec<Controller>) {
        (Self, vec![Controller::new(Nanos(0), server_limit)])
    }

    fn configure(
        &mut self,
        workers: &mut [Controller],
        now: Nanos,
        schemas: &[FlowSchema],
        levels: &[PriorityLevelConfiguration],
    ) {
        workers[0].configure(now, schemas, levels);
    }

    fn settle(&mut self, _: &mut [Controller], _: Nanos, _: i64) {}

    fn snapshot(&mut self, workers: &mut [Controller], now: Nanos) -> Snapshot {
        workers[0].snapshot(now)
    }
}

impl Lead for OfFour {
    type Part = Part;

    fn new(server_limit: Seats) -> (Self, Vec<Controller<Part>>) {
        let mut lead = Self(Coordinator::new(Nanos(0), server_limit, WORKERS, true));
        let mut workers: Vec<_> = (0..WORKERS).map(|_| Controller::empty(Nanos(0), server_limit)).collect();
        lead.configure(&mut workers, Nanos(0), &[], &[]);
        (lead, workers)
    }

    fn configure(
        &mut self,
        workers: &mut [Controller<Part>],
        now: Nanos,
        schemas: &[FlowSchema],
        levels: &[PriorityLevelConfiguration],
    ) {
        let shared = self.0.configure(now, schemas, levels, true);
        for (number, worker) in workers.iter_mut().enumerate() {
            worker.take_over(now, schemas, levels, |level, known| shared.part(number, level, known));
        }
    }

    fn settle(&mut self, workers: &mut [Controller<Part>], now: Nanos, unix_second: i64) {
        loop {
            for (number, worker) in workers.iter_mut().enumerate() {
                worker.poll(now);
                let (waiting, executing) = worker.crowd();
                self.0.shared().tell_crowd(number, waiting, executing);
            }
            self.0.observe(now, unix_second);
            let mut woken = self.0.next_wake().is_some();
            for worker in &mut *workers {
                while worker.next_wake().is_some() {
                    woken = true;
                }
            }
            if !woken {
                return;
            }
        }
    }

    fn snapshot(&mut self, workers: &mut [Controller<Part>], now: Nanos) -> Snapshot {
        let looks: Vec<_> = workers.iter_mut().map(|worker| Some(worker.snapshot(now))).collect();
        let merged = snapshot::merge(self.0.snapshot(now), &looks);
        let mut snapshot = merged.snapshot;
        for level in &mut snapshot.levels {
            let queued = level
                .queues
                .iter_mut()
                .flat_map(|queue| queue.waiting.iter_mut().chain(&mut queue.executing));
            for request in queued.chain(&mut level.queueless) {
                let owner = usize::try_from(request.tag).ok().and_then(|index| merged.owners.get(index));
                request.tag = owner.expect("each has an owner").1;
            }
        }
        snapshot
    }
}

impl<L: Lead> Crew<L> {
    /// With the mandatory levels.
    pub(crate) fn new(server_limit: Seats) -> Self {
        let (lead, workers) = L::new(server_limit);
        Self { workers, lead, sent: 0 }
    }

    /// From now on exactly these objects exist.
    pub(crate) fn configure(
        &mut self,
        now: Nanos,
        schemas: &[FlowSchema],
        levels: &[PriorityLevelConfiguration],
    ) {
        self.lead.configure(&mut self.workers, now, schemas, levels);
        self.lead.settle(&mut self.workers, now, 0);
    }

    /// The worker that the next request meets.
    pub(crate) fn next(&mut self) -> usize {
        self.sent += 1;
        (self.sent - 1) % self.workers.len()
    }

    /// That worker's controller, to be asked.
    pub(crate) fn of(&self, worker: usize) -> &Controller<L::Part> {
        &self.workers[worker]
    }

    /// Has that worker do something at that time, and everybody look.
    pub(crate) fn at<T>(
        &mut self,
        worker: usize,
        now: Nanos,
        unix_second: i64,
        act: impl FnOnce(&mut Controller<L::Part>) -> T,
    ) -> T {
        let done = act(&mut self.workers[worker]);
        self.lead.settle(&mut self.workers, now, unix_second);
        done
    }

    /// What became of a request that had to wait.
    pub(crate) fn next_event(&mut self) -> Option<(LevelId, Event)> {
        self.workers.iter_mut().find_map(Controller::next_event)
    }

    /// All of it.
    pub(crate) fn snapshot(&mut self, now: Nanos) -> Snapshot {
        self.lead.snapshot(&mut self.workers, now)
    }
}
