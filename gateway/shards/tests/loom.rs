//! The protocol under loom: every order in which two or three workers' steps can come, within a bound on
//! preemptions, and every value that an atomic may show. Run by `cargo xtask loom`.
//!
//! A model sets a level up on one thread, lets workers race, and then does what callers promise to do:
//! whoever was woken polls, whoever runs finishes. At the end nobody may be left waiting and no seat may be
//! missing. For each step of the protocol there is a model that notices when it is left out.
#![cfg(loom)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as Data, Ordering::Relaxed};

use loom::sync::atomic::{AtomicBool, Ordering};

use usher_flowcontrol::level::{Arrival, Finish, Mode, Reason, Ticket, Verdict};
use usher_flowcontrol::units::{FlowHash, Nanos, Seats, Work};
use usher_shards::sync::{Step, leave_out};
use usher_shards::{Event, Level, Options, Shard};

const QUEUES: Mode = Mode::Queue { queues: 2, hand_size: 1, queue_length_limit: 9 };

/// Small, and without leases.
const SMALL: Options =
    Options { workers: 2, watchers: 0, slots: 2, ring: 4, bypass: true, lease: 0, lease_from: 0, hold: 64 };

/// Everything through the sequencer.
const EXACT: Options = Options { bypass: false, ..SMALL };

/// Every worker may keep a seat.
const LEASES: Options = Options { lease: 1, ..SMALL };

/// A worker: its shard, its requests, and whom it has to wake.
struct Worker {
    /// `None` once it is dead.
    shard: Option<Shard>,
    waiting: Vec<(Ticket, u64)>,
    executing: Vec<(Ticket, u64)>,
    world: Arc<World>,
}

/// What the workers share besides the level.
struct World {
    /// Who has been woken and has not looked yet.
    woken: Vec<AtomicBool>,
    /// Seats and requests that execute as far as their workers know; nothing that loom tries orders of.
    seats: Data,
    requests: Data,
    /// The highest limit there was: never exceeded.
    limit: Data,
}

impl World {
    fn started(&self, seats: u64) {
        let seats = self.seats.fetch_add(seats, Relaxed) + seats;
        let requests = self.requests.fetch_add(1, Relaxed) + 1;
        let limit = self.limit.load(Relaxed);
        assert!(seats <= limit || requests == 1, "{seats} seats of {limit}");
    }

    fn ended(&self, seats: u64) {
        self.seats.fetch_sub(seats, Relaxed);
        self.requests.fetch_sub(1, Relaxed);
    }
}

impl Worker {
    fn shard(&mut self) -> &mut Shard {
        self.shard.as_mut().expect("it lives")
    }

    fn die(&mut self) {
        self.shard = None;
        self.waiting.clear();
        self.executing.drain(..).for_each(|(_, seats)| self.world.ended(seats));
    }

    fn bury(&mut self, worker: usize) {
        self.shard().bury(Nanos(2), worker);
        self.look();
    }

    fn arrive(&mut self, seats: u64) {
        let flow = FlowHash(self.shard().worker() as u64);
        let arrival = Arrival { flow, work: Work::seats(seats), tag: seats };
        match self.shard().arrive(Nanos(1), arrival) {
            Verdict::Execute(ticket) => self.start(ticket, seats),
            Verdict::Wait(ticket) => self.waiting.push((ticket, seats)),
            Verdict::Reject(why) => panic!("{why:?}"),
        }
        self.look();
    }

    fn start(&mut self, ticket: Ticket, seats: u64) {
        self.world.started(seats);
        self.executing.push((ticket, seats));
    }

    fn finish(&mut self) {
        if let Some((ticket, seats)) = self.executing.pop() {
            self.world.ended(seats);
            assert_eq!(self.shard().finish(Nanos(2), ticket), Finish::Released);
            self.look();
        }
    }

    fn cancel(&mut self) {
        if let Some(&(ticket, _)) = self.waiting.first() {
            if self.shard().cancel(Nanos(2), ticket, Reason::Cancelled) {
                self.waiting.remove(0);
            }
            self.look();
        }
    }

