//! The choice: where a new connection goes, from what the maps hold.
//!
//! - **Affinity.** A client's connections go where they went before, so that its flows meet on one worker.
//! - **Two candidates.** Each address has its own two among the workers that serve. A newcomer goes to the less loaded of
//!   them; so does one that came before, once the other would be clearly less loaded even with it.
//! - **Spreading.** An address that alone makes (nearly) one worker's share of all connections hides many clients (NAT, a load
//!   balancer); its connections have two candidates each of their own.
//! - **Budget.** An address that opens connections faster than it may is refused before it costs a handshake.
//!
//! Plain: no map, no clock, no allocation, one loop of [`SLOTS`] turns at most, which is not entered while both
//! candidates serve. Processors that choose at the same time may lose a count to each other, never more than that.

use super::{Client, Load, Path, Rules, SERVING, SLOTS};

/// No slot.
pub const NOBODY: u32 = u32::MAX;
/// Where the [`Arrivals`] of all slots together are.
pub const ARRIVALS_ALL: u32 = SLOTS;

/// Counts of arrivals halve every 2³⁴ ns, which is 17 s: long enough to tell shares from chance at a connection a
/// second, short enough to forget a burst within a minute or two.
const ERA_SHIFT: u32 = 34;
/// A request that runs or waits keeps a worker busy now; an open connection does so one time in a while: a kubelet's
/// is idle nine tenths of the time.
const BUSY_WEIGHT: u64 = 4;
/// A client moves only if its worker has more than the other one would have with it by a quarter …
const MARGIN_SHIFT: u32 = 2;
/// … and more than this, which is chance while there are few connections.
const MARGIN_LEAST: u64 = 16;
/// An address with fewer arrivals than this is no crowd, whatever its share.
const CROWD_LEAST: u32 = 32;

/// How many connections came lately; older ones count half for each era since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Arrivals {
    /// As of `era`.
    pub count: u32,
    /// Time in eras.
    pub era: u32,
}

impl Arrivals {
    /// What is left of them in `era`.
    #[must_use]
    #[inline(always)]
    pub const fn in_era(self, era: u32) -> u32 {
        // Clocks of processors differ by less than an era, but a record may be from the next one.
        let age = era.wrapping_sub(self.era);
        if age == u32::MAX { self.count } else { self.count >> if age > 31 { 31 } else { age } }
    }

    #[inline(always)]
    const fn and_one(self, era: u32) -> Self {
        Self { count: self.in_era(era).saturating_add(1), era }
    }
}

/// What is remembered of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    /// When its budget is whole again, in nanoseconds of the kernel's clock.
    pub whole_at: u64,
    /// Its connections.
    pub arrivals: Arrivals,
    /// One more than the slot its connections go to; 0: none yet.
    pub home: u32,
    /// 1 while it hides many clients.
    pub crowd: u32,
}

/// What a choice reads and writes. Slots are below [`SLOTS`], for arrivals also [`ARRIVALS_ALL`].
pub trait View {
    /// What holds for all connections.
    fn rules(&self) -> Rules;
    /// How a worker is; the default, which is absent, for a slot that does not exist.
    fn load(&self, slot: u32) -> Load;
    /// How many connections came to a slot lately.
    fn arrivals(&self, slot: u32) -> Arrivals;
    /// Remembers that.
    fn set_arrivals(&mut self, slot: u32, arrivals: Arrivals);
    /// What is remembered of a client; the default if nothing is.
    fn record(&self, client: &Client) -> Record;
    /// Remembers it.
    fn set_record(&mut self, client: &Client, record: &Record);
    /// [`next`]: a function of its own in the kernel, whose verifier would else follow the loop once for each way to it.
    fn next(&self, gone: u32, other: u32) -> u32 {
        next(self, gone, other)
    }
}

/// Why the kernel asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A SYN.
    New,
    /// Another segment that belongs to no connection: the end of a handshake by SYN cookies, or a stray.
    Later,
    /// A connection whose listening socket was closed before it was accepted.
    Migrating,
}

