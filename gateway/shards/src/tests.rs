//! Workers that take turns on one thread, where each step can be told apart: the exact order (`exact`), random
//! lives while the role is now and then somebody else's (`interleaved`), and what random lives seldom meet. With
//! real threads: `stress`. Every order of a few steps: `tests/loom.rs`.

mod crew;
mod exact;
mod interleaved;
mod stress;

use super::*;
use usher_flowcontrol::level::{Arrival, Dispatched, Finish, Mode, Reason, Ticket, Verdict};
use usher_flowcontrol::units::{FlowHash, Nanos, Seats, Work};

fn ms(millis: i64) -> Nanos {
    Nanos::from_millis(millis)
}

fn queues(queues: u32, hand_size: u8, queue_length_limit: u32) -> Mode {
    Mode::Queue { queues, hand_size, queue_length_limit }
}

/// A level, and as many shards as workers.
fn level(mode: Mode, limit: u64, options: Options) -> Vec<Shard> {
    let level = Level::new(Nanos::ZERO, mode, Seats(limit), options);
    (0..options.workers).map(|worker| level.shard(worker).expect("nobody has it")).collect()
}

fn two() -> Options {
    Options { workers: 2, slots: 8, ring: 8, ..Options::default() }
}

fn arrive(shard: &mut Shard, now: Nanos, flow: u64, work: Work) -> Verdict {
    shard.arrive(now, Arrival { flow: FlowHash(flow), work, tag: flow })
}

fn executing(verdict: Verdict) -> Ticket {
    match verdict {
        Verdict::Execute(ticket) => ticket,
        other => panic!("{other:?} instead of running"),
    }
}

fn waiting(verdict: Verdict) -> Ticket {
    match verdict {
        Verdict::Wait(ticket) => ticket,
        other => panic!("{other:?} instead of waiting"),
    }
}

fn events(shard: &mut Shard) -> Vec<Event> {
    std::iter::from_fn(|| shard.next_event()).collect()
}

fn wakes(shard: &mut Shard) -> Vec<usize> {
    std::iter::from_fn(|| shard.next_wake()).collect()
}

fn dispatched(ticket: Ticket, tag: u64) -> Event {
    Event::Dispatched(Dispatched { ticket, tag })
}

#[test]
fn a_seat_goes_to_another_worker_who_is_woken_once() {
    let mut shards = level(queues(4, 1, 10), 2, two());
    let one = executing(arrive(&mut shards[0], ms(0), 0, Work::seats(1)));
    let two = executing(arrive(&mut shards[0], ms(0), 0, Work::seats(1)));
    let first = waiting(arrive(&mut shards[1], ms(0), 1, Work::seats(1)));
    let second = waiting(arrive(&mut shards[1], ms(0), 2, Work::seats(1)));
    assert_eq!(shards[0].finish(ms(1), one), Finish::Released);
    assert_eq!(wakes(&mut shards[0]), [1]);
    assert_eq!(shards[0].finish(ms(1), two), Finish::Released);
    assert_eq!(wakes(&mut shards[0]), [], "it has not looked yet");
    shards[1].poll(ms(1));
    assert_eq!(events(&mut shards[1]), [dispatched(first, 1), dispatched(second, 2)]);
}

#[test]
fn what_a_worker_grants_itself_does_not_hide_what_others_grant_it() {
    let mut shards = level(queues(4, 1, 10), 2, two());
    let mine = executing(arrive(&mut shards[1], ms(0), 0, Work::seats(1)));
    let other = executing(arrive(&mut shards[0], ms(0), 0, Work::seats(1)));
    let first = waiting(arrive(&mut shards[1], ms(0), 1, Work::seats(1)));
    let second = waiting(arrive(&mut shards[1], ms(0), 2, Work::seats(1)));
    assert_eq!(shards[1].finish(ms(1), mine), Finish::Released);
    assert_eq!((events(&mut shards[1]), wakes(&mut shards[1])), (vec![dispatched(first, 1)], vec![]));
    assert_eq!(shards[0].finish(ms(2), other), Finish::Released);
    assert_eq!(wakes(&mut shards[0]), [1]);
    assert_eq!(events(&mut shards[1]), [dispatched(second, 2)]);
}

