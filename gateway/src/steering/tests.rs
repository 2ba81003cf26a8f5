//! The room with the kernel under it: loading, filling, choosing, replacing.

#[path = "../../../gateway-ebpf/tests/privileges/not_tried.rs"]
mod not_tried;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};

use super::*;
use crate::ring::bind_shared;
use not_tried::not_tried;

/// So many sockets on one address of loopback.
fn sockets(count: usize) -> (SocketAddr, Vec<TcpListener>) {
    let sockets = bind_shared("127.0.0.1:0".parse().unwrap(), count).unwrap();
    (sockets[0].local_addr().unwrap(), sockets)
}

fn all(sockets: &[TcpListener]) -> [Vec<&TcpListener>; 1] {
    [sockets.iter().collect()]
}

/// Steers, or says aloud why that cannot be tried here.
fn steered(budget: Budget, sockets: &[TcpListener]) -> Option<Steering> {
    match Steering::start(budget, &all(sockets)) {
        Ok(steering) => Some(steering),
        Err(fault @ (Fault::Capabilities { .. } | Fault::Forbidden { .. })) => {
            not_tried(fault);
            None
        }
        Err(fault) => panic!("{fault}\n{}", fault.log().unwrap_or_default()),
    }
}

/// Whose queue the next connection is in.
fn taken_by(sockets: &[TcpListener]) -> usize {
    loop {
        for (worker, socket) in sockets.iter().enumerate() {
            match socket.accept() {
                Ok(_) => return worker,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        std::thread::yield_now();
    }
}

/// Connections that the program placed.
fn placed(steering: &Steering) -> u64 {
    let (_, counts) = steering.tallies().next().unwrap();
    Path::ALL.into_iter().zip(counts).filter(|(path, _)| *path != Path::Kernel).map(|(_, count)| count).sum()
}

#[test]
fn what_is_asked_for() {
    for (name, wish) in [("auto", Wish::Auto), ("on", Wish::On), ("off", Wish::Off)] {
        assert_eq!((name.parse(), wish.to_string()), (Ok(wish), name.to_owned()));
    }
    assert!("yes".parse::<Wish>().is_err());
    let (_, one) = sockets(1);
    let choose = |wish| Steering::choose(Settings { wish, budget: Budget::default() }, &all(&one)).unwrap();
    for (wish, reason) in [(Wish::Off, "asked for"), (Wish::Auto, "one worker: there is nothing to choose")] {
        let steering = choose(wish);
        assert_eq!((steering.mode(), steering.reason()), ("off", reason));
        assert!(!steering.is_on() && steering.load(0).is_none() && steering.tallies().next().is_none());
        steering.line(0).is(State::Serving); // and nobody is told
    }
}

#[test]
fn connections_come_to_workers_that_serve_by_the_programs_choice() {
    let (address, sockets) = sockets(4);
    let Some(steering) = steered(Budget::default(), &sockets) else { return };
    let lines: Vec<Line> = (0..4).map(|worker| steering.line(worker)).collect();
    lines[2].is(State::Serving);
    for number in 1..=50 {
        let _client = TcpStream::connect(address).unwrap();
        assert_eq!(taken_by(&sockets), 2, "nobody else serves");
        assert_eq!(placed(&steering), number);
    }
    lines[1].is(State::Serving);
    lines[2].is(State::Draining);
    for _ in 0..50 {
        let _client = TcpStream::connect(address).unwrap();
        assert_eq!(taken_by(&sockets), 1, "nobody else serves any more");
    }
    assert_eq!(placed(&steering), 100);
    assert_eq!(steering.load(2).map(|load| State::of(&load)), Some(State::Draining));
}

#[test]
fn the_program_attached_last_is_the_one_that_chooses() {
    let (address, sockets) = sockets(2);
    let Some(former) = steered(Budget::default(), &sockets) else { return };
    former.line(0).is(State::Serving);
    let _client = TcpStream::connect(address).unwrap();
    assert_eq!((taken_by(&sockets), placed(&former)), (0, 1));

    let Some(successor) = steered(Budget::default(), &sockets) else { return };
    successor.line(1).is(State::Serving);
    for _ in 0..20 {
        let _client = TcpStream::connect(address).unwrap();
        assert_eq!(taken_by(&sockets), 1);
    }
    assert_eq!((placed(&former), placed(&successor)), (1, 20));
    for (owner, worker) in [(&former, 0), (&successor, 1)] {
        owner.reclaim(&all(&sockets));
        let before = placed(owner);
        let _client = TcpStream::connect(address).unwrap();
        assert_eq!((taken_by(&sockets), placed(owner)), (worker, before + 1), "whoever reclaims them");
    }
    drop(former);
    let before = placed(&successor);
    let _client = TcpStream::connect(address).unwrap();
    assert_eq!((taken_by(&sockets), placed(&successor)), (1, before + 1), "who goes leaves what is attached");

    successor.line(0).is(State::Serving);
    let line = successor.line(1);
    Steering::off("asked for").reclaim(&all(&sockets));
    line.is(State::Draining); // its table outlives it, and is read by nobody
    let both: std::collections::BTreeSet<usize> = (0..64)
        .map(|_| {
            let _client = TcpStream::connect(address).unwrap();
            taken_by(&sockets)
        })
        .collect();
    assert_eq!(both.len(), 2, "the kernel's own hash has both");
}

#[test]
fn who_closes_hands_what_waits_to_others() {
    let (address, mut sockets) = sockets(2);
    let Some(steering) = steered(Budget::default(), &sockets) else { return };
    steering.line(0).is(State::Serving);
    let clients: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    steering.line(1).is(State::Serving);
    steering.line(0).is(State::Draining);
    drop(sockets.remove(0));
    for _ in &clients {
        assert_eq!(taken_by(&sockets), 0, "the one that is left");
    }
    let (_, counts) = steering.tallies().next().unwrap();
    assert_eq!(counts[Path::Migrated as usize], 20, "{counts:?}");
}

#[test]
fn a_source_over_its_budget_is_refused() {
    let (address, sockets) = sockets(1);
    let Some(steering) = steered(Budget { rate: 1, burst: 5 }, &sockets) else { return };
    steering.line(0).is(State::Serving);
    let patience = std::time::Duration::from_millis(200);
    let outcomes: Vec<bool> =
        (0..20).map(|_| TcpStream::connect_timeout(&address, patience).is_ok()).collect();
    assert!(outcomes[..5].iter().all(|connected| *connected), "{outcomes:?}");
    assert!(outcomes.iter().any(|connected| !connected), "{outcomes:?}");
    let (_, counts) = steering.tallies().next().unwrap();
    assert!(counts[Path::Refused as usize] > 0, "{counts:?}");
}

#[test]
fn sockets_that_share_nothing_cannot_be_steered() {
    let alone = crate::ring::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    match Steering::start(Budget::default(), &[vec![&alone]]) {
        Err(Fault::Attaching { address, .. }) => assert_eq!(address, alone.local_addr().unwrap()),
        Err(fault @ (Fault::Capabilities { .. } | Fault::Forbidden { .. })) => not_tried(fault),
        other => panic!("{other:?}"),
    }
}