    fn limit(&mut self, limit: u64) {
        self.world.limit.fetch_max(limit, Relaxed);
        self.shard().reconfigure(Nanos(2), QUEUES, Seats(limit));
        self.look();
    }

    /// Polls if it has been woken. Whether it had.
    fn poll(&mut self) -> bool {
        let me = self.shard().worker();
        let woken = self.world.woken[me].swap(false, Ordering::AcqRel);
        if woken {
            self.shard().poll(Nanos(3));
            self.look();
        }
        woken
    }

    fn look(&mut self) {
        while let Some(event) = self.shard().next_event() {
            let Event::Dispatched(started) = event else { panic!("{event:?}") };
            self.waiting.retain(|(ticket, _)| *ticket != started.ticket);
            self.start(started.ticket, started.tag);
        }
        while let Some(worker) = self.shard().next_wake() {
            self.world.woken[worker].swap(true, Ordering::AcqRel);
        }
    }
}

type Script = fn(&mut Worker);

/// Lets workers race, after `set_up` has been done by all of them in turn, then settles everything.
fn race<const BEFORE: usize, const WORKERS: usize>(
    limit: u64,
    options: Options,
    set_up: [(usize, Script); BEFORE],
    scripts: [Script; WORKERS],
) {
    let mut builder = loom::model::Builder::new();
    // More by LOOM_MAX_PREEMPTIONS, for whoever has the time.
    builder.preemption_bound = builder.preemption_bound.or(Some(if WORKERS > 2 { 2 } else { 4 }));
    let orders = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = Arc::clone(&orders);
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let level = Level::new(Nanos::ZERO, QUEUES, Seats(limit), Options { workers: WORKERS, ..options });
        let world = Arc::new(World {
            woken: (0..WORKERS).map(|_| AtomicBool::new(false)).collect(),
            seats: Data::new(0),
            requests: Data::new(0),
            limit: Data::new(limit),
        });
        let mut workers: Vec<_> = (0..WORKERS).map(|index| Some(worker(&level, &world, index))).collect();
        for (index, script) in set_up {
            script(workers[index].as_mut().expect("all are here"));
        }
        let mine = workers[0].take();
        let others: Vec<_> = (1..WORKERS)
            .map(|index| (index, workers[index].take()))
            .map(|(index, worker)| loom::thread::spawn(move || run(worker, scripts[index])))
            .collect();
        let mut workers = vec![run(mine, scripts[0])];
        workers.extend(others.into_iter().map(|other| other.join().expect("it does not panic")));
        settle(&mut workers, &level);
    });
    println!("{WORKERS} workers: {} orders", orders.load(std::sync::atomic::Ordering::Relaxed));
}

fn worker(level: &Arc<Level>, world: &Arc<World>, index: usize) -> Worker {
    let shard = level.shard(index).expect("nobody has it");
    Worker { shard: Some(shard), waiting: Vec::new(), executing: Vec::new(), world: Arc::clone(world) }
}

fn run(worker: Option<Worker>, script: Script) -> Worker {
    let mut worker = worker.expect("it was not taken before");
    script(&mut worker);
    worker
}

/// Whoever was woken polls; then every seat that is taken is known to its worker. All that runs ends; then
/// nothing is left.
fn settle(workers: &mut [Worker], level: &Level) {
    wake(workers);
    check_seats(workers, level);
    while workers.iter().any(|worker| !worker.executing.is_empty()) {
        workers.iter_mut().for_each(Worker::finish);
        wake(workers);
    }
    assert!(workers.iter().all(|worker| worker.waiting.is_empty()), "somebody waits for ever");
    check_seats(workers, level);
    assert!(level.is_empty());
}

fn wake(workers: &mut [Worker]) {
    let alive = |worker: &&mut Worker| worker.shard.is_some();
    while workers.iter_mut().filter(alive).any(Worker::poll) {}
}

fn check_seats(workers: &mut [Worker], level: &Level) {
    let look = workers[0].shard().look(Nanos(9));
    let free = look.free + look.leased.iter().sum::<u64>().cast_signed();
    let limit = level.limit().0.cast_signed();
    let used = workers[0].world.seats.load(Relaxed).cast_signed();
    assert_eq!(limit - free, used, "{look:?}");
    let waiting: usize = workers.iter().map(|worker| worker.waiting.len()).sum();
    assert_eq!(look.waiting, waiting as u64, "{look:?}");
}

