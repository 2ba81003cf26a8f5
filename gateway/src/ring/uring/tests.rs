//! The driver where it hurts: connections dropped at every step, rings too small, peers that do not read.
//!
//! Those with one ring run under valgrind too (`valgrind target/debug/deps/usher-… ring::uring::tests::connections_can
//! --test-threads=1`, two minutes, no errors). Those with two do not: valgrind 3.19 keeps its lock while a thread
//! waits in `io_uring_enter`.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use usher_flowcontrol::units::Nanos;

use super::queue::Wait;
use super::waiting::{MANY, SEVERAL};
use super::*;
use crate::ring::{
    Chunk, Io, Listener, Stream, bind, connect, look, mailbox, now, sleep_until, spawn, within,
};

/// A ring on which everything runs out at once.
const TINY: Settings = Settings {
    io: Io::Uring,
    entries: 8,
    buffers: 8,
    buffer_size: 1024,
    sqpoll: None,
    busy_poll: 0,
    min_wait: 0,
    spin: 0,
    zero_copy_from: None,
    registered_files: None,
};

/// With few slots connections are accepted one by one, with many whatever comes.
const SLOTS: [Settings; 2] = [
    Settings { registered_files: Some(64), ..TINY },
    Settings { registered_files: Some(10_000), entries: 256, buffers: 64, buffer_size: 4096, ..TINY },
];

fn run<T>(settings: &Settings, future: impl Future<Output = T>) -> T {
    permit_many_slots();
    let settings = Settings { io: settings.io, ..crate::ring::tests::settings(settings.clone()) };
    super::run(&settings, future).unwrap()
}

/// The kernel permits as many slots as descriptors.
fn permit_many_slots() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads and writes the one `rlimit` that it is lent.
    let raised = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit)
    };
    assert_eq!(raised, 0);
}

fn listen() -> (Listener, SocketAddr) {
    let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (Listener::new(socket).unwrap(), address)
}

/// So many turns with nothing else to do.
async fn turns(count: usize) {
    for _ in 0..count {
        sleep_until(now() + Nanos(50_000)).await;
    }
}

async fn recv(stream: &Stream) -> io::Result<Chunk> {
    poll_fn(|cx| stream.poll_recv(cx)).await
}

async fn recv_all(stream: &Stream) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        match recv(stream).await {
            Ok(chunk) if !chunk.is_empty() => all.extend_from_slice(&chunk),
            _ => return all,
        }
    }
}

fn pattern(seed: usize, len: usize) -> Bytes {
    let period: Vec<u8> = (0..251).map(|n| u8::try_from((n * 31 + seed * 7) % 251).unwrap()).collect();
    let mut bytes = period.repeat(len / period.len() + 1);
    bytes.truncate(len);
    bytes.into()
}

/// Places in use and operations in flight.
fn held() -> (usize, usize) {
    let driver = current().unwrap();
    let places = driver.table.borrow().len();
    (places, driver.in_flight.get())
}

/// Waits until nothing is held but the bell, and what a listener needs.
async fn nothing_is_held_but(wanted: (usize, usize)) {
    for _ in 0..2000 {
        if held() == wanted {
            return;
        }
        turns(1).await;
    }
    assert_eq!(held(), wanted, "places and operations");
}

/// Slots of the ring's table that are filled, or promised.
fn slots_in_use() -> usize {
    current().unwrap().slots.as_ref().map_or(0, |slots| slots.in_use())
}

/// Where a connection is dropped.
#[derive(Clone, Copy, Debug)]
enum Step {
    Accepted,
    Receiving,
    WithChunks,
    Put,
    HalfSent,
    Sent,
    Watching,
    Paused,
    Closing,
    Aborted,
    HalfClosed,
}

const STEPS: [Step; 11] = [
    Step::Accepted,
    Step::Receiving,
    Step::WithChunks,
    Step::Put,
    Step::HalfSent,
    Step::Sent,
    Step::Watching,
    Step::Paused,
    Step::Closing,
    Step::Aborted,
    Step::HalfClosed,
];

