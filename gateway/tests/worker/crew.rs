//! Many workers on one address: they share limits, survive each other, and are replaced when they die.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use usher::config::objects::Objects;
use usher::coordinator::{self, Configuration};
use usher::crew::{self, Crew, Member, Posts};
use usher::observe::Everybody;
use usher::observe::{State, View, Workers as _};
use usher::steering::{Budget, Fault, Steering};
use usher::worker::{self, AdmissionSettings, Command, Listen, Sabotage, Settings};
use usher_flowcontrol::units::Seats;

use crate::stub::{Stub, text};
use crate::world::{Client, get, get2, one_seat, patiently, settings};

/// A crew, its apiserver, its clients.
pub(crate) struct Ship {
    pub(crate) crew: Crew,
    pub(crate) posts: Posts,
    /// Watches over the levels that the workers share; `None`: without flow control.
    seats: Option<Arc<coordinator::Seats>>,
    pub(crate) stub: Stub,
    pub(crate) steering: Arc<Steering>,
    /// How often somebody was to be buried.
    burials: Arc<AtomicUsize>,
    /// That somebody is in the way of it.
    pub(crate) hindered: Arc<AtomicBool>,
}

impl Ship {
    /// So many workers, with some hundred seats.
    pub(crate) async fn new(workers: usize) -> Self {
        Self::with(workers, |settings| {
            settings.admission = AdmissionSettings::FlowControl { server_limit: Seats(400), together: None };
        })
        .await
    }

    pub(crate) async fn with(workers: usize, change: impl FnOnce(&mut Settings)) -> Self {
        Self::launch(workers, false, change, |_| Ok(Steering::default())).await.unwrap()
    }

    /// With some hundred seats, and connections that are steered; or why they cannot be.
    pub(crate) async fn steered(workers: usize) -> Result<Self, Fault> {
        let enough = AdmissionSettings::FlowControl { server_limit: Seats(400), together: None };
        let start = |sockets: Vec<&TcpListener>| Steering::start(Budget::default(), &[sockets]);
        Self::launch(workers, false, |settings| settings.admission = enough, start).await
    }

    /// `shut`: they accept nothing yet.
    pub(crate) async fn launch(
        workers: usize,
        shut: bool,
        change: impl FnOnce(&mut Settings),
        steer: impl FnOnce(Vec<&TcpListener>) -> Result<Steering, Fault>,
    ) -> Result<Self, Fault> {
        let stub = Stub::start().await;
        let mut worker = settings(&stub);
        change(&mut worker);
        let mut seats = None;
        if let AdmissionSettings::FlowControl { server_limit, together } = &mut worker.admission
            && workers > 1
        {
            let watching = Arc::new(coordinator::Seats::new(*server_limit, workers, false));
            *together = Some(watching.together());
            seats = Some(watching);
        }
        let sockets = usher::ring::bind_shared("127.0.0.1:0".parse().unwrap(), workers).unwrap();
        let steering = steer(sockets.iter().collect())?;
        let member = |(worker, socket)| Member {
            listeners: vec![Listen { socket: Arc::new(socket), tls: None }],
            line: steering.line(worker),
            core: None,
            hdr: None,
        };
        let members = sockets.into_iter().enumerate().map(member).collect();
        let (burials, hindered) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (tried, in_the_way, undertaker) = (Arc::clone(&burials), Arc::clone(&hindered), seats.clone());
        let bury = Box::new(move |worker| {
            tried.fetch_add(1, Ordering::Relaxed);
            !in_the_way.load(Ordering::Relaxed) && undertaker.as_ref().is_none_or(|seats| seats.bury(worker))
        });
        let crew = crew::start(crew::Settings { worker, members, bury, shut }).unwrap();
        let posts = crew.posts();
        let worker::Objects { schemas, levels, .. } = one_seat();
        let configuration = Configuration::default();
        configuration.connect(posts.clone(), seats.clone());
        configuration.put_in_force(&Objects { schemas, levels, warnings: Vec::new() });
        if let Some(seats) = &seats {
            let posts = posts.clone();
            seats.start(move || posts.tidy()).unwrap();
        }
        Ok(Self { crew, posts, seats, stub, steering: Arc::new(steering), burials, hindered })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.crew.addresses()[0]
    }

    pub(crate) async fn client(&self) -> Client {
        Client(TcpStream::connect(self.address()).await.unwrap())
    }

