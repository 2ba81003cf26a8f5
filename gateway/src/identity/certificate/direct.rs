//! Client certificates that webpki does not read, and kube-apiserver does: X.509 version 1, as `openssl x509 -req`
//! makes them unless told otherwise, and CA certificates used as a client's, as `openssl req -x509` makes them.
//!
//! Only where an authority signed them itself, or has them in its bundle; a longer path is webpki's alone. The
//! conditions are RFC 5280's for a path of two certificates.

use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use webpki::RawPublicKeyEntity;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ParsedExtension;
use x509_parser::x509::X509Version;

use super::Window;

/// Whether one of `anchors` vouches for `leaf` directly, and for how long it will.
pub(super) fn vouches(
    anchors: &[CertificateDer<'_>],
    leaf: &CertificateDer<'_>,
    now: i64,
) -> Result<Window, String> {
    let (_, certificate) = x509_parser::parse_x509_certificate(leaf).map_err(|error| error.to_string())?;
    if certificate.version() == X509Version::V3 && !certificate.is_ca() {
        return Err("not of the kind that is looked at here".into());
    }
    let window = Window::of(&certificate);
    if !window.holds(now) {
        return Err("not valid now".into());
    }
    extensions_allow(&certificate)?;
    if anchors.contains(leaf) {
        return Ok(window);
    }
    let signed_by = |anchor: &CertificateDer<'_>| {
        let (_, issuer) = x509_parser::parse_x509_certificate(anchor).ok()?;
        let narrowed = window.narrowed(Window::of(&issuer));
        (narrowed.holds(now) && may_sign(&issuer) && signed(&issuer, &certificate)).then_some(narrowed)
    };
    anchors.iter().find_map(signed_by).ok_or_else(|| "no authority signed it".to_owned())
}

/// Whether its extensions leave it a client's: a usage that includes clients, nothing critical that is unknown.
fn extensions_allow(certificate: &X509Certificate<'_>) -> Result<(), String> {
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::ExtendedKeyUsage(usage) if !(usage.client_auth || usage.any) => {
                return Err("not for clients".into());
            }
            ParsedExtension::ExtendedKeyUsage(_)
            | ParsedExtension::BasicConstraints(_)
            | ParsedExtension::KeyUsage(_)
            | ParsedExtension::SubjectAlternativeName(_) => {}
            _ if extension.critical => {
                return Err(format!("critical extension {} is not known", extension.oid));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether an anchor may sign certificates that any name may be in.
fn may_sign(issuer: &X509Certificate<'_>) -> bool {
    let key_usage = issuer.key_usage().ok().flatten().is_none_or(|usage| usage.value.key_cert_sign());
    let is_authority = issuer.is_ca() || issuer.version() != X509Version::V3;
    let unconstrained = matches!(issuer.name_constraints(), Ok(None));
    is_authority && key_usage && unconstrained
}

/// Whether `issuer`'s name is that of the certificate's issuer, and its key made the signature. The signature covers
/// the algorithm's name, so it does not matter which of the known algorithms is found to fit.
fn signed(issuer: &X509Certificate<'_>, certificate: &X509Certificate<'_>) -> bool {
    let key = SubjectPublicKeyInfoDer::from(issuer.public_key().raw);
    let Ok(key) = RawPublicKeyEntity::try_from(&key) else { return false };
    let (message, signature) = (certificate.tbs_certificate.as_ref(), &*certificate.signature_value.data);
    let fits = |algorithm: &&dyn rustls_pki_types::SignatureVerificationAlgorithm| {
        key.verify_signature(*algorithm, message, signature).is_ok()
    };
    issuer.subject().as_raw() == certificate.issuer().as_raw()
        && certificate.signature_algorithm == certificate.tbs_certificate.signature
        && webpki::ALL_VERIFICATION_ALGS.iter().any(fits)
}
