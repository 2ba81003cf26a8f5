use std::collections::BTreeMap;

use super::*;

/// A recorder, and where it hands over.
fn recorder() -> (Rc<Recorder>, mpsc::Receiver<Filled>) {
    let (filled, receiver) = mpsc::channel(4);
    (Recorder::new(Feed { worker: 0, filled }), receiver)
}

/// Counts by tag, and the set emptied.
fn counts(filled: Filled) -> (BTreeMap<String, u64>, Box<Set>) {
    let mut counts = BTreeMap::new();
    let set = filled.pour(|key, histogram| {
        assert!(counts.insert(key.to_string(), histogram.len()).is_none(), "{key} twice");
    });
    (counts, set)
}

fn request(recorder: &Rc<Recorder>, level: (u32, &str), outcome: Outcome, started: bool) {
    let now = ring::now();
    let mut measured = Measured::begin(Some(recorder), now);
    measured.arrives(now, (1, level.0), level.1, Seats(3));
    measured.decided();
    if started {
        measured.starts(now);
        measured.sent();
        measured.answered();
    }
    measured.ends(outcome);
}

#[test]
fn every_request_is_recorded_once_and_a_part_of_them_is_timed() {
    let (recorder, mut receiver) = recorder();
    const REQUESTS: u32 = 10_000;
    for _ in 0..REQUESTS {
        request(&recorder, (0, "a"), Outcome::Executed, true);
    }
    request(&recorder, (1, "b"), Outcome::QueueFull, false);
    recorder.hand_over(Box::default());
    let (counts, set) = counts(receiver.try_recv().unwrap());
    for metric in ["wait", "execution", "seats"] {
        assert_eq!(counts[&format!("{metric}/a/executed")], u64::from(REQUESTS));
    }
    let timed = counts["dispatch/a/executed"];
    assert_eq!(counts["added/a/executed"], timed, "both or neither");
    let expected = u64::from(REQUESTS / TIMED_ONE_IN);
    assert!(timed.abs_diff(expected) < expected / 10, "{timed} of {REQUESTS} timed");
    assert_eq!(counts["seats/b/queue-full"], 1);
    assert!(!counts.contains_key("execution/b/queue-full"), "it never ran");

    recorder.hand_over(set);
    let (later, _) = self::counts(receiver.try_recv().unwrap());
    assert!(later.is_empty(), "a new interval begins with nothing: {later:?}");
}

#[test]
fn the_end_of_a_worker_hands_over_what_it_has() {
    let (recorder, mut receiver) = recorder();
    request(&recorder, (0, "a"), Outcome::Cancelled, false);
    drop(recorder);
    assert_eq!(counts(receiver.try_recv().unwrap()).0["seats/a/cancelled"], 1);
}

#[test]
fn levels_beyond_the_limit_share_a_place() {
    let (recorder, mut receiver) = recorder();
    let levels = u32::try_from(LEVELS_MAX).unwrap() + 5;
    for id in 0..levels {
        request(&recorder, (id, &format!("level-{id}")), Outcome::Executed, true);
    }
    recorder.hand_over(Box::default());
    let (counts, _) = counts(receiver.try_recv().unwrap());
    assert_eq!(counts["seats/level-30/executed"], 1);
    assert_eq!(counts["seats/_other/executed"], 5);
}

#[test]
fn an_id_under_another_configuration_is_another_level() {
    let mut places = Places::default();
    let (first, second) = (places.of(1, 0, "a"), places.of(1, 1, "b"));
    assert_eq!((places.of(2, 0, "b"), places.of(2, 1, "a")), (second, first));
}

#[test]
fn who_is_not_recorded_leaves_nothing() {
    let (recorder, mut receiver) = recorder();
    drop(Measured::begin(Some(&recorder), ring::now())); // refused before it was known where it belongs
    drop(Measured::begin(None, ring::now()));
    recorder.hand_over(Box::default());
    assert!(counts(receiver.try_recv().unwrap()).0.is_empty());
}
