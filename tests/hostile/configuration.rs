//! Configuration broken or taken away under load.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::upstream::Upstream;
use crate::usher::{Setup, Usher, until};

const PATH: &str = "/api/v1/namespaces/default/configmaps/x";

/// Keeps four clients busy while `trouble` happens; nobody is answered anything but 200 or 429.
fn under_load(usher: &Usher, trouble: impl FnOnce(&dyn Fn() -> usize)) {
    let (done, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    std::thread::scope(|scope| {
        for token in ["alice", "alice", "alice", "master"] {
            let (done, answered) = (Arc::clone(&done), Arc::clone(&answered));
            scope.spawn(move || {
                let mut client = usher.connect();
                while !done.load(Ordering::SeqCst) {
                    client.get(PATH, token);
                    let status = client.answer().expect("an answer").status;
                    assert!(matches!(status, 200 | 429), "{status}");
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let count = || answered.load(Ordering::SeqCst);
        until("load", || count() > 20);
        trouble(&count);
        let now = count();
        until("still served", || count() > now + 20);
        done.store(true, Ordering::SeqCst);
    });
    usher.all_seats_are_back();
}

fn level_uid(usher: &Usher) -> String {
    let mut client = usher.connect();
    client.get(PATH, "alice");
    let answer = client.answer().expect("an answer");
    answer.header("x-kubernetes-pf-prioritylevel-uid").unwrap_or("absent").to_owned()
}

#[test]
fn a_broken_object_leaves_the_last_good_configuration_in_force() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let before = level_uid(&usher);
    under_load(&usher, |_| {
        fs::write(usher.objects().join("one-seat.yaml"), "kind: [").expect("a file of ours");
        until("the refusal is counted", || {
            usher.metric("usher_config_reloads_total", "result=\"refused\"") >= 1.0
        });
    });
    assert_eq!(level_uid(&usher), before);
}

#[test]
fn a_level_taken_away_under_load_loses_no_request() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let before = level_uid(&usher);
    under_load(&usher, |_| {
        fs::remove_file(usher.objects().join("one-seat.yaml")).expect("a file of ours");
        until("requests go elsewhere", || level_uid(&usher) != before);
    });
}

#[test]
fn a_level_that_grows_starts_what_waits() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let hold = "/api/v1/namespaces/default/configmaps/hold";
    let mut first = usher.connect();
    first.get(hold, "alice");
    until("the first is served", || upstream.held() == 1);
    let mut second = usher.connect();
    second.get(hold, "alice");
    usher.until_waiting(1.0);
    let larger =
        crate::usher::one_seat().replace("nominalConcurrencyShares: 1", "nominalConcurrencyShares: 100");
    fs::write(usher.objects().join("one-seat.yaml"), larger).expect("a file of ours");
    until("the second is served", || upstream.held() == 2);
    upstream.release(2);
    assert_eq!(first.answer().expect("served").status, 200);
    assert_eq!(second.answer().expect("served").status, 200);
    usher.all_seats_are_back();
}
