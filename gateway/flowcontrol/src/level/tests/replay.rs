//! A recorded list of (now, call) gives the same bits again.

use super::*;
use alloc::format;

/// Numbers without a seed from outside (xorshift64*).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}

#[derive(Clone, Copy)]
enum Call {
    Arrive(Arrival),
    /// On the request that came as number so many.
    Cancel(usize),
    Finish(usize),
    LingerEnd(usize),
    Reconfigure(Mode, Seats),
}

/// A script of a thousand calls, saturated most of the time.
fn record(seed: u64) -> Vec<(Nanos, Call)> {
    let mut numbers = Numbers(seed);
    let mut now = 0;
    let mut arrived = 0;
    (0..1000)
        .map(|_| {
            now += i64::try_from(numbers.below(700_000)).expect("small");
            let recent = |numbers: &mut Numbers| {
                usize::try_from(u64::saturating_sub(arrived, numbers.below(60) + 1)).expect("small")
            };
            let call = match numbers.below(20) {
                0 => Call::Cancel(recent(&mut numbers)),
                1 => Call::LingerEnd(recent(&mut numbers)),
                2..9 => Call::Finish(recent(&mut numbers)),
                9 if numbers.below(40) == 0 => {
                    let count = u32::try_from(numbers.below(100) + 4).expect("small");
                    Call::Reconfigure(queues(count, 4, 20), Seats(numbers.below(12)))
                }
                _ => {
                    arrived += 1;
                    let work = Work {
                        initial_seats: Seats(numbers.below(3) + 1),
                        final_seats: Seats(numbers.below(4)),
                        additional_latency: ms(i64::try_from(numbers.below(3)).expect("small")),
                    };
                    let flow = FlowHash(numbers.below(9).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    Call::Arrive(Arrival { flow, work, tag: arrived })
                }
            };
            (Nanos(now), call)
        })
        .collect()
}

/// FNV-1a over everything that can be seen after every call.
fn replay(script: &[(Nanos, Call)]) -> u64 {
    let mut level = level(queues(64, 6, 20), 8);
    let mut tickets = Vec::new();
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    for &(now, call) in script {
        let ticket = |number: usize| tickets.get(number).copied().flatten();
        let answer = match call {
            Call::Arrive(arrival) => {
                let verdict = level.arrive(now, arrival);
                tickets.push(match verdict {
                    Verdict::Execute(ticket) | Verdict::Wait(ticket) => Some(ticket),
                    Verdict::Reject(_) => None,
                });
                format!("{verdict:?}")
            }
            Call::Cancel(number) => {
                format!("{:?}", ticket(number).map(|ticket| level.cancel(now, ticket, Reason::TimeOut)))
            }
            Call::Finish(number) => format!("{:?}", ticket(number).map(|ticket| level.finish(now, ticket))),
            Call::LingerEnd(number) => {
                format!("{:?}", ticket(number).map(|ticket| level.linger_end(now, ticket)))
            }
            Call::Reconfigure(mode, limit) => format!("{:?}", level.reconfigure(now, mode, limit)),
        };
        let seen = format!("{answer}{:?}{}", dispatched(&mut level), look(&level));
        digest = seen
            .bytes()
            .fold(digest, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    }
    digest
}

fn look(level: &Level) -> alloc::string::String {
    let requests: Vec<_> = level
        .queue_states()
        .iter()
        .flat_map(|queue| level.waiting_in(queue.index).chain(level.executing_from(queue.index)))
        .collect();
    format!(
        "{:?}{:?}{:?}{:?}{:?}{:?}",
        level.r(),
        level.robin_index(),
        level.counters(),
        (level.seats_in_use(), level.seats_waiting(), level.last_dispatch()),
        level.queue_states(),
        requests,
    )
}

#[test]
fn the_same_calls_give_the_same_bits() {
    let script = record(1);
    let digest = replay(&script);
    assert_eq!(digest, replay(&script));
    assert_ne!(digest, replay(&script[..999]), "the digest sees the last call");
    assert_ne!(digest, replay(&record(2)));
}