#[test]
fn nobody_asks_the_sequencer_while_nobody_waits() {
    let mut shards = level(queues(4, 1, 10), 2, two());
    for turn in 0..100 {
        let ticket = executing(arrive(&mut shards[turn % 2], ms(0), 0, Work::seats(1)));
        assert_eq!(shards[turn % 2].finish(ms(1), ticket), Finish::Released);
    }
    let look = shards[0].look(ms(2));
    assert_eq!((look.bypassed, look.free, look.waiting), (100, 2, 0));
    assert_eq!(look.sequenced.expect("nobody visits").counters.dispatched, 0);
    assert!(shards[0].level().is_empty());
}

#[test]
fn running_requests_are_charged_to_their_queues_when_somebody_waits() {
    let mut shards = level(queues(4, 1, 10), 4, two());
    let elephants: Vec<_> =
        (0..4).map(|_| executing(arrive(&mut shards[0], ms(0), 0, Work::seats(1)))).collect();
    let more = waiting(arrive(&mut shards[0], ms(1), 0, Work::seats(1)));
    let mouse = waiting(arrive(&mut shards[1], ms(2), 1, Work::seats(1)));
    assert_eq!(shards[0].finish(ms(3), elephants[0]), Finish::Released);
    shards[1].poll(ms(3));
    assert_eq!(events(&mut shards[1]), [dispatched(mouse, 1)], "came later, had nothing yet");
    assert_eq!(shards[1].finish(ms(4), mouse), Finish::Released);
    shards[0].poll(ms(4));
    assert_eq!(events(&mut shards[0]), [dispatched(more, 0)]);
    let sequenced = shards[0].look(ms(4)).sequenced.expect("nobody visits");
    assert_eq!(
        (sequenced.executing, sequenced.counters.dispatched),
        (4, 2),
        "adopted ones are not counted again"
    );
}

#[test]
fn a_worker_without_slots_turns_away() {
    let mut shards = level(queues(4, 1, 10), 1, Options { slots: 2, ..two() });
    let running = executing(arrive(&mut shards[0], ms(0), 0, Work::seats(1)));
    let late = waiting(arrive(&mut shards[0], ms(0), 0, Work::seats(1)));
    let refused = arrive(&mut shards[0], ms(0), 0, Work::seats(1));
    assert_eq!(refused, Verdict::Reject(Reason::ConcurrencyLimit));
    assert!(shards[0].cancel(ms(1), late, Reason::TimeOut));
    waiting(arrive(&mut shards[0], ms(1), 0, Work::seats(1)));
    assert_eq!(shards[0].finish(ms(2), running), Finish::Released);
    assert_eq!(events(&mut shards[0]).len(), 1);
}

#[test]
fn queues_that_grow_after_a_level_was_made_are_filled() {
    let mut shards =
        level(queues(1, 1, 1), 1, Options { workers: 2, slots: usize::MAX, ..Options::default() });
    let mut running = vec![executing(arrive(&mut shards[0], ms(0), 0, Work::seats(1)))];
    waiting(arrive(&mut shards[0], ms(0), 0, Work::seats(1)));
    let full = Verdict::Reject(Reason::QueueFull);
    assert_eq!(arrive(&mut shards[0], ms(0), 0, Work::seats(1)), full);
    shards[1].reconfigure(ms(1), queues(1, 1, 10_000), Seats(1));
    for tag in 1..10_000 {
        waiting(arrive(&mut shards[0], ms(1), tag, Work::seats(1)));
    }
    assert_eq!(arrive(&mut shards[0], ms(1), 0, Work::seats(1)), full);
    // In the order in which they came, through all that the table grew.
    for tag in 0..10_000 {
        let last = running.pop().expect("it was granted");
        let _released = shards[0].finish(ms(2), last);
        let [Event::Dispatched(next)] = events(&mut shards[0])[..] else { panic!("{tag}: the seat is free") };
        assert_eq!(next.tag, tag);
        running.push(next.ticket);
    }
}

