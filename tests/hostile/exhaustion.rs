//! Ends and edges: SIGTERM under load, file descriptors used up.

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
    // Those that were accepted are in: make room and the next is served.
    idle.truncate(5);
    let mut client = usher.connect();
    client.get("/api/v1/namespaces/default/configmaps/x", "alice");
    assert_eq!(client.answer().expect("served").status, 200);
    usher.all_seats_are_back();
}
