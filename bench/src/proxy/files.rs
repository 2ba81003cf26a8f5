//! Files that everyone shares: one certificate, one token, two documents.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::{Failure, put};

/// Where they are.
#[derive(Debug)]
pub(super) struct Files {
    /// Self-signed, ECDSA P-256, for 127.0.0.1.
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    /// Both in one file, as HAProxy wants it.
    pub(super) pair: PathBuf,
    pub(super) tokens: PathBuf,
    /// In memory (/dev/shm), so that no disk is measured.
    pub(super) large: tempfile::NamedTempFile,
}

/// The bearer token of all load. Its user is a service account, which the suggested objects put into the level
/// workload-low: 245 of usher's 600 seats, more than any cell has requests under way.
pub(super) const TOKEN: &str = "token-of-the-bench";
/// The level in which that lands.
pub(super) const LEVEL: &str = "workload-low";
/// Bytes of a small document.
pub(super) const SMALL_BYTES: usize = 1024;
/// Bytes of a large one.
const LARGE_BYTES: usize = 100 * 1024;

impl Files {
    pub(super) fn write(folder: &Path) -> Result<Self, Failure> {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certificate = CertificateParams::new(names)?.self_signed(&key)?;
        let account = "system:serviceaccount:default:bench,bench,\"system:serviceaccounts,system:serviceaccounts:default\"";
        let large = tempfile::Builder::new().prefix("usher-bench-").tempfile_in("/dev/shm")?;
        // nginx's worker may run as somebody else.
        let everyone = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o644);
        std::fs::set_permissions(large.path(), everyone)?;
        put(large.path(), document(LARGE_BYTES))?;
        let files = Self {
            certificate: folder.join("tls.crt"),
            key: folder.join("tls.key"),
            pair: folder.join("tls.pem"),
            tokens: folder.join("tokens.csv"),
            large,
        };
        put(&files.certificate, certificate.pem())?;
        put(&files.key, key.serialize_pem())?;
        put(&files.pair, certificate.pem() + &key.serialize_pem())?;
        put(&files.tokens, format!("{TOKEN},{account}\n"))?;
        Ok(files)
    }

    /// A server with that certificate, for HTTP/2 and HTTP/1.1.
    pub(super) fn server_config(&self) -> Result<Arc<ServerConfig>, Failure> {
        let chain = vec![CertificateDer::from_pem_file(&self.certificate)?];
        let key = PrivateKeyDer::from_pem_file(&self.key)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// A JSON document of exactly so many bytes, with nothing in it that a configuration must quote but `"`.
pub(super) fn document(bytes: usize) -> String {
    let (head, tail) = (r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":""#, "\"}}");
    format!("{head}{}{tail}", "x".repeat(bytes - head.len() - tail.len()))
}