/// Brings a connection there, and leaves it. What is returned is held for longer than the connection.
async fn drop_at(step: Step, stream: Stream, mut client: TcpStream) -> Vec<Chunk> {
    let never = |_: &mut Context<'_>| Poll::<()>::Pending;
    let moment = Duration::from_micros(200);
    let mut held = Vec::new();
    match step {
        Step::Accepted => {}
        Step::Receiving => {
            assert!(within(moment, recv(&stream)).await.is_none());
        }
        Step::WithChunks => {
            client.write_all(&pattern(1, 3000)).unwrap();
            let mut chunk = recv(&stream).await.unwrap();
            let half = chunk.len() / 2;
            held.extend([chunk.split_to(half), chunk]);
        }
        Step::Put => stream.put_bytes(pattern(2, 5000)),
        Step::HalfSent => {
            stream.put_bytes(pattern(3, 8 << 20)); // more than loopback holds
            turns(2).await;
            assert!(stream.unsent() > 0 && stream.stalled_since().is_some());
        }
        Step::Sent => {
            stream.put(b"all");
            poll_fn(|cx| stream.poll_sent(cx)).await.unwrap();
        }
        Step::Watching => {
            client.write_all(b"unread").unwrap();
            let watching = poll_fn(|cx| stream.poll_hangup(cx));
            assert!(within(moment, watching).await.is_none());
        }
        Step::Paused => {
            client.set_nonblocking(true).unwrap();
            let _ = client.write(&pattern(4, 1 << 20));
            let _ = within(moment, poll_fn(|cx| stream.poll_hangup(cx))).await;
            let _ = within(moment, poll_fn(never)).await;
            let _ = within(moment, poll_fn(|cx| stream.poll_hangup(cx))).await;
        }
        Step::Closing => {
            stream.put_bytes(pattern(5, 8 << 20));
            assert!(within(moment, poll_fn(|cx| stream.poll_close(cx))).await.is_none());
        }
        Step::Aborted => {
            stream.put_bytes(pattern(6, 8 << 20));
            turns(1).await;
            stream.abort();
        }
        Step::HalfClosed => {
            client.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(recv(&stream).await.unwrap().is_empty());
        }
    }
    held
}

#[test]
fn connections_can_be_dropped_at_every_step() {
    for settings in [
        TINY,
        Settings { io: Io::Uring, zero_copy_from: Some(4096), ..Settings::default() },
        Settings { io: Io::Uring, min_wait: 30, spin: 30, ..Settings::default() },
    ]
    .into_iter()
    .chain(SLOTS)
    {
        run(&settings, async {
            let (listener, address) = listen();
            let mut kept = Vec::new();
            for round in 0..100 {
                for step in STEPS {
                    let client = TcpStream::connect(address).unwrap();
                    let (stream, _) = listener.accept().await.unwrap();
                    let chunks = drop_at(step, stream, client).await;
                    if round % 10 == 0 {
                        kept.extend(chunks);
                    }
                }
            }
            drop(listener);
            nothing_is_held_but((0, 1)).await;
            assert_eq!(slots_in_use(), 0);
            kept
        });
    }
}

