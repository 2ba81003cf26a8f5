use std::io::Write;
use std::net::TcpStream;

use std::future::poll_fn;
use std::pin::Pin;

use tokio::io::AsyncReadExt;
use usher_flowcontrol::units::Nanos;

use super::*;

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
        let socket = bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
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