#[test]
fn a_full_queue_turns_away_without_the_sequencer() {
    let mut shards = level(queues(1, 1, 2), 1, two());
    executing(arrive(&mut shards[0], ms(0), 0, Work::seats(1)));
    for _ in 0..2 {
        waiting(arrive(&mut shards[0], ms(0), 0, Work::seats(1)));
    }
    let full = Verdict::Reject(Reason::QueueFull);
    assert_eq!(arrive(&mut shards[1], ms(0), 0, Work::seats(1)), full);
    let look = shards[1].look(ms(0));
    assert_eq!((look.turned_away, look.sequenced.expect("nobody visits").counters.rejected), (1, 0));
}

#[test]
fn without_queues_what_does_not_fit_is_rejected_at_once() {
    let mut shards = level(Mode::Reject, 2, two());
    let wide = executing(arrive(&mut shards[0], ms(0), 0, Work::seats(3)));
    let full = Verdict::Reject(Reason::ConcurrencyLimit);
    assert_eq!(arrive(&mut shards[1], ms(0), 0, Work::seats(1)), full);
    assert_eq!(shards[0].finish(ms(1), wide), Finish::Released);
    let one = executing(arrive(&mut shards[1], ms(1), 0, Work::seats(1)));
    assert_eq!(arrive(&mut shards[0], ms(1), 0, Work::seats(2)), full);
    assert_eq!(arrive(&mut shards[0], ms(1), 0, Work::seats(3)), full, "something else executes");
    assert_eq!(shards[1].finish(ms(2), one), Finish::Released);
    assert!(shards[0].level().is_empty());
}

#[test]
fn exempt_has_no_limit() {
    let mut shards = level(Mode::Exempt, 0, two());
    let tickets: Vec<_> =
        (0..8).map(|_| executing(arrive(&mut shards[0], ms(0), 0, Work::seats(9)))).collect();
    assert_eq!(shards[1].look(ms(0)).free, -72);
    tickets.into_iter().for_each(|ticket| assert_eq!(shards[0].finish(ms(1), ticket), Finish::Released));
    assert_eq!(shards[1].look(ms(1)).free, 0);
}

#[test]
fn seats_linger_whether_the_sequencer_knows_or_not() {
    let mut shards = level(queues(4, 1, 10), 1, two());
    let lingering = Work { additional_latency: ms(5), ..Work::seats(1) };
    let bypassed = executing(arrive(&mut shards[0], ms(0), 0, lingering));
    assert_eq!(shards[0].finish(ms(1), bypassed), Finish::Lingers { until: ms(6) });
    let sequenced = waiting(arrive(&mut shards[1], ms(2), 0, lingering));
    shards[0].linger_end(ms(6), bypassed);
    shards[1].poll(ms(6));
    assert_eq!(events(&mut shards[1]), [dispatched(sequenced, 0)]);
    assert_eq!(shards[1].finish(ms(7), sequenced), Finish::Lingers { until: ms(12) });
    let last = waiting(arrive(&mut shards[0], ms(8), 1, Work::seats(1)));
    shards[1].linger_end(ms(12), sequenced);
    shards[0].poll(ms(12));
    assert_eq!(events(&mut shards[0]), [dispatched(last, 1)]);
    assert_eq!(shards[0].finish(ms(13), last), Finish::Released);
    assert!(shards[0].level().is_empty());
}

#[test]
fn leases_are_used_and_taken_back() {
    let options = Options { lease: 2, lease_from: 1, ..two() };
    let mut shards = level(queues(4, 1, 10), 6, options);
    let one = executing(arrive(&mut shards[0], ms(0), 0, Work::seats(1)));
    assert_eq!(shards[1].look(ms(0)).leased, [2, 0]);
    let two = executing(arrive(&mut shards[0], ms(0), 0, Work::seats(1)));
    executing(arrive(&mut shards[0], ms(0), 0, Work::seats(1)));
    let look = shards[1].look(ms(0));
    assert_eq!((look.leased, look.free), (vec![0, 0], 3));
    executing(arrive(&mut shards[1], ms(0), 0, Work::seats(3)));
    assert_eq!(shards[0].finish(ms(1), one), Finish::Released);
    assert_eq!(shards[0].finish(ms(1), two), Finish::Released);
    assert_eq!(shards[0].level().common.pool.view().free, 0, "two seats are with worker 0");
    executing(arrive(&mut shards[1], ms(1), 0, Work::seats(2)));
}

