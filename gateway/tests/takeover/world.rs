//! A network of the test's own, an apiserver's stand-in in it that keeps its port, usher, and clients.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

/// Longer than anything here takes, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The apiserver's port. The network is ours: nobody else has it.
pub(crate) const PORT: u16 = 6443;
/// The name by which the apiserver's own client asks.
pub(crate) const OWN_CLIENT: &str = "apiserver-loopback-client";

/// Runs a test in a network and a table of mounts of its own, which end with it. That needs CAP_SYS_ADMIN, CAP_NET_ADMIN and
/// CAP_BPF: without them it fails where `CI` is set, and else says aloud that it did not run.
pub(crate) fn alone(test: impl FnOnce() + Send + 'static) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let run = move || {
        // SAFETY: takes a number and touches no memory.
        if unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS) } != 0 {
            return Err(io::Error::last_os_error());
        }
        run_well(Command::new("mount").args(["--make-rprivate", "/"]));
        run_well(Command::new("ip").args(["link", "set", "lo", "up"]));
        test();
        Ok(())
    };
    let done = std::thread::Builder::new().name(name.clone()).spawn(run).unwrap().join();
    match done {
        Ok(Ok(())) => {}
        Ok(Err(error)) if std::env::var_os("CI").is_none() => {
            // Not by a macro: the harness would keep it to itself.
            let _ = writeln!(io::stderr(), "{name} DID NOT RUN: no network namespace: {error}");
        }
        Ok(Err(error)) => panic!("no network namespace: {error}"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

pub(crate) fn run_well(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}

/// Everything.
pub(crate) struct World {
    folder: tempfile::TempDir,
    client: Arc<ClientConfig>,
}

/// What a client heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// It came through usher.
    pub(crate) by_usher: bool,
    /// From where the apiserver saw the request come.
    pub(crate) seen: SocketAddr,
}

impl World {
    /// With an apiserver's stand-in on every address.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let ca = authority.self_signed(&key).unwrap();
        let issuer = Issuer::new(authority, key);
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("ca.crt", &ca.pem());
        let sign = |names: &[&str]| {
            let mut params =
                CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            let key = KeyPair::generate().unwrap();
            (params.signed_by(&key, &issuer).unwrap(), key)
        };
        let (certificate, key) = sign(&["127.0.0.1", "::1"]);
        write("tls.crt", &certificate.pem());
        write("tls.key", &key.serialize_pem());
        let mut roots = RootCertStore::empty();
        roots.add(ca.der().clone()).unwrap();
        let client = builder(ClientConfig::builder_with_provider(provider())).with_root_certificates(roots);
        let world = Self { client: Arc::new(client.with_no_client_auth()), folder };
        let (certificate, key) = sign(&["127.0.0.1", "::1", OWN_CLIENT]);
        Self::apiserver(certificate.der().clone(), &key);
        world
    }

    /// Answers everything, over HTTP/1.1 and TLS, with the address that the connection comes from.
    fn apiserver(certificate: CertificateDer<'static>, key: &KeyPair) {
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = builder(ServerConfig::builder_with_provider(provider())).with_no_client_auth();
        let config = Arc::new(config.with_single_cert(vec![certificate], key).unwrap());
        let listener = TcpListener::bind(("::", PORT)).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let peer = canonical(stream.peer_addr().unwrap());
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                std::thread::spawn(move || answer(StreamOwned::new(connection, stream), peer));
            }
        });
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// One request over a connection of its own.
    pub(crate) fn ask(&self, address: &str) -> io::Result<Answer> {
        let address = SocketAddr::new(address.parse().unwrap(), PORT);
        self.ask_on(TcpStream::connect(address)?, address.ip().into())
    }

    /// One request on that connection, to whoever is to have that name.
    pub(crate) fn ask_on(&self, stream: TcpStream, name: ServerName<'static>) -> io::Result<Answer> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let connection = ClientConnection::new(Arc::clone(&self.client), name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(connection, stream);
        stream.write_all(b"GET /api/v1/pods HTTP/1.1\r\nHost: apiserver\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        match stream.read_to_string(&mut text) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof || text.is_empty() => {
                return Err(error);
            }
            _ => {}
        }
        if !text.starts_with("HTTP/1.1 200") {
            return Err(io::Error::other(text));
        }
        let seen = text.rsplit("\r\n\r\n").next().and_then(|body| body.trim().parse().ok());
        let seen = seen.ok_or_else(|| io::Error::other(text.clone()))?;
        Ok(Answer { by_usher: text.contains("X-Kubernetes-Pf-Prioritylevel-Uid"), seen })
    }

    /// usher's command line.
    pub(crate) fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
        let file = |flag: &str, name: &str| format!("--{flag}={}", self.path(name).display());
        command.args([
            "serve",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            "--admin-bind-address=127.0.0.1:0",
        ]);
        command.args([
            file("tls-cert-file", "tls.crt"),
            file("tls-private-key-file", "tls.key"),
            file("upstream-ca-file", "ca.crt"),
            file("runtime-dir", "run"),
            format!("--upstream=https://127.0.0.1:{PORT}"),
        ]);
        command.args(["--log-format=json", "--shutdown-grace-period=5s"]).args(more);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// usher, until it says that it listens and has the port.
    pub(crate) fn usher(&self, more: &[&str]) -> Usher {
        Usher::start(&mut self.command(more), "takeover: the apiserver's port is usher's")
    }

    /// Another one, until it has taken over from the one that runs.
    pub(crate) fn usher_after(&self, more: &[&str]) -> Usher {
        Usher::start(&mut self.command(more), "has taken over")
    }

    /// `usher VERB`, to the usher that runs, if one does. Exit code and what it said.
    pub(crate) fn tell(&self, verb: &str, more: &[&str]) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
        command.arg(verb).arg(format!("--runtime-dir={}", self.path("run").display())).args(more);
        let Output { status, stdout, stderr } = command.env_clear().stdin(Stdio::null()).output().unwrap();
        (status.code().unwrap(), String::from_utf8([stdout, stderr].concat()).unwrap())
    }

    /// A bpf filesystem of the test's own.
    pub(crate) fn bpf_filesystem(&self) -> PathBuf {
        let path = self.path("bpf");
        std::fs::create_dir(&path).unwrap();
        run_well(Command::new("mount").args(["-t", "bpf", "bpf"]).arg(&path));
        path
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.path("bpf").exists() {
            let _ = Command::new("umount").arg(self.path("bpf")).status();
        }
    }
}

