//! The demo's files: certificates, tokens, a kubeconfig. All in a folder that goes with the demo.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::{Failure, cast};

/// Where they are, and what clients connect with.
pub(super) struct Files {
    pub(super) authority: PathBuf,
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) tokens: PathBuf,
    pub(super) connector: TlsConnector,
}

/// Makes them.
pub(super) fn write(folder: &Path) -> Result<Files, Failure> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate()?;
    let authority = params.self_signed(&authority_key)?;
    let issuer = Issuer::from_params(&params, &authority_key);
    let key = KeyPair::generate()?;
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names)?.signed_by(&key, &issuer)?;

    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone())?;
    let mut client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = vec![b"h2".to_vec()];

    let mut tokens = String::new();
    for (number, credential) in cast::credentials().iter().enumerate() {
        writeln!(tokens, "{},{},{number},\"{}\"", credential.token, credential.user, credential.groups)?;
    }
    let put = |name: &str, text: &str| -> std::io::Result<PathBuf> {
        let path = folder.join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    };
    Ok(Files {
        authority: put("ca.crt", &authority.pem())?,
        certificate: put("tls.crt", &certificate.pem())?,
        key: put("tls.key", &key.serialize_pem())?,
        tokens: put("tokens.csv", &tokens)?,
        connector: TlsConnector::from(Arc::new(client)),
    })
}

impl Files {
    /// A kubeconfig of the demo's administrator, for `kubectl --kubeconfig`.
    pub(super) fn write_kubeconfig(&self, folder: &Path, server: SocketAddr) -> Result<PathBuf, Failure> {
        let path = folder.join("kubeconfig");
        let authority = self.authority.display();
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: usher-demo\n\
             clusters: [{{name: usher-demo, cluster: {{server: \"https://{server}\", certificate-authority: \"{authority}\"}}}}]\n\
             users: [{{name: admin, user: {{token: admin}}}}]\n\
             contexts: [{{name: usher-demo, context: {{cluster: usher-demo, user: admin}}}}]\n"
        );
        std::fs::write(&path, text)?;
        Ok(path)
    }
}
