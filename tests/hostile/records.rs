//! Records after the handshake that honest clients do not send: second handshakes, floods of what is allowed now and
//! then, records that never end. The client's own record layer is here, since no library's would say such things.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, UnboundKey};
use rustls::{ClientConfig, ClientConnection, ConnectionTrafficSecrets, SupportedProtocolVersion};
use rustls_pki_types::ServerName;

use crate::bystander::{assert_cut_for, beside_a_bystander, glitches, seats};
use crate::upstream::Upstream;
use crate::usher::{PATIENCE, Setup, Usher, until};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Content types of records (RFC 8446 §5.1).
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

const WARNING: u8 = 1;
/// The two warnings that end nothing: of TLS 1.2, and of 1.3.
const NO_CERTIFICATE: u8 = 41;
const USER_CANCELED: u8 = 90;

const TLS12: &SupportedProtocolVersion = &rustls::version::TLS12;
const TLS13: &SupportedProtocolVersion = &rustls::version::TLS13;

/// A client that seals whatever it is told to, and reads nothing but the end.
struct Sealer {
    socket: TcpStream,
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
    is_tls13: bool,
}

impl Sealer {
    /// Shakes hands in that version, with AES-GCM.
    fn connect(usher: &Usher, version: &'static SupportedProtocolVersion) -> Self {
        let mut socket = TcpStream::connect(usher.address).expect("usher listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        socket.set_write_timeout(Some(PATIENCE)).expect("a time-out");
        socket.set_nodelay(true).expect("no delay");
        let mut client = client(usher, version);
        while client.is_handshaking() || client.wants_write() {
            client.complete_io(&mut socket).expect("a handshake");
        }
        let secrets = client.dangerous_extract_secrets().expect("secrets");
        let (algorithm, key, iv): (&'static Algorithm, _, _) = match &secrets.tx.1 {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            _ => panic!("another cipher than was offered"),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).expect("a key of its length");
        Self {
            socket,
            key: LessSafeKey::new(key),
            iv: iv.as_ref().try_into().expect("twelve bytes"),
            sequence: secrets.tx.0,
            is_tls13: version.version == rustls::ProtocolVersion::TLSv1_3,
        }
    }

    /// A record of that type (RFC 8446 §5.2, RFC 5288 §3).
    fn seal(&mut self, kind: u8, plain: &[u8]) -> Vec<u8> {
        let mut nonce = self.iv;
        nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()).for_each(|(byte, number)| *byte ^= number);
        let length = |length: usize| u16::try_from(length).expect("a record").to_be_bytes();
        let (mut sealed, explicit) = (plain.to_vec(), nonce[4..].to_vec());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let (header, explicit) = if self.is_tls13 {
            sealed.push(kind);
            let [high, low] = length(sealed.len() + 16);
            let header = [DATA, 3, 3, high, low];
            self.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut sealed).expect("sealed");
            (header, Vec::new())
        } else {
            let beside = [&self.sequence.to_be_bytes()[..], &[kind, 3, 3], &length(plain.len())].concat();
            self.key.seal_in_place_append_tag(nonce, Aad::from(beside), &mut sealed).expect("sealed");
            let [high, low] = length(sealed.len() + 8);
            ([kind, 3, 3, high, low], explicit)
        };
        self.sequence += 1;
        [&header[..], &explicit, &sealed].concat()
    }

    /// Sends bytes; `false` if usher has hung up.
    fn send(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).is_ok()
    }

    /// Waits for usher to hang up, orderly or not.
    fn is_hung_up_on(&mut self) {
        let mut buffer = [0; 4096];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
                Err(error) => panic!("usher keeps the connection: {error}"),
            }
        }
    }
}

/// Bytes that a client may not send.
type Attack<'a> = &'a dyn Fn(&mut Sealer) -> Vec<u8>;

/// A handshake with secrets that can be had, and a cipher that is known here.
fn client(usher: &Usher, version: &'static SupportedProtocolVersion) -> ClientConnection {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| format!("{:?}", suite.suite()).contains("AES_256_GCM"));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(usher.authority().certificate()).expect("an authority");
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .expect("a version that the provider has")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.enable_secret_extraction = true;
    ClientConnection::new(Arc::new(config), ServerName::IpAddress(usher.address.ip().into()))
        .expect("a client")
}

fn setup() -> Setup {
    Setup::new(Upstream::start().address)
}

fn head(method: &str, headers: &str) -> String {
    format!("{method} {CONFIG_MAPS} HTTP/1.1\r\nHost: usher\r\nAuthorization: Bearer alice\r\n{headers}\r\n")
}

fn assert_glitches(usher: &Usher, kind: &str, times: f64) {
    until("it is counted", || glitches(usher, kind) > times - 0.5);
    assert!((glitches(usher, kind) - times).abs() < 0.5, "{kind}: {}", glitches(usher, kind));
}

