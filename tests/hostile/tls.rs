//! Trouble below HTTP: handshakes that stall, storm, are too long or none at all, and what TLS allows beside data.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
use rustls_pki_types::ServerName;

use crate::bystander::beside_a_bystander;
use crate::raw::Raw;
use crate::upstream::Upstream;
use crate::usher::{PATIENCE, Setup, Usher, until};

const PATH: &str = "/api/v1/namespaces/default/configmaps/x";

fn socket(usher: &Usher) -> TcpStream {
    let socket = TcpStream::connect(usher.address).expect("usher listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    socket.set_nodelay(true).expect("no delay");
    socket
}

/// A client that is driven by hand.
fn client(usher: &Usher, config: Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(config, ServerName::IpAddress(usher.address.ip().into())).expect("a client")
}

/// What the client has to say now.
fn flight(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).expect("in memory");
    }
    bytes
}

/// Says the first word, and hears usher's.
fn half_done(usher: &Usher) -> (ClientConnection, TcpStream) {
    let (mut client, mut socket) = (client(usher, usher.tls(None, &[b"http/1.1"])), socket(usher));
    socket.write_all(&flight(&mut client)).expect("usher reads");
    while client.is_handshaking() {
        assert!(client.read_tls(&mut socket).expect("usher answers") > 0, "usher hung up");
        client.process_new_packets().expect("TLS");
    }
    (client, socket)
}

fn is_served(usher: &Usher) {
    let mut client = usher.connect();
    client.get(PATH, "alice");
    assert_eq!(client.answer().expect("served").status, 200);
}

/// Usher hangs up, whether or not it says something before.
fn is_hung_up_on(mut socket: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return said,
            Ok(read) => said.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return said,
            Err(error) => panic!("usher keeps the connection: {error}"),
        }
    }
}

fn failed(usher: &Usher, reason: &str) -> f64 {
    usher.metric("usher_handshakes_failed_total", &format!("reason=\"{reason}\""))
}

fn failed_in_all(usher: &Usher) -> f64 {
    usher.metric("usher_handshakes_failed_total", "")
}

/// So many handshakes failed for that reason, and none for another.
fn assert_failed(usher: &Usher, reason: &str, times: f64) {
    until("the failure is counted", || failed(usher, reason) > times - 0.5);
    assert!((failed(usher, reason) - times).abs() < 0.5, "{reason}: {}", failed(usher, reason));
    assert!((failed_in_all(usher) - times).abs() < 0.5, "others than {reason}");
}

#[test]
fn half_done_handshakes_hold_nobody_up_and_the_oldest_goes() {
    let upstream = Upstream::start();
    let usher =
        Setup::new(upstream.address).flag("--max-handshakes=4").flag("--handshake-timeout=1h").start();
    let stalled: Vec<_> = (0..20).map(|_| half_done(&usher)).collect();
    assert!((usher.metric("usher_handshakes_half_done", "") - 4.0).abs() < 0.5);
    assert_failed(&usher, "crowded", 16.0);
    is_served(&usher); // and takes a fifth's place
    assert_failed(&usher, "crowded", 17.0);
    drop(stalled);
    until("none is half done", || usher.metric("usher_handshakes_half_done", "") < 0.5);
    usher.all_seats_are_back();
}

#[test]
fn a_stall_in_any_flight_has_an_end() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).flag("--handshake-timeout=1s").start();
    let hello = flight(&mut client(&usher, usher.tls(None, &[])));
    let beginnings = [&hello[..0], &hello[..1], &hello[..5], &hello[..hello.len() - 1], &hello];
    let mut stalled: Vec<TcpStream> = Vec::new();
    for beginning in beginnings {
        let mut socket = socket(&usher);
        socket.write_all(beginning).expect("usher reads");
        stalled.push(socket);
    }
    let (mut client, mut socket) = half_done(&usher);
    let last = flight(&mut client);
    socket.write_all(&last[..last.len() - 1]).expect("usher reads");
    stalled.push(socket);
    let times = stalled.len();
    stalled.into_iter().for_each(|socket| drop(is_hung_up_on(socket)));
    assert_failed(&usher, "time-out", f64::from(u32::try_from(times).expect("few")));
    usher.all_seats_are_back();
}

