//! Scores: what adds up, what leaks, what is cut.

use super::*;

fn peer() -> SocketAddr {
    ([127, 0, 0, 1], 1).into()
}

fn cuts(tally: &Tally) -> u64 {
    tally.copy().each().map(|(_, _, cuts)| cuts).sum()
}

#[test]
fn a_burst_up_to_the_limit_is_borne_and_one_more_is_not() {
    let tally = Tally::new(100);
    let glitches = Glitches::new(&tally, peer());
    (0..10).for_each(|_| glitches.note(Glitch::Reset));
    assert!(!glitches.is_over(), "100 points are the limit");
    glitches.note(Glitch::Priority);
    assert!(glitches.is_over());
    glitches.note(Glitch::Reset);
    let counted: Vec<_> = tally.copy().each().filter(|(_, glitches, cuts)| glitches + cuts > 0).collect();
    assert_eq!(counted, [("reset", 11, 0), ("priority", 1, 1)], "cut once, for the last straw");
}

#[test]
fn a_score_leaks() {
    let tally = Tally::new(100);
    let glitches = Glitches::new(&tally, peer());
    (0..10).for_each(|_| glitches.note(Glitch::Reset));
    // A tenth of the window ago.
    glitches.empty_at.set(Nanos(glitches.empty_at.get().0 - WINDOW.0 / 10));
    glitches.note(Glitch::Reset);
    assert!(!glitches.is_over());
    glitches.note(Glitch::Reset);
    assert!(glitches.is_over());
}

#[test]
fn nobody_is_cut_without_a_limit() {
    let tally = Tally::new(0);
    let glitches = Glitches::new(&tally, peer());
    (0..1_000_000).for_each(|_| glitches.note(Glitch::Continuation));
    assert!(!glitches.is_over());
    assert_eq!(cuts(&tally), 0);
    assert!(tally.copy().each().any(|(name, glitches, _)| name == "continuation" && glitches == 1_000_000));
}

#[test]
fn connections_have_scores_of_their_own() {
    let tally = Tally::new(1);
    let (bad, good) = (Glitches::new(&tally, peer()), Glitches::new(&tally, peer()));
    bad.note(Glitch::Reset);
    assert!(bad.is_over() && !good.is_over());
    bad.note_last(Glitch::LibraryLimit);
    assert_eq!(cuts(&tally), 1, "a connection is cut once");
}

#[test]
fn names_are_distinct() {
    let names: std::collections::BTreeSet<_> = Glitch::ALL.iter().map(|glitch| glitch.name()).collect();
    assert_eq!(names.len(), Glitch::ALL.len());
}
