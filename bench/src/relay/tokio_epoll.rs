//! On tokio: readiness by epoll, buffers of its `copy_bidirectional`.

use std::io;
use std::net::SocketAddr;

use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream};

use super::BUFFER_BYTES;

pub(super) fn run(listen: SocketAddr, upstream: SocketAddr) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(tokio::task::LocalSet::new().run_until(async {
        let listener = TcpListener::bind(listen).await?;
        loop {
            let (client, _) = listener.accept().await?;
            tokio::task::spawn_local(relay(client, upstream));
        }
    }))
}

async fn relay(mut client: TcpStream, upstream: SocketAddr) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut upstream = TcpStream::connect(upstream).await?;
    upstream.set_nodelay(true)?;
    copy_bidirectional_with_sizes(&mut client, &mut upstream, BUFFER_BYTES, BUFFER_BYTES).await?;
    Ok(())
}
