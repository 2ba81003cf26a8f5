//! Ends and edges: SIGTERM under load, file descriptors used up.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::upstream::Upstream;
use crate::usher::{Setup, until};

const HOLD: &str = "/api/v1/namespaces/default/configmaps/hold";

#[test]
fn sigterm_finishes_what_is_seated_and_what_waits_and_exits_zero() {
    let upstream = Upstream::start();
    let mut usher = Setup::new(upstream.address).flag("--shutdown-grace-period=15s").start();
    let mut seated = usher.connect();
    seated.get(HOLD, "alice");
    until("the first is served", || upstream.held() == 1);
    let mut waiting = usher.connect();
    waiting.get(HOLD, "alice");
    usher.until_waiting(1.0);
    usher.signal(libc::SIGTERM);
    until("it listens no more", || std::net::TcpStream::connect(usher.address).is_err());
    upstream.release(2);
    assert_eq!(seated.answer().expect("served").status, 200);
    assert_eq!(waiting.answer().expect("served").status, 200);
    assert!(usher.ended().success());
}

#[test]
fn sigterm_ends_within_its_grace_whoever_holds_on() {
    let upstream = Upstream::start();
    let mut usher = Setup::new(upstream.address).flag("--shutdown-grace-period=1s").start();
    let mut seated = usher.connect();
    seated.get(HOLD, "alice");
    until("it is served", || upstream.held() == 1);
    usher.signal(libc::SIGTERM);
    assert!(usher.ended().success());
    seated.until_closed();
}

#[test]
fn file_descriptors_used_up_are_waited_for() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).files_max(64).start();
    let mut idle: Vec<_> = (0..100).map(|_| std::net::TcpStream::connect(usher.address)).collect();
    // With none left even the admin port cannot answer: make room, and the next is served.
    until("there are none left", || open_files(usher.pid()) >= 60);
    idle.truncate(5);
    let mut client = usher.connect();
    client.get("/api/v1/namespaces/default/configmaps/x", "alice");
    assert_eq!(client.answer().expect("served").status, 200);
    let stops = usher.metric("usher_accept_stops_total", "");
    assert!(stops >= 1.0, "it ran into a limit on the way: {stops}");
    usher.all_seats_are_back();
}

#[test]
fn sigterm_under_load_cuts_no_answer() {
    let upstream = Upstream::start();
    let mut usher = Setup::new(upstream.address).flag("--shutdown-grace-period=15s").start();
    let answered = AtomicUsize::new(0);
    let load = || {
        let mut client = usher.connect();
        // A connection that is closed between two requests is a drain; an answer cut in two is not.
        while client.try_get("/api/v1/namespaces/default/configmaps/x", "master") {
            let Some(answer) = client.answer() else { return };
            assert!(answer.status == 200 && answer.whole, "{answer:?}");
            answered.fetch_add(1, Ordering::SeqCst);
        }
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(load)).collect();
        until("load", || answered.load(Ordering::SeqCst) > 100);
        usher.signal(libc::SIGTERM);
        clients.into_iter().for_each(|client| client.join().expect("every answer was whole"));
    });
    assert!(usher.ended().success());
}

fn open_files(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}
