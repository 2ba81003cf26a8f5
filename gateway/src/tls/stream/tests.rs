//! Against rustls' own connections, in every version and cipher; and against peers that do what honest ones do not.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::{JoinHandle, spawn};

use bytes::Bytes;
use rustls::crypto::aws_lc_rs::{ALL_CIPHER_SUITES, default_provider};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection, StreamOwned};
use rustls_pki_types::ServerName;
use usher_flowcontrol::units::Nanos;

use super::*;
use crate::ring::Listener;
use crate::tls::testing::{Authority, Folder};
use crate::tls::{Client, ClientFiles, Failed, Gate, Presents, Protocol, Reason, Server, ServerFiles, greet};

struct World {
    _folder: Folder,
    authority: Authority,
    server: Server,
    client: Client,
}

fn world() -> World {
    let (folder, authority) = (Folder::new(), Authority::new("us"));
    let leaf = authority.server("usher.test");
    let ca = folder.write("ca.crt", &authority.pem);
    let files = ServerFiles {
        certificate: folder.write("tls.crt", &leaf.pem),
        private_key: folder.write("tls.key", &leaf.key_pem),
        client_ca: Some(ca.clone()),
        requestheader_client_ca: None,
    };
    let server = Server::new(files).unwrap();
    let client = Client::new(ClientFiles { ca, proxy_client: None, server_name: None }).unwrap();
    World { _folder: folder, authority, server, client }
}

fn name() -> ServerName<'static> {
    ServerName::try_from("usher.test").unwrap()
}

/// rustls' own client of one cipher suite.
fn outsider(authority: &Authority, suite: Option<SupportedCipherSuite>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der.clone()).unwrap();
    let mut provider = default_provider();
    provider.cipher_suites = ALL_CIPHER_SUITES.to_vec();
    provider.cipher_suites.retain(|each| suite.is_none_or(|only| *each == only));
    let versions: &[_] = match suite {
        Some(SupportedCipherSuite::Tls12(_)) => &[&rustls::version::TLS12],
        _ => &[&rustls::version::TLS13],
    };
    let config = ClientConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(versions);
    Arc::new(config.unwrap().with_root_certificates(roots).with_no_client_auth())
}

fn listener() -> (Listener, SocketAddr) {
    let socket = ring::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (Listener::new(socket).unwrap(), address)
}

/// A whole handshake.
async fn accept(
    below: ring::Stream,
    server: &Server,
    gate: &Rc<Gate>,
    observer: Option<Rc<dyn Observer>>,
) -> Result<Stream, Failed> {
    let greeting = greet(&below).await?;
    crate::tls::accept(below, greeting, server, gate, observer).await
}

async fn accepted(listener: &Listener, server: &Server) -> Result<Stream, Failed> {
    accept(listener.accept().await.unwrap().0, server, &Gate::new(8), None).await
}

async fn receive(stream: &mut Stream) -> io::Result<Chunk> {
    poll_fn(|cx| stream.poll_recv(cx)).await
}

async fn receive_all(stream: &mut Stream, length: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < length {
        let chunk = receive(stream).await.unwrap();
        assert!(!chunk.is_empty(), "the end after {} of {length}", all.len());
        all.extend_from_slice(&chunk);
    }
    all
}

/// Both ends ours.
async fn both(world: &World, observer: Option<Rc<dyn Observer>>) -> (Stream, Stream) {
    let config = world.client.current(Presents::Nothing, Protocol::Http2).unwrap();
    both_with(world, config, observer).await
}

async fn both_with(
    world: &World,
    config: Arc<ClientConfig>,
    observer: Option<Rc<dyn Observer>>,
) -> (Stream, Stream) {
    let (listener, address) = listener();
    let connecting =
        async { crate::tls::connect(ring::connect(address).await.unwrap(), config, name()).await.unwrap() };
    let accepting = async {
        let (below, _) = listener.accept().await.unwrap();
        accept(below, &world.server, &Gate::new(8), observer).await.unwrap()
    };
    futures_util::future::join(accepting, connecting).await
}

/// Lengths around everything that has a length.
const LENGTHS: [usize; 12] = [1, 2, 100, 2047, 2048, 2049, 16_383, 16_384, 16_385, 40_000, 65_536, 200_000];

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

