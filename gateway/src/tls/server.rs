//! Towards clients: the serving certificate, and any client certificate whose key the client holds.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved, ServerConfig,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use webpki::RawPublicKeyEntity;

use super::{pem, provider};
use crate::reload::{Contents, FileFault, Reload, Reloaded};

/// Files of the serving side. Flags have kube-apiserver's names.
#[derive(Clone, Debug, Default)]
pub struct ServerFiles {
    /// `--tls-cert-file`: the serving certificate, followed by its intermediates.
    pub certificate: PathBuf,
    /// `--tls-private-key-file`.
    pub private_key: PathBuf,
    /// `--client-ca-file`.
    pub client_ca: Option<PathBuf>,
    /// `--requestheader-client-ca-file`.
    pub requestheader_client_ca: Option<PathBuf>,
}

/// The serving side's configuration, following its files.
#[derive(Debug)]
pub struct Server {
    config: Arc<Reloaded<ServerConfig>>,
}

impl Server {
    /// Reads the files.
    ///
    /// # Errors
    /// The first file that is not what it should be: there is no self-signed stand-in.
    pub fn new(files: ServerFiles) -> Result<Server, FileFault> {
        let paths = [Some(&files.certificate), Some(&files.private_key)]
            .into_iter()
            .chain([files.client_ca.as_ref(), files.requestheader_client_ca.as_ref()])
            .flatten()
            .cloned()
            .collect();
        let config = Reloaded::new("serving certificate", paths, move |contents| config(&files, contents))?;
        Ok(Server { config: Arc::new(config) })
    }

    /// What a connection accepted now is to use, for all of its life.
    #[must_use]
    pub fn current(&self) -> Arc<ServerConfig> {
        self.config.current()
    }

    /// For [`crate::reload::Watch`].
    #[must_use]
    pub fn reload(&self) -> Arc<dyn Reload> {
        Arc::clone(&self.config) as Arc<dyn Reload>
    }
}

fn config(files: &ServerFiles, contents: &Contents) -> Result<ServerConfig, FileFault> {
    let chain = pem::certificates(&files.certificate, contents.of(&files.certificate))?;
    let key = pem::private_key(&files.private_key, contents.of(&files.private_key))?;
    pem::warn_if_expired(&files.certificate, &chain[0]);
    let refuse = |error: Error| {
        let remedy = "give the certificate that --tls-private-key-file is the key of";
        FileFault::new(
            &files.certificate,
            format!("certificate and key do not go together ({error})"),
            remedy,
        )
    };

    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(refuse)?;
    let hints = hints(&[files.client_ca.as_deref(), files.requestheader_client_ca.as_deref()], contents)?;
    let builder = match hints {
        Some(hints) => builder.with_client_cert_verifier(Arc::new(AnyClient::new(hints))),
        None => builder.with_no_client_auth(), // nobody to vouch for one: as kube-apiserver, do not ask
    };
    let mut config = builder.with_single_cert(chain, key).map_err(refuse)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Tickets instead of a table of sessions: resuming costs no memory here. A ticket holds the client's
    // chain as it was first sent; identity verifies that chain anew for every connection, resumed or not, so a
    // ticket outlives neither a certificate nor a CA. Each configuration has its own ticket keys.
    config.enable_secret_extraction = true; // records are opened and sealed by `super::record`
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().map_err(refuse)?;
    Ok(config)
}

/// Names of the authorities whose certificates are of use here, sent to clients that have several
/// certificates to choose from. `None` if no bundle is configured.
fn hints(
    bundles: &[Option<&Path>],
    contents: &Contents,
) -> Result<Option<Vec<DistinguishedName>>, FileFault> {
    let mut names: Option<Vec<DistinguishedName>> = None;
    for bundle in bundles.iter().flatten() {
        let known = names.get_or_insert_default();
        for name in pem::anchors(bundle, contents.of(bundle))?.subjects() {
            if !known.iter().any(|other| other.as_ref() == name.as_ref()) {
                known.push(name);
            }
        }
    }
    Ok(names)
}

/// Accepts every client certificate whose key the client proves to hold; [`crate::identity`] judges the chain.
#[derive(Debug)]
struct AnyClient {
    hints: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl AnyClient {
    fn new(hints: Vec<DistinguishedName>) -> AnyClient {
        AnyClient { hints, algorithms: provider().signature_verification_algorithms }
    }
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = public_key(certificate)?;
        let key = RawPublicKeyEntity::try_from(&key).map_err(|_| CertificateError::BadEncoding)?;
        let known = self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == signature.scheme);
        let (_, algorithms) = known.ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        // TLS 1.2 does not name the curve: every algorithm of the scheme is tried.
        if algorithms.iter().any(|each| key.verify_signature(*each, message, signature.signature()).is_ok()) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        Err(CertificateError::BadSignature.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = public_key(certificate)?;
        rustls::crypto::verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The key of a certificate, of whatever version: rustls's own way would refuse version 1, and with it the handshake.
fn public_key(certificate: &CertificateDer<'_>) -> Result<SubjectPublicKeyInfoDer<'static>, Error> {
    let parsed = x509_parser::parse_x509_certificate(certificate);
    let (_, parsed) = parsed.map_err(|_| CertificateError::BadEncoding)?;
    Ok(SubjectPublicKeyInfoDer::from(parsed.public_key().raw.to_vec()))
}
