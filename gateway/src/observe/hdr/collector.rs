//! Merges what workers hand over, interval by interval, on a thread of its own; keeps, logs and tells it.
//!
//! At the end of an interval every worker is sent empty histograms and hands over its full ones. Whoever is late is
//! waited for a moment, and else counted with the next interval.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};
use usher_flowcontrol::units::Nanos;

use super::files::Files;
use super::history::{History, Interval, Row};
use super::keys::{Key, Metric};
use super::query::{Answer, Query, Selected};
use super::recorder::{Filled, Set, empty};
use crate::ring;

/// How long workers may take to hand over: they do it between two turns. One that does not is stuck.
const PATIENCE: Duration = Duration::from_millis(500);

/// Sends a worker an empty set and thereby asks for the full one; `false` if it takes no messages.
pub type Ask = Box<dyn Fn(Box<Set>) -> bool + Send>;

/// What the collector is told.
#[derive(Debug)]
pub(super) enum Message {
    /// What is known?
    Query(Query, oneshot::Sender<Answer>),
    /// The workers have ended: log the rest.
    Finish,
}

/// A histogram for every key.
pub(super) type Merged = BTreeMap<Key, Histogram<u64>>;

/// The work of the thread.
pub(super) struct Collector {
    interval: Duration,
    workers: Vec<Worker>,
    filled: mpsc::Receiver<Filled>,
    messages: mpsc::Receiver<Message>,
    files: Option<Files>,
    /// Of the interval under way.
    current: Merged,
    /// When it began.
    begun: Moment,
    /// Workers have been asked then and are waited for until then.
    closing: Option<(Moment, Instant)>,
    since_start: Merged,
    started: Moment,
    history: History,
}

struct Worker {
    ask: Ask,
    /// The empty set to send next; `None` while it has two.
    spare: Option<Box<Set>>,
}

/// A moment for people and for measuring.
#[derive(Clone, Copy)]
struct Moment {
    date: Duration,
    precise: Nanos,
}

impl Moment {
    fn now() -> Self {
        Self { date: ring::date(), precise: ring::precise() }
    }

    fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from((self.precise - earlier.precise).0).unwrap_or(0))
    }
}

impl Collector {
    pub(super) fn new(
        interval: Duration,
        workers: Vec<Ask>,
        filled: mpsc::Receiver<Filled>,
        messages: mpsc::Receiver<Message>,
        files: Option<Files>,
    ) -> Self {
        let now = Moment::now();
        Self {
            interval,
            workers: workers.into_iter().map(|ask| Worker { ask, spare: Some(Box::default()) }).collect(),
            filled,
            messages,
            files,
            current: Merged::new(),
            begun: now,
            closing: None,
            since_start: Merged::new(),
            started: now,
            history: History::default(),
        }
    }

    /// Until it is told to finish.
    pub(super) async fn run(mut self) {
        let mut ticks = interval_at(Instant::now() + self.interval, self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let patience = self.closing.map(|(_, until)| until);
            tokio::select! {
                biased;
                Some(filled) = self.filled.recv() => {
                    self.take(filled);
                    if self.workers.iter().all(|worker| worker.spare.is_some()) {
                        self.close().await;
                    }
                }
                message = self.messages.recv() => match message {
                    Some(Message::Query(query, asker)) => {
                        let _ = asker.send(self.answer(&query)); // who does not wait any more need not know
                    }
                    Some(Message::Finish) | None => return self.finish().await,
                },
                () = patient(patience), if patience.is_some() => self.close().await,
                _ = ticks.tick(), if patience.is_none() => self.ask(),
            }
        }
    }

    /// The interval ends now: everybody hands over.
    fn ask(&mut self) {
        for worker in &mut self.workers {
            let Some(fresh) = worker.spare.take() else { continue };
            if !(worker.ask)(fresh) {
                worker.spare = Some(Box::default()); // not reached: asked again next time
            }
        }
        self.closing = Some((Moment::now(), Instant::now() + PATIENCE));
    }

    fn take(&mut self, filled: Filled) {
        let worker = filled.worker;
        let emptied = filled.pour(|key, histogram| pour(&mut self.current, key, histogram));
        if let Some(worker) = self.workers.get_mut(worker) {
            worker.spare = Some(emptied);
        }
    }

    /// The interval is complete.
    async fn close(&mut self) {
        let Some((end, _)) = self.closing.take() else { return };
        let begun = std::mem::replace(&mut self.begun, end);
        let (start, length) = (begun.date, end.since(begun));
        let merged = std::mem::take(&mut self.current);
        let rows: Vec<Row> = merged.iter().map(|(key, histogram)| Row::new(key, histogram)).collect();
        for (key, histogram) in merged {
            pour(&mut self.since_start, key, &histogram);
        }
        let interval = Interval { start, length, rows };
        if let Some(files) = self.files.as_mut().filter(|_| !interval.rows.is_empty()) {
            files.append(start, &interval.lines()).await;
        }
        self.history.push(interval);
    }

    async fn finish(&mut self) {
        self.closing = Some((Moment::now(), Instant::now()));
        while let Ok(filled) = self.filled.try_recv() {
            self.take(filled);
        }
        self.close().await;
    }

    fn answer(&self, query: &Query) -> Answer {
        let selected = match query.intervals {
            None => Selected {
                start: self.started.date,
                length: self.begun.since(self.started),
                merged: query.of_all(&self.since_start),
            },
            Some(count) => self.history.last(count, query),
        };
        query.answer(&selected, &self.history)
    }
}

/// Adds a histogram to the one of the same key.
pub(super) fn pour<C: hdrhistogram::Counter>(into: &mut Merged, key: Key, histogram: &Histogram<C>) {
    let metric: Metric = key.metric;
    let sum = into.entry(key).or_insert_with(|| empty(metric));
    for step in histogram.iter_recorded() {
        sum.saturating_record_n(step.value_iterated_to(), step.count_at_value().as_u64());
    }
}

async fn patient(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}