#[test]
fn a_server_understands_clients_of_every_cipher() {
    let world = world();
    for suite in ALL_CIPHER_SUITES {
        if matches!(
            suite.suite(),
            rustls::CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
                | rustls::CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
                | rustls::CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
        ) {
            continue; // the certificate is an ECDSA one; the record layer is the same
        }
        let config = outsider(&world.authority, Some(*suite));
        ring::run(async {
            let (listener, address) = listener();
            let client = spawn(move || {
                let socket = TcpStream::connect(address).unwrap();
                let mut tls = StreamOwned::new(ClientConnection::new(config, name()).unwrap(), socket);
                for length in LENGTHS {
                    let said = pattern(length);
                    tls.write_all(&said).unwrap();
                    let mut heard = vec![0; length];
                    tls.read_exact(&mut heard).unwrap();
                    assert!(said == heard, "{length}");
                }
                tls.conn.send_close_notify();
                tls.flush().unwrap();
                assert_eq!(tls.read(&mut [0]).unwrap(), 0, "close_notify comes back");
            });
            let mut stream = accepted(&listener, &world.server).await.unwrap();
            for length in LENGTHS {
                let all = receive_all(&mut stream, length).await;
                stream.put(&all[..length / 3]);
                stream.put_bytes(&Bytes::copy_from_slice(&all[length / 3..]));
            }
            assert!(receive(&mut stream).await.unwrap().is_empty(), "the end, as the client said");
            poll_fn(|cx| stream.poll_close(cx)).await.unwrap();
            client.join().unwrap();
        })
        .unwrap();
    }
}

#[test]
fn a_client_understands_a_server_and_resumes() {
    let world = world();
    let config = world.client.current(Presents::Nothing, Protocol::Http1).unwrap();
    let served = world.server.current();
    let serve = |address: std::net::TcpListener| -> JoinHandle<Vec<rustls::HandshakeKind>> {
        spawn(move || {
            let mut kinds = Vec::new();
            for _ in 0..2 {
                let connection = ServerConnection::new(Arc::clone(&served)).unwrap();
                let mut tls = StreamOwned::new(connection, address.accept().unwrap().0);
                let mut asked = [0; 5];
                tls.read_exact(&mut asked).unwrap();
                tls.write_all(&pattern(100_000)).unwrap();
                kinds.push(tls.conn.handshake_kind().unwrap());
                tls.conn.send_close_notify();
                tls.flush().unwrap();
            }
            kinds
        })
    };
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let server = serve(socket);
    ring::run(async {
        for _ in 0..2 {
            let below = ring::connect(address).await.unwrap();
            let mut stream = crate::tls::connect(below, Arc::clone(&config), name()).await.unwrap();
            assert_eq!(stream.protocol(), Some(&b"http/1.1"[..]));
            assert_eq!(stream.peer_certificates().len(), 1);
            stream.put(b"hello");
            assert!(receive_all(&mut stream, 100_000).await == pattern(100_000));
            assert!(receive(&mut stream).await.unwrap().is_empty());
        }
    })
    .unwrap();
    let kinds = server.join().unwrap();
    assert_eq!(
        kinds,
        [rustls::HandshakeKind::Full, rustls::HandshakeKind::Resumed],
        "tickets are remembered"
    );
}

#[test]
fn a_server_of_strangers_is_refused_and_told() {
    let (world, strangers) = (self::world(), self::world());
    let config = world.client.current(Presents::Nothing, Protocol::Http1).unwrap();
    ring::run(async {
        let (listener, address) = listener();
        let gate = Gate::new(8);
        let accepting = async {
            let (below, _) = listener.accept().await.unwrap();
            accept(below, &strangers.server, &gate, None).await.unwrap_err()
        };
        let connecting = async {
            crate::tls::connect(ring::connect(address).await.unwrap(), config, name()).await.unwrap_err()
        };
        let (accepting, connecting) = futures_util::future::join(accepting, connecting).await;
        assert_eq!(connecting.reason(), Reason::Certificate, "{connecting}");
        assert_eq!(accepting.reason(), Reason::Refused, "{accepting}");
    })
    .unwrap();
}