/// One question.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Who.
    pub client: Client,
    /// The kernel's hash of the connection's addresses and ports.
    pub hash: u32,
    /// Why.
    pub kind: Kind,
    /// Nanoseconds of the kernel's monotonic clock.
    pub now: u64,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// How it was found. [`Path::Refused`] and [`Path::Kernel`] come without a slot.
    pub path: Path,
    /// Whose connection it is, or [`NOBODY`].
    pub slot: u32,
    /// Whose it is if that one's socket is gone, or [`NOBODY`].
    pub second: u32,
}

/// Chooses a worker and remembers what the next choice needs.
#[inline(always)]
pub fn choose(view: &mut impl View, arrival: &Arrival) -> Choice {
    let rules = view.rules();
    let slots = in_use(&rules);
    // 64 bits less 34 fit.
    let era = (arrival.now >> ERA_SHIFT) as u32;
    let mut record = view.record(&arrival.client);
    if arrival.kind == Kind::New {
        if !within_budget(&mut record, &rules, arrival.now) {
            view.set_record(&arrival.client, &record);
            return Choice { path: Path::Refused, slot: NOBODY, second: NOBODY };
        }
        count(view, &mut record, slots, era);
    }
    let mut choice = place(view, &mut record, arrival, slots, era);
    if arrival.kind == Kind::New {
        view.set_record(&arrival.client, &record);
    }
    if choice.slot != NOBODY {
        match arrival.kind {
            Kind::New => {}
            Kind::Later => choice.path = Path::Later,
            Kind::Migrating => choice.path = Path::Migrated,
        }
        if arrival.kind != Kind::Later {
            view.set_arrivals(choice.slot, view.arrivals(choice.slot).and_one(era));
        }
    }
    choice
}

/// Takes one connection from the client's token bucket, written as the time at which it will be full again (GCRA, ITU-T
/// I.371): one word, and nothing to do while nobody comes.
#[inline(always)]
fn within_budget(record: &mut Record, rules: &Rules, now: u64) -> bool {
    if rules.budget == 0 {
        return true;
    }
    let each = 1_000_000_000 / u64::from(rules.budget);
    let empty = now + each * u64::from(if rules.burst == 0 { 1 } else { rules.burst });
    // Later than empty is from a rule that gave less; it counts as empty.
    let whole_at = if record.whole_at > empty { empty } else { record.whole_at };
    let whole_at = if whole_at > now { whole_at } else { now };
    let left = whole_at + each <= empty;
    record.whole_at = if left { whole_at + each } else { whole_at };
    left
}

/// Counts one more connection of the client's, and tells by its share whether it hides many.
#[inline(always)]
fn count(view: &mut impl View, record: &mut Record, slots: u32, era: u32) {
    let all = view.arrivals(ARRIVALS_ALL).and_one(era);
    view.set_arrivals(ARRIVALS_ALL, all);
    record.arrivals = record.arrivals.and_one(era);
    // A crowd is one from three quarters of a worker's share on, and until it is less than half of one.
    let own = u64::from(record.arrivals.count) * u64::from(slots);
    let all = u64::from(all.count);
    record.crowd = if slots < 2 {
        0
    } else if record.crowd == 0 {
        u32::from(own * 4 > all * 3 && record.arrivals.count >= CROWD_LEAST)
    } else {
        u32::from(own * 2 > all)
    };
}

/// Where the client was, unless its other candidate is clearly better; where nothing is known, the less loaded of both.
/// A crowd's connections are nowhere at home.
#[inline(always)]
fn place(view: &impl View, record: &mut Record, arrival: &Arrival, slots: u32, era: u32) -> Choice {
    let crowd = record.crowd != 0;
    let seed = if crowd { mix(u64::from(arrival.hash)) } else { seed(&arrival.client) };
    let candidates = candidates(view, seed, slots);
    let home = record.home.wrapping_sub(1);
    if crowd {
        return match lighter(view, candidates, era) {
            choice @ Choice { path: Path::Affinity | Path::Load, .. } => {
                Choice { path: Path::Spread, ..choice }
            }
            choice => choice,
        };
    }
    let choice = if home < slots && serves(view, home) {
        let rival = if candidates.first == home { candidates.second } else { candidates.first };
        let weight = u64::from(record.arrivals.in_era(era));
        if rival != NOBODY && moves(burden(view, home, era), burden(view, rival, era), weight) {
            Choice { path: Path::Load, slot: rival, second: home }
        } else {
            Choice { path: Path::Affinity, slot: home, second: rival }
        }
    } else {
        lighter(view, candidates, era)
    };
    if choice.slot != NOBODY {
        record.home = choice.slot + 1;
    }
    choice
}