/// The model must find something if that step is left out.
fn needs(step: Step, model: fn()) {
    leave_out(step);
    assert!(std::panic::catch_unwind(model).is_err(), "nobody misses {step:?}");
}

// === models ===

const ONE: (usize, Script) = (0, |me| me.arrive(1));
const ANOTHER: (usize, Script) = (1, |me| me.arrive(1));

/// Limit 1: one finishes what the sequencer did not know, the other comes: whose request is it when it
/// finishes?
fn one_seat_for_two() {
    race(1, SMALL, [ONE], [Worker::finish, |me| me.arrive(1)]);
}

/// What is taken over finishes, and its slot is used again for something wider.
fn a_slot_is_used_again() {
    let finish_and_come_wider: Script = |me| {
        me.finish();
        me.arrive(2);
    };
    race(3, SMALL, [ONE], [finish_and_come_wider, |me| me.arrive(3)]);
}

/// Both come and go, from an empty level.
fn both_come_and_go() {
    let script: Script = |me| {
        me.arrive(1);
        me.finish();
    };
    race(1, SMALL, [], [script, script]);
}

/// What finishes is known to the sequencer.
fn one_seat_in_order() {
    race(1, EXACT, [ONE], [Worker::finish, |me| me.arrive(1)]);
}

/// The freed seat is parked.
fn one_parked_seat() {
    race(1, LEASES, [ONE], [Worker::finish, |me| me.arrive(1)]);
}

/// A seat is parked, and taken again, while another needs it.
fn a_lease_is_swept() {
    race(2, LEASES, [], [|me| me.arrive(1), |me| me.arrive(2)]);
}

/// One goes while two come.
fn one_seat_for_three() {
    race(1, SMALL, [ONE], [Worker::finish, |me| me.arrive(1), |me| me.arrive(1)]);
}

/// The same in order; the role is fought for.
fn one_seat_for_three_in_order() {
    race(1, EXACT, [ONE], [Worker::finish, |me| me.arrive(1), |me| me.arrive(1)]);
}

/// Limit 2: one as wide as the limit, one narrow, and one that finishes.
fn wide_and_narrow() {
    race(2, SMALL, [ONE], [Worker::finish, |me| me.arrive(2), |me| me.arrive(1)]);
}

/// Limit 2: one wider than that comes while two finish.
fn wider_than_the_limit() {
    race(
        2,
        SMALL,
        [ONE, ANOTHER],
        [Worker::finish, |me| {
            me.finish();
            me.arrive(3);
        }],
    );
}

/// Somebody is granted a seat while he gives up.
fn cancelled_while_granted() {
    race(1, SMALL, [ONE, ANOTHER], [Worker::finish, Worker::cancel]);
}

/// The ticket may still be in the ring when its worker gives up, and a third one wants the seat.
fn cancelled_in_the_ring() {
    let come_and_cancel: Script = |me| {
        me.arrive(1);
        me.cancel();
    };
    race(1, SMALL, [ONE], [Worker::finish, come_and_cancel, |me| me.arrive(1)]);
}

/// The limit rises while somebody finishes and somebody waits.
fn the_limit_rises() {
    race(1, SMALL, [ONE, ANOTHER], [Worker::finish, |me| me.limit(2)]);
}

/// The limit falls below what executes while somebody finishes and somebody comes.
fn the_limit_falls() {
    race(2, SMALL, [ONE, ANOTHER], [Worker::finish, |me| me.limit(1), |me| me.arrive(1)]);
}

/// A holder does one operation at a time and passes the role on.
fn the_role_is_passed_on() {
    let one_at_a_time = Options { hold: 1, ..EXACT };
    race(1, one_at_a_time, [ONE], [Worker::finish, |me| me.arrive(1), |me| me.arrive(1)]);
}

