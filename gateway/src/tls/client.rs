//! Towards the apiserver: with the front-proxy certificate for identities that usher vouches for, without any
//! for requests that bring their own token or none.
//!
//! The two kinds never share a connection, nor a resumed session: an anonymous request on a connection with
//! the front-proxy certificate would be answered 401 instead of as anonymous.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::{ClientConfig, Error};
use rustls_pki_types::ServerName;

use super::{pem, provider};
use crate::reload::{Contents, FileFault, Reload, Reloaded};

/// Files of the upstream side.
#[derive(Clone, Debug, Default)]
pub struct ClientFiles {
    /// `--upstream-ca-file`: who vouches for the apiserver; kubeadm's is `/etc/kubernetes/pki/ca.crt`. There is
    /// no default and the system's roots are not asked: a cluster's CA is its own.
    pub ca: PathBuf,
    /// `--proxy-client-cert-file` and `--proxy-client-key-file`: kubeadm's `front-proxy-client.crt` and `.key`.
    pub proxy_client: Option<(PathBuf, PathBuf)>,
    /// `--upstream-server-name`: the name to ask for (SNI) and to find in the apiserver's certificate, where it
    /// is not the host of the address.
    pub server_name: Option<String>,
}

/// What a connection to the apiserver shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Presents {
    /// No certificate: for token and anonymous requests.
    Nothing,
    /// The front-proxy certificate: for requests with `X-Remote-*` set by usher.
    FrontProxy,
}

/// What a connection to the apiserver speaks, asked for by ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// `http/1.1`: short requests and upgrades.
    Http1,
    /// `h2`: watches.
    Http2,
}

/// The upstream side's configuration, following its files.
#[derive(Debug)]
pub struct Client {
    configs: Arc<Reloaded<Configs>>,
    server_name: Option<ServerName<'static>>,
}

impl Client {
    /// Reads the files.
    ///
    /// # Errors
    /// The first file that is not what it should be, or a `server_name` that is neither a DNS name nor an
    /// address.
    pub fn new(files: ClientFiles) -> Result<Client, FileFault> {
        let server_name = match &files.server_name {
            Some(name) => Some(ServerName::try_from(name.clone()).map_err(|_| {
                let problem = format!("the server name {name:?} is neither a DNS name nor an IP address");
                FileFault::new(&files.ca, problem, "correct --upstream-server-name")
            })?),
            None => None,
        };
        let mut paths = vec![files.ca.clone()];
        paths.extend(
            files.proxy_client.iter().flat_map(|(certificate, key)| [certificate.clone(), key.clone()]),
        );
        let configs = Reloaded::new("upstream CA and client certificate", paths, move |contents| {
            Configs::build(&files, contents)
        })?;
        Ok(Client { configs: Arc::new(configs), server_name })
    }

    /// What a connection opened now is to use. `None` if it is to present the front-proxy certificate and none
    /// is configured.
    #[must_use]
    pub fn current(&self, presents: Presents, protocol: Protocol) -> Option<Arc<ClientConfig>> {
        let configs = self.configs.current();
        let pair = match presents {
            Presents::Nothing => Some(&configs.nothing),
            Presents::FrontProxy => configs.front_proxy.as_ref(),
        };
        pair.map(|pair| match protocol {
            Protocol::Http1 => Arc::clone(&pair.http1),
            Protocol::Http2 => Arc::clone(&pair.http2),
        })
    }

    /// The name to verify the apiserver by: the configured one, else `host` (DNS name or IP address, IPv6
    /// with or without brackets). `None` if `host` is neither.
    #[must_use]
    pub fn server_name(&self, host: &str) -> Option<ServerName<'static>> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        self.server_name.clone().or_else(|| ServerName::try_from(bare.to_owned()).ok())
    }

    /// For [`crate::reload::Watch`].
    #[must_use]
    pub fn reload(&self) -> Arc<dyn Reload> {
        Arc::clone(&self.configs) as Arc<dyn Reload>
    }
}

struct Configs {
    nothing: Pair,
    front_proxy: Option<Pair>,
}

/// One configuration per protocol, because ALPN is part of it.
struct Pair {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

impl Configs {
    fn build(files: &ClientFiles, contents: &Contents) -> Result<Configs, FileFault> {
        let front_proxy = match files.proxy_client {
            Some(_) => Some(Pair::build(files, contents, Presents::FrontProxy)?),
            None => None,
        };
        Ok(Configs { nothing: Pair::build(files, contents, Presents::Nothing)?, front_proxy })
    }
}

impl Pair {
    fn build(files: &ClientFiles, contents: &Contents, presents: Presents) -> Result<Pair, FileFault> {
        let with_alpn = |protocol: &[u8]| {
            let mut config = config(files, contents, presents)?;
            config.alpn_protocols = vec![protocol.to_vec()];
            config.enable_secret_extraction = true; // records are opened and sealed by `super::record`
            Ok(Arc::new(config))
        };
        Ok(Pair { http1: with_alpn(b"http/1.1")?, http2: with_alpn(b"h2")? })
    }
}

/// Built anew, never cloned: a clone would share the store of resumable sessions.
fn config(files: &ClientFiles, contents: &Contents, presents: Presents) -> Result<ClientConfig, FileFault> {
    let anchors = pem::anchors(&files.ca, contents.of(&files.ca))?;
    let refuse = |path: &PathBuf, error: Error| {
        FileFault::new(
            path,
            format!("cannot be used ({error})"),
            "give the certificate that the key belongs to",
        )
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| refuse(&files.ca, error))?
        .with_root_certificates(anchors);
    match (presents, &files.proxy_client) {
        (Presents::FrontProxy, Some((certificate, key))) => {
            let chain = pem::certificates(certificate, contents.of(certificate))?;
            pem::warn_if_expired(certificate, &chain[0]);
            let private_key = pem::private_key(key, contents.of(key))?;
            builder.with_client_auth_cert(chain, private_key).map_err(|error| refuse(certificate, error))
        }
        _ => Ok(builder.with_no_client_auth()),
    }
}
