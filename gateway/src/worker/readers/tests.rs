//! Answers that move and answers that do not, with a clock that the tests turn.

use super::*;

const GRACE: Nanos = Nanos::from_millis(1000);

fn budget(answers: usize, bytes: u64) -> Budget {
    Budget { grace: GRACE, answers, bytes }
}

const AMPLE: usize = 100;

fn join(readers: &Rc<Readers>) -> Reader {
    readers.join(None, None, None)
}

/// So many graces from now.
fn after(graces: i64) -> Nanos {
    ring::now() + Nanos(GRACE.0 * graces)
}

#[test]
fn an_answer_that_nobody_asks_for_is_stalled() {
    let readers = Rc::<Readers>::default();
    let reader = join(&readers);
    assert_eq!(readers.sweep(ring::now(), &budget(AMPLE, 0)).stalled, 0);
    assert_eq!(readers.sweep(after(1), &budget(AMPLE, 0)).stalled, 1);
    drop(reader);
    assert_eq!(readers.sweep(after(2), &budget(AMPLE, 0)).stalled, 0);
}

#[test]
fn whose_apiserver_is_slow_is_not() {
    let readers = Rc::<Readers>::default();
    let reader = join(&readers);
    reader.asks();
    drop(reader.gets(Bytes::from_static(b"part")));
    reader.asks();
    for graces in 0..10 {
        assert_eq!(readers.sweep(after(graces), &budget(AMPLE, 0)).stalled, 0);
    }
}

#[test]
fn what_was_not_taken_counts_even_if_more_is_asked_for() {
    let readers = Rc::<Readers>::default();
    let reader = join(&readers);
    reader.asks();
    let (taken, left) = (reader.gets(Bytes::from_static(b"12345")), reader.gets(Bytes::from_static(b"123")));
    reader.asks();
    assert_eq!(readers.sweep(after(0), &budget(AMPLE, 100)).stalled, 0);
    drop(taken);
    assert_eq!(readers.sweep(after(1), &budget(AMPLE, 100)).stalled, 0, "it moves");
    let swept = readers.sweep(after(2), &budget(AMPLE, 100));
    assert_eq!((swept.stalled, swept.bytes), (1, 3));
    drop(left);
    assert_eq!(readers.sweep(after(3), &budget(AMPLE, 100)).stalled, 0, "it had no seats: it is well again");
}

#[test]
fn beyond_the_budget_those_go_that_have_not_moved_for_the_longest_time() {
    let readers = Rc::<Readers>::default();
    let answers: Vec<Reader> = (0..4).map(|_| join(&readers)).collect();
    let mut parts: Vec<Option<Bytes>> =
        answers.iter().map(|reader| Some(reader.gets(Bytes::from_static(b"0123456789")))).collect();
    for (graces, mover) in [(1, 2), (2, 0), (3, 3)] {
        parts[mover].take();
        readers.sweep(after(graces), &budget(AMPLE, 100));
    }
    let is_cut = || answers.iter().map(Reader::is_cut).collect::<Vec<_>>();
    let swept = readers.sweep(after(5), &budget(3, 100));
    assert_eq!((swept.cut_for_answers, swept.cut_for_bytes, swept.stalled, swept.bytes), (1, 0, 3, 0));
    assert_eq!(is_cut(), [false, true, false, false], "it never moved");
    let _held = answers[3].gets(Bytes::from_static(b"0123456789"));
    let swept = readers.sweep(after(5), &budget(3, 9));
    assert_eq!((swept.cut_for_answers, swept.cut_for_bytes, swept.stalled), (0, 3, 0), "2, 0, and 3 at last");
    assert_eq!(is_cut(), [true; 4]);
}

#[test]
fn without_memory_a_part_of_the_motionless_goes_whatever_the_budget() {
    let readers = Rc::<Readers>::default();
    let answers: Vec<Reader> = (0..20).map(|_| join(&readers)).collect();
    answers[7].asks();
    assert_eq!(readers.cut_slowest(ring::now()), 0);
    assert_eq!(readers.cut_slowest(ring::now() + CUT_AFTER), 3);
    assert_eq!(readers.cut_slowest(ring::now() + CUT_AFTER), 2);
    assert!(!answers[7].is_cut());
}