#[test]
fn a_greeting_tells_whom_it_is_for() {
    let world = world();
    ring::run(async {
        for (name, told) in [("usher.test", Some("usher.test")), ("192.0.2.1", None)] {
            let config = world.client.current(Presents::Nothing, Protocol::Http1).unwrap();
            let (listener, address) = listener();
            ring::spawn(async move {
                let name = ServerName::try_from(name).unwrap();
                let _ = crate::tls::connect(ring::connect(address).await.unwrap(), config, name).await;
            });
            let (below, _) = listener.accept().await.unwrap();
            let greeting = greet(&below).await.unwrap();
            assert_eq!(greeting.server_name().as_deref(), told);
            assert_eq!(greeting.bytes()[0], 22, "as it came");
        }
        let (listener, address) = listener();
        let mut stranger = TcpStream::connect(address).unwrap();
        stranger.write_all(b"\x16\x03\x01\x00\x04\x01\x00\x00\x00").unwrap();
        let greeting = greet(&listener.accept().await.unwrap().0).await.unwrap();
        assert_eq!(greeting.server_name(), None);
    })
    .unwrap();
}

#[test]
fn bytes_may_come_one_by_one() {
    let world = world();
    let config = outsider(&world.authority, None);
    ring::run(async {
        let (listener, address) = listener();
        let client = spawn(move || {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.set_nodelay(true).unwrap();
            let mut tls = ClientConnection::new(config, name()).unwrap();
            tls.writer().write_all(&pattern(300)).unwrap();
            while tls.is_handshaking() || tls.wants_write() {
                let mut bytes = Vec::new();
                while tls.wants_write() {
                    tls.write_tls(&mut bytes).unwrap();
                }
                bytes.iter().for_each(|byte| socket.write_all(&[*byte]).unwrap());
                if tls.is_handshaking() {
                    tls.read_tls(&mut socket).unwrap();
                    tls.process_new_packets().unwrap();
                }
            }
            socket
        });
        let mut stream = accepted(&listener, &world.server).await.unwrap();
        assert_eq!(receive_all(&mut stream, 300).await, pattern(300));
        let _socket = client.join().unwrap();
    })
    .unwrap();
}

