use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use usher_flowcontrol::units::Nanos;

use crate::ring::{Io, Listener, Settings, bind, now, run_with, sleep_until};

const MOMENT: Nanos = Nanos::from_millis(2);

/// A connection within a moment. The ring has been asked for one when this is back.
async fn accepted(listener: &Listener) -> bool {
    tokio::select! {
        accepted = listener.accept() => accepted.is_ok(),
        () = sleep_until(now() + MOMENT) => false,
    }
}

/// Two processes have a socket; the first lets go of it when a connection has just come.
#[test]
fn a_connection_that_a_ring_was_told_of_and_does_not_take_waits_for_nobody() {
    let settings = Settings { io: Io::Uring, ..Settings::default() };
    let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (address, shared) = (socket.local_addr().unwrap(), socket.try_clone().unwrap());
    let ((asked, is_asked), (come, has_come)) = (mpsc::channel(), mpsc::channel());

    let (with, tell) = (settings.clone(), asked.clone());
    let first = std::thread::spawn(move || {
        let work = async {
            let listener = Listener::new(socket).unwrap();
            assert!(!accepted(&listener).await);
            tell.send(()).unwrap();
            has_come.recv().unwrap(); // in the midst of a turn: what the kernel has to say waits
            let mut served = 0;
            while listener.rest().await.is_some() {
                served += 1;
            }
            served
        };
        run_with(&with, work).unwrap()
    });
    is_asked.recv().unwrap();

    let (over, is_over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (end, taken) = (Arc::clone(&over), Arc::clone(&is_over));
    let second = std::thread::spawn(move || {
        let work = async {
            let listener = Listener::new(shared).unwrap();
            assert!(!accepted(&listener).await);
            asked.send(()).unwrap();
            while !end.load(Ordering::SeqCst) {
                if accepted(&listener).await {
                    taken.store(true, Ordering::SeqCst);
                }
            }
        };
        run_with(&settings, work).unwrap();
    });
    is_asked.recv().unwrap();

    let client = TcpStream::connect(address).unwrap();
    come.send(()).unwrap();
    let mut served = first.join().unwrap();
    for _ in 0..2_000 {
        if served > 0 || is_over.load(Ordering::SeqCst) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    served += u32::from(is_over.load(Ordering::SeqCst));
    over.store(true, Ordering::SeqCst);
    second.join().unwrap();
    drop(client);
    assert_eq!(served, 1, "one of the two has taken it");
}
