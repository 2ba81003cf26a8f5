//! A connection that stops being HTTP: WebSocket, SPDY.
//!
//! The apiserver's 101 is relayed with all its headers; from then on bytes go both ways, and an end on one side
//! becomes an end on the other, not the end of both (half-close: `kubectl exec` with its input at an end still
//! reads). A tunnel holds no seat: the work that was seated is over.

use std::rc::Rc;

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, Response, Version};
use tokio::io::copy_bidirectional_with_sizes;

use super::Worker;
use super::body::Body;
use super::connection::Client;
use super::headers;
use crate::wire::Wire;

/// Bytes read at once in each direction. A terminal needs few, `kubectl cp` takes what it gets.
const BUFFER_BYTES: usize = 16 * 1024;

/// Keeps the apiserver's connection for when the answer has been written.
pub(super) fn begin(client: &Rc<Client>, head: Response<()>, wire: Wire) -> Response<Body> {
    client.worker.counters.upgrades.add();
    *client.switched.borrow_mut() = Some(wire);
    let (mut parts, ()) = head.into_parts();
    let switched = protocol_of(&parts.headers);
    headers::strip_response(&mut parts.headers, Version::HTTP_11);
    parts.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(protocol) = switched {
        parts.headers.insert(UPGRADE, protocol);
    }
    parts.extensions.clear();
    Response::from_parts(parts, Body::here(Vec::new()))
}

fn protocol_of(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(UPGRADE).cloned()
}

/// Relays until both sides have ended, or one is broken.
pub(super) async fn relay(worker: &Worker, mut client: Wire, mut apiserver: Wire) {
    worker.counters.tunnels_open.add();
    let open = Open(worker);
    let relayed =
        copy_bidirectional_with_sizes(&mut client, &mut apiserver, BUFFER_BYTES, BUFFER_BYTES).await;
    drop(open);
    if let Err(error) = relayed {
        tracing::debug!(worker = worker.settings.name, %error, "a switched connection broke");
    }
}

struct Open<'a>(&'a Worker);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.counters.tunnels_open.remove();
    }
}
