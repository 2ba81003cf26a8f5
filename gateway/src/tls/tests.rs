//! Handshakes that must work, those that must not, and files that change under them.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{KeyPair, date_time_ymd};
use rustls::{ClientConfig, HandshakeKind, ProtocolVersion, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use super::testing::{Authority, Folder, Leaf, client, shake_hands};
use super::*;
use crate::reload::Outcome;

struct World {
    folder: Folder,
    server_authority: Authority,
    client_authority: Authority,
    files: ServerFiles,
}

fn world() -> World {
    let folder = Folder::new();
    let (server_authority, client_authority) = (Authority::new("servers"), Authority::new("clients"));
    let leaf = server_authority.server("usher.test");
    let files = ServerFiles {
        certificate: folder.write("tls.crt", &leaf.pem),
        private_key: folder.write("tls.key", &leaf.key_pem),
        client_ca: Some(folder.write("client-ca.crt", &client_authority.pem)),
        requestheader_client_ca: Some(folder.write("front-ca.crt", Authority::new("fronts").pem)),
    };
    World { folder, server_authority, client_authority, files }
}

fn name() -> ServerName<'static> {
    ServerName::try_from("usher.test").expect("a name")
}

/// A plain client: trusts `authority`, speaks `versions`, shows `leaf`.
fn outsider(
    authority: &Authority,
    leaf: Option<(&str, &str)>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der.clone()).expect("an anchor");
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(roots);
    let mut config = match leaf {
        Some((certificate, key)) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("certificate")],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("key"),
            )
            .expect("certificate and key"),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

const BOTH: &[&rustls::SupportedProtocolVersion] = rustls::ALL_VERSIONS;

fn pems(leaf: &Leaf) -> Option<(&str, &str)> {
    Some((&leaf.pem, &leaf.key_pem))
}

#[test]
fn both_versions_and_both_protocols() {
    let world = world();
    let server = Server::new(world.files.clone()).expect("good files");
    for (version, is) in [
        (&rustls::version::TLS12, ProtocolVersion::TLSv1_2),
        (&rustls::version::TLS13, ProtocolVersion::TLSv1_3),
    ] {
        let client = outsider(&world.server_authority, None, &[version]);
        let (server_end, client_end) = shake_hands(server.current(), client, name()).expect("a connection");
        assert_eq!(server_end.protocol_version(), Some(is));
        assert_eq!(client_end.alpn_protocol(), Some(&b"h2"[..]));
        assert_eq!(server_end.peer_certificates(), None);
    }
}

#[test]
fn a_certificate_that_nobody_vouches_for_does_not_end_the_handshake() {
    let world = world();
    let server = Server::new(world.files.clone()).expect("good files");
    let mut expired = client("late", &[]);
    expired.not_after = date_time_ymd(2001, 1, 1);
    let stranger = Authority::new("strangers").client("mallory", &["system:masters"]);
    for leaf in [world.client_authority.client("alice", &[]), world.client_authority.sign(&expired), stranger]
    {
        for version in BOTH {
            let config = outsider(&world.server_authority, pems(&leaf), &[version]);
            let (end, _) = shake_hands(server.current(), config, name()).expect("a connection");
            assert_eq!(end.peer_certificates(), Some(&[leaf.der.clone()][..]));
        }
    }
}

#[test]
fn a_certificate_without_its_key_ends_the_handshake() {
    let world = world();
    let server = Server::new(world.files.clone()).expect("good files");
    let alice = world.client_authority.client("alice", &[]);
    let another_key = KeyPair::generate().expect("key");
    let thief = Arc::new(Thief::new(&alice, &another_key));
    for version in BOTH {
        let mut roots = RootCertStore::empty();
        roots.add(world.server_authority.der.clone()).expect("an anchor");
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .expect("version")
            .with_root_certificates(roots)
            .with_client_cert_resolver(thief.clone());
        let end = shake_hands(server.current(), Arc::new(config), name());
        assert!(end.is_err(), "{version:?}");
    }
}

/// Shows a certificate and signs with a key that is not its own.
#[derive(Debug)]
struct Thief(Arc<rustls::sign::CertifiedKey>);

impl Thief {
    fn new(leaf: &Leaf, key: &KeyPair) -> Thief {
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("key");
        let key = provider().key_provider.load_private_key(key).expect("key");
        Thief(Arc::new(rustls::sign::CertifiedKey::new(vec![leaf.der.clone()], key)))
    }
}

