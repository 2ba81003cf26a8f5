//! An HTTP client for looking at answers as they are: HTTP/1.1 or HTTP/2 over TLS, any credential, nothing
//! followed or decoded. Repeated is only what the server says it has not looked at (GOAWAY, RFC 9113, section 6.8), as
//! every HTTP/2 client does: kube-apiserver sends one after each anonymous request, which the next may cross.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;

use crate::Outcome;

/// A whole answer must be there within this: far above anything that a healthy server needs.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// Connections in a row that may end before they look at a request.
const UNSEEN_MAX: u32 = 5;

/// Where requests go.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// What reports call it: `direct`, `usher`.
    pub name: &'static str,
    /// Its address.
    pub address: SocketAddr,
    /// The authority that vouches for its certificate.
    pub authority: CertificateDer<'static>,
}

/// What a client proves itself with; all parts may be there at once, or none.
#[derive(Debug, Default)]
pub struct Credential {
    /// Certificate chain and key.
    pub certificate: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    /// Headers of every request: `Authorization`, `X-Remote-User`, `Impersonate-User`, …
    pub headers: HeaderMap,
}

impl Clone for Credential {
    fn clone(&self) -> Self {
        let certificate = self.certificate.as_ref().map(|(chain, key)| (chain.clone(), key.clone_key()));
        Self { certificate, headers: self.headers.clone() }
    }
}

impl Credential {
    /// A client certificate from `NAME.crt` and `NAME.key` in `folder`.
    pub fn certificate(folder: &Path, name: &str) -> Outcome<Self> {
        let wrong = |error: rustls_pki_types::pem::Error| format!("{name} in {}: {error}", folder.display());
        let chain = CertificateDer::pem_file_iter(folder.join(format!("{name}.crt")))
            .and_then(Iterator::collect)
            .map_err(wrong)?;
        let key = PrivateKeyDer::from_pem_file(folder.join(format!("{name}.key"))).map_err(wrong)?;
        Ok(Self { certificate: Some((chain, key)), headers: HeaderMap::new() })
    }

    /// A bearer token.
    pub fn token(token: &str) -> Self {
        Self::default().with("authorization", &format!("Bearer {token}"))
    }

    /// The same with one more header. Values that no header can carry are a fault of the caller.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name).expect("a header's name");
        self.headers.append(name, HeaderValue::try_from(value).expect("a header's value"));
        self
    }
}

/// Which HTTP is spoken, offered alone by ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, one request at a time.
    Http1,
    /// HTTP/2.
    Http2,
}

/// One whole answer.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its whole body.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON; null if it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// A header as text; empty if absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Itself if it says success, else a sentence with the start of its body.
    pub fn success(self) -> Outcome<Self> {
        if self.status.is_success() {
            return Ok(self);
        }
        let body: String = String::from_utf8_lossy(&self.body).chars().take(300).collect();
        Err(format!("{}: {body}", self.status))
    }
}

/// One connection at a time to one endpoint, opened when needed and again when it was closed.
#[derive(Debug)]
pub struct Client {
    endpoint: Endpoint,
    credential: Credential,
    protocol: Protocol,
    connection: Option<Connection>,
}

