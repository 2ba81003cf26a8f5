//! One of four workers goes while thousands of connections come: none is lost, and without the program some are.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::Socket;
use usher_ebpf::steer::{DRAINING, Path};

use crate::group::{Group, connect};
use crate::network::{Network, SERVER_V4, client};

/// What is aimed at in a second; the machine may give less.
const RATE: u32 = 2000;
const CLIENTS: u32 = 50;
/// All serve for one part; one hangs for a fifth of one; it is gone for two.
const PART: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Counts {
    answered: AtomicU32,
    lost: AtomicU32,
    over: AtomicBool,
}

/// Accepts, reads a byte, answers it, until it is told to stop; then the listener is given back with all that waits in it.
fn worker(listener: Socket, stop: &AtomicBool) -> Socket {
    while !stop.load(Ordering::Acquire) {
        let Ok((socket, _)) = listener.accept() else {
            thread::sleep(Duration::from_micros(200));
            continue;
        };
        socket.set_nonblocking(false).unwrap();
        let mut stream = TcpStream::from(socket);
        let mut byte = [0];
        if stream.read_exact(&mut byte).is_ok() {
            let _ = stream.write_all(&byte);
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
    listener
}

/// Connections at this thread's share of the rate; the threads of the clients' namespace.
#[expect(clippy::disallowed_methods, reason = "the rate of the load; no verdict depends on it")]
fn load(address: SocketAddr, number: u32, counts: &Counts) {
    let start = Instant::now();
    for turn in 0_u32.. {
        if counts.over.load(Ordering::Acquire) {
            return;
        }
        let due = Duration::from_secs(1) * turn * CLIENTS / RATE;
        thread::sleep(due.saturating_sub(start.elapsed()));
        let from = client(&address, (number * 20 + turn % 20) as usize);
        let answer = connect(from, address).and_then(|mut stream| {
            stream.write_all(b"?")?;
            stream.read_exact(&mut [0])
        });
        match answer {
            Ok(()) => counts.answered.fetch_add(1, Ordering::Relaxed),
            Err(_) => counts.lost.fetch_add(1, Ordering::Relaxed),
        };
    }
}

/// Answered and lost connections while worker 1 of four goes, and the rate.
#[expect(clippy::disallowed_methods, reason = "the rate is printed; no verdict depends on it")]
fn run(group: &mut Group) -> (u32, u32, f64) {
    let counts = Arc::new(Counts::default());
    let stops: Vec<Arc<AtomicBool>> = group.listeners.iter().map(|_| Arc::default()).collect();
    let mut workers: Vec<_> = group
        .listeners
        .iter_mut()
        .zip(&stops)
        .map(|(listener, stop)| {
            let (listener, stop) = (listener.take().unwrap(), Arc::clone(stop));
            Some(thread::spawn(move || worker(listener, &stop)))
        })
        .collect();
    let (address, start) = (group.address, Instant::now());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let counts = Arc::clone(&counts);
            thread::spawn(move || load(address, number, &counts))
        })
        .collect();
    thread::sleep(PART);
    // It hangs: its queue fills.
    stops[1].store(true, Ordering::Release);
    let listener = workers[1].take().unwrap().join().unwrap();
    thread::sleep(PART / 5);
    if let Some(steering) = &mut group.steering {
        steering.tell(1, |load| load.state = DRAINING);
    }
    drop(listener);
    thread::sleep(PART * 2);
    counts.over.store(true, Ordering::Release);
    clients.into_iter().for_each(|client| client.join().unwrap());
    let (answered, lost) = (counts.answered.load(Ordering::Relaxed), counts.lost.load(Ordering::Relaxed));
    let rate = f64::from(answered + lost) / start.elapsed().as_secs_f64();
    stops.iter().for_each(|stop| stop.store(true, Ordering::Release));
    workers.into_iter().flatten().for_each(|worker| drop(worker.join().unwrap()));
    (answered, lost, rate)
}

#[test]
fn nothing_is_lost_when_a_worker_goes_under_load() {
    Network::with(|network| {
        let mut group = Group::steered(network, SERVER_V4, 4);
        let (answered, lost, rate) = run(&mut group);
        let tallies = group.steering().tallies();
        let migrated = tallies[Path::Migrated as usize];
        println!(
            "with the program: {answered} answered, {lost} lost, {migrated} migrated, {rate:.0} a second; {tallies:?}"
        );
        assert_eq!(lost, 0);
        assert!(migrated > 0, "there was nothing to migrate: {tallies:?}");
        assert_eq!(tallies[Path::Kernel as usize], 0);

        let (answered, lost, rate) = run(&mut Group::plain(network, SERVER_V4, 4));
        println!("without: {answered} answered, {lost} lost, {rate:.0} a second");
        assert!(lost > 0, "this test cannot see losses");
    });
}