/// One that runs.
pub(crate) struct Usher {
    child: Child,
    pub(crate) admin: String,
}

impl Usher {
    fn start(command: &mut Command, until: &str) -> Self {
        let mut child = command.spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let (mut admin, mut text) = (String::new(), String::new());
        loop {
            text.clear();
            assert_ne!(log.read_line(&mut text).unwrap(), 0, "the log ended before usher had the port");
            let line: serde_json::Value = serde_json::from_str(&text).unwrap();
            let message = line["message"].as_str().unwrap_or_default();
            if message == "listening" {
                line["admin"].as_str().unwrap().clone_into(&mut admin);
            }
            if message.starts_with(until) {
                break;
            }
            assert_ne!(line["level"], "ERROR", "{text}");
        }
        std::thread::spawn(move || io::copy(&mut log, &mut io::sink()));
        Self { child, admin }
    }

    /// kill -9, and the end of it.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    /// SIGTERM, and the end of it.
    pub(crate) fn end(self) {
        let pid = self.child.id().to_string();
        run_well(Command::new("kill").args(["-TERM", &pid]));
        self.ends_by_itself();
    }

    /// It has nothing to do any more.
    pub(crate) fn ends_by_itself(mut self) {
        let patience = Patience::new("usher to end");
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            patience.wait();
        }
    }

    /// A page of the admin port.
    pub(crate) fn admin(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.admin).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: usher\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// A metric, by its name and labels as written.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let metrics = self.admin("/metrics");
        let value = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {series} in {metrics}"))
    }

    /// Connections that went a way.
    pub(crate) fn went(&self, path: &str) -> u64 {
        self.metric(&format!("usher_takeover_connections_total{{path=\"{path}\"}}"))
    }
}

impl Drop for Usher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long something may take.
pub(crate) struct Patience(Instant, &'static str);

impl Patience {
    #[expect(clippy::disallowed_methods, reason = "patience is measured by the test's own clock")]
    pub(crate) fn new(awaited: &'static str) -> Self {
        Self(Instant::now() + PATIENCE, awaited)
    }

    #[expect(clippy::disallowed_methods, reason = "patience is measured by the test's own clock")]
    pub(crate) fn wait(&self) {
        assert!(Instant::now() < self.0, "waited in vain for {}", self.1);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Requests without a body, to the end of the connection.
fn answer(mut stream: StreamOwned<ServerConnection, TcpStream>, peer: SocketAddr) {
    let (mut read, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = stream.read(&mut piece) {
        read.extend_from_slice(&piece[..length]);
        while let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let is_last = String::from_utf8_lossy(&read[..end]).contains("Connection: close");
            read.drain(..end + 4);
            let body = peer.to_string();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            if stream.write_all(answer.as_bytes()).is_err() || is_last {
                stream.conn.send_close_notify();
                let _ = stream.flush();
                return;
            }
        }
    }
}

/// IPv4 as IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    let ip: IpAddr = address.ip().to_canonical();
    SocketAddr::new(ip, address.port())
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn builder<S: rustls::ConfigSide>(
    of: rustls::ConfigBuilder<S, rustls::WantsVersions>,
) -> rustls::ConfigBuilder<S, rustls::WantsVerifier> {
    of.with_safe_default_protocol_versions().unwrap()
}