#[test]
fn many_connections_can_be_dropped_at_once_and_with_their_ring() {
    let slots = Settings { registered_files: Some(600), ..Settings::default() };
    for (ends_with_its_ring, settings) in
        [(false, Settings::default()), (true, Settings::default()), (false, slots.clone()), (true, slots)]
    {
        let kept = run(&Settings { io: Io::Uring, ..settings }, async {
            let (listener, address) = listen();
            let mut clients = Vec::new();
            let mut kept = Vec::new();
            for n in 0..600 {
                let mut client = TcpStream::connect(address).unwrap();
                client.write_all(&pattern(n, 500)).unwrap();
                clients.push(client);
                let (stream, _) = listener.accept().await.unwrap();
                stream.put_bytes(pattern(n, 100_000));
                spawn(async move {
                    while recv(&stream).await.is_ok_and(|chunk| !chunk.is_empty()) {}
                    let _ = within(Duration::from_millis(1), poll_fn(|cx| stream.poll_close(cx))).await;
                });
                if n % 100 == 0 {
                    let (stream, _) = {
                        clients.push(TcpStream::connect(address).unwrap());
                        clients.last_mut().unwrap().write_all(b"kept").unwrap();
                        listener.accept().await.unwrap()
                    };
                    kept.push((recv(&stream).await.unwrap(), stream));
                }
            }
            if !ends_with_its_ring {
                drop(clients); // all at once
                let streams = kept.len();
                nothing_is_held_but((streams + 1, 2)).await;
            }
            kept
        });
        for (mut chunk, stream) in kept {
            chunk.make_ascii_uppercase();
            assert_eq!(&*chunk, b"KEPT", "a chunk outlives its ring");
            drop(stream); // and so does a connection, useless as it is
        }
    }
}

#[test]
fn connecting_can_be_given_up() {
    // A listener whose backlog is full leaves further connections waiting.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    run(&TINY, async {
        let mut waiting = 0;
        for _ in 0..100 {
            waiting += usize::from(within(Duration::from_micros(500), connect(address)).await.is_none());
        }
        assert!(waiting > 90, "{waiting} connections waited");
        nothing_is_held_but((0, 1)).await;
        // The ring may end while one is waiting.
        spawn(async move { drop(connect(address).await) });
        turns(1).await;
        assert_eq!(held(), (1, 2));
    });
}

#[test]
fn a_refused_connection_is_an_error() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    run(&TINY, async {
        let error = connect(address).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        nothing_is_held_but((0, 1)).await;
    });
}

#[test]
fn listeners_can_be_dropped_with_connections_that_nobody_took() {
    run(&TINY, async {
        for _ in 0..50 {
            let (listener, address) = listen();
            let waits = within(Duration::from_micros(100), listener.accept()).await;
            assert!(waits.is_none());
            let clients: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
            turns(2).await;
            drop(listener);
            nothing_is_held_but((0, 1)).await;
            turns(1).await; // slots are closed at a turn's end
            for mut client in clients {
                let gone = client.read(&mut [0]);
                assert!(matches!(gone, Ok(0) | Err(_)), "{gone:?}");
            }
        }
    });
}

#[test]
fn connections_that_nobody_asks_for_stay_with_the_kernel() {
    run(&Settings { io: Io::Uring, ..Settings::default() }, async {
        let (listener, address) = listen();
        let mut clients = vec![TcpStream::connect(address).unwrap()];
        let _first = listener.accept().await.unwrap();
        turns(1).await;
        clients.extend((0..3).map(|_| TcpStream::connect(address).unwrap()));
        turns(3).await;
        clients.extend((0..50).map(|_| TcpStream::connect(address).unwrap()));
        turns(3).await;
        assert_eq!(held(), (2, 1), "accepting has stopped");
        for _ in 0..53 {
            listener.accept().await.unwrap();
        }
    });
}

#[test]
fn no_more_are_accepted_than_there_is_room_for() {
    run(&Settings { io: Io::Uring, ..Settings::default() }, async {
        let (listener, address) = listen();
        // With room for all that may come they are all asked for; then the room is gone.
        assert!(within(Duration::from_micros(100), listener.accept()).await.is_none());
        assert!(within(Duration::from_micros(100), listener.accept_into(3)).await.is_none());
        turns(3).await;
        let before = look().completions;
        let clients: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut taken = Vec::new();
        for room in (1..=3).rev() {
            taken.push(listener.accept_into(room).await.unwrap());
            turns(3).await;
        }
        assert_eq!(held(), (1 + taken.len(), 1), "nobody is accepted any more");
        let each = if current().unwrap().features.slots { 2 } else { 1 }; // peers are asked for
        assert_eq!(look().completions, before + 3 * each, "one by one");
        // There is room again.
        for _ in taken.len()..clients.len() {
            taken.push(listener.accept().await.unwrap());
        }
    });
}

