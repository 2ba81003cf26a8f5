//! Once warm, arrive, dispatch, cancel, finish and the end of lingering allocate nothing: neither in a
//! level nor in the controller with all its counts. Nor does classification, with a connection's cache.
//!
//! Asserted by a counting allocator. Warm means: as many requests and queues were in use before.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;

use usher_flowcontrol::controller::{Controller, FlowCache, LevelId, User};
use usher_flowcontrol::level::{Arrival, Event, Finish, Level, Mode, Reason, Ticket, Verdict};
use usher_flowcontrol::objects::bootstrap;
use usher_flowcontrol::request_info::RequestInfo;
use usher_flowcontrol::units::{FlowHash, Nanos, Seats, Work};

struct Counting;

thread_local! {
    /// Per thread, because the test harness has threads of its own.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the promises.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` with this layout, as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// A crowd of flows around a level, and what it holds.
struct Crowd {
    level: Level,
    now: i64,
    arrived: u64,
    /// In order of arrival, those that wait; in order of dispatch, those that execute or linger.
    waiting: VecDeque<Ticket>,
    executing: VecDeque<Ticket>,
    lingering: VecDeque<Ticket>,
}

impl Crowd {
    fn new(queues: u32, hand_size: u8) -> Self {
        let mode = Mode::Queue { queues, hand_size, queue_length_limit: 50 };
        Self {
            level: Level::new(Nanos(0), mode, Seats(8)),
            now: 0,
            arrived: 0,
            waiting: VecDeque::with_capacity(10_000),
            executing: VecDeque::with_capacity(10_000),
            lingering: VecDeque::with_capacity(10_000),
        }
    }

    /// A request arrives, some give up, some finish, so that hardly more than `crowd` are in the level.
    fn turn(&mut self, crowd: usize) {
        self.now += 100_000;
        self.arrived += 1;
        let flow = FlowHash(self.arrived.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let latency = if self.arrived.is_multiple_of(7) { 1_000_000 } else { 0 };
        let work = Work { additional_latency: Nanos(latency), ..Work::seats(self.arrived % 3 + 1) };
        match self.level.arrive(Nanos(self.now), Arrival { flow, work, tag: self.arrived }) {
            Verdict::Execute(ticket) => self.executing.push_back(ticket),
            Verdict::Wait(ticket) => self.waiting.push_back(ticket),
            Verdict::Reject(_) => {}
        }
        if self.arrived.is_multiple_of(11) {
            let middle = self.waiting.len() / 2;
            if let Some(ticket) = self.waiting.remove(middle) {
                self.level.cancel(Nanos(self.now), ticket, Reason::Cancelled);
            }
        }
        self.drain();
        // If nobody executes, those who linger hold up everybody.
        while self.lingering.len() > 2 || self.executing.is_empty() {
            let Some(ticket) = self.lingering.pop_front() else { break };
            self.level.linger_end(Nanos(self.now), ticket);
            self.drain();
        }
        while self.level.waiting() + self.level.executing() >= crowd {
            let Some(ticket) = self.executing.pop_front() else { break };
            if let Finish::Lingers { .. } = self.level.finish(Nanos(self.now), ticket) {
                self.lingering.push_back(ticket);
            }
            self.drain();
        }
    }

    fn drain(&mut self) {
        while let Some(next) = self.level.next_dispatched() {
            self.waiting.retain(|&ticket| ticket != next.ticket);
            self.executing.push_back(next.ticket);
        }
    }
}

fn nothing_is_allocated(queues: u32, hand_size: u8, crowd: usize) {
    let mut level = Crowd::new(queues, hand_size);
    // So long that with many queues the idle ones are forgotten again and again.
    (0..20_000).for_each(|_| level.turn(crowd));
    let before = allocations();
    (0..50_000).for_each(|_| level.turn(crowd));
    assert_eq!(allocations() - before, 0, "{queues} queues, {crowd} requests");
    assert!(level.level.counters().dispatched > 10_000 && level.level.counters().cancelled > 100);
}

#[test]
fn nothing_is_allocated_once_warm() {
    let before = allocations();
    drop(std::hint::black_box(Box::new(1)));
    assert!(allocations() > before, "the counter counts");
    for crowd in [4, 400] {
        nothing_is_allocated(64, 6, crowd);
        nothing_is_allocated(1024, 6, crowd);
        nothing_is_allocated(1_000_000, 3, crowd);
    }
}

/// A worker's day with the built-in objects, on few seats.
struct Day {
    controller: Controller,
    flows: FlowCache,
    groups: Vec<String>,
    now: i64,
    arrived: u64,
    waiting: VecDeque<(LevelId, Ticket)>,
    executing: VecDeque<(LevelId, Ticket)>,
}

impl Day {
    fn new() -> Self {
        let mut controller = Controller::new(Nanos(0), Seats(60));
        controller.configure(Nanos(0), &bootstrap::suggested_schemas(), &bootstrap::suggested_levels());
        Self {
            controller,
            flows: FlowCache::default(),
            groups: vec!["system:authenticated".into(), "system:serviceaccounts".into()],
            now: 0,
            arrived: 0,
            waiting: VecDeque::with_capacity(10_000),
            executing: VecDeque::with_capacity(10_000),
        }
    }

    fn turn(&mut self) {
        const USERS: [&str; 6] =
            ["alice", "bob", "system:serviceaccount:kube-system:x", "carol", "dan", "eve"];
        self.now += 100_000;
        self.arrived += 1;
        let user = User { name: USERS[(self.arrived % 6) as usize], groups: &self.groups };
        let info = RequestInfo::parse("PUT", "/api/v1/namespaces/default/pods/x").expect("a request");
        let class = self.controller.classify_cached(&mut self.flows, user, &info);
        let latency = if self.arrived.is_multiple_of(7) { 1_000_000 } else { 0 };
        let work = Work { additional_latency: Nanos(latency), ..Work::seats(self.arrived % 3 + 1) };
        self.controller.observe_watch_count(&class, 3);
        match self.controller.arrive(Nanos(self.now), &class, work, self.arrived) {
            Verdict::Execute(ticket) => self.executing.push_back((class.level, ticket)),
            Verdict::Wait(ticket) => self.waiting.push_back((class.level, ticket)),
            Verdict::Reject(_) => {
                self.controller.retry_after(self.now / 1_000_000_000, class.level);
            }
        }
        let gives_up = if self.arrived.is_multiple_of(11) { self.waiting.pop_back() } else { None };
        if let Some((level, ticket)) = gives_up {
            self.controller.cancel(Nanos(self.now), level, ticket, Reason::TimeOut);
        }
        while self.executing.len() > 20 || self.waiting.len() > 100 {
            let Some((level, ticket)) = self.executing.pop_front() else { break };
            if let Finish::Lingers { until } = self.controller.finish(Nanos(self.now), level, ticket) {
                self.controller.linger_end(until, level, ticket);
            }
            while let Some((level, Event::Dispatched(next))) = self.controller.next_event() {
                self.waiting.retain(|&waits| waits != (level, next.ticket));
                self.executing.push_back((level, next.ticket));
            }
        }
    }
}

#[test]
fn the_controller_allocates_nothing_once_warm() {
    let mut day = Day::new();
    (0..20_000).for_each(|_| day.turn());
    let before = allocations();
    (0..50_000).for_each(|_| day.turn());
    assert_eq!(allocations() - before, 0);
    let snapshot = day.controller.snapshot(Nanos(day.now));
    let counters = snapshot.levels.iter().map(|level| level.counters);
    let waited: u64 = snapshot.schemas.iter().map(|schema| schema.queue_lengths.count()).sum();
    assert!(
        waited > 10_000 && counters.map(|counters| counters.timed_out).sum::<u64>() > 100,
        "{snapshot:#?}"
    );
}