#[derive(Debug)]
enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Client {
    /// A client without a connection yet.
    pub fn new(endpoint: &Endpoint, credential: &Credential, protocol: Protocol) -> Self {
        Self { endpoint: endpoint.clone(), credential: credential.clone(), protocol, connection: None }
    }

    /// `GET` of a path with query, read to its end.
    pub async fn get(&mut self, target: &str) -> Outcome<Answer> {
        self.send(Method::GET, target, &HeaderMap::new(), Bytes::new()).await
    }

    /// Sends `document` as JSON and reads the answer to its end.
    pub async fn json(
        &mut self,
        method: Method,
        target: &str,
        document: &serde_json::Value,
    ) -> Outcome<Answer> {
        let mut headers = HeaderMap::new();
        let format =
            if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format));
        self.send(method, target, &headers, Bytes::from(document.to_string())).await
    }

    /// Sends one request and reads the answer to its end.
    pub async fn send(
        &mut self,
        method: Method,
        target: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Outcome<Answer> {
        let name = format!("{method} {target} ({})", self.endpoint.name);
        let exchange = async {
            let (parts, body) = self.open(method, target, headers, body).await?.into_parts();
            let body = body.collect().await.map_err(|error| format!("{name}: body: {error}"))?.to_bytes();
            Ok(Answer { status: parts.status, headers: parts.headers, body })
        };
        let answer = tokio::time::timeout(ANSWER_TIME_MAX, exchange).await;
        if !matches!(answer, Ok(Ok(_))) {
            self.connection = None;
        }
        answer.unwrap_or_else(|_| Err(format!("{name}: no whole answer within {ANSWER_TIME_MAX:?}")))
    }

    /// Sends one request and gives the answer as soon as its head is there.
    pub async fn open(
        &mut self,
        method: Method,
        target: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Outcome<Response<Incoming>> {
        let name = format!("{method} {target} ({})", self.endpoint.name);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.uri(target)?;
        if self.protocol == Protocol::Http1 {
            let host = HeaderValue::try_from(self.endpoint.address.to_string()).expect("an address");
            request.headers_mut().insert(header::HOST, host);
        }
        request.headers_mut().extend(self.credential.headers.clone());
        for (key, value) in headers {
            request.headers_mut().append(key, value.clone());
        }
        let sent = async {
            let mut unseen = 0;
            loop {
                let request = request.clone();
                let sent = match self.connected().await? {
                    Connection::Http1(sender) => sender.send_request(request).await,
                    Connection::Http2(sender) => sender.send_request(request).await,
                };
                match sent {
                    Err(error) if unseen < UNSEEN_MAX && was_unseen(&error) => {
                        unseen += 1;
                        self.connection = None;
                    }
                    sent => return sent.map_err(|error| format!("{name}: {}", chain(&error))),
                }
            }
        };
        match tokio::time::timeout(ANSWER_TIME_MAX, sent).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("{name}: no answer within {ANSWER_TIME_MAX:?}")),
        }
    }

    /// Forgets the connection: the next request opens a new one.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    fn uri(&self, target: &str) -> Outcome<Uri> {
        let wrong = |error: &dyn std::fmt::Display| format!("{target:?} is no target: {error}");
        let target = target.parse().map_err(|error| wrong(&error))?;
        let mut parts = http::uri::Parts::default();
        parts.path_and_query = Some(target);
        if self.protocol == Protocol::Http2 {
            parts.scheme = Some(http::uri::Scheme::HTTPS);
            parts.authority = self.endpoint.address.to_string().parse().ok();
        }
        Uri::from_parts(parts).map_err(|error| wrong(&error))
    }

    /// The open connection, or a new one.
    async fn connected(&mut self) -> Outcome<&mut Connection> {
        let ready = match &mut self.connection {
            Some(Connection::Http1(sender)) => sender.ready().await.is_ok(),
            Some(Connection::Http2(sender)) => sender.ready().await.is_ok(),
            None => false,
        };
        if !ready {
            self.connection = Some(self.connect().await?);
        }
        Ok(self.connection.as_mut().expect("just connected"))
    }

    async fn connect(&self) -> Outcome<Connection> {
        let address = self.endpoint.address;
        let failed = |error: &dyn std::error::Error| format!("{} at {address}: {error}", self.endpoint.name);
        let stream = TcpStream::connect(address).await.map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        let config = tls(&self.endpoint, &self.credential, self.protocol)?;
        let stream = tokio_rustls::TlsConnector::from(Arc::new(config))
            .connect(ServerName::IpAddress(address.ip().into()), stream)
            .await
            .map_err(|error| failed(&error))?;
        let stream = TokioIo::new(stream);
        match self.protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(stream).await.map_err(|error| failed(&error))?;
                tokio::spawn(connection.with_upgrades());
                Ok(Connection::Http1(sender))
            }
            Protocol::Http2 => {
                let (sender, connection) =
                    http2::handshake(TokioExecutor::new(), stream).await.map_err(|error| failed(&error))?;
                tokio::spawn(connection);
                Ok(Connection::Http2(sender))
            }
        }
    }
}

/// `GET` over plain HTTP: health checks, usher's admin port.
pub async fn plain_get(address: SocketAddr, target: &str) -> Outcome<Answer> {
    let failed = |error: &dyn std::error::Error| format!("http://{address}{target}: {error}");
    let exchange = async {
        let stream = TcpStream::connect(address).await.map_err(|error| failed(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        tokio::spawn(connection);
        let request = Request::get(target)
            .header(header::HOST, address.to_string())
            .body(Full::new(Bytes::new()))
            .map_err(|error| failed(&error))?;
        let (parts, body) = sender.send_request(request).await.map_err(|error| failed(&error))?.into_parts();
        let body = body.collect().await.map_err(|error| failed(&error))?.to_bytes();
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    };
    tokio::time::timeout(ANSWER_TIME_MAX, exchange)
        .await
        .unwrap_or_else(|_| Err(format!("http://{address}{target}: no answer within {ANSWER_TIME_MAX:?}")))
}

fn tls(endpoint: &Endpoint, credential: &Credential, protocol: Protocol) -> Outcome<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(endpoint.authority.clone()).map_err(|error| format!("certificate authority: {error}"))?;
    let builder = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?
        .with_root_certificates(roots);
    let mut config = match &credential.certificate {
        Some((chain, key)) => builder
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(|error| format!("client certificate: {error}"))?,
        None => builder.with_no_client_auth(),
    };
    let name: &[u8] = if protocol == Protocol::Http2 { b"h2" } else { b"http/1.1" };
    config.alpn_protocols = vec![name.to_vec()];
    Ok(config)
}

/// The cryptography of both ends of the tests' TLS.
pub fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Whether the server has said that it closes the connection without having looked at this request.
fn was_unseen(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        cause.is_go_away() && cause.is_remote() && cause.reason() == Some(h2::Reason::NO_ERROR)
    })
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