#[test]
fn a_hello_may_come_byte_by_byte_and_in_pieces() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let mut config = (*usher.tls(None, &[b"http/1.1"])).clone();
    config.max_fragment_size = Some(64); // a hello of many records
    let (mut client, mut socket) = (client(&usher, Arc::new(config)), socket(&usher));
    while client.is_handshaking() {
        for byte in flight(&mut client) {
            socket.write_all(&[byte]).expect("usher reads");
        }
        client.read_tls(&mut socket).expect("usher answers");
        client.process_new_packets().expect("TLS");
    }
    let mut stream = StreamOwned::new(client, socket);
    write!(stream, "GET {PATH} HTTP/1.1\r\nHost: usher\r\nAuthorization: Bearer alice\r\n\r\n")
        .expect("usher reads");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200");
    assert!(failed_in_all(&usher) < 0.5);
    usher.all_seats_are_back();
}

/// Storms in which somebody else must have been served some times.
const STORMS_MAX: usize = 5;

/// Four hundred hellos at once; then everybody goes on.
fn storm(usher: &Usher, config: &Arc<ClientConfig>) {
    let mut storm: Vec<_> = (0..400).map(|_| (client(usher, Arc::clone(config)), socket(usher))).collect();
    for (client, socket) in &mut storm {
        socket.write_all(&flight(client)).expect("usher reads");
    }
    for (client, socket) in &mut storm {
        while client.is_handshaking() {
            assert!(client.read_tls(socket).expect("usher answers") > 0, "usher hung up");
            client.process_new_packets().expect("TLS");
        }
        socket.write_all(&flight(client)).expect("usher reads");
    }
}

#[test]
fn a_storm_of_handshakes_leaves_requests_their_turns() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let config = usher.tls(None, &[b"http/1.1"]);
    let (over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let bystander = scope.spawn(|| {
            let mut client = usher.connect();
            while !over.load(Ordering::SeqCst) {
                client.get(PATH, "master");
                assert_eq!(client.answer().expect("served").status, 200);
                served.fetch_add(1, Ordering::SeqCst);
            }
        });
        // How often the machine lets the bystander ask is not ours to say: it may take some storms.
        let storms =
            (0..STORMS_MAX).take_while(|_| served.load(Ordering::SeqCst) <= 10 && !bystander.is_finished());
        storms.for_each(|_| storm(&usher, &config));
        over.store(true, Ordering::SeqCst);
        bystander.join().expect("the bystander is served all the while");
    });
    let served = served.into_inner();
    assert!(served > 10, "{served} requests during {STORMS_MAX} storms of handshakes");
    assert!(usher.metric("usher_handshakes_delayed_total", "") > 0.5, "they took turns");
    assert!(failed(&usher, "crowded") < 0.5, "honest ones are not cut");
    usher.all_seats_are_back();
}

#[test]
fn plain_http_is_told_what_it_did() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let mut socket = socket(&usher);
    socket.write_all(format!("GET {PATH} HTTP/1.1\r\nHost: usher\r\n\r\n").as_bytes()).expect("usher reads");
    assert_eq!(
        String::from_utf8_lossy(&is_hung_up_on(socket)),
        "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
    );
    assert_failed(&usher, "not-tls", 1.0);
    assert!(upstream.seen().is_empty());
    usher.all_seats_are_back();
}