impl rustls::client::ResolvesClientCert for Thief {
    fn resolve(
        &self,
        _hints: &[&[u8]],
        _schemes: &[rustls::SignatureScheme],
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[test]
fn a_resumed_session_still_tells_its_certificate() {
    let world = world();
    let server = Server::new(world.files.clone()).expect("good files");
    let alice = world.client_authority.client("alice", &[]);
    for version in BOTH {
        let config = outsider(&world.server_authority, pems(&alice), &[version]);
        let (first, _) = shake_hands(server.current(), config.clone(), name()).expect("a connection");
        assert_eq!(first.handshake_kind(), Some(HandshakeKind::Full));
        let (second, _) = shake_hands(server.current(), config, name()).expect("a connection");
        assert_eq!(second.handshake_kind(), Some(HandshakeKind::Resumed));
        assert_eq!(second.peer_certificates(), Some(&[alice.der.clone()][..]));
    }
}

#[test]
fn without_a_bundle_no_certificate_is_asked_for() {
    let world = world();
    let files = ServerFiles { client_ca: None, requestheader_client_ca: None, ..world.files };
    let alice = world.client_authority.client("alice", &[]);
    let config = outsider(&world.server_authority, pems(&alice), BOTH);
    let (end, _) =
        shake_hands(Server::new(files).expect("good files").current(), config, name()).expect("connection");
    assert_eq!(end.peer_certificates(), None);
}

#[test]
fn a_new_certificate_serves_the_next_connection() {
    let world = world();
    let server = Server::new(world.files.clone()).expect("good files");
    let before = server.current();
    assert_eq!(server.reload().check(), Outcome::Unchanged);
    let leaf = world.server_authority.server("usher.test");
    world.folder.write("tls.crt", &leaf.pem);
    let Outcome::Refused(fault) = server.reload().check() else { panic!("the key is still the old one") };
    assert!(fault.problem.contains("do not go together"), "{fault}");
    assert_eq!(server.reload().check(), Outcome::Unchanged, "refused once, not at every look");
    assert!(Arc::ptr_eq(&before, &server.current()), "the old one stays");
    world.folder.write("tls.key", &leaf.key_pem);
    assert_eq!(server.reload().check(), Outcome::Reloaded);
    let client = outsider(&world.server_authority, None, BOTH);
    let (_, end) = shake_hands(server.current(), client, name()).expect("a connection");
    assert_eq!(end.peer_certificates(), Some(&[leaf.der.clone()][..]));
    assert_eq!((server.reload().reloads(), server.reload().refusals()), (1, 1));
}

#[test]
fn bad_serving_files_are_refused_by_name() {
    let world = world();
    let good = &world.files;
    let check = |files: ServerFiles, path: &PathBuf, problem: &str| {
        let fault = Server::new(files).expect_err("a fault");
        assert_eq!(&fault.path, path);
        assert!(fault.problem.contains(problem), "{fault}");
    };
    let missing = PathBuf::from("/nonexistent/tls.crt");
    check(ServerFiles { certificate: missing.clone(), ..good.clone() }, &missing, "cannot be opened");
    let empty = world.folder.write("empty", "");
    check(ServerFiles { certificate: empty.clone(), ..good.clone() }, &empty, "no certificate");
    check(ServerFiles { private_key: empty.clone(), ..good.clone() }, &empty, "no private key");
    check(ServerFiles { client_ca: Some(empty.clone()), ..good.clone() }, &empty, "no certificate");
    let broken =
        world.folder.write("broken", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    check(
        ServerFiles { client_ca: Some(broken.clone()), ..good.clone() },
        &broken,
        "certificate 1 of 1 is broken",
    );
    let half = world.folder.write("half", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    check(ServerFiles { client_ca: Some(half.clone()), ..good.clone() }, &half, "broken PEM");
}

#[test]
fn upstream_with_and_without_the_front_proxy_certificate() {
    let world = world();
    let server = Server::new(world.files.clone()).expect("good files");
    let front = world.client_authority.client("front-proxy-client", &[]);
    let files = ClientFiles {
        ca: world.folder.write("ca.crt", &world.server_authority.pem),
        proxy_client: Some((
            world.folder.write("front.crt", &front.pem),
            world.folder.write("front.key", &front.key_pem),
        )),
        server_name: Some("usher.test".into()),
    };
    let upstream = Client::new(files.clone()).expect("good files");
    let name = upstream.server_name("10.0.0.1").expect("the configured one");
    for (presents, shown) in
        [(Presents::Nothing, None), (Presents::FrontProxy, Some(&[front.der.clone()][..]))]
    {
        for (protocol, alpn) in [(Protocol::Http1, &b"http/1.1"[..]), (Protocol::Http2, &b"h2"[..])] {
            let config = upstream.current(presents, protocol).expect("configured");
            let (end, _) = shake_hands(server.current(), config, name.clone()).expect("a connection");
            assert_eq!(end.peer_certificates(), shown);
            assert_eq!(end.alpn_protocol(), Some(alpn));
        }
    }
    let bare =
        Client::new(ClientFiles { proxy_client: None, server_name: None, ..files.clone() }).expect("good");
    assert!(bare.current(Presents::FrontProxy, Protocol::Http1).is_none());
    assert_eq!(bare.server_name("[::1]"), ServerName::try_from("::1").ok());
    assert_eq!(bare.server_name("not a name"), None);
    let wrong = Client::new(ClientFiles { server_name: Some("not a name".into()), ..files });
    assert!(wrong.expect_err("a fault").remedy.contains("--upstream-server-name"));
}

#[test]
fn an_apiserver_with_the_wrong_authority_is_not_talked_to() {
    let world = world();
    let server = Server::new(world.files.clone()).expect("good files");
    let ca = world.folder.write("ca.crt", Authority::new("somebody else").pem);
    let upstream = Client::new(ClientFiles { ca, ..ClientFiles::default() }).expect("good files");
    let config = upstream.current(Presents::Nothing, Protocol::Http1).expect("always there");
    assert!(shake_hands(server.current(), config, name()).is_err());
}
