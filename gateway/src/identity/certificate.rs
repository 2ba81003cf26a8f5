//! Client certificates: does an authority vouch for this chain, and whose name does it bear?
//!
//! The user is the subject's common name (the last one, if there are several), its groups are the organizations
//! in the order of the certificate, its UID the value of the Kubernetes attribute 1.3.6.1.4.1.57683.2; the extra
//! `authentication.kubernetes.io/credential-id` names the certificate. As kube-apiserver, seen on v1.36.2.
//!
//! Paths are built by webpki; [`direct`] takes what it does not read. parity: RSA keys under 2048 bits are refused
//! here (401) and accepted by kube-apiserver down to 1024.

mod direct;

use std::path::Path;
use std::time::Duration;

use aws_lc_rs::digest;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeId, KeyPurposeIdIter, VerifiedPath};
use x509_parser::asn1_rs::{Any, Oid, Tag, oid};
use x509_parser::certificate::X509Certificate;

use super::Identity;
use crate::reload::FileFault;

/// The extra that names the credential a user came with.
pub(super) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

const COMMON_NAME: Oid<'static> = oid!(2.5.4.3);
const ORGANIZATION: Oid<'static> = oid!(2.5.4.10);
const KUBERNETES_UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// Seconds of Unix time, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) from: i64,
    pub(super) until: i64,
}

impl Window {
    pub(super) const ALWAYS: Window = Window { from: i64::MIN, until: i64::MAX };

    pub(super) fn holds(self, now: i64) -> bool {
        self.from <= now && now <= self.until
    }

    pub(super) fn narrowed(self, other: Window) -> Window {
        Window { from: self.from.max(other.from), until: self.until.min(other.until) }
    }

    fn of(certificate: &X509Certificate<'_>) -> Window {
        let validity = certificate.validity();
        Window { from: validity.not_before.timestamp(), until: validity.not_after.timestamp() }
    }
}

/// The authorities of one CA bundle.
#[derive(Debug)]
pub(super) struct Trust {
    anchors: Vec<TrustAnchor<'static>>,
    /// The certificates that `anchors` are of.
    certificates: Vec<CertificateDer<'static>>,
    /// When each of `anchors` is valid: webpki does not ask, kube-apiserver does.
    windows: Vec<Window>,
}

impl Trust {
    pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Trust, FileFault> {
        let (mut anchors, mut windows) = (Vec::new(), Vec::new());
        let certificates = crate::tls::certificates(path, bytes)?;
        for certificate in &certificates {
            let refuse = |problem: String| FileFault::new(path, problem, "give a bundle of CA certificates");
            let anchor = webpki::anchor_from_trusted_cert(certificate)
                .map_err(|error| refuse(format!("a certificate cannot be trusted ({error})")))?;
            let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
                .map_err(|error| refuse(format!("a certificate is broken ({error})")))?;
            anchors.push(anchor.to_owned());
            windows.push(Window::of(&parsed));
        }
        Ok(Trust { anchors, certificates, windows })
    }

    /// Whether an authority vouches for `chain` (end entity first) as a client's, and for how long it will.
    pub(super) fn vouches(&self, chain: &[CertificateDer<'_>], now: i64) -> Result<Window, String> {
        let (leaf, intermediates) = chain.split_first().ok_or("no certificate")?;
        let by_path = self.path_vouches(leaf, intermediates, now);
        by_path.or_else(|problem| direct::vouches(&self.certificates, leaf, now).map_err(|_| problem))
    }

    fn path_vouches(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: i64,
    ) -> Result<Window, String> {
        let seconds = u64::try_from(now).map_err(|_| "the clock is before 1970")?;
        let leaf = EndEntityCert::try_from(leaf).map_err(|error| error.to_string())?;
        let window = std::cell::Cell::new(Window::ALWAYS);
        let judge = |path: &VerifiedPath<'_>| {
            let found = self.window(path).ok_or(webpki::Error::BadDer)?;
            window.set(found);
            if found.holds(now) { Ok(()) } else { Err(webpki::Error::UnknownIssuer) }
        };
        leaf.verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            &self.anchors,
            intermediates,
            UnixTime::since_unix_epoch(Duration::from_secs(seconds)),
            ForClients,
            None,
            Some(&judge),
        )
        .map_err(|error| error.to_string())?;
        Ok(window.get())
    }

    /// When all certificates of a path are valid.
    fn window(&self, path: &VerifiedPath<'_>) -> Option<Window> {
        let anchor = path.anchor();
        let index = self
            .anchors
            .iter()
            .position(|known| known.subject == anchor.subject && std::ptr::addr_eq(known, anchor))?;
        let mut window = *self.windows.get(index)?;
        let leaf = path.end_entity().der();
        for der in path.intermediate_certificates().map(|certificate| certificate.der()).chain([leaf]) {
            let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
            window = window.narrowed(Window::of(&certificate));
        }
        Some(window)
    }
}

