//! A stand-in for kube-apiserver, in process: enough of the API for a demo, and plainly not the real one.
//!
//! Discovery, and a few kinds with lists, gets, writes and watches, over HTTP/1.1 and HTTP/2 on
//! loopback, plain or TLS. It has what an apiserver has and a demo must show: a service time, a size of its answers, and
//! a concurrency of its own, beyond which work waits inside it, first come first served. It trusts whoever
//! connects: it authenticates nobody. `cargo xtask cluster` brings up the real thing.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

mod api;
pub mod store;

pub use store::{Kind, Store};

/// What it is like.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// How long one request keeps a worker of the stand-in busy.
    pub service_time: Duration,
    /// How many requests it works on at once; the rest waits inside it.
    pub concurrency: usize,
    /// Namespaces it has at the start.
    pub namespaces: usize,
    /// Pods in each of them.
    pub pods: usize,
    /// Nodes.
    pub nodes: usize,
}

/// A running stand-in.
#[derive(Debug)]
pub struct Standin {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its objects.
    pub store: Arc<Store>,
    shared: Arc<Shared>,
    accepting: tokio::task::AbortHandle,
}

#[derive(Debug)]
struct Shared {
    manner: Manner,
    seats: Semaphore,
    store: Arc<Store>,
    served: AtomicU64,
    busy: AtomicU64,
    busy_most: AtomicU64,
}

impl Standin {
    /// Listens on a free port of loopback and serves until the runtime ends.
    ///
    /// # Errors
    /// If no port can be had.
    pub async fn start(manner: Manner) -> std::io::Result<Self> {
        Self::start_on(manner, None).await
    }

    /// The same over TLS; what clients may speak is the configuration's ALPN.
    ///
    /// # Errors
    /// If no port can be had.
    pub async fn start_tls(manner: Manner, tls: Arc<rustls::ServerConfig>) -> std::io::Result<Self> {
        Self::start_on(manner, Some(TlsAcceptor::from(tls))).await
    }

    async fn start_on(manner: Manner, tls: Option<TlsAcceptor>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let store = Arc::new(Store::default());
        populate(&store, manner);
        let shared = Arc::new(Shared {
            manner,
            seats: Semaphore::new(manner.concurrency),
            store: Arc::clone(&store),
            served: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            busy_most: AtomicU64::new(0),
        });
        let accepting = tokio::spawn(accept(listener, tls, Arc::clone(&shared))).abort_handle();
        Ok(Self { address, store, shared, accepting })
    }

    /// Accepts no more connections; those there are end with their clients.
    pub fn stop(&self) {
        self.accepting.abort();
    }

    /// Requests answered since the start.
    pub fn served(&self) -> u64 {
        self.shared.served.load(Ordering::Relaxed)
    }

    /// The most requests it ever held at once, waiting inside it or worked on.
    pub fn busy_most(&self) -> u64 {
        self.shared.busy_most.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (shared, tls) = (Arc::clone(&shared), tls.clone());
        tokio::spawn(async move {
            // Answers are small: waiting to fill segments would only delay them.
            let _ = stream.set_nodelay(true);
            match tls {
                None => converse(stream, shared).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        converse(stream, shared).await;
                    }
                }
            }
        });
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, shared: Arc<Shared>) {
    let service = hyper::service::service_fn(move |request| serve(request, Arc::clone(&shared)));
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http2().max_concurrent_streams(1000);
    // A client that goes away is no concern of the stand-in's.
    let _ = server.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
}

async fn serve(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<api::Body>, Infallible> {
    if api::is_probe(request.uri().path()) {
        return Ok(api::answer(request, &shared.store).await);
    }
    let busy = shared.busy.fetch_add(1, Ordering::Relaxed) + 1;
    shared.busy_most.fetch_max(busy, Ordering::Relaxed);
    let guard = Busy(&shared);
    let seat = shared.seats.acquire().await.expect("the semaphore is never closed");
    tokio::time::sleep(shared.manner.service_time).await;
    let response = api::answer(request, &shared.store).await;
    drop(seat);
    drop(guard);
    shared.served.fetch_add(1, Ordering::Relaxed);
    Ok(response)
}

/// Counts a request out, whichever way it ends.
struct Busy<'a>(&'a Shared);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

fn populate(store: &Store, manner: Manner) {
    let put = |resource: &str, group: &str, namespace: &str, object| {
        let kind = Kind::find(group, resource).expect("a kind of its own");
        store.write(kind, namespace, None, object, true).expect("an empty store takes it");
    };
    for node in 0..manner.nodes {
        let name = format!("node-{node}");
        put(
            "nodes",
            "",
            "",
            json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        );
        put(
            "leases",
            "coordination.k8s.io",
            "kube-node-lease",
            json!({"metadata": {"name": name}, "spec": {"holderIdentity": name}}),
        );
    }
    for name in ["kube-controller-manager", "kube-scheduler"] {
        put(
            "leases",
            "coordination.k8s.io",
            "kube-system",
            json!({"metadata": {"name": name}, "spec": {"holderIdentity": name}}),
        );
    }
    for namespace in ["default", "kube-system", "kube-node-lease"] {
        put("namespaces", "", "", json!({"metadata": {"name": namespace}, "status": {"phase": "Active"}}));
    }
    for index in 0..manner.namespaces {
        let namespace = format!("team-{index}");
        put("namespaces", "", "", json!({"metadata": {"name": namespace}, "status": {"phase": "Active"}}));
        put(
            "configmaps",
            "",
            &namespace,
            json!({"metadata": {"name": "settings"}, "data": {"key": "value"}}),
        );
        for pod in 0..manner.pods {
            put(
                "pods",
                "",
                &namespace,
                json!({
                    "metadata": {"name": format!("web-{pod}"), "labels": {"app": "web"}},
                    "spec": {"nodeName": format!("node-{}", pod % manner.nodes.max(1)), "containers": [{"name": "web", "image": "registry.example/web:1"}]},
                    "status": {"phase": "Running", "podIP": format!("10.0.{index}.{pod}")}
                }),
            );
        }
    }
}

#[cfg(test)]
mod tests;
