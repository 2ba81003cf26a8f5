//! On usher's own ring: bytes are lent by the driver when they come, what a turn puts is sent together at its end.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;

use usher::ring::{self, Io, Listener, Settings, Stream};

pub(super) fn run(io: Io, listen: SocketAddr, upstream: SocketAddr) -> io::Result<()> {
    let settings = Settings { io, ..Settings::default() };
    ring::run_with(&settings, async {
        let listener = Listener::new(ring::bind(listen)?)?;
        loop {
            let (client, _) = listener.accept().await?;
            ring::spawn(async move {
                // A client that goes away is no concern of the relay's.
                let _ = relay(client, upstream).await;
            });
        }
    })?
}

async fn relay(client: Stream, upstream: SocketAddr) -> io::Result<()> {
    let upstream = ring::connect(upstream).await?;
    let there = (client.clone(), upstream.clone());
    ring::spawn(async move {
        let _ = copy(there.0, there.1).await;
    });
    copy(upstream, client).await
}

/// Until one side ends; then the other is told.
async fn copy(from: Stream, to: Stream) -> io::Result<()> {
    loop {
        poll_fn(|cx| to.poll_room(cx)).await?;
        let chunk = poll_fn(|cx| from.poll_recv(cx)).await?;
        if chunk.is_empty() {
            return poll_fn(|cx| to.poll_close(cx)).await;
        }
        to.put(&chunk);
    }
}
