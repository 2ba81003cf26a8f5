//! Without bypass, many workers are one level, bit for bit: random lives of both, everything compared after every call.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use usher_flowcontrol::level;

const MILLI: i64 = 1_000_000;
const WORKERS: usize = 4;

/// One call; requests are picked from those that came so far, good tickets or not.
#[derive(Clone, Copy, Debug)]
enum Call {
    Arrive { worker: usize, flow: u64, work: Work },
    Cancel(usize),
    Finish(usize),
    LingerEnd(usize),
    Reconfigure(usize, Mode, u64),
}

fn any_mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        1 => Just(Mode::Exempt),
        1 => Just(Mode::Reject),
        8 => (1_u32..12, 1_u8..5, 0_u32..4).prop_map(|(count, hand, length)| queues(count, hand, length)),
    ]
}

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
    let worker = || 0..WORKERS;
    prop_oneof![
        8 => (worker(), 0_u64..6, work)
            .prop_map(|(worker, flow, work)| Call::Arrive { worker, flow: flow * 999_983, work }),
        2 => any::<prop::sample::Index>().prop_map(|at| Call::Cancel(at.index(1 << 20))),
        6 => any::<prop::sample::Index>().prop_map(|at| Call::Finish(at.index(1 << 20))),
        3 => any::<prop::sample::Index>().prop_map(|at| Call::LingerEnd(at.index(1 << 20))),
        1 => (worker(), any_mode(), 0_u64..8).prop_map(|(worker, mode, limit)| Call::Reconfigure(worker, mode, limit)),
    ]
}

/// Steps of the clock: none, so that there are ties, or forwards.
fn any_step() -> impl Strategy<Value = i64> {
    prop_oneof![1 => Just(0), 1 => Just(MILLI), 1 => 0..9 * MILLI]
}

/// A request in both.
#[derive(Clone, Copy, Debug)]
struct Request {
    reference: Ticket,
    worker: usize,
    ticket: Ticket,
}

struct Pair {
    reference: level::Level,
    shards: Vec<Shard>,
    /// By tag.
    requests: Vec<Option<Request>>,
}

impl Pair {
    fn call(&mut self, now: Nanos, call: Call) -> Result<(), TestCaseError> {
        match call {
            Call::Arrive { worker, flow, work } => self.arrive(now, worker, FlowHash(flow), work)?,
            Call::Reconfigure(worker, mode, limit) => {
                self.reference.reconfigure(now, mode, Seats(limit));
                self.shards[worker].reconfigure(now, mode, Seats(limit));
            }
            Call::Cancel(at) => {
                if let Some(Request { reference, worker, ticket }) = self.pick(at, level::Phase::Waiting) {
                    let expected = self.reference.cancel(now, reference, Reason::TimeOut);
                    prop_assert_eq!(self.shards[worker].cancel(now, ticket, Reason::TimeOut), expected);
                }
            }
            Call::Finish(at) => {
                if let Some(Request { reference, worker, ticket }) = self.pick(at, level::Phase::Executing) {
                    let expected = self.reference.finish(now, reference);
                    prop_assert_eq!(self.shards[worker].finish(now, ticket), expected);
                }
            }
            Call::LingerEnd(at) => {
                if let Some(Request { reference, worker, ticket }) = self.pick(at, level::Phase::Lingering) {
                    self.reference.linger_end(now, reference);
                    self.shards[worker].linger_end(now, ticket);
                }
            }
        }
        self.compare()
    }

    fn arrive(&mut self, now: Nanos, worker: usize, flow: FlowHash, work: Work) -> Result<(), TestCaseError> {
        let tag = self.requests.len() as u64;
        let arrival = Arrival { flow, work, tag };
        let expected = self.reference.arrive(now, arrival);
        let verdict = self.shards[worker].arrive(now, arrival);
        self.requests.push(match (expected, verdict) {
            (Verdict::Execute(reference), Verdict::Execute(ticket))
            | (Verdict::Wait(reference), Verdict::Wait(ticket)) => {
                Some(Request { reference, worker, ticket })
            }
            (Verdict::Reject(one), Verdict::Reject(other)) if one == other => None,
            _ => return Err(TestCaseError::fail(format!("{expected:?}, {verdict:?}"))),
        });
        Ok(())
    }

    /// Usually a request for which the call means something.
    fn pick(&self, at: usize, phase: level::Phase) -> Option<Request> {
        let known = || self.requests.iter().flatten().copied();
        let fits =
            |request: &Request| self.reference.request(request.reference).is_some_and(|it| it.phase == phase);
        let fitting: Vec<_> = known().filter(fits).collect();
        let from = if fitting.is_empty() || at.is_multiple_of(16) { known().collect() } else { fitting };
        from.get(at % from.len().max(1)).copied()
    }

    /// What was dispatched, in order for each worker; and all that decides what will be.
    fn compare(&mut self) -> Result<(), TestCaseError> {
        let mut expected = vec![Vec::new(); WORKERS];
        while let Some(next) = self.reference.next_dispatched() {
            let tag = usize::try_from(next.tag).expect("few");
            let Request { worker, ticket, .. } = self.requests[tag].expect("it was accepted");
            expected[worker].push(dispatched(ticket, next.tag));
        }
        for (worker, shard) in self.shards.iter_mut().enumerate() {
            shard.poll(Nanos::ZERO);
            prop_assert_eq!(events(shard), &expected[worker][..]);
        }
        let sequencer = self.shards[0].level().role().expect("nobody visits");
        let (one, other) = (&self.reference, &sequencer.level);
        prop_assert_eq!(one.r(), other.r());
        prop_assert_eq!(one.now(), other.now());
        prop_assert_eq!(one.robin_index(), other.robin_index());
        prop_assert_eq!(one.counters(), other.counters());
        prop_assert_eq!(one.queue_states(), other.queue_states());
        prop_assert_eq!(one.last_dispatch(), other.last_dispatch());
        let pool = self.shards[0].level().common.pool.view();
        prop_assert_eq!(pool.waiting, one.waiting() as u64);
        prop_assert_eq!(pool.free, one.limit().0.cast_signed() - one.seats_in_use().0.cast_signed());
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn many_workers_are_one_level(
        mode in any_mode(),
        limit in 0_u64..8,
        calls in prop::collection::vec((any_step(), any_call()), 1..160),
    ) {
        let options = Options { workers: WORKERS, slots: 160, ring: 4, bypass: false, ..Options::default() };
        let mut pair = Pair {
            reference: level::Level::new(Nanos::ZERO, mode, Seats(limit)),
            shards: super::level(mode, limit, options),
            requests: Vec::new(),
        };
        let mut now = Nanos::ZERO;
        for (step, call) in calls {
            now = now + Nanos(step);
            pair.call(now, call)?;
        }
    }
}
