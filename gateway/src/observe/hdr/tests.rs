//! The collector's thread from outside: workers that hand over, a log, questions.

use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;
use usher_flowcontrol::units::Seats;

use super::*;
use crate::ring;

/// A worker that hands over when the test says so.
#[derive(Debug)]
struct Played {
    recorder: Rc<Recorder>,
    asked: Receiver<Box<Set>>,
}

impl Played {
    /// So many requests, then the interval ends.
    fn interval(&self, requests: usize) {
        for _ in 0..requests {
            let mut measured = Measured::begin(Some(&self.recorder), ring::now());
            measured.arrives(ring::now(), (1, 0), "level", Seats(1));
            measured.starts(ring::now());
            measured.ends(Outcome::Executed);
        }
        self.recorder.hand_over(self.asked.recv().expect("an interval that ends"));
    }
}

fn started<const WORKERS: usize>(folder: &Path, uring: bool) -> (Handle, [Played; WORKERS]) {
    let (feeds, filled) = feeds(WORKERS);
    let (mut played, mut asks) = (Vec::new(), Vec::<Ask>::new());
    for feed in feeds {
        let (ask, asked) = channel();
        asks.push(Box::new(move |set| ask.send(set).is_ok()));
        played.push(Played { recorder: Recorder::new(feed), asked });
    }
    let keep =
        Keep { folder: folder.into(), size_max: 1 << 20, age_max: Duration::from_secs(3600), files_max: 2 };
    let settings = Settings { interval: Duration::from_millis(20), log: Some(keep), uring };
    let handle = start(settings, filled, asks).unwrap();
    (handle, played.try_into().expect("as many as asked for"))
}

fn ask(handle: &Handle, pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let asking = handle.desk();
    let asking = asking.ask(Query::of(&pairs).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(asking).expect("the collector answers").unwrap().1
}

/// Requests since the start, as the JSON tells.
fn count(handle: &Handle) -> u64 {
    let all: Value = serde_json::from_str(&ask(handle, &[("metric", "seats")])).unwrap();
    all["histograms"].as_array().unwrap().iter().map(|row| row["count"].as_u64().unwrap()).sum()
}

/// Requests in the log.
fn logged(folder: &Path) -> u64 {
    let mut sum = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let log = hlog::read(&std::fs::read(entry.unwrap().path()).unwrap()).unwrap();
        sum += log
            .lines
            .iter()
            .filter(|line| line.tag == "seats/level/executed")
            .map(|line| line.histogram.len())
            .sum::<u64>();
    }
    sum
}

#[test]
fn every_request_of_every_worker_is_told_and_logged_once() {
    for uring in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (handle, [first, second]) = started(folder.path(), uring);
        for _ in 0..3 {
            first.interval(10);
            second.interval(1);
        }
        while count(&handle) < 33 {
            first.interval(0);
            second.interval(0);
        }
        assert_eq!(count(&handle), 33);
        let latest = ask(&handle, &[("format", "hlog"), ("intervals", "360"), ("metric", "seats")]);
        let latest = hlog::read(latest.as_bytes()).unwrap();
        assert_eq!(latest.lines.iter().map(|line| line.histogram.len()).sum::<u64>(), 33);
        for worker in [first, second] {
            let mut measured = Measured::begin(Some(&worker.recorder), ring::now());
            measured.arrives(ring::now(), (1, 0), "level", Seats(1));
            measured.starts(ring::now());
            measured.ends(Outcome::Executed);
        }
        let counts = handle.desk().counts;
        handle.finish();
        assert_eq!(logged(folder.path()), 35, "what was under way at the end too");
        assert_eq!(counts.errors.load(std::sync::atomic::Ordering::Relaxed), 0);
    }
}

#[test]
fn a_worker_that_is_stuck_does_not_keep_the_others_back() {
    let folder = tempfile::tempdir().unwrap();
    let (handle, [well, stuck]) = started(folder.path(), false);
    well.interval(5);
    well.interval(5); // the second interval ends although `stuck` never handed over
    while count(&handle) < 10 {
        well.interval(0);
    }
    stuck.interval(7); // better late than never
    while count(&handle) < 17 {
        well.interval(0);
    }
    drop((well, stuck));
    handle.finish();
    assert_eq!(logged(folder.path()), 17);
}
