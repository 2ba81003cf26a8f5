//! What can be seen of a level from outside, as values: for metrics, dumps, demand and tests.
//!
//! Looking changes nothing, not even the progress meter: it shows the reading of the last event.

use alloc::vec::Vec;

use super::{Counters, Dispatched, Epochs, LastDispatch, Level, Mode, Phase, Ticket, Totals};
use crate::queueset::Queue;
use crate::queueset::requests::{List, NONE};
use crate::units::{Nanos, SeatSeconds, Seats, Work};

/// A queue, as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// Which of the level's queues.
    pub index: u32,
    /// Requests that wait.
    pub waiting: u32,
    /// Requests that execute; those that linger do not count.
    pub executing: u32,
    /// Seats of the requests that execute or linger.
    pub seats_in_use: Seats,
    /// Virtual start of the next request.
    pub next_dispatch_r: SeatSeconds,
    /// Sum over the waiting requests.
    pub initial_seats_sum: Seats,
    /// Sum over the waiting requests.
    pub max_seats_sum: Seats,
    /// Sum over the waiting requests.
    pub total_work_sum: SeatSeconds,
}

/// A request, as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestState {
    /// Names it.
    pub ticket: Ticket,
    /// The caller's name for it.
    pub tag: u64,
    /// Where it is on its way.
    pub phase: Phase,
    /// Index of its queue; `None` if it never had one.
    pub queue: Option<u32>,
    /// Its seats; the final ones as they were cut when it was dispatched.
    pub work: Work,
    /// What it is expected to cost.
    pub total_work: SeatSeconds,
    /// The progress meter when it arrived.
    pub arrival_r: SeatSeconds,
    /// When it arrived.
    pub arrived: Nanos,
    /// When it began to execute; `None` while it waits.
    pub started: Option<Nanos>,
}

// === impl Level: what can be seen ===

impl Level {
    /// How it treats what does not fit.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Current concurrency limit.
    #[must_use]
    pub fn limit(&self) -> Seats {
        self.limit
    }

    /// Nothing waits and nothing executes (lingering requests do not count).
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting() == 0 && self.executing == 0
    }

    /// Nothing waits, executes or lingers: no ticket is good any more.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.is_idle() && self.requests.len() == 0
    }

    /// Number of requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queues.waiting()
    }

    /// Number of requests that execute; those that linger do not count.
    #[must_use]
    pub fn executing(&self) -> usize {
        self.executing
    }

    /// Seats executing and lingering.
    #[must_use]
    pub fn seats_in_use(&self) -> Seats {
        self.seats_in_use
    }

    /// Sum of the seats of the requests that wait. Seat demand is this plus [`Level::seats_in_use`].
    #[must_use]
    pub fn seats_waiting(&self) -> Seats {
        self.queues.seats_waiting()
    }

    /// The level in four numbers.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            waiting: self.waiting(),
            executing: self.executing(),
            seats_in_use: self.seats_in_use(),
            seats_waiting: self.seats_waiting(),
        }
    }

    /// What has been counted so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The progress meter at the last event.
    #[must_use]
    pub fn r(&self) -> SeatSeconds {
        self.queues.r()
    }

    /// The latest instant that the level was told.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.queues.read_at()
    }

    /// Index of the queue last dispatched from; 0 at first.
    #[must_use]
    pub fn robin_index(&self) -> u32 {
        self.queues.robin()
    }

    /// How often the progress meter was wound back.
    #[must_use]
    pub fn epochs(&self) -> Epochs {
        self.queues.epochs()
    }

    /// Readings at the latest dispatch from a queue.
    #[must_use]
    pub fn last_dispatch(&self) -> Option<LastDispatch> {
        self.queues.last_dispatch()
    }

    /// The request whose turn it was at the last event, if there were free seats but too few for it.
    #[must_use]
    pub fn blocked(&self) -> Option<Dispatched> {
        self.blocked
    }

    /// Queues that exist: those configured, and those above that still drain.
    #[must_use]
    pub fn queue_count(&self) -> u32 {
        self.queues.queue_count()
    }

    /// The queue of that index. One in which nothing ever happened is blank.
    #[must_use]
    pub fn queue_state(&self, index: u32) -> QueueState {
        self.queues.find(index).map_or(QueueState { index, ..QueueState::default() }, QueueState::of)
    }

    /// The queues of which something is known, by index; all others are blank.
    #[must_use]
    pub fn queue_states(&self) -> Vec<QueueState> {
        let mut states: Vec<_> = self.queues.queues().map(QueueState::of).collect();
        states.sort_unstable_by_key(|state| state.index);
        states
    }

    /// The requests that wait in a queue, oldest first.
    pub fn waiting_in(&self, index: u32) -> impl Iterator<Item = RequestState> {
        self.listed(self.queues.find(index).map_or(List::EMPTY, |queue| queue.waiting))
    }

    /// The requests from a queue that execute, in order of dispatch.
    pub fn executing_from(&self, index: u32) -> impl Iterator<Item = RequestState> {
        self.listed(self.queues.find(index).map_or(List::EMPTY, |queue| queue.executing))
    }

    /// The requests that execute without having had a queue, in order of arrival.
    pub fn executing_queueless(&self) -> impl Iterator<Item = RequestState> {
        self.listed(self.queueless)
    }

    /// What a ticket stands for; `None` once its seats are given back.
    #[must_use]
    pub fn request(&self, ticket: Ticket) -> Option<RequestState> {
        self.requests.find(ticket.slot, ticket.generation).map(|_| self.state_of(ticket.slot))
    }

    fn listed(&self, list: List) -> impl Iterator<Item = RequestState> {
        list.iter(&self.requests).map(|id| self.state_of(id))
    }

    fn state_of(&self, id: u32) -> RequestState {
        let request = self.requests.get(id);
        RequestState {
            ticket: self.ticket(id),
            tag: request.tag,
            phase: request.phase,
            queue: (request.queue != NONE).then(|| self.queues.queue(request.queue).index),
            work: request.work,
            total_work: request.total_work,
            arrival_r: request.arrival_r,
            arrived: request.arrived,
            started: (request.phase != Phase::Waiting).then_some(request.started),
        }
    }
}

// === impl QueueState ===

impl QueueState {
    fn of(queue: &Queue) -> Self {
        Self {
            index: queue.index,
            waiting: queue.waiting.len(),
            executing: queue.executing.len(),
            seats_in_use: queue.seats_in_use,
            next_dispatch_r: queue.next_dispatch_r,
            initial_seats_sum: queue.initial_seats_sum,
            max_seats_sum: queue.max_seats_sum,
            total_work_sum: queue.total_work_sum,
        }
    }
}
