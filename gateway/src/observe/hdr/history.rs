//! The latest intervals, as they stand in the log: enough to look back an hour without any file.

use std::collections::VecDeque;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::collector::{Merged, pour};
use super::hlog;
use super::keys::Key;
use super::query::{Query, Selected};

/// Intervals that are kept: an hour's with the default of 10 s.
const INTERVALS_MAX: usize = 360;
/// Bytes that they may take. A busy cluster's interval has some 60 histograms of some 300 bytes each: an hour is 7 MB.
const BYTES_MAX: usize = 16 << 20;

/// One histogram of an interval, encoded.
#[derive(Debug)]
pub(super) struct Row {
    key: Key,
    max: u64,
    encoded: String,
}

/// All that was recorded in an interval.
#[derive(Debug)]
pub(super) struct Interval {
    pub(super) start: Duration,
    pub(super) length: Duration,
    pub(super) rows: Vec<Row>,
}

/// The latest intervals, oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    intervals: VecDeque<Interval>,
    bytes: usize,
}

impl Row {
    pub(super) fn new(key: &Key, histogram: &Histogram<u64>) -> Self {
        Self { key: key.clone(), max: histogram.max(), encoded: hlog::encode(histogram) }
    }
}

impl Interval {
    /// As in a log.
    pub(super) fn lines(&self) -> String {
        self.lines_of(|_| true)
    }

    fn lines_of(&self, wanted: impl Fn(&Key) -> bool) -> String {
        let mut text = String::new();
        for row in self.rows.iter().filter(|row| wanted(&row.key)) {
            hlog::put_line(&mut text, &row.key.to_string(), self.start, self.length, row.max, &row.encoded);
        }
        text
    }

    fn bytes(&self) -> usize {
        self.rows.iter().map(|row| size_of::<Row>() + row.encoded.capacity()).sum::<usize>()
            + size_of::<Self>()
    }
}

impl History {
    pub(super) fn push(&mut self, interval: Interval) {
        self.bytes += interval.bytes();
        self.intervals.push_back(interval);
        while self.intervals.len() > INTERVALS_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.intervals.pop_front() else { return };
            self.bytes -= oldest.bytes();
        }
    }

    /// The last `count` intervals, or as many as there are, merged.
    pub(super) fn last(&self, count: usize, query: &Query) -> Selected {
        let mut merged = Merged::new();
        for row in self.latest(count).flat_map(|interval| &interval.rows).filter(|row| query.wants(&row.key))
        {
            let histogram = hlog::decode(&row.encoded).expect("what this process has encoded");
            pour(&mut merged, row.key.clone(), &histogram);
        }
        Selected {
            start: self.latest(count).next().map_or(Duration::ZERO, |interval| interval.start),
            length: self.latest(count).map(|interval| interval.length).sum(),
            merged,
        }
    }

    /// The last `count` intervals as a log.
    pub(super) fn log(&self, count: usize, query: &Query) -> String {
        let start = self.latest(count).next().map_or(Duration::ZERO, |interval| interval.start);
        let lines = self.latest(count).map(|interval| interval.lines_of(|key| query.wants(key)));
        hlog::header(start) + &lines.collect::<String>()
    }

    fn latest(&self, count: usize) -> impl Iterator<Item = &Interval> {
        self.intervals.range(self.intervals.len().saturating_sub(count)..)
    }
}

#[cfg(test)]
mod tests;