#[test]
fn an_end_without_a_word_is_an_error() {
    let world = world();
    ring::run(async {
        let (mut server, client) = both(&world, None).await;
        client.put(b"so far");
        poll_fn(|cx| client.poll_sent(cx)).await.unwrap();
        poll_fn(|cx| client.below().poll_close(cx)).await.unwrap();
        assert_eq!(&*receive(&mut server).await.unwrap(), b"so far");
        for _ in 0..2 {
            let error = receive(&mut server).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    })
    .unwrap();
}

#[test]
fn keys_are_renewed_when_asked_and_before_they_are_used_up() {
    let world = world();
    let config = outsider(&world.authority, None);
    ring::run(async {
        let (listener, address) = listener();
        let client = spawn(move || {
            let socket = TcpStream::connect(address).unwrap();
            let mut tls = StreamOwned::new(ClientConnection::new(config, name()).unwrap(), socket);
            for length in LENGTHS {
                tls.write_all(&pattern(length)).unwrap();
                let mut heard = vec![0; length];
                tls.read_exact(&mut heard).unwrap();
                assert!(heard == pattern(length));
                tls.conn.refresh_traffic_keys().unwrap();
            }
        });
        let mut stream = accepted(&listener, &world.server).await.unwrap();
        for length in LENGTHS {
            let all = receive_all(&mut stream, length).await;
            stream.put(&all);
        }
        assert_eq!(receive(&mut stream).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        client.join().unwrap();

        let (mut server, client) = both(&world, None).await;
        client.sealing.expire_keys_after(3);
        for length in LENGTHS {
            client.put(&pattern(length));
            assert!(receive_all(&mut server, length).await == pattern(length), "{length}");
        }
    })
    .unwrap();
}

fn fault(error: &io::Error) -> Fault {
    *error.get_ref().and_then(|inner| inner.downcast_ref()).unwrap_or_else(|| panic!("{error}"))
}

#[test]
fn what_honest_peers_do_seldom_has_an_end() {
    let world = world();
    ring::run(async {
        let once = [KEY_UPDATE, 0, 0, 1, 0];
        for (kind, bytes, times, expected) in [
            (DATA, &[][..], usize::from(EMPTY_MAX) + 1, Fault::TooMany),
            (ALERT, &[WARNING, USER_CANCELED], usize::from(WARNINGS_MAX) + 1, Fault::TooMany),
            (ALERT, &[FATAL, 40], 1, Fault::Alerted(40)),
            (ALERT, &[WARNING], 1, Fault::Malformed),
            (HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 2], 1, Fault::Malformed),
            (HANDSHAKE, &[once, once].concat(), 1, Fault::Unexpected),
            (HANDSHAKE, &[1, 0, 0, 0], 1, Fault::Unexpected),
            (HANDSHAKE, &[NEW_SESSION_TICKET, 0, 0, 0], 1, Fault::Unexpected),
            (HANDSHAKE, &[KEY_UPDATE, 1, 0, 1], 1, Fault::Overflow),
            (HANDSHAKE, &[], 1, Fault::Unexpected),
            (20, &[1], 1, Fault::Unexpected),
        ] {
            let (mut server, mut client) = both(&world, None).await;
            for _ in 0..times {
                client.sealing.put_record(kind, bytes);
            }
            let error = receive(&mut server).await.unwrap_err();
            assert_eq!(fault(&error), expected, "{kind} {bytes:?}");
            if let Some(alert) = expected.alert() {
                let heard = receive(&mut client).await.unwrap_err();
                assert_eq!(fault(&heard), Fault::Alerted(alert), "{kind} {bytes:?}");
            }
        }
    })
    .unwrap();
}

#[test]
fn a_message_in_pieces_is_one_and_nothing_may_come_between() {
    let world = world();
    ring::run(async {
        let (mut server, client) = both(&world, None).await;
        client.sealing.put_record(HANDSHAKE, &[KEY_UPDATE, 0]);
        client.put(b"between");
        assert_eq!(fault(&receive(&mut server).await.unwrap_err()), Fault::Unexpected);

        let (mut server, client) = both(&world, None).await;
        for piece in [&[KEY_UPDATE][..], &[0, 0], &[1, 0]] {
            client.sealing.put_record(HANDSHAKE, piece);
        }
        client.sealing.renew_silently();
        client.put(b"with new keys");
        assert_eq!(&*receive(&mut server).await.unwrap(), b"with new keys");
    })
    .unwrap();
}

#[test]
fn tls_1_2_has_no_second_handshake_and_few_warnings() {
    let world = world();
    let suites = ALL_CIPHER_SUITES.iter().filter(|suite| {
        let name = format!("{:?}", suite.suite());
        suite.tls13().is_none() && name.contains("ECDSA")
    });
    ring::run(async {
        for suite in suites {
            for (kind, bytes, times, expected) in [
                (HANDSHAKE, &[1, 0, 0, 0][..], 1, Fault::Unexpected),
                (HANDSHAKE, &[0, 0, 0, 0], 1, Fault::Unexpected),
                (HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 1], 1, Fault::Unexpected),
                (20, &[1], 1, Fault::Unexpected),
                (ALERT, &[WARNING, 41], usize::from(WARNINGS_MAX) + 1, Fault::TooMany),
                (DATA, &[], usize::from(EMPTY_MAX) + 1, Fault::TooMany),
            ] {
                let mut config = ClientConfig::clone(&outsider(&world.authority, Some(*suite)));
                config.enable_secret_extraction = true;
                let (mut server, client) = both_with(&world, Arc::new(config), None).await;
                client.put(b"first");
                client.sealing.seal_now();
                assert_eq!(&*receive(&mut server).await.unwrap(), b"first");
                (0..times).for_each(|_| client.sealing.put_record(kind, bytes));
                assert_eq!(
                    fault(&receive(&mut server).await.unwrap_err()),
                    expected,
                    "{suite:?} {kind} {bytes:?}"
                );
            }
        }
    })
    .unwrap();
}

#[derive(Debug, Default)]
struct Patience(Cell<usize>);

impl Observer for Patience {
    fn saw(&self, trouble: Trouble) -> bool {
        assert_eq!(trouble, Trouble::KeyUpdate);
        self.0.set(self.0.get() + 1);
        self.0.get() < 10
    }
}

