//! Departures from kube-apiserver, and rules of it that are easily lost, one test each; beside them the
//! naive level (`naive`), random lives of both (`property`) and the replay of a recording (`replay`).

mod naive;
mod property;
mod replay;

use super::*;
use crate::units::SeatSeconds;
use alloc::vec::Vec;

const MILLI: i64 = 1_000_000;

fn ms(millis: i64) -> Nanos {
    Nanos::from_millis(millis)
}

fn queues(queues: u32, hand_size: u8, queue_length_limit: u32) -> Mode {
    Mode::Queue { queues, hand_size, queue_length_limit }
}

/// A level at time 0 with one queue per flow: flow `n` goes to queue `n`.
fn level(mode: Mode, limit: u64) -> Level {
    Level::new(Nanos::ZERO, mode, Seats(limit))
}

fn arrive(level: &mut Level, now: Nanos, flow: u64, work: Work) -> Verdict {
    level.arrive(now, Arrival { flow: FlowHash(flow), work, tag: flow })
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

/// Tags of what was dispatched since the last look.
fn dispatched(level: &mut Level) -> Vec<u64> {
    core::iter::from_fn(|| level.next_dispatched()).map(|next| next.tag).collect()
}

fn finish(level: &mut Level, now: Nanos, ticket: Ticket) {
    assert_eq!(level.finish(now, ticket), Finish::Released);
}

// === departures from kube-apiserver ===

#[test]
fn a_head_that_leaves_lets_the_next_one_start() {
    let mut level = level(queues(4, 1, 10), 2);
    let running = executing(arrive(&mut level, ms(0), 0, Work::seats(1)));
    let wide = waiting(arrive(&mut level, ms(1), 1, Work::seats(2)));
    let behind = waiting(arrive(&mut level, ms(9), 2, Work::seats(1)));
    assert_eq!(level.blocked().map(|head| head.tag), Some(1), "a free seat, but too few for the head");
    assert!(level.cancel(ms(10), wide, Reason::Cancelled));
    assert_eq!(dispatched(&mut level), [2], "C5");
    assert_eq!(level.blocked(), None);
    finish(&mut level, ms(11), running);
    finish(&mut level, ms(11), behind);
    assert!(level.is_empty());
}

#[test]
fn a_request_whose_wait_ended_never_runs_and_is_counted() {
    let mut level = level(queues(1, 1, 10), 1);
    let running = executing(arrive(&mut level, ms(0), 0, Work::seats(1)));
    let late = waiting(arrive(&mut level, ms(0), 1, Work::seats(1)));
    assert!(level.cancel(ms(1), late, Reason::TimeOut));
    assert!(!level.cancel(ms(1), late, Reason::TimeOut), "only once");
    finish(&mut level, ms(2), running);
    assert_eq!(dispatched(&mut level), [], "C6");
    level.refuse(Reason::TimeOut); // C7: expired before it arrived
    level.refuse(Reason::Cancelled);
    let counters = Counters { dispatched: 1, rejected: 3, timed_out: 2, cancelled: 1, ..Counters::default() };
    assert_eq!(level.counters(), counters);
}

#[test]
fn waiting_seats_are_counted_with_the_seats_it_has_when_it_leaves() {
    let mut level = level(queues(3, 1, 10), 3);
    let running = executing(arrive(&mut level, ms(0), 0, Work::seats(3)));
    let over = Work { initial_seats: Seats(1), final_seats: Seats(5), additional_latency: Nanos(10 * MILLI) };
    let cut = waiting(arrive(&mut level, ms(0), 1, over));
    assert_eq!(level.seats_waiting(), Seats(5));
    finish(&mut level, ms(1), running);
    assert_eq!(dispatched(&mut level), [1]);
    assert_eq!((level.seats_waiting(), level.seats_in_use()), (Seats(0), Seats(3)), "C1");
    // The same final work by three seats instead of five.
    assert_eq!(level.finish(ms(5), cut), Finish::Lingers { until: Nanos(5 * MILLI + 16_666_666) });
    assert!(level.is_idle() && !level.is_empty());
    level.linger_end(Nanos(5 * MILLI + 16_666_666), cut);
    assert!(level.is_empty());
}

#[test]
fn surplus_queues_drain_in_place_and_vanish() {
    let mut level = level(queues(8, 1, 10), 1);
    let first = executing(arrive(&mut level, ms(0), 6, Work::seats(1)));
    let second = waiting(arrive(&mut level, ms(0), 6, Work::seats(1)));
    let other = waiting(arrive(&mut level, ms(0), 7, Work::seats(1)));
    let low = waiting(arrive(&mut level, ms(0), 1, Work::seats(1)));
    level.reconfigure(ms(1), queues(2, 1, 10), Seats(1));
    assert_eq!(level.queue_count(), 4, "two that take requests, two that drain");
    let moved = waiting(arrive(&mut level, ms(1), 7, Work::seats(1)));
    assert_eq!(level.request(moved).and_then(|request| request.queue), Some(1), "dealt from the new deck");
    assert_eq!(level.request(second).and_then(|request| request.queue), Some(6), "keeps its place and index");
    finish(&mut level, ms(2), first);
    assert_eq!(dispatched(&mut level), [7], "C3: queue 7 did not move when others were idle");
    assert!(level.cancel(ms(3), second, Reason::Cancelled));
    assert_eq!(level.queue_count(), 3, "queue 6 is empty and gone");
    finish(&mut level, ms(4), other);
    assert_eq!(level.queue_count(), 2);
    assert_eq!(level.queue_state(7), QueueState { index: 7, ..QueueState::default() });
    finish(&mut level, ms(5), low);
    finish(&mut level, ms(6), moved);
    assert!(level.is_empty());
}

#[test]
fn queues_may_vanish_under_lingering_requests() {
    let mut level = level(queues(8, 1, 10), 4);
    let lingering = Work { additional_latency: ms(50), ..Work::seats(1) };
    let one = executing(arrive(&mut level, ms(0), 5, lingering));
    let two = executing(arrive(&mut level, ms(0), 5, lingering));
    assert_eq!(level.finish(ms(1), one), Finish::Lingers { until: ms(51) });
    assert_eq!(level.finish(ms(2), two), Finish::Lingers { until: ms(52) });
    level.reconfigure(ms(3), Mode::Reject, Seats(4));
    assert_eq!((level.queue_count(), level.seats_in_use()), (1, Seats(2)));
    level.linger_end(ms(51), one);
    level.linger_end(ms(52), two);
    assert_eq!(level.queue_count(), 0, "C2");
    assert!(level.is_empty());
}

#[test]
fn a_clock_that_steps_back_stands_still() {
    let mut level = level(queues(4, 1, 10), 1);
    let running = executing(arrive(&mut level, ms(10), 0, Work::seats(1)));
    waiting(arrive(&mut level, ms(20), 1, Work::seats(1)));
    let before = level.r();
    waiting(arrive(&mut level, ms(5), 2, Work::seats(1)));
    assert_eq!((level.r(), level.now()), (before, ms(20)), "C27");
    finish(&mut level, ms(6), running);
    assert_eq!(dispatched(&mut level), [1]);
    assert_eq!(level.queue_state(0).next_dispatch_r, SeatSeconds::of(1.0, ms(10)), "ran until 20 ms");
}

#[test]
fn readings_older_than_an_epoch_become_the_oldest() {
    let year = 365 * 24 * 3600;
    let mut level = level(queues(4, 1, 10), 1000);
    let running = executing(arrive(&mut level, ms(0), 0, Work::seats(1000)));
    waiting(arrive(&mut level, Nanos::from_secs(1), 1, Work::seats(1000)));
    // Two active queues share a thousand seats: R grows by 500 a second.
    for now in 2..=8 {
        level.reconfigure(Nanos::from_secs(now * year), level.mode(), level.limit());
    }
    waiting(arrive(&mut level, Nanos::from_secs(9 * year), 2, Work::seats(1000)));
    assert_eq!(level.epochs(), Epochs { complete: 0, clipped: 1 });
    assert_eq!(level.queue_state(1).next_dispatch_r, SeatSeconds::ZERO);
    assert!(level.queue_state(2).next_dispatch_r > SeatSeconds::ZERO);
    finish(&mut level, Nanos::from_secs(9 * year + 1), running);
    assert_eq!(dispatched(&mut level), [1], "who waited longest is still first");
}

// === rules of kube-apiserver that are easily lost ===

#[test]
fn a_limit_of_zero() {
    let mut with_queues = level(queues(1, 1, 1), 0);
    waiting(arrive(&mut with_queues, ms(0), 0, Work::seats(1)));
    assert_eq!(arrive(&mut with_queues, ms(0), 0, Work::seats(1)), Verdict::Reject(Reason::QueueFull));
    let mut without = level(Mode::Reject, 0);
    let one = executing(arrive(&mut without, ms(0), 0, Work::seats(1)));
    assert_eq!(arrive(&mut without, ms(0), 0, Work::seats(1)), Verdict::Reject(Reason::ConcurrencyLimit));
    finish(&mut without, ms(1), one);
    executing(arrive(&mut without, ms(1), 0, Work::seats(1)));
}

#[test]
fn exempt_has_no_limit() {
    let mut level = level(Mode::Exempt, 0);
    let tickets: Vec<_> = (0..9).map(|_| executing(arrive(&mut level, ms(0), 0, Work::seats(9)))).collect();
    assert_eq!((level.seats_in_use(), level.executing_queueless().count()), (Seats(81), 9));
    tickets.into_iter().for_each(|ticket| finish(&mut level, ms(1), ticket));
    assert!(level.is_empty());
}

#[test]
fn tickets_that_are_not_good_any_more_do_nothing() {
    let mut level = level(queues(4, 1, 10), 1);
    let old = executing(arrive(&mut level, ms(0), 0, Work::seats(1)));
    finish(&mut level, ms(1), old);
    let new = executing(arrive(&mut level, ms(1), 0, Work::seats(1)));
    assert_eq!((old.slot, level.request(old)), (new.slot, None), "the slot is used again");
    let next = waiting(arrive(&mut level, ms(1), 1, Work::seats(1)));
    let r = level.r();
    finish(&mut level, ms(2), old);
    finish(&mut level, ms(2), next);
    level.linger_end(ms(2), old);
    level.linger_end(ms(2), new);
    assert!(!level.cancel(ms(2), old, Reason::TimeOut));
    assert!(!level.cancel(ms(2), new, Reason::TimeOut));
    assert!(!level.cancel(ms(2), Ticket { slot: 999, generation: 0 }, Reason::TimeOut));
    assert_eq!((level.r(), level.executing(), level.waiting()), (r, 1, 1));
    assert_eq!(dispatched(&mut level), []);
}

#[test]
fn absurd_widths_and_latencies_overflow_nothing() {
    let mut level = level(queues(4, 2, 100), 10);
    let absurd = Work {
        initial_seats: Seats(u64::MAX),
        final_seats: Seats(u64::MAX),
        additional_latency: Nanos(i64::MAX),
    };
    let one = executing(arrive(&mut level, Nanos(i64::MIN), 0, absurd));
    for flow in 0..50 {
        waiting(arrive(&mut level, Nanos(i64::MAX), flow, absurd));
    }
    assert!(matches!(level.finish(Nanos(i64::MAX), one), Finish::Lingers { .. }));
    level.reconfigure(Nanos(i64::MAX), queues(u32::MAX, u8::MAX, u32::MAX), Seats(u64::MAX));
    level.linger_end(Nanos(i64::MAX), one);
    assert_eq!(level.waiting() + level.executing(), 50);
}

// === memory ===

#[test]
fn ten_million_queues_cost_what_is_used() {
    let mut level = level(queues(10_000_000, 2, 50), 10);
    for flow in 0..100_u64 {
        let hash = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let _accepted = arrive(&mut level, ms(0), hash, Work::seats(1));
    }
    assert_eq!(level.queue_states().len(), 100);
    assert_eq!((level.executing(), level.waiting()), (10, 90));
}

#[test]
fn idle_queues_are_forgotten_in_the_end() {
    let mut level = level(queues(1_000_000, 1, 50), 10);
    for flow in 0..10_000 {
        let ticket = executing(arrive(&mut level, ms(0), flow, Work::seats(1)));
        finish(&mut level, ms(0), ticket);
    }
    let states = level.queue_states();
    assert_eq!((states.len(), states.first().map(|state| state.index)), (4096, Some(10_000 - 4096)));
}
