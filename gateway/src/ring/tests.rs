use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use std::future::poll_fn;
use std::pin::Pin;

use bytes::Bytes;
use tokio::io::AsyncReadExt;
use usher_flowcontrol::units::Nanos;

use super::*;

/// With what `USHER_TEST_IO` and `USHER_TEST_FLAGS` ask for.
pub(super) fn settings(settings: Settings) -> Settings {
    let io = std::env::var("USHER_TEST_IO").map_or(Io::Auto, |name| name.parse().expect("USHER_TEST_IO"));
    let flags = std::env::var("USHER_TEST_FLAGS").unwrap_or_default();
    let slots = flags.split_whitespace().any(|flag| flag == "--ring-registered-files");
    Settings { io, registered_files: settings.registered_files.or(slots.then_some(512)), ..settings }
}

#[test]
fn a_turn_has_one_time_and_a_sleep_ends_when_it_says() {
    run(async {
        let (first, second) = (now(), now());
        assert_eq!(first, second, "the same turn");
        let until = first + Nanos::from_millis(5);
        sleep_until(until).await;
        assert!(now() >= until, "a later turn, {:?} after {:?}", now(), until);
    })
    .unwrap();
}

#[test]
fn a_hangup_is_seen_behind_unread_bytes_and_loses_none() {
    run(async {
        let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let listener = Listener::new(socket).unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let watched = stream.clone();

        client.write_all(b"unread").unwrap();
        let patience = sleep_until(now() + Nanos::from_millis(30));
        let mut patience = std::pin::pin!(patience);
        let hung_up = poll_fn(|cx| match watched.poll_hangup(cx) {
            std::task::Poll::Ready(()) => std::task::Poll::Ready(true),
            std::task::Poll::Pending => Future::poll(Pin::new(&mut patience), cx).map(|()| false),
        })
        .await;
        assert!(!hung_up, "bytes alone are no hangup");

        drop(client);
        poll_fn(|cx| watched.poll_hangup(cx)).await;
        let mut read = Vec::new();
        stream.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"unread");
    })
    .unwrap();
}

#[test]
fn a_mailbox_wakes_from_another_thread() {
    let (post, mut mailbox) = mailbox();
    let sender = std::thread::spawn(move || post.send(7).unwrap());
    let got = run(async { (mailbox.next().await, mailbox.next().await) }).unwrap();
    assert_eq!(got, (Some(7), None));
    sender.join().unwrap();
}

#[test]
fn what_is_put_is_sent_in_order_and_a_reader_that_stalls_is_seen() {
    run(async {
        let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let listener = Listener::new(socket).unwrap();
        let client = TcpStream::connect(address).unwrap();
        let (stream, _) = listener.accept().await.unwrap();

        let piece = Bytes::from((0..100_000).map(|n| (n % 251) as u8).collect::<Vec<_>>());
        let mut put = 0;
        let full = async {
            loop {
                poll_fn(|cx| stream.poll_room(cx)).await.unwrap();
                stream.put(b"head");
                stream.put_bytes(piece.clone());
                put += 1;
            }
        };
        assert!(within(Duration::from_millis(200), full).await.is_none(), "the client reads nothing");
        assert!(stream.unsent() > HIGH_WATER && stream.stalled_since().is_some());

        let reader = std::thread::spawn(move || {
            let mut read = Vec::new();
            std::io::Read::read_to_end(&mut &client, &mut read).map(|_| read)
        });
        poll_fn(|cx| stream.poll_close(cx)).await.unwrap();
        assert_eq!((stream.unsent(), stream.stalled_since()), (0, None));
        let read = reader.join().unwrap().unwrap();
        assert_eq!(read, [b"head", &piece[..]].concat().repeat(put));
    })
    .unwrap();
}

#[test]
fn a_connection_dropped_with_unsent_bytes_is_closed() {
    run(async {
        let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let listener = Listener::new(socket).unwrap();
        let client = TcpStream::connect(address).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        stream.put_bytes(vec![1; 16 << 20].into());
        sleep_until(now() + Nanos::from_millis(20)).await;
        assert!(stream.unsent() > 0);
        drop(stream);
        sleep_until(now() + Nanos::from_millis(20)).await;
        let mut read = Vec::new();
        let _ = std::io::Read::read_to_end(&mut &client, &mut read); // its end, or a reset
        assert!(read.len() < 16 << 20);
    })
    .unwrap();
}

#[test]
fn what_a_ring_cannot_have_it_goes_without_and_says_so() {
    let asked =
        |connections| Settings { io: Io::Uring, registered_files: connections, ..Settings::default() };
    for (connections, has, says) in [
        (None, false, "no registered files"),
        (Some(16), true, ", registered files"),
        (Some(u32::MAX), false, "no registered files, for with them there are not enough resources"),
    ] {
        let choice = choose(&asked(connections)).unwrap();
        assert!(choice.reason.contains(says), "{}", choice.reason);
        assert_eq!(choice.settings(asked(connections)).registered_files.is_some(), has);
    }
}
