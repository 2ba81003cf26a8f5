//! A worker's own histograms: written by its thread alone, without locks, and handed over whole.
//!
//! At the end of an interval the worker is given an empty [`Set`] and gives the full one away by value; the set
//! comes back empty one interval later. Nothing is allocated per record: a histogram is made when the first
//! request of its level, outcome and metric ends, and is kept with its set.
//!
//! Memory: a histogram of times takes 18 KiB (see [`TIME_MAX`] and [`DIGITS`]), one of seats 5 KiB. A cluster with
//! ten busy levels has some hundred of them, about 2 MiB, in each of a worker's two sets. The most that there can
//! be, with [`LEVELS_MAX`] levels that have met every outcome, is 16 MiB a set.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use hdrhistogram::Histogram;
use tokio::sync::mpsc;
use usher_flowcontrol::units::{Nanos, Seats};

use super::keys::{Key, Metric, OTHER_LEVELS, Outcome};
use crate::ring;

/// Significant digits: a value is off by 1 part in 128 at most. With three, a histogram takes 132 KiB.
pub const DIGITS: u8 = 2;
/// The longest time that is told from longer ones, in ns: an hour. No request may wait a quarter as long under any
/// `--request-timeout` that makes sense; what runs longer counts as an hour.
pub const TIME_MAX: u64 = 3_600_000_000_000;
/// The most seats that are told from more. kube-apiserver's estimates end at 10, a level's limit rarely above 1 000.
pub const SEATS_MAX: u64 = 100_000;
/// Levels with histograms of their own, by first use since the start; the others share one. The suggested objects have 8.
pub const LEVELS_MAX: usize = 31;
/// One in so many requests, by chance, has its [`Metric::Dispatch`] and [`Metric::Added`] taken: these cost four
/// readings of the clock (26 ns each where this was measured), so two a request on average. The other metrics live
/// on the time of the turn, which is free, and have every request. All in all a request pays as much as 2.8 readings cost
/// (`cargo bench -p usher-bench --bench hdr`, beside other load: 370 ns, when a reading took 130).
pub const TIMED_ONE_IN: u32 = 2;

/// Sets on their way from each worker: the one asked for, the one of its end, and as many that nobody fetched in time.
const HANDED_OVER_MAX: usize = 4;

/// The histograms of one interval.
#[derive(Debug, Default)]
pub struct Set {
    /// By place of the level; the last is [`OTHER_LEVELS`].
    levels: [Option<Box<OfLevel>>; LEVELS_MAX + 1],
}

type OfLevel = [[Option<Histogram<u32>>; Metric::ALL.len()]; Outcome::ALL.len()];

/// What a worker has recorded since it was last asked.
#[derive(Debug)]
pub struct Filled {
    /// Which worker.
    pub worker: usize,
    /// Names of the levels, by place.
    levels: Vec<Arc<str>>,
    set: Box<Set>,
}

/// A worker's way to hand over what it records; it becomes the worker's [`Recorder`]. A clone is for the worker that takes
/// the place of a dead one.
#[derive(Clone, Debug)]
pub struct Feed {
    pub(super) worker: usize,
    pub(super) filled: mpsc::Sender<Filled>,
}

/// Records what requests measured. Belongs to a worker's thread; its end hands over the last interval.
#[derive(Debug)]
pub struct Recorder {
    feed: Feed,
    set: RefCell<Box<Set>>,
    places: RefCell<Places>,
    chance: Cell<u32>,
}

/// Where levels are kept: names stay, so that a level that comes back has its place again.
#[derive(Debug, Default)]
struct Places {
    names: Vec<Arc<str>>,
    /// By id of the level, under one configuration.
    by_id: Vec<Option<u8>>,
    generation: u64,
}

/// What is measured of one request. Dropped, it is recorded under the outcome that was last named.
#[derive(Debug)]
pub struct Measured {
    /// `None`: nobody wants to know, or it is not known where the request belongs.
    recorder: Option<Rc<Recorder>>,
    place: Option<u8>,
    outcome: Outcome,
    seats: u64,
    received: Nanos,
    arrived: Nanos,
    /// When it got its seats.
    started: Option<Nanos>,
    /// Time in a queue.
    waited: Nanos,
    /// Of those that are timed: the digest was ready.
    digested: Option<Nanos>,
    dispatch: Option<Nanos>,
    /// What usher added before the apiserver, and then altogether.
    added_before: Option<Nanos>,
    added: Option<Nanos>,
}

/// A feed for each of so many workers, and where what they hand over comes out.
#[must_use]
pub fn feeds(workers: usize) -> (Vec<Feed>, mpsc::Receiver<Filled>) {
    let (filled, receiver) = mpsc::channel(HANDED_OVER_MAX * workers.max(1));
    ((0..workers).map(|worker| Feed { worker, filled: filled.clone() }).collect(), receiver)
}

// === impl Measured ===

impl Measured {
    /// Of a request whose head was complete at `received`; its attributes and its user are known now.
    /// Without a recorder nothing is recorded.
    #[must_use]
    pub fn begin(recorder: Option<&Rc<Recorder>>, received: Nanos) -> Self {
        let timed = recorder.is_some_and(|recorder| recorder.is_timed());
        Self {
            recorder: recorder.map(Rc::clone),
            place: None,
            outcome: Outcome::Failed,
            seats: 0,
            received,
            arrived: received,
            started: None,
            waited: Nanos::ZERO,
            digested: timed.then(ring::precise),
            dispatch: None,
            added_before: None,
            added: None,
        }
    }