#[test]
fn every_failure_has_its_reason() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let mut expected = 0.0;
    let mut one_more = |reason: &str| {
        expected += 1.0;
        until("the failure is counted", || failed(&usher, reason) > 0.5);
        assert!((failed_in_all(&usher) - expected).abs() < 0.5, "{reason} and nothing else");
    };
    let hello = flight(&mut client(&usher, usher.tls(None, &[])));

    // Early close.
    let mut gone = socket(&usher);
    gone.write_all(&hello[..20]).expect("usher reads");
    gone.shutdown(Shutdown::Both).expect("open");
    one_more("closed");

    // Another protocol.
    let mut other = socket(&usher);
    other.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n").expect("usher reads");
    is_hung_up_on(other);
    one_more("not-tls");

    // No version in common: a hello of SSL 3 (RFC 6101 5.6.1.2).
    let mut old = socket(&usher);
    let mut body = vec![3, 0];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0, 0x2f, 1, 0]);
    let length = u8::try_from(body.len()).expect("short");
    let record = [&[22, 3, 0, 0, length + 4, 1, 0, 0, length], &body[..]].concat();
    old.write_all(&record).expect("usher reads");
    is_hung_up_on(old);
    one_more("incompatible");

    // A second flight that is forged.
    let (mut half, mut forged) = half_done(&usher);
    let mut last = flight(&mut half);
    *last.last_mut().expect("a flight") ^= 1;
    forged.write_all(&last).expect("usher reads");
    is_hung_up_on(forged);
    one_more("protocol");

    // A client that does not know our authority.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let stranger = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions that the provider has")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    assert!(Raw::greet(socket(&usher), Arc::new(stranger)).is_none());
    one_more("refused");
    is_served(&usher);
    usher.all_seats_are_back();
}

#[test]
fn chains_of_certificates_have_a_limit() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let greet = |length: usize| {
        let (certificate, key) = usher.authority().client("bob", &["system:masters"], -1..10);
        let one = certificate.len();
        let mut roots = RootCertStore::empty();
        roots.add(usher.authority().certificate()).expect("an authority");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions that the provider has")
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate; length / one], key)
            .expect("a key that fits its certificate");
        let mut stream = StreamOwned::new(client(&usher, Arc::new(config)), socket(&usher));
        let asked = write!(stream, "GET {PATH} HTTP/1.1\r\nHost: usher\r\n\r\n");
        let mut answer = [0; 12];
        asked.and_then(|()| stream.read_exact(&mut answer)).inspect_err(|error| eprintln!("{error}")).ok()?;
        Some(String::from_utf8_lossy(&answer).into_owned())
    };
    assert_eq!(greet(10_000).as_deref(), Some("HTTP/1.1 200"));
    assert_eq!(greet(80_000), None);
    assert_failed(&usher, "too-long", 1.0);
    usher.all_seats_are_back();
}

/// How the next connection with that configuration came about, after a request over it.
fn greeted(usher: &Usher, config: &Arc<ClientConfig>) -> HandshakeKind {
    let mut stream = StreamOwned::new(client(usher, Arc::clone(config)), socket(usher));
    write!(stream, "GET {PATH} HTTP/1.1\r\nHost: usher\r\nAuthorization: Bearer alice\r\n\r\n")
        .expect("usher reads");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200");
    stream.conn.handshake_kind().expect("a handshake")
}