/// Extended key usage as kube-apiserver wants it: none named, or for clients, or for anything.
struct ForClients;

impl ExtendedKeyUsageValidator for ForClients {
    fn validate(&self, usages: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        const CLIENT_AUTH: KeyPurposeId<'_> = KeyPurposeId::new(&[0x2b, 6, 1, 5, 5, 7, 3, 2]);
        const ANY: KeyPurposeId<'_> = KeyPurposeId::new(&[0x55, 0x1d, 0x25, 0]);
        let mut named = 0;
        for usage in usages {
            let usage = usage?;
            if usage == CLIENT_AUTH || usage == ANY {
                return Ok(());
            }
            named += 1;
        }
        if named == 0 {
            return Ok(());
        }
        Err(webpki::Error::RequiredEkuNotFoundContext(webpki::RequiredEkuNotFoundContext {
            required: webpki::KeyUsage::client_auth(),
            present: Vec::new(),
        }))
    }
}

/// Whose certificate this is; `None` if it names nobody.
pub(super) fn user(leaf: &CertificateDer<'_>) -> Result<Option<Identity>, String> {
    let subject = Subject::parse(leaf)?;
    if subject.common_name.is_empty() {
        return Ok(None);
    }
    let uid = match subject.uids.as_slice() {
        [] => String::new(),
        [uid] if !uid.is_empty() => uid.clone(),
        [_] => return Err("the UID is empty".into()),
        _ => return Err("more than one UID".into()),
    };
    let fingerprint = digest::digest(&digest::SHA256, leaf);
    let hex: String = fingerprint.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let credential = format!("X509SHA256={hex}");
    Ok(Some(Identity {
        name: subject.common_name,
        uid,
        groups: subject.organizations,
        extra: vec![(CREDENTIAL_ID.to_owned(), vec![credential])],
    }))
}

/// The common name of a certificate, possibly empty.
pub(super) fn common_name(leaf: &CertificateDer<'_>) -> Result<String, String> {
    Subject::parse(leaf).map(|subject| subject.common_name)
}

/// What a certificate's subject says that matters here.
#[derive(Debug, Default)]
struct Subject {
    common_name: String,
    organizations: Vec<String>,
    uids: Vec<String>,
}

impl Subject {
    fn parse(leaf: &CertificateDer<'_>) -> Result<Subject, String> {
        let (_, certificate) =
            x509_parser::parse_x509_certificate(leaf).map_err(|error| error.to_string())?;
        let mut subject = Subject::default();
        for attribute in certificate.subject().iter_attributes() {
            let value = text(attribute.attr_value()).ok_or("the subject has a malformed value")?;
            let kind = attribute.attr_type();
            if *kind == COMMON_NAME {
                subject.common_name = value;
            } else if *kind == ORGANIZATION {
                subject.organizations.push(value);
            } else if *kind == KUBERNETES_UID {
                subject.uids.push(value);
            }
        }
        Ok(subject)
    }
}

/// A directory string as Go reads it; `None` if it is malformed or of a type that Go refuses.
fn text(value: &Any<'_>) -> Option<String> {
    let bytes = value.data;
    let ascii = |allowed: fn(u8) -> bool| {
        bytes.iter().all(|&byte| allowed(byte)).then(|| bytes.iter().map(|&byte| char::from(byte)).collect())
    };
    match value.tag() {
        Tag::Utf8String => str::from_utf8(bytes).ok().map(str::to_owned),
        Tag::PrintableString => ascii(is_printable),
        Tag::Ia5String => ascii(|byte| byte.is_ascii()),
        Tag::NumericString => ascii(|byte| byte.is_ascii_digit() || byte == b' '),
        Tag::T61String => ascii(|_| true), // read as Latin-1
        Tag::BmpString => basic_plane(bytes),
        _ => None,
    }
}

/// The characters of a PrintableString, and `*` and `&`, which are common and harmless.
fn is_printable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b" '()+,-./:=?*&".contains(&byte)
}

/// UCS-2, big-endian: no surrogates, no non-characters.
fn basic_plane(bytes: &[u8]) -> Option<String> {
    if !bytes.len().is_multiple_of(2) {
        return None;
    }
    let bytes = bytes.strip_suffix(&[0, 0]).unwrap_or(bytes);
    let reserved = |point: u32| matches!(point, 0xfffe | 0xffff | 0xfdd0..=0xfdef);
    bytes
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .map(|point| char::from_u32(point).filter(|_| !reserved(point)))
        .collect()
}

#[cfg(test)]
mod tests;
