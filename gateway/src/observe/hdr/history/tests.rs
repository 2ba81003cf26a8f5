use super::*;
use crate::observe::hdr::query::tests::query;
use crate::observe::hdr::recorder::empty;
use crate::observe::hdr::{Metric, Outcome};

fn interval(second: u64, values: &[u64]) -> Interval {
    let key = Key { metric: Metric::Wait, level: "a".into(), outcome: Outcome::Executed };
    let mut histogram = empty(Metric::Wait);
    values.iter().for_each(|value| histogram.saturating_record(*value));
    let (start, length) = (Duration::from_secs(second), Duration::from_secs(1));
    Interval { start, length, rows: vec![Row::new(&key, &histogram)] }
}

#[test]
fn the_last_intervals_are_merged_and_listed() {
    let mut history = History::default();
    for second in 0..5 {
        history.push(interval(100 + second, &[second, 10]));
    }
    let selected = history.last(2, &query("intervals=2"));
    assert_eq!((selected.start.as_secs(), selected.length.as_secs()), (103, 2));
    let merged = selected.merged.values().next().unwrap();
    assert_eq!((merged.len(), merged.min(), merged.max()), (4, 3, 10));
    assert_eq!(hlog::read(history.log(3, &query("")).as_bytes()).unwrap().lines.len(), 3);
    assert_eq!(history.last(99, &query("")).length.as_secs(), 5, "as many as there are");
    assert!(history.last(2, &query("level=b")).merged.is_empty());
}

#[test]
fn memory_has_an_end() {
    let mut history = History::default();
    for second in 0..INTERVALS_MAX as u64 + 10 {
        history.push(interval(second, &[1]));
    }
    assert_eq!(history.intervals.len(), INTERVALS_MAX);
    assert_eq!(history.bytes, history.intervals.iter().map(Interval::bytes).sum::<usize>());
    let mut large = interval(1_000, &[1]);
    large.rows[0].encoded.reserve_exact(BYTES_MAX - 10_000);
    history.push(large);
    assert!(history.bytes <= BYTES_MAX && history.intervals.len() < 100);
}
