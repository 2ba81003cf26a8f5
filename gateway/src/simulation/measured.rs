//! What is counted between the warm-up and the end.

use hdrhistogram::Histogram;
use usher_flowcontrol::demand::{SeatDemand, Statistics};
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
    pub(super) levels: Vec<Offered>,
    pub(super) sampling: Sampling,
    from: Nanos,
    to: Nanos,
    /// Of all runs that were added.
    pub(super) span: i64,
}

/// What a level offers.
#[derive(Clone, Debug)]
pub(super) struct Offered {
    /// Seat time that its limit allows.
    seat_time: u128,
    /// Seat time that was used.
    used: u128,
    limit: u64,
    since: Nanos,
    /// Lowest and highest limit.
    pub(super) limits: (u64, u64),
}

/// How wrong the levels' demand is that is looked at now and then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sampling {
    /// Periods of levels that wanted something.
    pub(super) periods: u64,
    /// Sums of differences, as parts of the true average: of averages and of high watermarks.
    pub(super) average_off: f64,
    pub(super) watermark_off: f64,
    /// The largest of each.
    pub(super) worst: (f64, f64),
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
    pub(super) fn new(flows: usize, (from, to): (Nanos, Nanos), limits: impl Iterator<Item = u64>) -> Self {
        Self {
            flows: (0..flows).map(|_| Served::new()).collect(),
            waits: histogram(3),
            wakes: 0,
            granted: 0,
            sequencer: Sequencer::default(),
            levels: limits.map(Offered::new).collect(),
            sampling: Sampling::default(),
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

    pub(super) fn released(&mut self, (level, flow): (usize, usize), seats: u64, since: Nanos, now: Nanos) {
        let used = product(seats, self.clipped(since, now));
        self.flows[flow].seat_time += used;
        self.levels[level].used += used;
    }

    pub(super) fn set_limit(&mut self, level: usize, now: Nanos, limit: u64) {
        let now = now.min(self.to);
        let span = self.clipped(self.levels[level].since, now);
        let level = &mut self.levels[level];
        level.seat_time += product(level.limit, span);
        (level.limit, level.since) = (limit, now);
        if now < self.to {
            level.limits = (level.limits.0.min(limit), level.limits.1.max(limit));
        }
    }

    /// Nothing is counted any more.
    pub(super) fn end(&mut self) {
        for level in 0..self.levels.len() {
            self.set_limit(level, self.to, self.levels[level].limit);
        }
    }

    /// A period's demand of a level as it was looked at now and then, and as it was.
    pub(super) fn sampled(&mut self, now: Nanos, seen: &SeatDemand, truth: &Statistics) {
        if self.counts(now) {
            self.sampling.add(seen, truth);
        }
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
        for (level, other) in self.levels.iter_mut().zip(&other.levels) {
            level.seat_time += other.seat_time;
            level.used += other.used;
            level.limits = (level.limits.0.min(other.limits.0), level.limits.1.max(other.limits.1));
        }
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
        ratio(self.seat_time(), self.levels.iter().map(|level| level.seat_time).sum())
    }

    pub(super) fn share(&self, flow: usize) -> f64 {
        ratio(self.flows[flow].seat_time, self.seat_time())
    }

    /// Part of the time while something of that flow waited.
    pub(super) fn wanted(&self, flow: usize) -> f64 {
        ratio(product(1, self.flows[flow].wanted), product(1, self.span))
    }
}

impl Offered {
    fn new(limit: u64) -> Self {
        Self { seat_time: 0, used: 0, limit, since: Nanos::ZERO, limits: (limit, limit) }
    }

    /// Part of what it offered that was used.
    pub(super) fn utilisation(&self) -> f64 {
        ratio(self.used, self.seat_time)
    }

    /// Its limit, on average.
    pub(super) fn limit(&self, span: i64) -> f64 {
        ratio(self.seat_time, product(1, span))
    }
}

impl Sampling {
    /// What was seen of a period, and what was true.
    pub(super) fn add(&mut self, seen: &SeatDemand, truth: &Statistics) {
        let Some(average) = truth.average.filter(|average| *average > 0.0) else { return };
        let off = (seen.average - average).abs() / average;
        let watermark_off = (seen.high_watermark.0 as f64 - truth.max).abs() / average;
        self.periods += 1;
        self.average_off += off;
        self.watermark_off += watermark_off;
        self.worst = (self.worst.0.max(off), self.worst.1.max(watermark_off));
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