#[test]
fn connections_in_slots_know_their_peers() {
    for (settings, address) in SLOTS.into_iter().zip(["127.0.0.1:0", "[::1]:0"]) {
        run(&settings, async {
            let socket = bind(address.parse().unwrap()).unwrap();
            let address = socket.local_addr().unwrap();
            let listener = Listener::new(socket).unwrap();
            let clients: Vec<_> = (0..50).map(|_| TcpStream::connect(address).unwrap()).collect();
            let mut streams = Vec::new();
            for client in &clients {
                let (stream, peer) = listener.accept().await.unwrap();
                assert_eq!(peer, client.local_addr().unwrap());
                streams.push(stream);
            }
            turns(2).await;
            assert!((50..=51).contains(&slots_in_use()), "{} slots", slots_in_use());
        });
    }
}

#[test]
fn a_table_of_slots_that_is_full_loses_no_connection() {
    run(&Settings { registered_files: Some(0), ..TINY }, async {
        let (listener, address) = listen();
        let mut clients: Vec<_> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
        let size = current().unwrap().slots.as_ref().unwrap().free();
        let mut streams = VecDeque::new();
        while streams.len() < size {
            streams.push_back(listener.accept().await.unwrap().0);
        }
        let further = within(Duration::from_millis(5), listener.accept()).await;
        assert!(further.is_none() && slots_in_use() == size, "{} of {size} slots", slots_in_use());
        for (left, client) in (0..clients.len()).rev().zip(&mut clients) {
            let stream = streams.pop_front().unwrap();
            stream.put(b"served");
            poll_fn(|cx| stream.poll_close(cx)).await.unwrap();
            drop(stream);
            turns(1).await;
            let mut all = Vec::new();
            client.read_to_end(&mut all).unwrap();
            assert_eq!(all, b"served");
            if left > streams.len() {
                streams.push_back(listener.accept().await.unwrap().0); // now there is room for another one
            }
        }
        assert!(streams.is_empty());
    });
}

#[test]
fn a_slot_is_shut_down_for_nobody_but_its_own_connection() {
    run(&Settings { registered_files: Some(0), ..TINY }, async {
        let (listener, address) = listen();
        let mut others = Vec::new();
        while current().unwrap().slots.as_ref().unwrap().free() > 1 {
            others.push((TcpStream::connect(address).unwrap(), listener.accept().await.unwrap()));
        }
        for n in 0..500 {
            let mut clients = [(); 2].map(|()| TcpStream::connect(address).unwrap());
            let mut got = Vec::new();
            let (first, _) = listener.accept().await.unwrap();
            first.put(b"first");
            poll_fn(|cx| first.poll_sent(cx)).await.unwrap();
            let closes = poll_fn(|cx| Poll::Ready(first.poll_close(cx).is_pending())).await;
            assert!(closes, "a thread of the kernel's does it");
            drop(first);
            let before = slots_in_use();
            current().unwrap().end_turn();
            assert_eq!(slots_in_use(), before, "closed too early");
            // There are two slots at most that it can have.
            let (second, _) = listener.accept().await.unwrap();
            turns(1).await;
            second.put_bytes(pattern(n, 3000));
            poll_fn(|cx| second.poll_sent(cx)).await.unwrap();
            drop(second);
            turns(1).await;
            clients[0].read_to_end(&mut got).unwrap();
            assert_eq!(got, b"first");
            got.clear();
            clients[1].read_to_end(&mut got).unwrap();
            assert!(got == pattern(n, 3000), "{} bytes in round {n}", got.len());
        }
        drop((listener, others));
        nothing_is_held_but((0, 1)).await;
        turns(1).await;
        assert_eq!(slots_in_use(), 0);
    });
}

/// Every connection sends its own bytes back, until its peer is done.
async fn echo(listener: Listener) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        spawn(async move {
            loop {
                poll_fn(|cx| stream.poll_room(cx)).await.unwrap();
                let chunk = recv(&stream).await.unwrap();
                if chunk.is_empty() {
                    return poll_fn(|cx| stream.poll_close(cx)).await.unwrap();
                }
                stream.put(&chunk);
            }
        });
    }
}

