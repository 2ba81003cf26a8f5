//! The public keys of service-account tokens: from PEM files or from a JWKS document, and what they verify.
//!
//! A key decides which algorithms it may be used with, never the token: `none` and the HMAC family are not known
//! here at all, so a public key cannot be taken for a shared secret (RFC 8725, sections 2.1 and 3.1).

use std::path::Path;

use aws_lc_rs::digest;
use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::signature::{
    self as sig, EcdsaKeyPair, KeyPair as _, ParsedPublicKey, RsaKeyPair, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::pem::{self, SectionKind};
use serde::Deserialize;

use crate::reload::FileFault;

/// Most keys in one file or document: an issuer has one or two, three while it changes them.
const KEYS_MAX: usize = 64;

/// Keys that verify service-account tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys(Vec<Key>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    /// What a token's `kid` says: for keys from files base64url(SHA-256(SubjectPublicKeyInfo)), as kube-apiserver
    /// computes it; for a JWKS what the document says.
    id: String,
    kind: Kind,
    /// SubjectPublicKeyInfo, or an uncompressed point.
    public: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Rsa,
    P256,
    P384,
    P521,
}

impl Kind {
    /// The way to verify a token that says `alg`, if this kind of key has one.
    fn algorithm(self, alg: &str) -> Option<&'static dyn VerificationAlgorithm> {
        Some(match (self, alg) {
            (Kind::Rsa, "RS256") => &sig::RSA_PKCS1_2048_8192_SHA256,
            (Kind::Rsa, "RS384") => &sig::RSA_PKCS1_2048_8192_SHA384,
            (Kind::Rsa, "RS512") => &sig::RSA_PKCS1_2048_8192_SHA512,
            (Kind::Rsa, "PS256") => &sig::RSA_PSS_2048_8192_SHA256,
            (Kind::Rsa, "PS384") => &sig::RSA_PSS_2048_8192_SHA384,
            (Kind::Rsa, "PS512") => &sig::RSA_PSS_2048_8192_SHA512,
            (Kind::P256, "ES256") => &sig::ECDSA_P256_SHA256_FIXED,
            (Kind::P384, "ES384") => &sig::ECDSA_P384_SHA384_FIXED,
            (Kind::P521, "ES512") => &sig::ECDSA_P521_SHA512_FIXED,
            _ => return None,
        })
    }

    /// Any of its algorithms, to find out whether a key can be read.
    fn some_algorithm(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Kind::Rsa => &sig::RSA_PKCS1_2048_8192_SHA256,
            Kind::P256 => &sig::ECDSA_P256_SHA256_FIXED,
            Kind::P384 => &sig::ECDSA_P384_SHA384_FIXED,
            Kind::P521 => &sig::ECDSA_P521_SHA512_FIXED,
        }
    }
}

impl Keys {
    /// The keys of a PEM file: public keys, private keys (their public half) or certificates. Other blocks are
    /// skipped, as kube-apiserver does.
    ///
    /// # Errors
    /// If there is no usable key.
    pub fn from_pem(path: &Path, bytes: &[u8]) -> Result<Keys, FileFault> {
        let refuse = |problem: String| {
            FileFault::new(
                path,
                problem,
                "give a PEM file with RSA (2048 bits or more) or ECDSA P-256, P-384, P-521 keys",
            )
        };
        let mut keys = Vec::new();
        let mut rest = bytes;
        while let Some((kind, der)) =
            pem::from_buf(&mut rest).map_err(|error| refuse(format!("broken PEM ({error})")))?
        {
            keys.extend(public_half(kind, &der).and_then(Key::from_public));
            if keys.len() > KEYS_MAX {
                return Err(refuse(format!("more than {KEYS_MAX} keys")));
            }
        }
        if keys.is_empty() {
            return Err(refuse("no usable key in it".into()));
        }
        Ok(Keys(keys))
    }

    /// The keys of a JWKS document (RFC 7517), such as `/openid/v1/jwks` of an apiserver. Keys of other kinds, or
    /// for other uses than signatures, are skipped.
    ///
    /// # Errors
    /// If it is not such a document, or has no usable key.
    pub fn from_jwks(document: &[u8]) -> Result<Keys, String> {
        let document: Document =
            serde_json::from_slice(document).map_err(|error| format!("not a JWKS: {error}"))?;
        if document.keys.len() > KEYS_MAX {
            return Err(format!("more than {KEYS_MAX} keys"));
        }
        let keys: Vec<_> = document.keys.iter().filter_map(Key::from_jwk).collect();
        if keys.is_empty() {
            return Err("no RSA or ECDSA key for signatures in it".into());
        }
        Ok(Keys(keys))
    }