#[test]
fn renegotiation_is_refused_and_counted() {
    beside_a_bystander(setup(), |usher| {
        let mut times = 0.0;
        for version in [TLS12, TLS13] {
            // At once, and while a request has its seat.
            for is_busy in [false, true] {
                let mut attacker = Sealer::connect(usher, version);
                if is_busy {
                    let begun = attacker.seal(DATA, head("POST", "Content-Length: 100\r\n").as_bytes());
                    assert!(attacker.send(&begun));
                    until("it is seated", || seats(usher) > 0.5);
                }
                // The ClientHello of an honest client, without its record's header.
                let mut hello = Vec::new();
                client(usher, version).write_tls(&mut hello).expect("in memory");
                let again = attacker.seal(HANDSHAKE, &hello[5..]);
                attacker.send(&again);
                attacker.is_hung_up_on();
                times += 1.0;
                assert_glitches(usher, "tls-fault", times);
                until("no seat is held", || seats(usher) < 0.5);
            }
        }
    });
}

#[test]
fn records_that_may_not_come_are_counted() {
    beside_a_bystander(setup(), |usher| {
        let forged = |attacker: &mut Sealer| {
            let mut record = attacker.seal(DATA, b"GET / HTTP/1.1\r\n\r\n");
            *record.last_mut().expect("a record") ^= 1;
            record
        };
        let replayed = |attacker: &mut Sealer| {
            let record = attacker.seal(DATA, b"GET");
            [&record[..], &record[..]].concat()
        };
        let changed = |attacker: &mut Sealer| attacker.seal(CHANGE_CIPHER_SPEC, &[1]);
        let oversized = |_: &mut Sealer| vec![DATA, 3, 3, 0xff, 0xff];
        let padded_only = |attacker: &mut Sealer| attacker.seal(0, &[0; 100]);
        let attacks: [Attack<'_>; 5] = [&forged, &replayed, &changed, &oversized, &padded_only];
        let mut times = 0.0;
        for attack in attacks {
            let mut attacker = Sealer::connect(usher, TLS13);
            let bytes = attack(&mut attacker);
            attacker.send(&bytes);
            attacker.is_hung_up_on();
            times += 1.0;
            assert_glitches(usher, "tls-fault", times);
        }
    });
}

#[test]
fn floods_in_a_row_end_at_the_record_layers_own_limits() {
    for (version, alert) in [(TLS12, NO_CERTIFICATE), (TLS13, USER_CANCELED)] {
        for (kind, bytes, glitch, limit) in
            [(DATA, &[][..], "empty-record", 33.0), (ALERT, &[WARNING, alert], "tls-warning", 5.0)]
        {
            beside_a_bystander(setup(), |usher| {
                let mut attacker = Sealer::connect(usher, version);
                let flood: Vec<u8> = (0..1_000).flat_map(|_| attacker.seal(kind, bytes)).collect();
                attacker.send(&flood);
                attacker.is_hung_up_on();
                assert_glitches(usher, glitch, limit);
            });
        }
    }
}

#[test]
fn empty_records_between_others_are_cut_by_the_score() {
    beside_a_bystander(setup(), |usher| {
        let mut attacker = Sealer::connect(usher, TLS13);
        let begun = attacker.seal(DATA, b"GET / HTTP/1.1\r\nX-Long: ");
        assert!(attacker.send(&begun));
        // Never so many in a row that the record layer minds.
        let was_cut = (0..1_000).any(|_| {
            let mut few: Vec<u8> = (0..30).flat_map(|_| attacker.seal(DATA, b"")).collect();
            few.extend(attacker.seal(DATA, b"x"));
            !attacker.send(&few)
        });
        assert!(was_cut);
        assert_cut_for(usher, "empty-record");
        assert!(glitches(usher, "empty-record") < 1_500.0, "a thousand, and what leaks meanwhile");
    });
}

#[test]
fn half_a_record_and_silence_has_an_end() {
    let setup =
        setup().flag("--header-timeout=1s").flag("--idle-timeout=1s").flag("--request-body-timeout=1s");
    beside_a_bystander(setup, |usher| {
        for version in [TLS12, TLS13] {
            let length = Sealer::connect(usher, version).seal(DATA, head("GET", "").as_bytes()).len();
            for cut in [1, 4, 5, 6, length / 2, length - 1] {
                let mut attacker = Sealer::connect(usher, version);
                let record = attacker.seal(DATA, head("GET", "").as_bytes());
                assert!(attacker.send(&record[..cut]));
                attacker.is_hung_up_on();
                assert!(seats(usher) < 0.5, "nothing was asked");
            }
        }
        assert_glitches(usher, "slow-header", 12.0);
        // The same in the middle of a body: the seat is somebody else's soon.
        let mut attacker = Sealer::connect(usher, TLS13);
        let begun = attacker.seal(DATA, head("POST", "Content-Length: 100\r\n").as_bytes());
        let half = attacker.seal(DATA, &[b'x'; 100]);
        assert!(attacker.send(&[&begun[..], &half[..50]].concat()));
        until("it is seated", || seats(usher) > 0.5);
        attacker.is_hung_up_on();
        assert_glitches(usher, "slow-body", 1.0);
    });
}
