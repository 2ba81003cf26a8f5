//! A recorded list of (now, call) gives the same bits again.

use super::*;
use alloc::format;
use alloc::string::String;

/// Numbers without a seed from outside (xorshift64*).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }

    fn pick(&mut self, from: &[usize]) -> Option<usize> {
        let place = self.below(from.len().max(1) as u64);
        from.get(usize::try_from(place).ok()?).copied()
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

/// A level, what was done to it, and what it did.
struct Player {
    level: Level,
    /// By number; `None` for those that were turned away.
    tickets: Vec<Option<Ticket>>,
    /// Numbers in order of dispatch.
    order: Vec<u64>,
}

impl Player {
    fn new() -> Self {
        Self { level: level(queues(64, 6, 20), 8), tickets: Vec::new(), order: Vec::new() }
    }

    /// Makes a call; its answer, and everything that can be seen afterwards.
    fn play(&mut self, now: Nanos, call: Call) -> String {
        let Self { level, tickets, order } = self;
        let ticket = |number: usize| tickets.get(number).copied().flatten();
        let answer = match call {
            Call::Arrive(arrival) => {
                let verdict = level.arrive(now, arrival);
                order.extend(matches!(verdict, Verdict::Execute(_)).then_some(arrival.tag));
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
        let next = dispatched(level);
        order.extend(&next);
        format!("{answer}{next:?}{}", look(level))
    }

    /// Numbers of the requests in a phase.
    fn numbers(&self, phase: Phase) -> Vec<usize> {
        let is_in = |ticket: &Option<Ticket>| {
            ticket.and_then(|ticket| self.level.request(ticket)).is_some_and(|request| request.phase == phase)
        };
        (0..).zip(&self.tickets).filter(|(_, ticket)| is_in(ticket)).map(|(number, _)| number).collect()
    }
}

/// Records two thousand calls, saturated most of the time. Each is one that means something.
fn record(seed: u64) -> Vec<(Nanos, Call)> {
    let mut numbers = Numbers(seed);
    let mut player = Player::new();
    let mut now = 0;
    let mut next = || {
        now += i64::try_from(numbers.below(700_000)).expect("small");
        let call = match numbers.below(20) {
            0 => numbers.pick(&player.numbers(Phase::Waiting)).map(Call::Cancel),
            1..4 => numbers.pick(&player.numbers(Phase::Lingering)).map(Call::LingerEnd),
            4..12 => numbers.pick(&player.numbers(Phase::Executing)).map(Call::Finish),
            12 if numbers.below(10) == 0 => {
                let count = u32::try_from(numbers.below(100) + 4).expect("small");
                Some(Call::Reconfigure(queues(count, 4, 20), Seats(numbers.below(12))))
            }
            _ => None,
        };
        let call = call.unwrap_or_else(|| {
            let work = Work {
                initial_seats: Seats(numbers.below(3) + 1),
                final_seats: Seats(numbers.below(4)),
                additional_latency: ms(i64::try_from(numbers.below(3)).expect("small")),
            };
            let flow = FlowHash(numbers.below(9).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            Call::Arrive(Arrival { flow, work, tag: player.tickets.len() as u64 })
        });
        player.play(Nanos(now), call);
        (Nanos(now), call)
    };
    (0..2000).map(|_| next()).collect()
}

/// Plays a script to a new level; a digest of everything that could be seen on the way.
fn replay(script: &[(Nanos, Call)]) -> (u64, Player) {
    let mut player = Player::new();
    let digest =
        script.iter().fold(NOTHING, |digest, &(now, call)| fold(digest, player.play(now, call).bytes()));
    (digest, player)
}

/// FNV-1a.
fn fold(digest: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    let step = |digest: u64, byte: u8| (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    bytes.into_iter().fold(digest, step)
}

const NOTHING: u64 = 0xcbf2_9ce4_8422_2325;

fn look(level: &Level) -> String {
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
    let (digest, _) = replay(&script);
    assert_eq!(digest, replay(&script).0);
    assert_ne!(digest, replay(&script[..script.len() - 1]).0, "the digest sees the last call");
    assert_ne!(digest, replay(&record(2)).0);
}

/// On every machine, and after every change that is not meant to change a decision.
#[test]
fn a_recording_gives_the_bits_that_it_gave_when_it_was_made() {
    let (_, Player { level, order, .. }) = replay(&record(1));
    let digest = fold(NOTHING, order.iter().flat_map(|number| number.to_le_bytes()));
    assert_eq!((order.len(), digest), (323, 11_136_977_292_987_027_768));
    let counters =
        Counters { dispatched: 323, rejected: 319, timed_out: 93, cancelled: 0, not_accommodated: 455 };
    assert_eq!((level.counters(), level.r().raw()), (counters, 9_663_934));
}