#[test]
fn an_observer_hears_of_key_updates_and_may_end_them() {
    let world = world();
    ring::run(async {
        let patience = Rc::new(Patience::default());
        let (mut server, client) = both(&world, Some(Rc::clone(&patience) as Rc<dyn Observer>)).await;
        for _ in 0..20 {
            client.sealing.update_keys().unwrap();
            client.put(b"."); // what is limited is not only what comes in a row
            client.sealing.seal_now();
        }
        let mut received = 0;
        let error = loop {
            match receive(&mut server).await {
                Ok(chunk) => received += chunk.len(),
                Err(error) => break error,
            }
        };
        assert_eq!((fault(&error), patience.0.get()), (Fault::TooMany, 10));
        assert!(received < 10, "{received}");
    })
    .unwrap();
}

#[test]
fn records_that_were_changed_or_are_too_long_are_refused() {
    let world = world();
    ring::run(async {
        let (mut server, client) = both(&world, None).await;
        client.below().put(&[DATA, 3, 3, 0, 17, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]);
        assert_eq!(fault(&receive(&mut server).await.unwrap_err()), Fault::BadMac);
        for (bytes, expected) in [
            (&[DATA, 3, 3, 0xff, 0xff][..], Fault::Overflow),
            (b"GET / HTTP/1.1\r\n\r\n", Fault::Unexpected),
            (&[DATA, 9, 3, 0, 17], Fault::Malformed),
            (&[ALERT, 3, 3, 0, 2, WARNING, CLOSE_NOTIFY], Fault::Unexpected), // not under our keys
            (&[DATA, 3, 3, 0, 1, 7], Fault::BadMac),
        ] {
            let (mut server, client) = both(&world, None).await;
            client.below().put(bytes);
            assert_eq!(fault(&receive(&mut server).await.unwrap_err()), expected, "{bytes:?}");
        }
    })
    .unwrap();
}

#[test]
fn what_is_no_handshake_is_told_apart() {
    let world = world();
    let cases: [(&[u8], Reason); 6] = [
        (b"", Reason::Closed),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", Reason::NotTls),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Reason::NotTls),
        (&[HANDSHAKE, 3, 1, 0, 4, 1, 0, 0, 0], Reason::Protocol),
        (&[HANDSHAKE, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff], Reason::Closed),
        (&[HANDSHAKE, 3, 1], Reason::Closed),
    ];
    ring::run(async {
        for (bytes, expected) in cases {
            let (listener, address) = listener();
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(bytes).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            let failed = accepted(&listener, &world.server).await.unwrap_err();
            assert_eq!(failed.reason(), expected, "{bytes:?}: {failed}");
        }
        // A first message of 16 MiB, never complete: not kept beyond the limit.
        let (listener, address) = listener();
        let mut client = TcpStream::connect(address).unwrap();
        let sender = spawn(move || {
            let first = [&[HANDSHAKE, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff], &[0; 0x3ffc][..]].concat();
            let more = [&[HANDSHAKE, 3, 1, 0x40, 0], &[0; 0x4000][..]].concat();
            let mut sent = client.write_all(&first);
            while sent.is_ok() {
                sent = client.write_all(&more);
            }
        });
        let failed = accepted(&listener, &world.server).await.unwrap_err();
        assert_eq!(failed.reason(), Reason::TooLong, "{failed}");
        while !sender.is_finished() {
            ring::sleep_until(ring::now() + Nanos::from_millis(1)).await; // the connection is closed in some turn
        }
    })
    .unwrap();
}

#[test]
fn many_small_puts_are_one_record_and_one_chunk_may_hold_many_records() {
    let world = world();
    ring::run(async {
        let (mut server, client) = both(&world, None).await;
        for byte in pattern(1000) {
            client.put(&[byte]);
        }
        assert_eq!(client.unsent(), 1000, "nothing is sealed before the turn ends");
        assert_eq!(&*receive(&mut server).await.unwrap(), pattern(1000));
        for byte in pattern(1000) {
            client.sealing.put_record(DATA, &[byte]);
        }
        let mut chunks = 0;
        let mut all = Vec::new();
        while all.len() < 1000 {
            all.extend_from_slice(&receive(&mut server).await.unwrap());
            chunks += 1;
        }
        assert_eq!(all, pattern(1000));
        assert!(chunks < 100, "{chunks}");
        assert!(server.partial.capacity() == 0 && server.incoming.is_empty(), "nothing is held");
    })
    .unwrap();
}
