//! What is counted between the warm-up and the end.

use hdrhistogram::Histogram;
use usher_flowcontrol::units::Nanos;

/// The counts of a run.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) flows: Vec<Served>,
    /// Waits of all, in ns.
    pub(super) waits: Histogram<u64>,
    /// Messages from one worker to another.
    pub(super) wakes: u64,
    /// Requests that had to wait and then ran.
    pub(super) granted: u64,
    /// Seat time that the limit allows.
    offered: u128,
    limit: u64,
    limit_since: Nanos,
    from: Nanos,
    to: Nanos,
}

/// What became of a flow.
#[derive(Debug)]
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
            offered: 0,
            limit,
            limit_since: Nanos::ZERO,
            from,
            to,
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
        ratio(product(1, self.flows[flow].wanted), product(1, (self.to - self.from).0))
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
