//! Memory runs short: usher gives up what it must, in order and aloud, and never more memory than it was told.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;

use crate::group::Group;
use crate::raw::Raw;
use crate::upstream::{Next, Upstream, answer};
use crate::usher::{Setup, Usher, until};

/// What usher is told to keep to: the program itself, a debug build with one worker, takes some 40 MiB; each worker needs
/// room for what it is about to do, for its parts of shared levels, and for what its heap keeps.
const fn limit_mib(workers: u64) -> u64 {
    64 + 48 * workers
}
/// Of a large answer.
const ANSWER_BYTES: usize = 16 << 20;
/// Of a large body.
const LARGE: usize = 300_000;
/// Large answers that nobody reads.
const READERS: usize = 500;
const IDLE: usize = 100;
const BECAUSE: &str = "reason=\"memory\"";
const SMALL: &str = "/api/v1/namespaces/default/configmaps/small";

/// Large answers as fast as they are taken; bodies for `unread` stay where they are.
fn upstream() -> Upstream {
    Upstream::with(|request, stream, gate| {
        if request.target.contains("unread") {
            gate.pass();
            return Ok(Next::Close);
        }
        if !request.target.contains("large") {
            return answer(stream, "200 OK", "small");
        }
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {ANSWER_BYTES}\r\n\r\n")?;
        let block = vec![b'x'; 1 << 16];
        for _ in 0..ANSWER_BYTES >> 16 {
            stream.write_all(&block)?;
        }
        Ok(Next::Keep)
    })
}

#[test]
fn ten_times_the_load_stays_below_the_limit_and_others_are_served() {
    ten_times_the_load(1);
}

#[test]
fn ten_times_the_load_of_two_workers_stays_below_the_limit() {
    ten_times_the_load(2);
}

fn ten_times_the_load(workers: u64) {
    let upstream = upstream();
    let limit = limit_mib(workers);
    // In a control group it finds its limit itself, and is killed if it does not keep to it.
    let group = Group::of_environment(limit << 20);
    let setup = Setup::new(upstream.address).flag(format!("--workers={workers}"));
    let usher = match &group {
        Some(group) => setup.group(group).start(),
        None => setup.flag(format!("--memory-limit={limit}Mi")).start(),
    };
    let mut patient = usher.connect();
    let mut is_served = || {
        patient.get(SMALL, "master");
        assert_eq!(patient.answer().expect("served").status, 200);
    };
    is_served();
    let mut writer = usher.connect();
    assert_eq!(writer.ask(write(1)).status, 200);

    // Connections that were let in while there was room, and the load that comes over them then.
    let mut readers: Vec<Raw> = (0..READERS).filter_map(|_| greeted(&usher)).collect();
    let idle: Vec<Raw> = (0..IDLE).filter_map(|_| greeted(&usher)).collect();
    let uploads = Uploads::start(&usher, 30);
    let mut large_is_refused = false;
    for (number, reader) in readers.iter_mut().enumerate() {
        // And reads nothing of it. It may have been sent away.
        reader.try_get("/api/v1/namespaces/default/configmaps/large", "master");
        if number % 10 != 0 {
            continue;
        }
        is_served();
        if !large_is_refused && usher.metric("usher_memory_pressure", "bodies") > 0.5 {
            assert_eq!(writer.ask(write(2000)).status, 200, "leases are renewed");
            let refused = writer.ask(write(LARGE));
            assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
            large_is_refused = true;
        }
        if usher.metric("usher_memory_pressure", "idle") > 0.5 {
            break; // the rest of the load need not come
        }
    }
    assert!(large_is_refused);
    until("idle ones are closed", || {
        drop(greeted(&usher)); // a newcomer
        is_served();
        usher.metric("usher_connections_ended_total", BECAUSE) >= 1.0
    });
    assert!(usher.logged("memory is tight"));
    let peak = peak_mib(&usher);
    assert!(peak <= limit, "{peak} MiB");
    eprintln!("{peak} MiB of {limit} at the most");
    if let Some(group) = &group {
        let charged = group.peak() >> 20;
        eprintln!(
            "{}: {charged} MiB were charged at the most, {} kills",
            group.folder().display(),
            group.kills()
        );
        assert_eq!(group.kills(), 0);
    }
    assert!(usher.metric("usher_requests_refused_total", BECAUSE) >= 1.0);
    assert!(usher.metric("usher_connections_refused_total", BECAUSE) >= 1.0);
    drop((uploads, readers, idle));
    until("memory is calm again", || usher.metric("usher_memory_pressure", "") < 0.5);
    let mut newcomer = usher.connect();
    newcomer.get(SMALL, "alice");
    assert_eq!(newcomer.answer().expect("served").status, 200);
    usher.all_seats_are_back();
}

/// A write with a body of so many bytes.
fn write(bytes: usize) -> String {
    let body = "x".repeat(bytes);
    format!(
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: usher\r\nAuthorization: Bearer master\r\nContent-Length: {bytes}\r\n\r\n{body}"
    )
}

/// A connection whose handshake is done; `None`: it was not let in.
fn greeted(usher: &Usher) -> Option<Raw> {
    let socket = TcpStream::connect(usher.address).ok()?;
    small_window(&socket);
    Raw::greet(socket, usher.tls(None, &[b"http/1.1"]))
}

/// What the client's kernel would take on its behalf is not what this is about, and the machine's.
fn small_window(socket: &TcpStream) {
    let bytes: libc::c_int = 32 * 1024;
    let length = libc::socklen_t::try_from(size_of_val(&bytes)).expect("a few bytes");
    // SAFETY: the call reads one int that outlives it.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            (&raw const bytes).cast(),
            length,
        )
    };
    assert_eq!(set, 0, "a smaller window");
}

/// HTTP/2 connections that send bodies which nobody reads, until it is dropped.
struct Uploads(#[expect(dead_code, reason = "held")] tokio::runtime::Runtime);

impl Uploads {
    fn start(usher: &Usher, connections: usize) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().expect("threads");
        let (tls, address) = (usher.tls(None, &[b"h2"]), usher.address);
        runtime.spawn(async move {
            for _ in 0..connections {
                // Whoever is refused has done its part.
                let _ = Self::send(address, Arc::clone(&tls)).await;
            }
            std::future::pending::<()>().await;
        });
        Self(runtime)
    }

    async fn send(address: SocketAddr, tls: Arc<ClientConfig>) -> Result<(), Box<dyn std::error::Error>> {
        let socket = tokio::net::TcpStream::connect(address).await?;
        let name = ServerName::IpAddress(address.ip().into());
        let stream = TlsConnector::from(tls).connect(name, socket).await?;
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        for _ in 0..16 {
            let request = http::Request::post("https://usher/api/v1/namespaces/default/configmaps?unread")
                .header("authorization", "Bearer master")
                .body(Full::<Bytes>::from(vec![b'x'; LARGE]))?;
            tokio::spawn(sender.clone().send_request(request));
        }
        Ok(())
    }
}

/// The most that was ever resident.
fn peak_mib(usher: &Usher) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", usher.pid())).expect("a process");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    peak.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") >> 10
}
