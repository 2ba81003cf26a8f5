//! What is asked, what is wrong, what is said.

use usher_flowcontrol::controller::Controller;
use usher_flowcontrol::units::{Nanos, Seats};

use super::{Question, workers};
use crate::observe::{Each, NoAnswer, State, View};
use crate::steering::Steering;
use crate::upstream::Look;

fn well() -> View {
    let mut controller = Controller::new(Nanos(1), Seats(600));
    controller.configure(Nanos(1), &[], &[]);
    View {
        snapshot: Some(controller.snapshot(Nanos(2))),
        upstreams: vec![
            Look { server: "https://a:1".into(), healthy: false, ..Look::default() },
            Look { server: "https://b:1".into(), healthy: true, ..Look::default() },
        ],
        ..View::default()
    }
}

#[track_caller]
fn check(question: Question, view: &Result<View, NoAnswer>, wanted: &str) {
    let (well, text) = question.answer(&question.checks(view), None, true).unwrap();
    assert_eq!(text.trim_end(), wanted.trim());
    let (_, short) = question.answer(&question.checks(view), None, false).unwrap();
    assert_eq!(short, if well { "ok" } else { &text });
}

#[test]
fn all_is_well() {
    let wanted =
        "[+]ping ok\n[+]worker ok\n[+]configuration ok\n[+]upstream ok\n[+]shutdown ok\nreadyz check passed";
    check(Question::Readyz, &Ok(well()), wanted);
    check(Question::Livez, &Ok(well()), "[+]ping ok\n[+]worker ok\nlivez check passed");
}

#[test]
fn without_flow_control_there_is_nothing_to_configure() {
    let view = View { snapshot: None, ..well() };
    let question = Question::Readyz;
    assert_eq!(question.answer(&question.checks(&Ok(view)), None, false), Some((true, "ok".into())));
}

#[test]
fn every_reason_is_given() {
    let mut view = well();
    view.snapshot = Some(Controller::new(Nanos(1), Seats(600)).snapshot(Nanos(2)));
    view.draining = true;
    view.upstreams.iter_mut().for_each(|upstream| upstream.healthy = false);
    let wanted = "[+]ping ok\n[+]worker ok\n\
        [-]configuration failed: no flow-control objects are in force yet\n\
        [-]upstream failed: no apiserver is healthy: https://a:1, https://b:1\n\
        [-]shutdown failed: draining: requests in flight finish, new ones go elsewhere\n\
        readyz check failed";
    check(Question::Readyz, &Ok(view), wanted);
}

#[test]
fn a_worker_that_does_not_answer_is_neither_ready_nor_alive() {
    for (no_answer, reason) in [
        (NoAnswer::Late("worker-1".into()), "worker-1 did not answer within 5s"),
        (NoAnswer::Stuck("worker-1".into()), "worker-1 takes no messages"),
    ] {
        let no_answer = Err(no_answer);
        let (well, text) = Question::Livez.answer(&Question::Livez.checks(&no_answer), None, false).unwrap();
        assert!(!well && text.contains(&format!("[-]worker failed: {reason}")), "{text}");
        let (well, text) =
            Question::Readyz.answer(&Question::Readyz.checks(&no_answer), None, false).unwrap();
        assert!(!well && text.contains("[-]upstream failed: unknown"), "{text}");
    }
}

#[test]
fn one_check_alone() {
    let checks = Question::Readyz.checks(&Ok(well()));
    assert_eq!(Question::Readyz.answer(&checks, Some("upstream"), false), Some((true, "ok".into())));
    assert_eq!(Question::Readyz.answer(&checks, Some("weather"), false), None);
}

#[test]
fn a_worker_that_is_being_restarted_is_no_reason_unless_it_does_not_come_back() {
    let each = |state, deaths| Each {
        name: format!("worker-{deaths}"),
        core: Some(3),
        state,
        deaths,
        connections_open: 2,
        connections: 5,
        requests: 7,
    };
    let mut view = well();
    view.workers = vec![each(State::Serving, 0), each(State::Restarting(Nanos::from_millis(4_999)), 1)];
    assert!(Question::Readyz.answer(&Question::Readyz.checks(&Ok(view.clone())), None, false).unwrap().0);
    assert_eq!(
        workers(&view, &Steering::default()),
        "[i]worker-0 serves on core 3: 2 connections, 7 requests so far, died 0 times\n\
         [i]worker-1 is being restarted on core 3: 2 connections, 7 requests so far, died 1 times\n"
    );
    for (state, said) in [(State::Draining, "drains"), (State::Out, "is out")] {
        view.workers[1].state = state;
        assert!(Question::Livez.answer(&Question::Livez.checks(&Ok(view.clone())), None, false).unwrap().0);
        let line = format!("\n[i]worker-1 {said} on core 3: 2 connections");
        assert!(workers(&view, &Steering::default()).contains(&line), "{line}");
    }
    view.workers[1].state = State::Restarting(Nanos::from_millis(5_000));
    let (well, text) = Question::Livez.answer(&Question::Livez.checks(&Ok(view)), None, false).unwrap();
    assert!(!well && text.contains("[-]worker failed: worker-1 has died, 1 times"), "{text}");
}
