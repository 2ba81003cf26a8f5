//! One question over plain HTTP: is a proxy ready, what do usher's metrics say.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Failure;

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Status and body of `GET path`.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Result<(u16, String), Failure> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
        Ok(status.zip(body).ok_or("not an HTTP answer")?)
    };
    tokio::time::timeout(ANSWER_WITHIN, exchange)
        .await
        .unwrap_or_else(|_| Err(format!("http://{address}{path}: no answer within {ANSWER_WITHIN:?}").into()))
}

/// A port of loopback that nobody listens on now.
pub(crate) fn free_address() -> Result<SocketAddr, Failure> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