    /// These keys and those.
    #[must_use]
    pub fn and(mut self, others: Keys) -> Keys {
        self.0.extend(others.0);
        self
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of the keys that may have signed `message` did. With a key id only keys of that id are tried.
    pub(super) fn verify(&self, kid: &str, alg: &str, message: &[u8], signature: &[u8]) -> bool {
        self.0.iter().filter(|key| kid.is_empty() || key.id == kid).any(|key| {
            let Some(algorithm) = key.kind.algorithm(alg) else { return false };
            sig::UnparsedPublicKey::new(algorithm, &key.public).verify(message, signature).is_ok()
        })
    }
}

impl Key {
    /// From a SubjectPublicKeyInfo.
    fn from_public(public: Vec<u8>) -> Option<Key> {
        let kind = [Kind::Rsa, Kind::P256, Kind::P384, Kind::P521]
            .into_iter()
            .find(|kind| ParsedPublicKey::new(kind.some_algorithm(), &public).is_ok())?;
        let hash = digest::digest(&digest::SHA256, &public);
        Some(Key { id: URL_SAFE_NO_PAD.encode(hash), kind, public })
    }

    fn from_jwk(jwk: &Jwk) -> Option<Key> {
        if jwk.usage.as_deref().is_some_and(|usage| usage != "sig") {
            return None;
        }
        let number = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        let (kind, public) = match (jwk.kind.as_str(), jwk.curve.as_deref()) {
            ("RSA", _) => {
                let (n, e) = (number(&jwk.n)?, number(&jwk.e)?);
                let public: PublicKeyX509Der<'_> = sig::RsaPublicKeyComponents { n, e }.as_der().ok()?;
                (Kind::Rsa, public.as_ref().to_vec())
            }
            ("EC", Some(curve)) => {
                let (kind, size) = match curve {
                    "P-256" => (Kind::P256, 32),
                    "P-384" => (Kind::P384, 48),
                    "P-521" => (Kind::P521, 66),
                    _ => return None,
                };
                let (x, y) = (number(&jwk.x)?, number(&jwk.y)?);
                (kind, point(size, &x, &y)?)
            }
            _ => return None,
        };
        ParsedPublicKey::new(kind.some_algorithm(), &public).ok()?;
        Some(Key { id: jwk.kid.clone().unwrap_or_default(), kind, public })
    }
}

/// An uncompressed point (SEC1), each coordinate `size` bytes.
fn point(size: usize, x: &[u8], y: &[u8]) -> Option<Vec<u8>> {
    let mut point = vec![4];
    for coordinate in [x, y] {
        point.resize(point.len() + size.checked_sub(coordinate.len())?, 0);
        point.extend_from_slice(coordinate);
    }
    Some(point)
}

/// The SubjectPublicKeyInfo in or behind a PEM block; `None` for blocks that are no keys.
fn public_half(kind: SectionKind, der: &[u8]) -> Option<Vec<u8>> {
    match kind {
        SectionKind::PublicKey => Some(der.to_vec()),
        SectionKind::Certificate => {
            let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
            Some(certificate.public_key().raw.to_vec())
        }
        SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey => of_private(der),
        _ => None,
    }
}

fn of_private(der: &[u8]) -> Option<Vec<u8>> {
    if let Ok(pair) = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der)) {
        let public: PublicKeyX509Der<'_> = pair.public_key().as_der().ok()?;
        return Some(public.as_ref().to_vec());
    }
    let curves = [
        &sig::ECDSA_P256_SHA256_FIXED_SIGNING,
        &sig::ECDSA_P384_SHA384_FIXED_SIGNING,
        &sig::ECDSA_P521_SHA512_FIXED_SIGNING,
    ];
    let pair = curves.into_iter().find_map(|curve| EcdsaKeyPair::from_private_key_der(curve, der).ok())?;
    let public: PublicKeyX509Der<'_> = pair.public_key().as_der().ok()?;
    Some(public.as_ref().to_vec())
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    #[serde(rename = "kty")]
    kind: String,
    #[serde(rename = "use")]
    usage: Option<String>,
    kid: Option<String>,
    n: Option<String>,
    e: Option<String>,
    #[serde(rename = "crv")]
    curve: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

#[cfg(test)]
mod tests;
