//! An admission webhook that takes its time: what makes a request of the tests last as long as they like.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use usher_tests::{Outcome, client, cluster};

/// Allows everything after a while; ends when dropped.
pub(crate) struct SlowWebhook {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    server: JoinHandle<()>,
}

impl SlowWebhook {
    /// Listens with the certificate `webhook` of a cluster.
    pub(crate) async fn start(certificates: &Path, takes: Duration) -> Outcome<Self> {
        let failed = |error: &dyn std::fmt::Display| format!("webhook: {error}");
        let (certificate, key) = cluster::pki::pair(certificates, "webhook");
        let certificate = CertificateDer::from_pem_file(certificate).map_err(|error| failed(&error))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(&error))?;
        let config = rustls::ServerConfig::builder_with_provider(client::provider())
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![certificate], key))
            .map_err(|error| failed(&error))?;
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(cluster::loopback(0)).await.map_err(|error| failed(&error))?;
        let address = listener.local_addr().map_err(|error| failed(&error))?;
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // A connection that fails is the apiserver's to report: its request fails.
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(|request| review(request, takes));
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { address, server })
    }
}

impl Drop for SlowWebhook {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn review(request: Request<Incoming>, takes: Duration) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    tokio::time::sleep(takes).await;
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": review["request"]["uid"], "allowed": true},
    });
    let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    Ok(response)
}
