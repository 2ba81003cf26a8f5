use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::control::{self, Desk, Socket};
use crate::ring;

/// An old one with sockets on an address; how often it let go.
struct Old {
    dir: tempfile::TempDir,
    address: std::net::SocketAddr,
    giver: Arc<Giver>,
    ledger: Arc<Ledger>,
    gone: Arc<AtomicU64>,
    _open: control::Open,
}

impl Old {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sockets = ring::bind_shared("127.0.0.1:0".parse().unwrap(), 2).unwrap();
        let address = sockets[0].local_addr().unwrap();
        let belongings = sockets.into_iter().map(|it| (what::INSECURE, Arc::new(it) as Arc<_>)).collect();
        let (ledger, gone) = (Arc::<Ledger>::default(), Arc::<AtomicU64>::default());
        let count = Arc::clone(&gone);
        let giver = Arc::new(Giver::new(
            belongings,
            Besides::default,
            Io::Epoll,
            Arc::clone(&ledger),
            move || {
                count.fetch_add(1, Ordering::SeqCst);
            },
            || Some(Report { stopped: true, connections: 7, ..Report::default() }),
        ));
        let mut desk = Desk::default();
        let asked = Arc::clone(&giver);
        desk.talk(VERB, move |_, line| asked.give(line));
        let open = control::start(Socket::bind(dir.path()).unwrap().unwrap(), desk).unwrap();
        Self { dir, address, giver, ledger, gone, _open: open }
    }

    fn ask(&self) -> Result<Taken, String> {
        ask(control::connect(self.dir.path()).unwrap())
    }
}

#[test]
fn who_gets_ready_has_the_same_sockets_and_the_old_one_lets_go_once() {
    let old = Old::new();
    let mut taken = old.ask().unwrap();
    assert!(old.ask().unwrap_err().contains("at this moment"), "one at a time");
    let sockets = taken.listeners(what::INSECURE, "127.0.0.1:0".parse().unwrap());
    assert_eq!(sockets.iter().map(|it| it.local_addr().unwrap()).collect::<Vec<_>>(), [old.address; 2]);
    assert_eq!(old.gone.load(Ordering::SeqCst), 0);
    let follower = taken.ready().unwrap();
    assert_eq!(old.gone.load(Ordering::SeqCst), 1);
    assert!(old.ask().unwrap_err().contains("about to end"));

    let (ledger, (alone, is_alone)) = (Arc::<Ledger>::default(), std::sync::mpsc::channel());
    follower.start(Arc::clone(&ledger), move || alone.send(()).unwrap(), || ()).unwrap();
    is_alone.recv().unwrap();
    while ledger.former().is_none_or(|report| report.connections != 7) {
        std::thread::yield_now();
    }
    assert!(ledger.has_taken_over() && ledger.section().summary.contains("7 connections"));
    drop(sockets);
}

#[test]
fn who_is_too_late_hears_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let listener = std::os::unix::net::UnixListener::bind(dir.path().join("control.sock")).unwrap();
    let taken = std::thread::spawn(move || ask(control::connect(dir.path()).unwrap()).unwrap());
    let (mut old, _) = listener.accept().unwrap();
    old.read_exact(&mut [0; 8]).unwrap(); // the beginning of what is asked
    old.write_all(b"{\"ok\":{\"pid\":1,\"version\":\"\",\"io\":\"epoll\",\"items\":[]}}\n").unwrap();
    let taken = taken.join().unwrap();
    old.write_all(b"{\"error\":\"too late\"}\n").unwrap();
    drop(old);
    assert!(taken.ready().unwrap_err().contains("too late"));
}

#[test]
fn a_former_one_need_not_tell_since_when() {
    let offer = r#"{"pid": 1, "version": "0.1.0", "io": "epoll", "items": [], "and": "more"}"#;
    assert_eq!(serde_json::from_str::<Offer>(offer).unwrap().takeover_since, None);
}

#[test]
fn who_ends_before_it_is_ready_has_changed_nothing() {
    let old = Old::new();
    for round in 1..=3 {
        drop(old.ask().unwrap());
        while old.ledger.given_up() < round {
            std::thread::yield_now();
        }
    }
    assert_eq!(old.gone.load(Ordering::SeqCst), 0);
    assert!(old.ask().is_ok());
    old.giver.end();
    assert!(old.ask().unwrap_err().contains("about to end"));
}

#[test]
fn other_addresses_are_not_taken() {
    let old = Old::new();
    let elsewhere = std::net::SocketAddr::new(old.address.ip(), old.address.port() ^ 1);
    assert!(old.ask().unwrap().listeners(what::INSECURE, elsewhere).is_empty());
    let v6 = "[::1]:0".parse().unwrap();
    while old.ledger.given_up() < 1 {
        std::thread::yield_now();
    }
    assert!(old.ask().unwrap().listeners(what::INSECURE, v6).is_empty());
}