#[test]
fn leases_are_not_used_while_the_pool_owes_seats() {
    let options = Options { lease: 2, lease_from: 1, ..two() };
    let mut shards = level(queues(4, 1, 10), 8, options);
    let wide = executing(arrive(&mut shards[0], ms(0), 0, Work::seats(5)));
    let one = executing(arrive(&mut shards[1], ms(0), 1, Work::seats(1)));
    assert_eq!(shards[0].look(ms(0)).leased, [2, 0]);
    shards[1].reconfigure(ms(1), queues(4, 1, 10), Seats(4));
    assert_eq!(shards[0].level().common.pool.view().free, -4, "six in use and two leased, of four");
    assert_eq!(shards[1].finish(ms(1), one), Finish::Released);
    assert_eq!(shards[0].level().common.pool.view().free, -3, "not into the lease");
    let late = waiting(arrive(&mut shards[0], ms(1), 0, Work::seats(1)));
    assert_eq!(shards[0].finish(ms(2), wide), Finish::Released);
    assert_eq!(events(&mut shards[0]), [dispatched(late, 0)]);
}

#[test]
fn the_dead_are_buried_and_replaced() {
    let mut shards = level(queues(4, 1, 10), 2, two());
    let level = std::sync::Arc::clone(shards[0].level());
    let lingering = Work { additional_latency: ms(5), ..Work::seats(1) };
    let done = executing(arrive(&mut shards[1], ms(0), 0, lingering));
    executing(arrive(&mut shards[1], ms(0), 0, Work::seats(1)));
    assert!(matches!(shards[1].finish(ms(0), done), Finish::Lingers { .. }));
    for flow in 0..3 {
        waiting(arrive(&mut shards[1], ms(0), flow, Work::seats(1)));
    }
    let mine = waiting(arrive(&mut shards[0], ms(0), 3, Work::seats(2)));
    shards[0].bury(ms(1), 1);
    assert_eq!(events(&mut shards[0]), [], "it lives");
    drop(shards.pop());
    assert!(level.shard(1).is_none(), "what it left is still there");
    shards[0].bury(ms(1), 1);
    assert_eq!(events(&mut shards[0]), [dispatched(mine, 3)]);
    let mut next = level.shard(1).expect("buried");
    let late = waiting(arrive(&mut next, ms(2), 0, Work::seats(1)));
    assert_eq!(shards[0].finish(ms(3), mine), Finish::Released);
    next.poll(ms(3));
    assert_eq!(events(&mut next), [dispatched(late, 0)]);
    assert_eq!(next.finish(ms(4), late), Finish::Released);
    assert!(level.is_empty());
    assert_eq!(next.look(ms(5)).free, 2);
}

#[test]
fn tickets_that_are_not_good_any_more_do_nothing() {
    let mut shards = level(queues(4, 1, 10), 1, two());
    let old = executing(arrive(&mut shards[0], ms(0), 0, Work::seats(1)));
    assert_eq!(shards[0].finish(ms(1), old), Finish::Released);
    let new = executing(arrive(&mut shards[0], ms(1), 0, Work::seats(1)));
    assert_eq!(old.slot, new.slot, "the slot is used again");
    let next = waiting(arrive(&mut shards[0], ms(1), 1, Work::seats(1)));
    for ticket in [old, next, Ticket { slot: 999, generation: 0 }] {
        assert_eq!(shards[0].finish(ms(2), ticket), Finish::Released);
        shards[0].linger_end(ms(2), ticket);
    }
    assert!(!shards[0].cancel(ms(2), old, Reason::TimeOut) && !shards[0].cancel(ms(2), new, Reason::TimeOut));
    let look = shards[0].look(ms(2));
    assert_eq!((look.waiting, look.free, look.held), (1, 0, vec![2, 0]));
}
