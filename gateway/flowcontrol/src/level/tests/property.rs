//! The level against the naive one: random lives, everything compared after every event.

use super::naive::Naive;
use super::*;
use alloc::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

/// One call. Requests are picked from those that came so far, good tickets or not.
#[derive(Clone, Copy, Debug)]
enum Call {
    Arrive { flow: u64, work: Work },
    Cancel(usize),
    Finish(usize),
    LingerEnd(usize),
    Reconfigure(Mode, u64),
}

fn any_mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        1 => Just(Mode::Exempt),
        1 => Just(Mode::Reject),
        8 => (1_u32..12, 1_u8..5, 0_u32..4).prop_map(|(count, hand, length)| queues(count, hand, length)),
    ]
}

/// Widths around the limits; latencies of which most are none.
fn any_work() -> impl Strategy<Value = Work> {
    let latency = prop_oneof![4 => Just(0), 1 => 1..20 * MILLI];
    (0_u64..6, 0_u64..6, latency).prop_map(|(initial, last, latency)| Work {
        initial_seats: Seats(initial),
        final_seats: Seats(last),
        additional_latency: Nanos(latency),
    })
}

fn any_call() -> impl Strategy<Value = Call> {
    let work = prop_oneof![3 => Just(Work::seats(1)), 2 => any_work()];
    prop_oneof![
        8 => (0_u64..6, work).prop_map(|(flow, work)| Call::Arrive { flow: flow * 999_983, work }),
        2 => any::<prop::sample::Index>().prop_map(|at| Call::Cancel(at.index(1 << 20))),
        6 => any::<prop::sample::Index>().prop_map(|at| Call::Finish(at.index(1 << 20))),
        3 => any::<prop::sample::Index>().prop_map(|at| Call::LingerEnd(at.index(1 << 20))),
        1 => (any_mode(), 0_u64..8).prop_map(|(mode, limit)| Call::Reconfigure(mode, limit)),
    ]
}

/// Steps of the clock: none, so that there are ties; forwards; now and then backwards.
fn any_step() -> impl Strategy<Value = i64> {
    prop_oneof![4 => Just(0), 4 => Just(MILLI), 4 => 0..9 * MILLI, 1 => -2 * MILLI..0]
}

/// Both levels side by side.
struct Pair {
    level: Level,
    naive: Naive,
    /// By tag.
    tickets: Vec<Option<Ticket>>,
    started: Vec<u64>,
}

impl Pair {
    fn call(&mut self, now: Nanos, call: Call) -> Result<(), TestCaseError> {
        match call {
            Call::Arrive { flow, work } => self.arrive(now, FlowHash(flow), work)?,
            Call::Reconfigure(mode, limit) => {
                self.level.reconfigure(now, mode, Seats(limit));
                self.naive.reconfigure(now, mode, limit);
            }
            Call::Cancel(at) | Call::Finish(at) | Call::LingerEnd(at) => {
                if let Some((tag, ticket)) = self.pick(at, call) {
                    self.request_call(now, call, tag, ticket)?;
                }
            }
        }
        self.started.extend(core::iter::from_fn(|| self.level.next_dispatched()).map(|next| next.tag));
        self.compare()
    }

    /// Usually a request for which the call means something.
    fn pick(&self, at: usize, call: Call) -> Option<(u64, Ticket)> {
        let phase = match call {
            Call::Cancel(_) => Phase::Waiting,
            Call::Finish(_) => Phase::Executing,
            _ => Phase::Lingering,
        };
        let known = || (0..).zip(&self.tickets).filter_map(|(tag, ticket)| Some((tag, (*ticket)?)));
        let fitting: Vec<_> = known()
            .filter(|(_, ticket)| self.level.request(*ticket).is_some_and(|request| request.phase == phase))
            .collect();
        let from = if fitting.is_empty() || at.is_multiple_of(16) { known().collect() } else { fitting };
        from.get(at % from.len().max(1)).copied()
    }

    fn arrive(&mut self, now: Nanos, flow: FlowHash, work: Work) -> Result<(), TestCaseError> {
        let tag = self.tickets.len() as u64;
        let accepted = self.naive.arrive(now, flow, work, tag);
        let ticket = match self.level.arrive(now, Arrival { flow, work, tag }) {
            Verdict::Execute(ticket) => {
                self.started.push(tag);
                Some(ticket)
            }
            Verdict::Wait(ticket) => Some(ticket),
            Verdict::Reject(_) => None,
        };
        prop_assert_eq!(ticket.is_some(), accepted);
        self.tickets.push(ticket);
        Ok(())
    }

    fn request_call(
        &mut self,
        now: Nanos,
        call: Call,
        tag: u64,
        ticket: Ticket,
    ) -> Result<(), TestCaseError> {
        match call {
            Call::Cancel(_) => {
                let expected = self.naive.cancel(now, tag);
                prop_assert_eq!(self.level.cancel(now, ticket, Reason::Cancelled), expected);
            }
            Call::Finish(_) => {
                let expected =
                    self.naive.finish(now, tag).map_or(Finish::Released, |until| Finish::Lingers { until });
                prop_assert_eq!(self.level.finish(now, ticket), expected);
            }
            _ => {
                self.naive.linger_end(now, tag);
                self.level.linger_end(now, ticket);
            }
        }
        Ok(())
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(&self.started, &self.naive.dispatched);
        prop_assert_eq!(self.level.r().raw(), self.naive.r);
        prop_assert_eq!(self.level.robin_index(), self.naive.robin);
        prop_assert_eq!(self.level.seats_in_use().0, self.naive.seats_in_use());
        prop_assert_eq!(self.level.executing(), self.naive.executing());
        prop_assert_eq!(self.level.counters().rejected, self.naive.rejected);
        prop_assert_eq!(self.level.queue_count() as usize, self.naive.queues.len());
        let waiting_seats =
            self.naive.queues.values().map(|queue| self.naive.waiting_seats(queue)).sum::<u64>();
        prop_assert_eq!(self.level.seats_waiting().0, waiting_seats);
        for (&index, expected) in &self.naive.queues {
            let state = self.level.queue_state(index);
            prop_assert_eq!(state.next_dispatch_r.raw(), expected.next_dispatch_r);
            prop_assert_eq!(state.seats_in_use.0, self.naive.queue_seats(expected));
            prop_assert_eq!(state.max_seats_sum.0, self.naive.waiting_seats(expected));
            let tags = |requests: &mut dyn Iterator<Item = RequestState>| {
                requests.map(|request| request.tag).collect::<Vec<_>>()
            };
            prop_assert_eq!(&tags(&mut self.level.waiting_in(index)), &expected.waiting);
            prop_assert_eq!(&tags(&mut self.level.executing_from(index)), &expected.executing);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_level_is_the_naive_level(
        mode in any_mode(),
        limit in 0_u64..8,
        calls in prop::collection::vec((any_step(), any_call()), 1..160),
    ) {
        let level = Level::new(Nanos::ZERO, mode, Seats(limit));
        let mut pair = Pair { level, naive: Naive::new(mode, limit), tickets: vec![], started: vec![] };
        let mut now = Nanos::ZERO;
        for (step, call) in calls {
            now = now + Nanos(step);
            pair.call(now, call)?;
        }
    }
}