/// The less loaded of two; of equals the first.
#[inline(always)]
fn lighter(view: &impl View, candidates: Candidates, era: u32) -> Choice {
    let Candidates { first, second, hashed } = candidates;
    if first == NOBODY {
        return Choice { path: Path::Kernel, slot: NOBODY, second: NOBODY };
    }
    let swap = second != NOBODY && burden(view, second, era) < burden(view, first, era);
    match (hashed, swap) {
        (false, false) => Choice { path: Path::Fallback, slot: first, second },
        (false, true) => Choice { path: Path::Fallback, slot: second, second: first },
        (true, false) => Choice { path: Path::Affinity, slot: first, second },
        (true, true) => Choice { path: Path::Load, slot: second, second: first },
    }
}

/// Whether a client that has brought `weight` lately goes from a worker to another one: only if the other is clearly
/// less loaded even with it. Otherwise it would come back soon.
#[inline(always)]
const fn moves(here: u64, there: u64, weight: u64) -> bool {
    let there = there + weight;
    there + (there >> MARGIN_SHIFT) + MARGIN_LEAST < here
}

/// How much a worker has to do: open connections, requests, and arrivals. Those are known at once, while the worker
/// tells of a connection only when it has accepted it.
#[inline(always)]
fn burden(view: &impl View, slot: u32, era: u32) -> u64 {
    let load = view.load(slot);
    u64::from(load.connections)
        + BUSY_WEIGHT * u64::from(load.busy)
        + u64::from(view.arrivals(slot).in_era(era))
}

/// Two workers that serve.
struct Candidates {
    /// Or [`NOBODY`].
    first: u32,
    /// Another one, or [`NOBODY`].
    second: u32,
    /// Whether one of the two slots that the hash names serves.
    hashed: bool,
}

/// The two slots that `seed` names, each the same for the same seed; instead of one that does not serve, the next that
/// does. If neither does, one is found.
#[inline(always)]
fn candidates(view: &impl View, seed: u64, slots: u32) -> Candidates {
    if slots == 0 {
        return Candidates { first: NOBODY, second: NOBODY, hashed: false };
    }
    #[expect(clippy::cast_possible_truncation, reason = "two halves")]
    let (low, high) = (seed as u32, (seed >> 32) as u32);
    let first = low % slots;
    let second = if slots > 1 { (first + 1 + high % (slots - 1)) % slots } else { first };
    let (first_serves, second_serves) = (serves(view, first), slots > 1 && serves(view, second));
    if first_serves && second_serves {
        return Candidates { first, second, hashed: true };
    }
    let kept = if first_serves {
        first
    } else if second_serves {
        second
    } else {
        NOBODY
    };
    let gone = if first_serves { second } else { first };
    let next = view.next(gone, kept);
    if kept == NOBODY {
        Candidates { first: next, second: NOBODY, hashed: false }
    } else {
        Candidates { first: kept, second: next, hashed: true }
    }
}

/// The next slot after `gone` that serves and is not `other`, or [`NOBODY`].
#[inline(always)]
pub fn next(view: &(impl View + ?Sized), gone: u32, other: u32) -> u32 {
    let slots = in_use(&view.rules());
    for turn in 1..SLOTS {
        if turn >= slots {
            break;
        }
        let slot = (gone + turn) % slots;
        if slot != other && serves(view, slot) {
            return slot;
        }
    }
    NOBODY
}

#[inline(always)]
const fn in_use(rules: &Rules) -> u32 {
    if rules.slots < SLOTS { rules.slots } else { SLOTS }
}

#[inline(always)]
fn serves(view: &(impl View + ?Sized), slot: u32) -> bool {
    view.load(slot).state == SERVING
}

/// A client's address as a number that has nothing to do with its neighbours'.
#[inline(always)]
const fn seed(client: &Client) -> u64 {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = client.0;
    let (high, low) =
        (u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes([i, j, k, l, m, n, o, p]));
    mix(mix(high).wrapping_add(low))
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
#[inline(always)]
const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests;
