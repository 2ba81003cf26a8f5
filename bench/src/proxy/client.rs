//! The TLS client of the bench's own generators. It trusts everyone: what is measured is the other side.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Failure;
use super::files::TOKEN;

/// TLS 1.3 with a full handshake every time and the one key exchange that all contestants know.
pub(crate) fn connector(protocol: &[u8]) -> Result<TlsConnector, Failure> {
    let mut provider = default_provider();
    provider.kx_groups = vec![kx_group::X25519];
    let schemes = provider.signature_verification_algorithms.supported_schemes();
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone(schemes)))
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// A connection over TLS.
pub(crate) async fn connect(server: SocketAddr, tls: &TlsConnector) -> Result<TlsStream<TcpStream>, Failure> {
    over(TcpStream::connect(server).await?, server, tls).await
}

/// TLS on a connection that is there.
pub(crate) async fn over(
    stream: TcpStream,
    server: SocketAddr,
    tls: &TlsConnector,
) -> Result<TlsStream<TcpStream>, Failure> {
    stream.set_nodelay(true)?;
    Ok(tls.connect(ServerName::IpAddress(server.ip().into()), stream).await?)
}

/// The bytes of a GET with the bench's token.
pub(super) fn request(path: &str, more: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {TOKEN}\r\n{more}\r\n").into_bytes()
}

/// Asks once over HTTP/1.1 and reads the answer to its end; an error unless it is a success.
pub(super) async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &[u8],
) -> Result<(), Failure> {
    stream.write_all(request).await?;
    stream.flush().await?;
    let mut answer = Vec::with_capacity(4096);
    loop {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err("the connection was closed before the answer's end".into());
        }
        if let Some(length) = answer_length(&answer)?
            && answer.len() >= length
        {
            return Ok(());
        }
    }
}

/// How long an HTTP/1.1 answer is, head and body, once its head is whole; an error unless it is a success with a
/// length.
pub(super) fn answer_length(read: &[u8]) -> Result<Option<usize>, Failure> {
    let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(read.get(..end).unwrap_or_default());
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(format!("not a success: {status}").into());
    }
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok())
        .ok_or("an answer without a length")?;
    Ok(Some(end + 4 + length))
}

/// An HTTP/2 connection over TLS.
pub(super) async fn http2(
    server: SocketAddr,
    tls: &TlsConnector,
) -> Result<SendRequest<Empty<Bytes>>, Failure> {
    let stream = connect(server, tls).await?;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Asks on an HTTP/2 connection; the answer's body is still to come. An error unless it is a success.
pub(super) async fn ask(
    sender: &mut SendRequest<Empty<Bytes>>,
    target: &str,
) -> Result<Response<Incoming>, Failure> {
    let request = Request::get(format!("https://bench{target}"))
        .header(http::header::AUTHORIZATION, format!("Bearer {TOKEN}"))
        .body(Empty::new())?;
    let response = sender.send_request(request).await?;
    if response.status().is_success() {
        Ok(response)
    } else {
        Err(format!("not a success: {}", response.status()).into())
    }
}

/// Believes every certificate and signature.
#[derive(Debug)]
struct Anyone(Vec<SignatureScheme>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::answer_length;

    #[test]
    fn an_answer_is_as_long_as_its_head_says() {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
        let length = |text: &str| answer_length(text.as_bytes());
        assert_eq!(length("HTTP/1.1 200 OK\r\ncontent-le").expect("no fault yet"), None);
        assert_eq!(length(head).expect("a good head"), Some(head.len() + 5));
        assert!(length("HTTP/1.1 429 Too Many Requests\r\ncontent-length: 5\r\n\r\n").is_err());
        assert!(length("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
    }
}