#[test]
fn tickets_that_usher_does_not_know_cost_a_full_handshake() {
    let upstream = Upstream::start();
    let (usher, other) = (Setup::new(upstream.address).start(), Setup::new(upstream.address).start());
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut roots = RootCertStore::empty();
        roots.add(usher.authority().certificate()).expect("an authority");
        roots.add(other.authority().certificate()).expect("an authority");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version that the provider has")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let config = Arc::new(config);
        let full = [HandshakeKind::Full, HandshakeKind::FullWithHelloRetryRequest];
        assert!(full.contains(&greeted(&usher, &config)));
        assert_eq!(greeted(&usher, &config), HandshakeKind::Resumed, "{version:?}");
        // A stranger's ticket, under the same name: tickets of both are on the client's pile now.
        assert!(full.contains(&greeted(&other, &config)), "{version:?}");
        assert_eq!(greeted(&other, &config), HandshakeKind::Resumed, "{version:?}");

        // A new certificate comes with new keys for tickets: those of before are worth nothing.
        let reloaded = || usher.metric("usher_config_reloads_total", "result=\"reloaded\"");
        assert_eq!(greeted(&usher, &config), HandshakeKind::Full, "the pile holds the other's");
        assert_eq!(greeted(&usher, &config), HandshakeKind::Resumed, "{version:?}");
        let before = reloaded();
        let (certificate, key) = usher.authority().server();
        std::fs::write(usher.folder.path().join("tls.key"), key).expect("a file");
        std::fs::write(usher.folder.path().join("tls.crt"), certificate).expect("a file");
        until("usher has its new certificate", || reloaded() > before + 0.5);
        assert_eq!(greeted(&usher, &config), HandshakeKind::Full, "{version:?}");
        assert_eq!(greeted(&usher, &config), HandshakeKind::Resumed, "{version:?}");
    }
    assert!(failed_in_all(&usher) + failed_in_all(&other) < 0.5);
    usher.all_seats_are_back();
    other.all_seats_are_back();
}

#[test]
fn a_client_may_leave_in_any_step_of_a_handshake() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address);
    beside_a_bystander(setup, |usher| {
        let hello = flight(&mut client(usher, usher.tls(None, &[])));
        let second = {
            let (mut client, _socket) = half_done(usher);
            flight(&mut client).len()
        };
        until("it is gone", || usher.metric("usher_handshakes_half_done", "") < 0.5);
        // The bystander is here all the while, on one connection.
        until("it is here", || usher.metric("usher_requests_executed_total", "") > 0.5);
        let mut accepted = usher.metric("usher_connections_total", "");
        let mut left = failed(usher, "closed");
        // In the middle of the first flight, of the second, and between them; with a word (FIN) and without (RST).
        for without_a_word in [false, true] {
            let leave = |socket: TcpStream| {
                if without_a_word {
                    crate::raw::linger_not(&socket);
                }
                drop(socket);
            };
            for cut in (0..hello.len()).step_by(7) {
                let mut socket = socket(usher);
                accepted += 1.0;
                // Whoever leaves without a word before that was never here.
                until("it is accepted", || usher.metric("usher_connections_total", "") > accepted - 0.5);
                socket.write_all(&hello[..cut]).expect("usher reads");
                leave(socket);
                left += 1.0;
            }
            for cut in 0..second {
                let (mut client, mut socket) = half_done(usher);
                socket.write_all(&flight(&mut client)[..cut]).expect("usher reads");
                leave(socket);
                (accepted, left) = (accepted + 1.0, left + 1.0);
            }
        }
        until("all are counted", || failed(usher, "closed") > left - 0.5);
        assert!((failed_in_all(usher) - left).abs() < 0.5, "for no other reason");
        assert!(usher.metric("usher_handshakes_half_done", "") < 0.5, "none is left");
    });
}

#[test]
fn a_flood_of_key_updates_is_cut() {
    let upstream = Upstream::start();
    let usher = Setup::new(upstream.address).start();
    let mut stream = StreamOwned::new(client(&usher, usher.tls(None, &[b"http/1.1"])), socket(&usher));
    write!(stream, "GET {PATH} HTTP/1.1\r\nX-Long: ").expect("usher reads");
    let mut sent = 0;
    while sent < 10_000 && stream.conn.refresh_traffic_keys().is_ok() && stream.write_all(b"x").is_ok() {
        sent += 1;
    }
    assert!(sent < 10_000, "it was cut");
    until("the cut is counted", || {
        usher.metric("usher_connections_cut_total", "reason=\"key-update\"") > 0.5
    });
    assert!(usher.metric("usher_glitches_total", "kind=\"key-update\"") < 150.0);
    is_served(&usher);
    usher.all_seats_are_back();
}