/// The ring has room for one operation; the role is somebody else's.
fn the_ring_is_full() {
    let narrow = Options { ring: 1, ..EXACT };
    race(
        1,
        narrow,
        [ONE],
        [
            |me| {
                me.finish();
                me.arrive(1);
            },
            |me| {
                me.arrive(1);
                me.cancel();
            },
        ],
    );
}

/// Two seats come to a worker who looks for them in between.
fn told_while_looking() {
    let set_up = [ONE, ONE, ANOTHER, ANOTHER];
    let finish_both: Script = |me| {
        me.finish();
        me.finish();
    };
    let look_if_woken: Script = |me| {
        me.poll();
    };
    race(2, SMALL, set_up, [finish_both, look_if_woken]);
}

/// A seat is parked while a third worker, who holds the role, looks for one.
fn parked_while_swept() {
    race(1, LEASES, [ONE], [Worker::finish, |me| me.arrive(1), |me| me.limit(1)]);
}

/// What a worker leaves twice in a row is taken at once by a visitor, while a third worker wants the last
/// free seat.
fn a_ticket_behind_a_finish() {
    let wait_for_two: (usize, Script) = (0, |me| me.arrive(2));
    let make_room: (usize, Script) = (0, Worker::finish);
    let finish_and_come: Script = |me| {
        me.poll();
        me.finish();
        me.arrive(2);
    };
    race(
        2,
        SMALL,
        [wait_for_two, ANOTHER, make_room],
        [|me| me.limit(2), finish_and_come, |me| me.arrive(1)],
    );
}

/// A worker's third request makes its table grow while the other two are told of.
fn a_table_grows() {
    let set_up = [ANOTHER, ANOTHER, ONE, ONE];
    let finish_both: Script = |me| {
        me.finish();
        me.finish();
    };
    race(2, Options { slots: 4, ..SMALL }, set_up, [|me| me.arrive(1), finish_both]);
}

/// A worker has died with a request that runs, one that waits, and an operation in its ring.
fn a_worker_is_buried() {
    let die: (usize, Script) = (1, |me| {
        me.arrive(1);
        me.die();
    });
    race(1, SMALL, [ANOTHER, die], [|me| me.bury(1), |_| {}, |me| me.arrive(1)]);
}

macro_rules! holds {
    ($($model:ident)*) => { mod holds { $(#[test] fn $model() { super::$model(); })* } };
}

holds! {
    one_seat_for_two a_slot_is_used_again both_come_and_go one_seat_in_order one_parked_seat a_lease_is_swept one_seat_for_three one_seat_for_three_in_order
    wide_and_narrow wider_than_the_limit cancelled_while_granted cancelled_in_the_ring the_limit_rises the_limit_falls
    the_role_is_passed_on the_ring_is_full told_while_looking a_worker_is_buried parked_while_swept
    a_ticket_behind_a_finish a_table_grows
}

macro_rules! needed {
    ($($step:ident $name:ident by $model:ident)*) => {
        mod needed { $(#[test] fn $name() { super::needs(usher_shards::sync::Step::$step, super::$model); })* }
    };
}

needed! {
    CountBeforeTicket counting_before_the_ticket by a_ticket_behind_a_finish
    LookAfterParking looking_after_parking by one_parked_seat
    FenceAfterParking the_fence_after_parking by one_parked_seat
    SweepLeases sweeping_leases by a_lease_is_swept
    FenceBeforeSweep the_fence_before_the_sweep by parked_while_swept
    VisitAfterGiving visiting_after_giving by one_seat_for_two
    FenceAfterPosting the_fence_after_posting by one_seat_in_order
    FenceAfterRole the_fence_after_the_role by one_seat_in_order
    MailAfterRole mail_after_the_role by one_seat_in_order
    GrantBySwap granting_by_swap by cancelled_while_granted
    AdoptBySwap adopting_by_swap by one_seat_for_two
    ReadBeforeAdopting reading_before_adopting by a_slot_is_used_again
    FlagBeforeNotices the_flag_before_the_notices by told_while_looking
    EmptyBeforeNextRing emptying_a_ring_before_the_next by a_table_grows
    PassOn passing_the_role_on by the_role_is_passed_on
    RetryWhenFull trying_again by the_ring_is_full
}
