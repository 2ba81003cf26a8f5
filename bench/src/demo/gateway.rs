//! Usher as a child process: started, awaited, asked for its metrics, ended.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::files::Files;
use super::{Failure, READ_SEATS, WRITE_SEATS};

/// How long usher may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(15);
/// How long it may take to end after it was asked to.
const END_WITHIN: Duration = Duration::from_secs(20);

/// A running usher.
pub(super) struct Gateway {
    pub(super) address: SocketAddr,
    pub(super) admin: SocketAddr,
    child: Child,
}

/// What usher's metrics say of one flow schema.
#[derive(Debug)]
pub(crate) struct SchemaWait {
    pub(crate) level: String,
    pub(crate) schema: String,
    pub(crate) dispatched: f64,
    pub(crate) rejected: f64,
    pub(crate) wait_mean_ms: f64,
}

impl Gateway {
    /// Starts usher in front of `upstream` and waits until it says that it is ready.
    pub(super) async fn start(
        program: &Path,
        folder: &Path,
        files: &Files,
        upstream: SocketAddr,
        admission: bool,
    ) -> Result<Self, Failure> {
        let (address, admin) = (free_address()?, free_address()?);
        let (read, write) = if admission { (READ_SEATS, WRITE_SEATS) } else { (0, 0) };
        let mut child = Command::new(program)
            .arg("serve")
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--secure-port={}", address.port()))
            .arg(format!("--admin-bind-address={admin}"))
            .arg(format!("--upstream=http://{upstream}"))
            .arg(format!("--tls-cert-file={}", files.certificate.display()))
            .arg(format!("--tls-private-key-file={}", files.key.display()))
            .arg(format!("--token-auth-file={}", files.tokens.display()))
            .arg(format!("--enable-priority-and-fairness={admission}"))
            .arg(format!("--max-requests-inflight={read}"))
            .arg(format!("--max-mutating-requests-inflight={write}"))
            .arg("--log-level=error")
            .current_dir(folder)
            .process_group(0) // Ctrl-C is for the demo, which ends usher in good order
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let deadline = tokio::time::Instant::now() + READY_WITHIN;
        loop {
            if let Some(status) = child.try_wait()? {
                return Err(format!("usher ended at once with {status}; what it printed is above").into());
            }
            if let Ok((200, _)) = get(admin, "/readyz").await {
                return Ok(Self { address, admin, child });
            }
            if tokio::time::Instant::now() > deadline {
                return Err(format!(
                    "usher was not ready within {READY_WITHIN:?}; ask http://{admin}/readyz?verbose"
                )
                .into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What each schema met, from `/metrics`.
    pub(super) async fn schema_waits(&self) -> Result<Vec<SchemaWait>, Failure> {
        let (_, text) = get(self.admin, "/metrics").await?;
        let sum = |metric: &str, schema: &str, also: &str| -> f64 {
            samples(&text, metric)
                .filter(|(labels, _)| label(labels, "flow_schema") == Some(schema) && labels.contains(also))
                .fold(0.0, |sum, (_, value)| sum + value)
        };
        let mut schemas: Vec<(String, String)> =
            samples(&text, "apiserver_flowcontrol_dispatched_requests_total")
                .filter_map(|(labels, _)| {
                    Some((
                        label(labels, "priority_level")?.to_owned(),
                        label(labels, "flow_schema")?.to_owned(),
                    ))
                })
                .collect();
        schemas.sort();
        Ok(schemas
            .into_iter()
            .map(|(level, schema)| {
                let wait = "apiserver_flowcontrol_request_wait_duration_seconds";
                let count = sum(&format!("{wait}_count"), &schema, "execute=\"true\"");
                let total = sum(&format!("{wait}_sum"), &schema, "execute=\"true\"");
                SchemaWait {
                    dispatched: sum("apiserver_flowcontrol_dispatched_requests_total", &schema, ""),
                    // Without those who left by themselves, as all clients do when the run ends.
                    rejected: sum("apiserver_flowcontrol_rejected_requests_total", &schema, "")
                        - sum(
                            "apiserver_flowcontrol_rejected_requests_total",
                            &schema,
                            "reason=\"cancelled\"",
                        ),
                    wait_mean_ms: if count > 0.0 { total / count * 1000.0 } else { 0.0 },
                    level,
                    schema,
                }
            })
            .filter(|wait| wait.dispatched + wait.rejected > 0.0)
            .collect())
    }

    /// Asks usher to drain, and waits for its end.
    pub(super) async fn stop(mut self) -> Result<(), Failure> {
        let pid = self.child.id().ok_or("usher ended before it was asked to")?;
        let ended = Command::new("kill").arg("-TERM").arg(pid.to_string()).status().await?;
        if !ended.success() {
            return Err("usher could not be asked to end".into());
        }
        match tokio::time::timeout(END_WITHIN, self.child.wait()).await {
            Ok(status) => match status? {
                status if status.success() => Ok(()),
                status => Err(format!("usher ended with {status}").into()),
            },
            Err(_) => Err(format!("usher did not end within {END_WITHIN:?} of SIGTERM").into()),
        }
    }
}

fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}

/// One GET over plain HTTP/1.1: status and body.
async fn get(server: SocketAddr, path: &str) -> Result<(u16, String), Failure> {
    let stream = TcpStream::connect(server).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request =
        Request::get(path).header(http::header::HOST, server.to_string()).body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

/// The samples of one metric in the text exposition: labels and value.
fn samples<'a>(text: &'a str, metric: &str) -> impl Iterator<Item = (&'a str, f64)> {
    text.lines().filter_map(move |line| {
        let (labels, value) = line.strip_prefix(metric)?.strip_prefix('{')?.rsplit_once("} ")?;
        Some((labels, value.split(' ').next()?.parse().ok()?))
    })
}

/// A label's value. The demo's names need no escapes.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let start = labels.find(&format!("{name}=\""))? + name.len() + 2;
    let rest = &labels[start..];
    Some(&rest[..rest.find('"')?])
}
