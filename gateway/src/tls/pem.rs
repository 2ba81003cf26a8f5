//! PEM files: what is in them, or what is wrong with them.

use std::path::Path;

use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};

use crate::reload::FileFault;

/// All certificates of a PEM file, at least one.
///
/// # Errors
/// If the file holds none, or one that is broken.
pub fn certificates(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, FileFault> {
    let refuse = |problem: &str| {
        FileFault::new(path, problem, "give a PEM file with at least one \"BEGIN CERTIFICATE\" block")
    };
    let all = CertificateDer::pem_slice_iter(bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| refuse(&format!("broken PEM ({error})")))?;
    if all.is_empty() {
        return Err(refuse("no certificate in it"));
    }
    for (index, certificate) in all.iter().enumerate() {
        if let Err(error) = x509_parser::parse_x509_certificate(certificate) {
            return Err(refuse(&format!("certificate {} of {} is broken ({error})", index + 1, all.len())));
        }
    }
    Ok(all)
}

/// The first private key of a PEM file: PKCS#8, PKCS#1 or SEC1.
///
/// # Errors
/// If the file holds none.
pub fn private_key(path: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, FileFault> {
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| {
        let remedy = "give a PEM file with an unencrypted \"BEGIN PRIVATE KEY\", RSA or EC private key";
        FileFault::new(path, format!("no private key in it ({error})"), remedy)
    })
}

/// A CA bundle as trust anchors, at least one.
///
/// # Errors
/// If the file holds no certificate, or one that cannot be an anchor.
pub(crate) fn anchors(path: &Path, bytes: &[u8]) -> Result<RootCertStore, FileFault> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path, bytes)? {
        warn_if_expired(path, &certificate);
        store.add(certificate).map_err(|error| {
            FileFault::new(
                path,
                format!("a certificate cannot be trusted ({error})"),
                "give a bundle of CA certificates",
            )
        })?;
    }
    Ok(store)
}

/// An expired certificate is used all the same (the operator may know better), but not in silence.
pub(crate) fn warn_if_expired(path: &Path, certificate: &CertificateDer<'_>) {
    let now = i64::try_from(UnixTime::now().as_secs()).unwrap_or(i64::MAX);
    if let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) {
        let validity = parsed.validity();
        if validity.not_after.timestamp() < now || validity.not_before.timestamp() > now {
            tracing::warn!(
                file = %path.display(),
                subject = %parsed.subject(),
                not_before = %validity.not_before,
                not_after = %validity.not_after,
                "certificate is not valid now: connections that need it will fail; renew it or check the clock"
            );
        }
    }
}
