//! On tokio-uring: a read holds its buffer until bytes come, and every read and write is an operation of its own.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;

use tokio_uring::buf::BoundedBuf as _;
use tokio_uring::net::{TcpListener, TcpStream};

use super::BUFFER_BYTES;

pub(super) fn run(listen: SocketAddr, upstream: SocketAddr) -> io::Result<()> {
    tokio_uring::start(async {
        let listener = TcpListener::bind(listen)?;
        loop {
            let (client, _) = listener.accept().await?;
            tokio_uring::spawn(relay(client, upstream));
        }
    })
}

async fn relay(client: TcpStream, upstream: SocketAddr) -> io::Result<()> {
    client.set_nodelay(true)?;
    let upstream = TcpStream::connect(upstream).await?;
    upstream.set_nodelay(true)?;
    let (client, upstream) = (Rc::new(client), Rc::new(upstream));
    let there = tokio_uring::spawn(copy(Rc::clone(&client), Rc::clone(&upstream)));
    copy(upstream, client).await?;
    there.await.unwrap_or(Ok(()))
}

/// Until one side ends; then the other is told.
async fn copy(from: Rc<TcpStream>, to: Rc<TcpStream>) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let (read, filled) = from.read(buffer).await;
        let read = read?;
        if read == 0 {
            return to.shutdown(Shutdown::Write);
        }
        let (written, sent) = to.write_all(filled.slice(..read)).await;
        written?;
        buffer = sent.into_inner();
    }
}