    pub(crate) async fn look(&self) -> View {
        patiently("a look", Everybody { posts: self.posts.clone(), seats: self.seats.clone() }.look())
            .await
            .unwrap()
    }

    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&View) -> bool) -> View {
        patiently(what, async {
            loop {
                let view = self.look().await;
                if is_so(&view) {
                    return view;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
    }

    /// A client of each worker, wherever the kernel sends them.
    pub(crate) async fn client_of_each(&self) -> Vec<Client> {
        let mut clients = HashMap::new();
        let workers = self.posts.count();
        patiently("a client of each worker", async {
            while clients.len() < workers {
                let before = self.look().await;
                let client = self.client().await;
                let after = self
                    .until("the connection to be accepted", |view| {
                        view.counters.connections_accepted > before.counters.connections_accepted
                    })
                    .await;
                let its = (0..workers)
                    .find(|index| after.workers[*index].connections > before.workers[*index].connections);
                clients.entry(its.unwrap()).or_insert(client);
            }
        })
        .await;
        (0..workers).map(|index| clients.remove(&index).unwrap()).collect()
    }

    pub(crate) fn sabotage(&self, worker: usize, how: Sabotage) {
        assert!(self.posts.send(worker, Command::Break(how)), "worker-{worker} takes no messages");
    }

    /// The apiserver answers whatever comes until it is so.
    pub(crate) async fn answers_until(&mut self, what: &str, is_so: impl Fn() -> bool) {
        patiently(what, async {
            while !is_so() {
                tokio::select! {
                    seen = self.stub.next() => seen.answer(text("served")),
                    () = tokio::time::sleep(Duration::from_millis(1)) => {}
                }
            }
        })
        .await;
    }

    /// Every worker is at work again.
    pub(crate) async fn until_whole(&self) -> View {
        self.until("all workers to serve", |view| {
            view.workers.iter().all(|worker| worker.state == State::Serving)
        })
        .await
    }

    /// Nothing is occupied, then the end.
    pub(crate) async fn done(mut self) {
        self.until("all seats to be free", |view| {
            view.snapshot.as_ref().is_none_or(|core| {
                core.levels.iter().all(|level| level.executing == 0 && level.seats_in_use == Seats(0))
            })
        })
        .await;
        self.crew.drain(Duration::ZERO);
        patiently("the end", self.crew.ended()).await.unwrap();
        assert!(TcpStream::connect(self.crew.addresses()[0]).await.is_err(), "nobody listens any more");
    }
}

/// Asks, and has the apiserver answer.
pub(crate) async fn served(ship: &mut Ship, client: &mut Client) {
    client.send(get("/x")).await;
    ship.stub.next().await.answer(text("served"));
    let answer = client.answer().await;
    assert_eq!((answer.status, &*answer.body), (200, "served"));
}

#[tokio::test]
async fn every_worker_serves_on_the_same_address() {
    let mut ship = Ship::new(4).await;
    let mut clients = ship.client_of_each().await;
    for client in &mut clients {
        served(&mut ship, client).await;
    }
    let view = ship.look().await;
    assert_eq!(view.workers.iter().map(|worker| worker.requests).collect::<Vec<_>>(), [1; 4]);
    assert_eq!(view.counters.requests, 4);
    assert!(usher::ring::bind(ship.address()).is_err(), "another usher is refused");
    assert!(usher::ring::bind_shared(ship.address(), 2).is_err(), "of many workers, too");
    ship.done().await;
}

#[tokio::test]
async fn a_panic_in_a_request_ends_that_request() {
    let mut ship = Ship::new(2).await;
    let mut clients = ship.client_of_each().await;
    let before = clients[0].0.local_addr().unwrap();
    ship.sabotage(0, Sabotage::Request);
    clients[0].send(get("/x")).await;
    let answer = clients[0].answer().await;
    assert_eq!(answer.status, 500);
    assert!(answer.body.contains(r#""kind":"Status""#) && answer.body.contains("panic"), "{}", answer.body);
    let mut client = clients.swap_remove(0);
    served(&mut ship, &mut client).await;
    assert_eq!(client.0.local_addr().unwrap(), before, "the connection goes on");
    let view = ship.look().await;
    assert_eq!((view.counters.panics_requests, view.counters.panics_connections), (1, 0));
    assert!(view.workers.iter().all(|worker| worker.deaths == 0));
    ship.done().await;
}

#[tokio::test]
async fn a_panic_in_a_stream_ends_that_stream() {
    let mut ship = Ship::new(1).await;
    let stream = TcpStream::connect(ship.address()).await.unwrap();
    let (mut client, connection) = hyper::client::conn::http2::handshake(
        hyper_util::rt::TokioExecutor::new(),
        hyper_util::rt::TokioIo::new(stream),
    )
    .await
    .unwrap();
    tokio::spawn(connection);
    let bystander = tokio::spawn(client.send_request(get2("/bystander")));
    let seen = ship.stub.next().await;
    ship.sabotage(0, Sabotage::Request);
    let answer = patiently("the 500", client.send_request(get2("/x"))).await.unwrap();
    assert_eq!(answer.status(), 500);
    seen.answer(text("served"));
    let answer = patiently("the bystander", bystander).await.unwrap().unwrap();
    assert_eq!(patiently("its body", answer.into_body().collect()).await.unwrap().to_bytes(), "served");
    ship.done().await;
}

#[tokio::test]
async fn a_panic_in_a_connection_ends_that_connection() {
    let mut ship = Ship::new(1).await;
    let (mut victim, mut bystander) = (ship.client().await, ship.client().await);
    served(&mut ship, &mut bystander).await;
    ship.sabotage(0, Sabotage::Connection);
    victim.send(get("/x")).await;
    assert_eq!(victim.read_all().await, "");
    served(&mut ship, &mut bystander).await;
    let view = ship.until("it to be gone", |view| view.counters.connections_open == 1).await;
    assert_eq!((view.counters.panics_requests, view.counters.panics_connections), (0, 1));
    assert_eq!(view.workers[0].deaths, 0);
    ship.done().await;
}

/// Worker 1 dies with a request under way; what others see of it.
async fn dies(workers: usize, how: Sabotage) {
    let mut ship = Ship::new(workers).await;
    let mut clients = ship.client_of_each().await;
    let mut under_way = Vec::new();
    for (index, client) in clients.iter_mut().enumerate() {
        client.send(get(&format!("/{index}"))).await;
        under_way.push(ship.stub.next().await);
    }
    ship.sabotage(1, how);
    let mut abandoned = under_way.remove(1);
    let mut victim = clients.remove(1);
    assert_eq!(victim.read_all().await, "", "its connection is closed");
    abandoned.abandoned().await;
    for (client, seen) in clients.iter_mut().zip(under_way) {
        seen.answer(text("served"));
        assert_eq!(client.answer().await.body, "served");
    }
    // Whether the place is taken again yet or not: who connects is served. More than one in so many goes to it.
    for _ in 0..8 * workers {
        let mut client = ship.client().await;
        served(&mut ship, &mut client).await;
    }
    let view = ship.until_whole().await;
    assert_eq!(view.workers[1].deaths, 1);
    assert_eq!(ship.burials.load(Ordering::Relaxed), 2, "when it died, and before its place was taken");
    assert_eq!(view.counters.requests, (workers + 8 * workers) as u64, "what the dead one counted stays");
    ship.until("connections to be gone", |view| view.counters.connections_open == workers as u64 - 1).await;
    ship.done().await;
}

#[tokio::test]
async fn a_worker_that_dies_takes_its_own_connections_with_it_and_comes_back() {
    for workers in [2, 4] {
        for how in [Sabotage::Loop, Sabotage::Core, Sabotage::Task] {
            println!("{workers} workers, {how:?}");
            dies(workers, how).await;
        }
    }
}

#[tokio::test]
async fn nobody_takes_the_place_of_a_worker_that_is_not_buried() {
    let mut ship = Ship::new(2).await;
    ship.hindered.store(true, Ordering::Relaxed);
    ship.sabotage(1, Sabotage::Loop);
    patiently("many tries to bury it", async {
        while ship.burials.load(Ordering::Relaxed) < 5 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let view = ship.look().await;
    assert!(matches!(view.workers[1].state, State::Restarting(_)), "{:?}", view.workers[1].state);
    ship.hindered.store(false, Ordering::Relaxed);
    ship.until_whole().await;
    let mut client = ship.client().await;
    served(&mut ship, &mut client).await;
    ship.done().await;
}

pub(crate) async fn pass(barrier: &Arc<Barrier>) {
    let barrier = Arc::clone(barrier);
    tokio::task::spawn_blocking(move || barrier.wait()).await.unwrap();
}

#[tokio::test]
async fn connections_that_a_dead_worker_never_accepted_are_served_by_the_next() {
    let mut ship = Ship::new(2).await;
    // While it stands still the kernel gives it connections; then it dies, with none of them accepted.
    let barrier = Arc::new(Barrier::new(2));
    ship.sabotage(0, Sabotage::Hold(Arc::clone(&barrier)));
    ship.sabotage(0, Sabotage::Loop);
    pass(&barrier).await;
    let mut clients = Vec::new();
    for _ in 0..16 {
        let mut client = ship.client().await;
        client.send(get("/x")).await;
        clients.push(client);
    }
    pass(&barrier).await;
    for _ in 0..clients.len() {
        ship.stub.next().await.answer(text("served"));
    }
    for client in &mut clients {
        assert_eq!(client.answer().await.body, "served");
    }
    let view = ship.until_whole().await;
    assert_eq!(view.workers[0].deaths, 1);
    assert!(view.workers[0].requests > 0, "{:?}", view.workers);
    ship.done().await;
}

#[tokio::test]
async fn the_last_worker_may_die_too_and_again_and_again() {
    let mut ship = Ship::new(1).await;
    for deaths in 1..=3 {
        ship.sabotage(0, Sabotage::Core);
        let mut client = ship.client().await;
        let view = ship.until("it to die", |view| view.workers[0].deaths == deaths).await;
        assert!(view.snapshot.is_none() || view.workers[0].state == State::Serving);
        let mut rest = [0];
        // Either it was accepted before, and closed, or it waits for the next.
        client.send(get("/x")).await;
        tokio::select! {
            seen = ship.stub.next() => {
                seen.answer(text("served"));
                assert_eq!(client.answer().await.body, "served");
            }
            end = client.0.read(&mut rest) => assert!(!matches!(end, Ok(1..)), "{end:?}"),
        }
        ship.until_whole().await;
    }
    ship.done().await;
}

#[tokio::test]
async fn connections_are_counted_over_all_workers() {
    let mut ship = Ship::with(2, |settings| settings.limits.connections = 3).await;
    let mut clients = vec![ship.client().await, ship.client().await, ship.client().await];
    ship.until("three to be open", |view| view.counters.connections_open == 3).await;
    // Wherever the kernel sends them, there is no room.
    let mut others = Vec::new();
    for _ in 0..8 {
        let mut other = ship.client().await;
        other.send(get("/x")).await;
        others.push(other);
    }
    served(&mut ship, &mut clients[0]).await;
    ship.until("both to be full", |view| view.counters.connections_refused_full >= 2).await;
    assert_eq!(ship.look().await.counters.connections_open, 3);
    assert!(ship.stub.is_idle());
    while !others.is_empty() {
        clients.pop(); // some other is let in
        ship.stub.next().await.answer(text("served"));
        let answered = others.iter().map(|other| Box::pin(other.0.readable()));
        let (_, served, _) = patiently("an answer", futures_util::future::select_all(answered)).await;
        clients.push(others.swap_remove(served));
    }
    ship.done().await;
}

#[tokio::test]
async fn requests_in_flight_are_counted_over_all_workers() {
    let limits = AdmissionSettings::InFlight { reading_max: 1, writing_max: 0 };
    let mut ship = Ship::with(2, |settings| settings.admission = limits).await;
    let mut clients = ship.client_of_each().await;
    clients[0].send(get("/api/v1/pods")).await;
    let seen = ship.stub.next().await;
    clients[1].send(get("/api/v1/pods")).await;
    assert_eq!(clients[1].answer().await.status, 429);
    seen.answer(text("served"));
    assert_eq!(clients[0].answer().await.status, 200);
    let mut second = clients.pop().unwrap();
    served(&mut ship, &mut second).await;
    ship.done().await;
}

#[tokio::test]
async fn others_are_served_while_a_worker_dies_under_load() {
    for workers in [2, 4] {
        let mut ship = Ship::new(workers).await;
        let mut clients = ship.client_of_each().await;
        let victim = clients.remove(1);
        let lives = clients.into_iter().map(|mut client| {
            tokio::spawn(async move {
                for _ in 0..50 {
                    client.send(get("/x")).await;
                    assert_eq!(client.answer().await.status, 200);
                }
            })
        });
        let mut lives = std::pin::pin!(futures_util::future::join_all(lives));
        let mut answered = 0;
        loop {
            tokio::select! {
                done = &mut lives => {
                    done.into_iter().for_each(|life| life.unwrap());
                    break;
                }
                seen = ship.stub.next() => {
                    seen.answer(text("served"));
                    answered += 1;
                    if answered == 10 {
                        ship.sabotage(1, Sabotage::Core);
                    }
                }
            }
        }
        drop(victim);
        let view = ship.until("it to come back", |view| {
            view.workers[1].deaths == 1 && view.workers[1].state == State::Serving
        });
        assert_eq!(view.await.counters.requests, 50 * (workers as u64 - 1));
        ship.done().await;
    }
}

#[tokio::test]
async fn the_shared_seat_of_a_worker_that_dies_goes_to_whoever_waits() {
    let mut ship = Ship::with(2, |settings| {
        settings.admission = AdmissionSettings::FlowControl { server_limit: Seats(1), together: None };
    })
    .await;
    let mut clients = ship.client_of_each().await;
    for _ in 0..3 {
        clients[0].send(get("/dies")).await;
        let held = ship.stub.next().await;
        clients[1].send(get("/waits")).await;
        let waits = |view: &View| {
            view.snapshot.as_ref().is_some_and(|core| core.levels.iter().any(|level| level.waiting == 1))
        };
        ship.until("the other to wait", waits).await;
        ship.sabotage(0, Sabotage::Loop);
        let next = ship.stub.next().await; // the seat was given back
        next.answer(text("served"));
        assert_eq!(clients[1].answer().await.status, 200);
        drop(held);
        ship.until_whole().await;
        clients = ship.client_of_each().await;
    }
    ship.done().await;
}
