//! Workers to whom the kernel's program brings connections: who dies or retires gets none any more, and nobody loses any.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use usher::observe::State;
use usher::ring;
use usher::steering::{self, Fault, Path, Steering};
use usher::worker::Sabotage;

use crate::crew::{Ship, pass, served};
use crate::not_tried::not_tried;
use crate::stub::text;
use crate::world::{Client, get, patiently};

/// So many workers, all of which serve; or says aloud why that cannot be tried here.
async fn ship(workers: usize) -> Option<Ship> {
    let ship = match Ship::steered(workers).await {
        Ok(ship) => ship,
        Err(fault @ (Fault::Capabilities { .. } | Fault::Forbidden { .. })) => {
            not_tried(fault);
            return None;
        }
        Err(fault) => panic!("{fault}\n{}", fault.log().unwrap_or_default()),
    };
    ship.until_whole().await;
    patiently("all to be in the table", async {
        while (0..workers).any(|worker| state(&ship.steering, worker) != steering::State::Serving) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    Some(ship)
}

fn state(steering: &Steering, worker: usize) -> steering::State {
    steering::State::of(&steering.load(worker).unwrap())
}

fn counts(steering: &Steering) -> [u64; Path::ALL.len()] {
    steering.tallies().next().unwrap().1
}

/// A connection from an address of its own, as far as loopback has any.
async fn connect_from(client: usize, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    let [high, low] = u16::try_from(client % 60_000 + 256).unwrap_or(256).to_be_bytes();
    socket.bind(SocketAddr::from(([127, 1, high, low], 0)))?;
    socket.connect(to).await
}

#[tokio::test]
async fn workers_say_what_they_have() {
    let Some(mut ship) = ship(2).await else { return };
    let mut client = ship.client().await;
    client.send(get("/x")).await;
    let seen = ship.stub.next().await;
    let loads = || [0, 1].map(|worker| ship.steering.load(worker).unwrap());
    assert_eq!(loads().map(|load| load.connections).iter().sum::<u32>(), 1);
    let busy = loads().into_iter().find(|load| load.connections == 1).unwrap();
    assert_eq!(busy.busy, 1);
    seen.answer(text("served"));
    assert_eq!(client.answer().await.body, "served");
    let idle = |ship: &Ship| [0, 1].iter().all(|worker| ship.steering.load(*worker).unwrap().busy == 0);
    ship.until("nothing to run", |_| idle(&ship)).await;
    drop(client);
    ship.until("it to be gone", |view| view.counters.connections_open == 0).await;
    assert!([0, 1].iter().all(|worker| ship.steering.load(*worker).unwrap().connections == 0));
    ship.done().await;
}

/// Worker 1 dies; what the table says while its connections are closed, and who serves.
async fn dies(how: Sabotage) {
    let Some(mut ship) = ship(4).await else { return };
    let mut victims = Vec::new();
    for client in 0.. {
        let stream = connect_from(client, ship.address()).await.unwrap();
        victims.push(stream);
        let view =
            ship.until("it to be accepted", |view| view.counters.connections_open == victims.len() as u64);
        if view.await.workers[1].connections_open > 0 {
            break;
        }
    }
    let mut victim = victims.pop().unwrap();
    let told = ring::precise();
    ship.sabotage(1, how.clone());
    let gone = patiently("it to leave the table", async {
        while state(&ship.steering, 1) == steering::State::Serving {
            tokio::task::yield_now().await;
        }
        ring::precise() - told
    })
    .await;
    println!("{how:?}: told to break, gone from the table after {} µs", gone.0 / 1000);
    assert_eq!(victim.read(&mut [0]).await.unwrap_or(0), 0, "its connections are closed after that");
    for client in 0..64 {
        // Its place may be taken again by now; who connects is served in any case.
        let mut client = Client(connect_from(client, ship.address()).await.unwrap());
        served(&mut ship, &mut client).await;
    }
    let view = ship.until_whole().await;
    assert_eq!(view.workers[1].deaths, 1);
    patiently("its successor to be in the table", async {
        while state(&ship.steering, 1) != steering::State::Serving {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert_eq!(counts(&ship.steering)[Path::Kernel as usize], 0, "no silent fallback");
    drop(victims);
    ship.done().await;
}

#[tokio::test]
async fn who_dies_leaves_the_table_before_its_connections_close_and_comes_back() {
    for how in [Sabotage::Loop, Sabotage::Core, Sabotage::Task] {
        dies(how).await;
    }
}

/// Connects, asks once, hears the answer, as fast as it can; how often, until it is told to stop.
async fn client_after_client(
    first: usize,
    to: SocketAddr,
    stop: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
) -> Result<(), String> {
    let mut client = first;
    while !stop.load(Ordering::Relaxed) {
        client += 1;
        let failed = |what: &str, error: std::io::Error| format!("{what}: {error}, client {client}");
        let mut stream = connect_from(client, to).await.map_err(|error| failed("refused", error))?;
        let asked = b"GET /x HTTP/1.1\r\nHost: usher\r\nConnection: close\r\n\r\n";
        stream.write_all(asked).await.map_err(|error| failed("reset while it asked", error))?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.map_err(|error| failed("reset", error))?;
        if !answer.starts_with(b"HTTP/1.1 200 ") {
            return Err(format!("an answer of {:?}, client {client}", String::from_utf8_lossy(&answer)));
        }
        served.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

#[tokio::test]
async fn one_of_four_retires_under_load_and_nobody_notices() {
    if let Some(ship) = ship(4).await {
        let ship = three_of_four_retire(ship).await;
        assert_eq!(counts(&ship.steering)[Path::Kernel as usize], 0, "no silent fallback");
        ship.done().await;
    }
}

/// Without steering the kernel does it, if it is told to.
#[test]
fn one_of_four_retires_without_the_program_where_the_kernel_passes_connections_on() {
    // In a thread of its own, which takes the namespace with it.
    let tried = std::thread::spawn(|| {
        if let Err(reason) = enter_network_that_migrates() {
            return not_tried(reason);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let ship = Ship::new(4).await;
            ship.until_whole().await;
            one_retires_for_whom_connections_wait(ship).await;
            let ship = Ship::new(4).await;
            ship.until_whole().await;
            three_of_four_retire(ship).await.done().await;
        });
    });
    tried.join().unwrap();
}

/// A network of this thread's own, whose kernel passes on what waits for a listener that closes.
fn enter_network_that_migrates() -> std::io::Result<()> {
    // SAFETY: takes a flag, touches no memory.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status()?;
    assert!(up.success(), "ip link set lo up");
    std::fs::write("/proc/sys/net/ipv4/tcp_migrate_req", "1")
}

#[tokio::test]
async fn what_waits_for_one_that_retires_is_served() {
    if let Some(ship) = ship(4).await {
        let steering = Arc::clone(&ship.steering);
        one_retires_for_whom_connections_wait(ship).await;
        assert_eq!(counts(&steering)[Path::Kernel as usize], 0, "no silent fallback");
    }
}

/// While it stands still the kernel has connections ready for it; then it retires, with none of them accepted.
async fn one_retires_for_whom_connections_wait(mut ship: Ship) {
    let barrier = Arc::new(Barrier::new(2));
    ship.sabotage(0, Sabotage::Hold(Arc::clone(&barrier)));
    pass(&barrier).await;
    let mut clients = Vec::new();
    for number in 0..64 {
        let mut client = Client(connect_from(number, ship.address()).await.unwrap());
        client.send(get("/x")).await;
        clients.push(client);
    }
    ship.crew.retiring().retire(0, Duration::from_secs(10)).unwrap();
    pass(&barrier).await;
    for _ in 0..clients.len() {
        ship.stub.next().await.answer(text("served"));
    }
    for client in &mut clients {
        assert_eq!(client.answer().await.body, "served");
    }
    drop(clients);
    let view = ship.until("it to be out", |view| view.workers[0].state == State::Out).await;
    println!(
        "requests by worker: {:?}",
        view.workers.iter().map(|worker| worker.requests).collect::<Vec<_>>()
    );
    ship.done().await;
}

/// One after the other, under load.
async fn three_of_four_retire(mut ship: Ship) -> Ship {
    let (stop, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let begun = ring::precise();
    let lives = (0..16).map(|number| {
        client_after_client(number * 3_000, ship.address(), Arc::clone(&stop), Arc::clone(&done))
    });
    let lives = futures_util::future::join_all(lives.collect::<Vec<_>>());
    let clients = std::thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(lives)
    });
    for retired in 0..3 {
        let until = done.load(Ordering::Relaxed) + 500;
        ship.answers_until("load", || done.load(Ordering::Relaxed) >= until).await;
        ship.crew.retiring().retire(retired, Duration::from_secs(10)).unwrap();
        while ship.look().await.workers[retired].state != State::Out {
            let until = done.load(Ordering::Relaxed) + 1;
            ship.answers_until("it to go", || done.load(Ordering::Relaxed) >= until).await;
        }
    }
    let until = done.load(Ordering::Relaxed) + 500;
    ship.answers_until("load", || done.load(Ordering::Relaxed) >= until).await;
    let (served, time) = (done.load(Ordering::Relaxed), ring::precise() - begun);
    let counts = ship.steering.tallies().next();
    println!("{served} connections in {} ms; {counts:?}", time.0 / 1_000_000);
    stop.store(true, Ordering::Relaxed);
    ship.answers_until("the clients' end", || clients.is_finished()).await;
    for client in clients.join().unwrap() {
        assert_eq!(client, Ok(()));
    }
    let view = ship.look().await;
    assert!(view.workers[..3].iter().all(|worker| worker.state == State::Out && worker.deaths == 0));
    assert!(!view.draining, "one serves");
    ship
}
