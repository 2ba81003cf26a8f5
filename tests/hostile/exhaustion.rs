//! Ends and edges: SIGTERM under load, file descriptors used up.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::raw::Raw;
use crate::upstream::Upstream;
use crate::usher::{Setup, until};

const CONFIG_MAP: &str = "/api/v1/namespaces/default/configmaps/x";
/// Fewer files than it has open always.
const NO_MORE: usize = 8;
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
fn clients_wait_before_the_last_descriptors_are_used_up() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).files_max(256).start();
    // 192 are for clients.
    let mut idle: Vec<_> = (0..200).map(|_| std::net::TcpStream::connect(usher.address)).collect();
    // The admin port answers all the while.
    until("no more are let in", || usher.metric("usher_accept_stops_total", "full") >= 1.0);
    idle.truncate(5);
    let mut client = usher.connect();
    client.get(CONFIG_MAP, "alice");
    assert_eq!(client.answer().expect("served").status, 200);
    assert!(usher.metric("usher_accept_stops_total", "failed") < 0.5, "it never came to that");
    usher.all_seats_are_back();
}

#[test]
fn a_burst_beyond_all_descriptors_is_waited_for() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).files_max(80).start();
    let mut idle: Vec<_> = (0..100).map(|_| std::net::TcpStream::connect(usher.address)).collect();
    until("it runs into a limit", || usher.metric("usher_accept_stops_total", "") >= 1.0);
    idle.truncate(5);
    let mut client = usher.connect();
    client.get(CONFIG_MAP, "alice");
    assert_eq!(client.answer().expect("served").status, 200);
    usher.all_seats_are_back();
}

#[test]
fn without_descriptors_newcomers_wait_and_requests_come_back_later() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).files_max(256).start();
    let (mut early, mut late): (Vec<_>, Vec<_>) = (0..8).map(|_| (usher.connect(), usher.connect())).unzip();
    for client in &mut late {
        client.get(CONFIG_MAP, "master"); // the handshake, above all
        assert_eq!(client.answer().expect("served").status, 200);
    }
    for client in &mut early {
        client.get(HOLD, "master");
    }
    until("connections to the apiserver are in use", || upstream.held() == early.len());
    limit_files(usher.pid(), NO_MORE);
    // One or two find an unused connection; for the others none is to be had.
    let refused = AtomicUsize::new(0);
    let ask = |client: &mut Raw| {
        client.get(HOLD, "master");
        let answer = client.answer().expect("an answer");
        if answer.status == 503 {
            assert_eq!(answer.header("retry-after"), Some("1"));
            refused.fetch_add(1, Ordering::SeqCst);
        }
        answer.status
    };
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let asking: Vec<_> = late.iter_mut().map(|client| scope.spawn(|| ask(client))).collect();
        until("most are refused", || refused.load(Ordering::SeqCst) >= 5);
        let newcomer = scope.spawn(|| {
            let mut client = usher.connect();
            client.get(CONFIG_MAP, "master");
            client.answer().expect("served").status
        });
        limit_files(usher.pid(), 256);
        upstream.release(2 * early.len());
        assert_eq!(newcomer.join().expect("a status"), 200);
        asking.into_iter().map(|client| client.join().expect("a status")).collect()
    });
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    assert!(usher.metric("usher_requests_refused_total", "no-descriptors") >= 4.5);
    for client in &mut early {
        assert_eq!(client.answer().expect("served").status, 200);
    }
    for client in &mut late {
        client.get(CONFIG_MAP, "alice");
        assert_eq!(client.answer().expect("served").status, 200, "as if nothing had happened");
    }
    assert_eq!(
        usher.ask_admin("/readyz").map(|(status, _)| status),
        Some(200),
        "the apiserver was well all the time"
    );
    usher.all_seats_are_back();
}

#[test]
fn accepting_goes_on_when_there_are_descriptors_again() {
    let upstream = Upstream::start();
    // Of io_uring, what accepts has the limit of when it began: see the burst above.
    let usher = Setup::new(upstream.address).files_max(256).flag("--io=epoll").start();
    limit_files(usher.pid(), NO_MORE);
    let mut newcomer = usher.connect();
    let asking = std::thread::spawn(move || {
        newcomer.get(CONFIG_MAP, "master");
        newcomer.answer().expect("served").status
    });
    until("it cannot be accepted", || usher.logged("cannot accept connections"));
    limit_files(usher.pid(), 256);
    assert_eq!(asking.join().expect("a status"), 200);
    assert!(usher.metric("usher_accept_stops_total", "failed") >= 1.0);
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

/// From now on that process may open no descriptor with a number of `files` or more.
fn limit_files(pid: i32, files: usize) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes one `rlimit` into the one that we lend it.
    let known = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut limit) };
    assert_eq!(known, 0, "our own child");
    limit.rlim_cur = files as libc::rlim_t;
    // SAFETY: the call reads one `rlimit` that outlives it.
    let set = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) };
    assert_eq!(set, 0, "lower than its hard limit");
}
