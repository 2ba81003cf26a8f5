//! Certificates made on the spot, and handshakes without a network. For the tests of this crate.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, SigningKey as _,
};
use rustls::{ClientConfig, ClientConnection, Error, ServerConfig, ServerConnection};
use rustls_pki_types::{CertificateDer, ServerName};

/// A certificate authority of its own.
pub(crate) struct Authority {
    name: String,
    key_pem: String,
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
    pub(crate) der: CertificateDer<'static>,
}

/// A certificate with its key.
pub(crate) struct Leaf {
    pub(crate) pem: String,
    pub(crate) key_pem: String,
    pub(crate) der: CertificateDer<'static>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        Authority::with(name, |_| ())
    }

    pub(crate) fn with(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Authority {
        let key = KeyPair::generate().expect("key");
        Authority::self_signed(name, key, change)
    }

    /// The same name and key, another certificate.
    pub(crate) fn renewed(&self, change: impl FnOnce(&mut CertificateParams)) -> Authority {
        let key = KeyPair::from_pem(&self.key_pem).expect("its own key");
        Authority::self_signed(&self.name, key, change)
    }

    /// An authority that this one vouches for.
    pub(crate) fn intermediate(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Authority {
        let key = KeyPair::generate().expect("key");
        let params = authority(name, change);
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        Authority::of(name, params, key, &certificate)
    }

    fn self_signed(name: &str, key: KeyPair, change: impl FnOnce(&mut CertificateParams)) -> Authority {
        let params = authority(name, change);
        let certificate = params.self_signed(&key).expect("self-signed");
        Authority::of(name, params, key, &certificate)
    }

    fn of(name: &str, params: CertificateParams, key: KeyPair, certificate: &Certificate) -> Authority {
        let (pem, der, key_pem) = (certificate.pem(), certificate.der().clone(), key.serialize_pem());
        Authority { name: name.to_owned(), issuer: Issuer::new(params, key), key_pem, pem, der }
    }

    pub(crate) fn sign(&self, params: &CertificateParams) -> Leaf {
        let key = KeyPair::generate().expect("key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        Leaf { pem: certificate.pem(), key_pem: key.serialize_pem(), der: certificate.der().clone() }
    }

    /// As `sign`, but of X.509 version 1: the same fields without a version and extensions.
    pub(crate) fn version_1(&self, params: &CertificateParams) -> Leaf {
        let Leaf { der, key_pem, .. } = self.sign(params);
        let (whole, _) = element(&der);
        let (fields, signature) = element(whole);
        let mut rest = fields;
        let mut kept = Vec::new();
        while !rest.is_empty() {
            let (_, tail) = element(rest);
            let field = &rest[..rest.len() - tail.len()];
            if !matches!(field[0], 0xa0 | 0xa3) {
                kept.extend_from_slice(field);
            }
            rest = tail;
        }
        let (_, tail) = element(signature);
        let algorithm = &signature[..signature.len() - tail.len()];
        let signed = wrapped(0x30, &kept);
        let bits = [&[0], &*self.issuer.key().sign(&signed).expect("signed")].concat();
        let der = wrapped(0x30, &[&*signed, algorithm, &wrapped(3, &bits)].concat());
        let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &der);
        let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        Leaf { pem, key_pem, der: der.into() }
    }

    pub(crate) fn client(&self, name: &str, organizations: &[&str]) -> Leaf {
        self.sign(&client(name, organizations))
    }

    pub(crate) fn server(&self, host: &str) -> Leaf {
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("host");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }
}

fn authority(name: &str, change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
    let mut params = named(name, &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    change(&mut params);
    params
}

/// What a client certificate of this name and these organizations is made of.
pub(crate) fn client(name: &str, organizations: &[&str]) -> CertificateParams {
    let mut params = named(name, organizations);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn named(name: &str, organizations: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // rcgen keeps one value a type; an organization by its number counts as another type.
    let types = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
    assert!(organizations.len() <= types.len(), "more organizations than rcgen can write");
    for (kind, organization) in types.into_iter().zip(organizations) {
        params.distinguished_name.push(kind, *organization);
    }
    params
}

/// Content of the first DER element, and what comes behind the element.
fn element(der: &[u8]) -> (&[u8], &[u8]) {
    let (header, length) = match der[1] {
        short @ 0..0x80 => (2, usize::from(short)),
        long => {
            let size = usize::from(long - 0x80);
            (2 + size, der[2..2 + size].iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
        }
    };
    der[header..].split_at(length)
}

/// A DER element.
fn wrapped(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("small").to_be_bytes();
    let length: &[u8] = match length {
        [0, short @ 0..0x80] => &[short],
        [0, long] => &[0x81, long],
        [high, low] => &[0x82, high, low],
    };
    [&[tag], length, content].concat()
}

/// A folder for files of a test; gone at its end.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(tempfile::tempdir().expect("temporary folder"))
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).expect("written");
        path
    }
}

/// Shakes hands in memory; both ends, or the first error.
pub(crate) fn shake_hands(
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> Result<(ServerConnection, ClientConnection), Error> {
    let (mut server, mut client) = (ServerConnection::new(server)?, ClientConnection::new(client, name)?);
    for _ in 0..10 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).expect("in memory");
        }
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).expect("in memory");
            server.process_new_packets()?;
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).expect("in memory");
        }
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("in memory");
            client.process_new_packets()?;
        }
    }
    Ok((server, client))
}