    /// It asks its level for its seats. `level`: id and name under the configuration `generation`.
    pub fn arrives(&mut self, now: Nanos, (generation, id): (u64, u32), name: &str, seats: Seats) {
        if let Some(recorder) = &self.recorder {
            self.place = Some(recorder.places.borrow_mut().of(generation, id, name));
        }
        (self.arrived, self.seats) = (now, seats.0);
    }

    /// The level has decided: run, wait or go.
    pub fn decided(&mut self) {
        self.dispatch = self.digested.map(|digested| ring::precise() - digested);
    }

    /// It has its seats.
    pub fn starts(&mut self, now: Nanos) {
        (self.started, self.waited) = (Some(now), now - self.arrived);
    }

    /// Its head goes to the apiserver now.
    pub fn sent(&mut self) {
        self.added_before = self.so_far();
    }

    /// The head of the apiserver's answer, which came in this turn, goes to the client now.
    pub fn answered(&mut self) {
        self.added = self.added_before.map(|before| before + (ring::precise() - ring::now()));
    }

    /// How it ends, unless something else is said later.
    pub fn ends(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }

    /// Usher's own time since the request's head was there, if it is timed.
    fn so_far(&self) -> Option<Nanos> {
        self.digested.map(|_| ring::precise() - self.received - self.waited)
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let (Some(recorder), Some(place)) = (self.recorder.take(), self.place) else { return };
        if self.started.is_none() {
            self.waited = ring::now() - self.arrived;
            if self.outcome != Outcome::Cancelled {
                self.added = self.so_far(); // the answer is ours
            }
        }
        let mut set = recorder.set.borrow_mut();
        let mut record = |metric, value: Nanos| {
            set.record(place, self.outcome, metric, u64::try_from(value.0).unwrap_or(0));
        };
        record(Metric::Wait, self.waited);
        record(Metric::Seats, Nanos(i64::try_from(self.seats).unwrap_or(i64::MAX)));
        if let Some(started) = self.started {
            record(Metric::Execution, ring::now() - started);
        }
        if let Some(dispatch) = self.dispatch {
            record(Metric::Dispatch, dispatch);
        }
        if let Some(added) = self.added {
            record(Metric::Added, added);
        }
    }
}

// === impl Recorder ===

impl Recorder {
    /// In the worker's thread.
    #[must_use]
    pub fn new(feed: Feed) -> Rc<Self> {
        let chance = Cell::new(0x9E37_79B9); // any seed but 0
        Rc::new(Self { feed, set: RefCell::default(), places: RefCell::default(), chance })
    }

    /// Goes on with an empty set and hands over the one that it had.
    pub fn hand_over(&self, fresh: Box<Set>) {
        let set = self.set.replace(fresh);
        let levels = self.places.borrow().names.clone();
        // A collector that has ended, or does not collect, has no use for it.
        let _ = self.feed.filled.try_send(Filled { worker: self.feed.worker, levels, set });
    }

    /// By chance, so that no pattern of the requests can meet one of ours. Marsaglia's xorshift.
    fn is_timed(&self) -> bool {
        let mut chance = self.chance.get();
        chance ^= chance << 13;
        chance ^= chance >> 17;
        chance ^= chance << 5;
        self.chance.set(chance);
        chance.is_multiple_of(TIMED_ONE_IN)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.hand_over(Box::default());
    }
}

// === impl Places ===

impl Places {
    fn of(&mut self, generation: u64, id: u32, name: &str) -> u8 {
        if self.generation != generation {
            self.generation = generation;
            self.by_id.clear(); // ids may stand for other levels now
        }
        let index = id as usize;
        if let Some(Some(place)) = self.by_id.get(index) {
            return *place;
        }
        let known = self.names.iter().position(|known| **known == *name);
        let place = known.unwrap_or_else(|| {
            if self.names.len() < LEVELS_MAX {
                self.names.push(name.into());
                return self.names.len() - 1;
            }
            LEVELS_MAX
        });
        let place = u8::try_from(place).expect("fewer places than 256");
        if self.by_id.len() <= index {
            self.by_id.resize(index + 1, None);
        }
        self.by_id[index] = Some(place);
        place
    }
}

// === impl Set ===

impl Set {
    fn record(&mut self, place: u8, outcome: Outcome, metric: Metric, value: u64) {
        let level = self.levels[usize::from(place)].get_or_insert_default();
        let histogram = &mut level[outcome as usize][metric as usize];
        histogram.get_or_insert_with(|| empty(metric)).saturating_record(value);
    }
}

// === impl Filled ===

impl Filled {
    /// Gives every histogram that is not empty to `take`, empties it, and returns the set for another interval.
    pub fn pour(mut self, mut take: impl FnMut(Key, &Histogram<u32>)) -> Box<Set> {
        for (place, level) in self.set.levels.iter_mut().enumerate() {
            let name = || self.levels.get(place).map_or_else(|| OTHER_LEVELS.into(), Arc::clone);
            for (outcome, metrics) in
                Outcome::ALL.iter().zip(level.iter_mut().flat_map(|level| level.iter_mut()))
            {
                for (metric, histogram) in Metric::ALL.iter().zip(metrics) {
                    let Some(histogram) = histogram.as_mut().filter(|histogram| !histogram.is_empty()) else {
                        continue;
                    };
                    take(Key { metric: *metric, level: name(), outcome: *outcome }, histogram);
                    histogram.reset();
                }
            }
        }
        self.set
    }
}

/// An empty histogram, alike for all who count that.
#[must_use]
pub fn empty<C: hdrhistogram::Counter>(metric: Metric) -> Histogram<C> {
    let max = if metric == Metric::Seats { SEATS_MAX } else { TIME_MAX };
    Histogram::new_with_bounds(1, max, DIGITS).expect("bounds that make a histogram")
}

#[cfg(test)]
mod tests;