/// Clients on a ring of their own, each with its own bytes; the ring under test echoes them.
fn exchange(settings: &Settings, clients: usize, len: usize) -> Look {
    let (post, mut done) = mailbox::<()>();
    let (tell, told) = std::sync::mpsc::channel();
    let clients = std::thread::spawn(move || {
        let address: SocketAddr = told.recv().unwrap();
        run(&Settings { io: Io::Uring, ..Settings::default() }, async {
            let left = Rc::new(Cell::new(clients));
            for n in 0..clients {
                let left = Rc::clone(&left);
                spawn(async move {
                    let stream = connect(address).await.unwrap();
                    let bytes = pattern(n, len);
                    stream.put_bytes(bytes.clone());
                    let back = async {
                        let mut back = Vec::new();
                        while back.len() < len {
                            back.extend_from_slice(&recv(&stream).await.unwrap());
                        }
                        back
                    };
                    assert!(back.await == bytes, "what came back is not what was sent");
                    left.set(left.get() - 1);
                });
            }
            while left.get() > 0 {
                turns(20).await;
            }
        });
        drop(post);
    });
    let looked = run(settings, async {
        let (listener, address) = listen();
        tell.send(address).unwrap();
        spawn(echo(listener));
        assert!(done.next().await.is_none());
        look()
    });
    clients.join().unwrap();
    looked
}

#[test]
fn a_ring_that_is_too_small_for_everything_loses_nothing() {
    let look = exchange(&TINY, 64, 300_000);
    assert!(look.chunks_copied > 0, "{look:?}");
    assert!(look.buffers_exhausted > 0, "{look:?}");
}

#[test]
fn a_ring_with_other_settings_loses_nothing() {
    let others = [Settings { min_wait: 100, ..TINY }, Settings { spin: 100, ..TINY }];
    for settings in others.into_iter().chain(SLOTS) {
        exchange(&settings, 64, 100_000);
    }
}

#[test]
fn a_lone_completion_waits_for_no_others() {
    run(&Settings { io: Io::Uring, min_wait: 100, ..Settings::default() }, async {
        let driver = current().unwrap();
        let several = Wait::ForMany { most: MANY, micros: 100 };
        for (batch, wait) in [(0, Wait::ForOne), (1, Wait::ForOne), (SEVERAL, several)] {
            driver.batch.set(batch);
            let wanted = if driver.features.min_wait { wait } else { Wait::ForOne };
            assert_eq!(driver.patience(), wanted, "after {batch} at once");
        }
    });
}

#[test]
fn sends_without_copies_arrive_whole() {
    let look =
        exchange(&Settings { zero_copy_from: Some(1), io: Io::Uring, ..Settings::default() }, 8, 200_000);
    assert!(look.sends_zero_copy > 0, "{look:?}");
}

#[test]
fn completions_that_the_queue_has_no_room_for_are_not_lost() {
    run(&TINY, async {
        let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        socket2::SockRef::from(&socket).set_send_buffer_size(16 << 10).unwrap(); // what it accepts inherits it
        let listener = Listener::new(socket).unwrap();
        let mut clients: Vec<_> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut streams = Vec::new();
        for _ in 0..clients.len() {
            streams.push(listener.accept().await.unwrap().0);
        }
        // All wait to receive; then all have received, while the worker was busy.
        for stream in &streams {
            let waits = poll_fn(|cx| Poll::Ready(stream.poll_recv(cx).is_pending())).await;
            assert!(waits);
        }
        turns(2).await;
        clients.iter_mut().for_each(|client| client.write_all(b"now").unwrap());
        for stream in &streams {
            assert_eq!(&*recv(stream).await.unwrap(), b"now");
        }
        // More sends fall short at once than there is room for.
        let big = pattern(1, 1 << 20);
        streams.iter().for_each(|stream| stream.put_bytes(big.clone()));
        turns(3).await;
        assert!(streams.iter().all(|stream| stream.unsent() > 0));
        assert!(look().overflows > 0, "{:?}", look());
        for (stream, client) in streams.iter().zip(clients).take(5) {
            let reader = std::thread::spawn(move || {
                let mut all = Vec::new();
                (&client).take(1 << 20).read_to_end(&mut all).unwrap();
                all
            });
            poll_fn(|cx| stream.poll_sent(cx)).await.unwrap();
            assert!(reader.join().unwrap() == big);
        }
    });
}

