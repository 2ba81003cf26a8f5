//! What is counted between the warm-up and the end.

use hdrhistogram::Histogram;
use usher_flowcontrol::units::Nanos;
use usher_shards::Look;

/// The counts of a run.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) flows: Vec<Served>,
    /// Waits of all, in ns.
    pub(super) waits: Histogram<u64>,
    /// Messages from one worker to another.
    pub(super) wakes: u64,
    /// Requests that had to wait and then ran.
    pub(super) granted: u64,
    /// Since the beginning.
    pub(super) sequencer: Sequencer,
    /// Seat time that the limit allows.
    offered: u128,
    limit: u64,
    limit_since: Nanos,
    from: Nanos,
    to: Nanos,
    /// Of all runs that were added.
    span: i64,
}

/// How often the sequencer was needed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sequencer {
    /// Requests that started without it.
    pub(super) bypassed: u64,
    /// Requests that it started.
    pub(super) dispatched: u64,
    /// What it did for workers.
    pub(super) operations: u64,
    /// How often workers came to it.
    pub(super) visits: u64,
}

/// What became of a flow.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) executed: u64,
    pub(super) rejected: u64,
    pub(super) gave_up: u64,
    /// Seats times ns.
    pub(super) seat_time: u128,
    /// Waits in ns.
    pub(super) waits: Histogram<u64>,
    waiting: u32,
    since: Nanos,
    /// Time while something of it waited.
    wanted: i64,
}

impl Measured {
    pub(super) fn new(flows: usize, from: Nanos, to: Nanos, limit: u64) -> Self {
        Self {
            flows: (0..flows).map(|_| Served::new()).collect(),
            waits: histogram(3),
            wakes: 0,
            granted: 0,
            sequencer: Sequencer::default(),
            offered: 0,
            limit,
            limit_since: Nanos::ZERO,
            from,
            to,
            span: (to - from).0,
        }
    }

    fn counts(&self, now: Nanos) -> bool {
        (self.from..self.to).contains(&now)
    }

    /// The part of a span that counts.
    fn clipped(&self, since: Nanos, until: Nanos) -> i64 {
        (until.min(self.to) - since.max(self.from)).0.max(0)
    }

    pub(super) fn waits(&mut self, flow: usize, now: Nanos) {
        let served = &mut self.flows[flow];
        served.waiting += 1;
        if served.waiting == 1 {
            served.since = now;
        }
    }

    pub(super) fn waits_no_more(&mut self, flow: usize, now: Nanos) {
        self.flows[flow].waiting -= 1;
        if self.flows[flow].waiting == 0 {
            self.flows[flow].wanted += self.clipped(self.flows[flow].since, now);
        }
    }

    pub(super) fn started(&mut self, flow: usize, now: Nanos, waited: Nanos, at_once: bool) {
        if self.counts(now) {
            let nanos = waited.0.max(0).cast_unsigned();
            self.granted += u64::from(!at_once);
            let _ = self.waits.record(nanos); // grows as it must
            self.flows[flow].executed += 1;
            let _ = self.flows[flow].waits.record(nanos);
        }
    }

    pub(super) fn rejected(&mut self, flow: usize, now: Nanos) {
        self.flows[flow].rejected += u64::from(self.counts(now));
    }

    pub(super) fn gave_up(&mut self, flow: usize, now: Nanos) {
        self.flows[flow].gave_up += u64::from(self.counts(now));
    }

    pub(super) fn woke(&mut self, now: Nanos) {
        self.wakes += u64::from(self.counts(now));
    }

    pub(super) fn released(&mut self, flow: usize, seats: u64, since: Nanos, now: Nanos) {
        self.flows[flow].seat_time += product(seats, self.clipped(since, now));
    }

    pub(super) fn set_limit(&mut self, now: Nanos, limit: u64) {
        self.offered += product(self.limit, self.clipped(self.limit_since, now));
        (self.limit, self.limit_since) = (limit, now);
    }

    /// Nothing is counted any more.
    pub(super) fn end(&mut self) {
        self.set_limit(self.to, self.limit);
    }

    /// What the level tells of itself.
    pub(super) fn sequenced(&mut self, look: &Look) {
        let Some(sequenced) = &look.sequenced else { return };
        self.sequencer.add(Sequencer {
            bypassed: look.bypassed,
            dispatched: sequenced.counters.dispatched,
            operations: sequenced.operations,
            visits: sequenced.visits,
        });
    }

    /// Another run of the same clients.
    pub(super) fn add(&mut self, other: &Self) {
        for (flow, other) in self.flows.iter_mut().zip(&other.flows) {
            flow.executed += other.executed;
            flow.rejected += other.rejected;
            flow.gave_up += other.gave_up;
            flow.seat_time += other.seat_time;
            flow.waits += &other.waits;
            flow.wanted += other.wanted;
        }
        self.waits += &other.waits;
        self.wakes += other.wakes;
        self.granted += other.granted;
        self.sequencer.add(other.sequencer);
        self.offered += other.offered;
        self.span += other.span;
    }

    /// Requests that ran.
    pub(super) fn executed(&self) -> u64 {
        self.flows.iter().map(|flow| flow.executed).sum()
    }

    /// All seat time, in seats times ns.
    pub(super) fn seat_time(&self) -> u128 {
        self.flows.iter().map(|flow| flow.seat_time).sum()
    }

    /// Part of the seat time that the limit allows.
    pub(super) fn utilisation(&self) -> f64 {
        ratio(self.seat_time(), self.offered)
    }

    pub(super) fn share(&self, flow: usize) -> f64 {
        ratio(self.flows[flow].seat_time, self.seat_time())
    }

    /// Part of the time while something of that flow waited.
    pub(super) fn wanted(&self, flow: usize) -> f64 {
        ratio(product(1, self.flows[flow].wanted), product(1, self.span))
    }
}

impl Sequencer {
    fn add(&mut self, other: Self) {
        self.bypassed += other.bypassed;
        self.dispatched += other.dispatched;
        self.operations += other.operations;
        self.visits += other.visits;
    }

    /// For each request that ran.
    pub(super) fn each(&self, count: u64) -> f64 {
        ratio(count.into(), (self.bypassed + self.dispatched).into())
    }
}

impl Served {
    fn new() -> Self {
        Self {
            executed: 0,
            rejected: 0,
            gave_up: 0,
            seat_time: 0,
            waits: histogram(2),
            waiting: 0,
            since: Nanos::ZERO,
            wanted: 0,
        }
    }
}

pub(super) fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new(digits).expect("0 to 5 digits")
}

fn product(seats: u64, nanos: i64) -> u128 {
    u128::from(seats) * u128::from(nanos.max(0).cast_unsigned())
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(super) fn ratio(part: u128, whole: u128) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