#[test]
fn whoever_does_not_read_is_paused_and_loses_nothing() {
    run(&Settings { io: Io::Uring, ..Settings::default() }, async {
        let (listener, address) = listen();
        let client = TcpStream::connect(address).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let bytes = pattern(9, 20 << 20);
        let sent = bytes.clone();
        let writer = std::thread::spawn(move || (&client).write_all(&sent).unwrap());
        let _ = within(Duration::from_millis(50), poll_fn(|cx| stream.poll_hangup(cx))).await;
        turns(20).await;
        let ahead = look();
        turns(20).await;
        assert!(look().completions < ahead.completions + 50, "it receives on: {:?} {ahead:?}", look());
        assert_eq!(stream.received(), 0);
        assert!(recv_all(&stream).await == bytes);
        writer.join().unwrap();
    });
}

#[test]
fn the_end_is_seen_behind_more_than_is_received_ahead() {
    run(&Settings { io: Io::Uring, ..Settings::default() }, async {
        let (listener, address) = listen();
        let mut client = TcpStream::connect(address).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let bytes = pattern(9, 150_000);
        client.write_all(&bytes).unwrap();
        let early = within(Duration::from_millis(20), poll_fn(|cx| stream.poll_hangup(cx))).await;
        assert!(early.is_none(), "bytes alone are no hangup");
        drop(client);
        poll_fn(|cx| stream.poll_hangup(cx)).await;
        assert!(recv_all(&stream).await == bytes);
    });
}

#[test]
fn one_ring_wakes_another_by_a_message() {
    let (post, mut heard) = mailbox::<u32>();
    let (answer, mut answered) = mailbox::<u32>();
    let settings = Settings { io: Io::Uring, ..Settings::default() };
    let with = settings.clone();
    let other = std::thread::spawn(move || {
        run(&with, async {
            while let Some(number) = heard.next().await {
                answer.send(number + 1).unwrap();
            }
            look().messages
        })
    });
    let messages = run(&settings, async move {
        for number in 0..1000 {
            post.send(number).unwrap();
            assert_eq!(answered.next().await, Some(number + 1));
        }
        look().messages
    });
    assert!(messages > 0 && other.join().unwrap() > 0);
}

#[test]
fn a_ring_that_is_gone_is_not_woken() {
    let settings = Settings { io: Io::Uring, ..Settings::default() };
    let (post, mut heard) = mailbox::<()>();
    let waker = run(&settings, async move {
        let waiting = within(Duration::from_millis(1), heard.next()).await;
        assert!(waiting.is_none());
        poll_fn(|cx| Poll::Ready(cx.waker().clone())).await
    });
    assert!(post.send(()).is_err());
    waker.wake_by_ref();
    run(&settings, async {
        waker.wake_by_ref();
        turns(2).await;
    });
}

#[test]
fn a_task_that_panics_ends_alone_and_tasks_end_with_their_ring() {
    struct Gone(Rc<Cell<u32>>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            spawn(async {}); // nobody takes it any more
        }
    }
    let gone = Rc::new(Cell::new(0));
    run(&TINY, async {
        for n in 0..10 {
            let guard = Gone(Rc::clone(&gone));
            spawn(async move {
                let _guard = guard;
                turns(1).await;
                assert!(n % 2 == 0, "a panic that is meant");
                pending::<()>().await;
            });
        }
        turns(4).await;
        assert_eq!(gone.get(), 5, "those that panicked");
    });
    assert_eq!(gone.get(), 10);
}
