//! The program under test: started, asked for its seats, ended.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tempfile::TempDir;

use crate::group::Group;
use crate::raw::Raw;

/// How long anything that must happen may take before a test calls it never.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running usher with its files.
pub(crate) struct Usher {
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) folder: TempDir,
    authority: Authority,
    child: Child,
    log: Arc<Mutex<String>>,
}

/// How to start it; [`Setup::new`] is what most tests want.
pub(crate) struct Setup {
    flags: Vec<String>,
    schemas: Vec<(String, String)>,
    files_max: Option<u64>,
    /// Of its control group: whoever writes `0` to it is in.
    entrance: Option<fs::File>,
}

/// A certificate authority that a test made.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

/// A client certificate and its key.
pub(crate) type Credential = (CertificateDer<'static>, PrivateKeyDer<'static>);

impl Setup {
    /// In front of that upstream (`http://…`), tokens `alice` and `master`, one level with one seat: see
    /// [`one_seat`].
    pub(crate) fn new(upstream: SocketAddr) -> Self {
        Self {
            flags: vec![format!("--upstream=http://{upstream}")],
            schemas: vec![("one-seat.yaml".to_owned(), one_seat())],
            files_max: None,
            entrance: None,
        }
    }

    /// With no upstream flag: give your own.
    pub(crate) fn bare() -> Self {
        Self { flags: Vec::new(), ..Self::new(free_address()) }
    }

    /// With that flag; `{folder}` in it is the folder of usher's files.
    pub(crate) fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    /// With that limit of open files.
    pub(crate) fn files_max(mut self, files: u64) -> Self {
        self.files_max = Some(files);
        self
    }

    /// In that control group.
    pub(crate) fn group(mut self, group: &Group) -> Self {
        self.entrance = Some(group.entrance());
        self
    }

    /// Starts it and waits until it is ready to serve (not: until its upstream is healthy).
    pub(crate) fn start(self) -> Usher {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let authority = Authority::new("test authority");
        let (certificate, key) = authority.server();
        let put = |name: &str, text: &str| write(folder.path(), name, text);
        let objects = folder.path().join("objects");
        fs::create_dir(&objects).expect("a folder for the objects");
        for (name, text) in &self.schemas {
            write(&objects, name, text);
        }
        let mut command = Command::new(program());
        command
            .arg("serve")
            .arg("--bind-address=127.0.0.1")
            .args(["--secure-port=0", "--admin-bind-address=127.0.0.1:0"])
            .arg(format!("--tls-cert-file={}", put("tls.crt", &certificate).display()))
            .arg(format!("--tls-private-key-file={}", put("tls.key", &key).display()))
            .arg(format!("--client-ca-file={}", put("ca.crt", &authority.pem).display()))
            .arg(format!("--token-auth-file={}", put("tokens.csv", TOKENS).display()))
            .arg(format!("--flow-control-dir={}", objects.display()))
            // 20 seats over 246 shares: a level with one share has one seat.
            .args(["--max-requests-inflight=15", "--max-mutating-requests-inflight=5"])
            .args(
                self.flags.iter().map(|flag| flag.replace("{folder}", &folder.path().display().to_string())),
            )
            // The same tests with other flags: USHER_TEST_FLAGS=--http1=hyper.
            .args(std::env::var("USHER_TEST_FLAGS").unwrap_or_default().split_whitespace())
            .stdin(Stdio::null());
        if let Some(files) = self.files_max {
            // SAFETY: setrlimit is async-signal-safe and touches nothing of the parent's.
            unsafe {
                command.pre_exec(move || {
                    let limit = libc::rlimit { rlim_cur: files, rlim_max: files };
                    if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0 {
                        Ok(())
                    } else {
                        Err(std::io::Error::last_os_error())
                    }
                });
            }
        }
        if let Some(entrance) = self.entrance {
            // SAFETY: write is async-signal-safe; the file is open until the command is gone.
            unsafe {
                command.pre_exec(move || (&entrance).write_all(b"0"));
            }
        }
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program().display()));
        let log = Arc::<Mutex<String>>::default();
        let (address, admin) = listening(&mut child, Arc::clone(&log));
        let usher = Usher { address, admin, folder, authority, child, log };
        until("usher is alive", || usher.ask_admin("/livez").is_some_and(|(status, _)| status == 200));
        usher
    }
}

/// The ports that it chose: its log says so. What it logs goes on to the test's own output.
fn listening(child: &mut Child, heard: Arc<Mutex<String>>) -> (SocketAddr, SocketAddr) {
    let log = child.stderr.take().expect("a pipe");
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            let field = |name: &str| {
                line.split_once(name)?.1.trim_matches('"').split(['"', ' ']).next()?.parse().ok()
            };
            if let (Some(secure), Some(admin)) = (field("secure=\""), field("admin=")) {
                // The test may have given up.
                let _ = sender.send((secure, admin));
            }
            heard.lock().expect("no holder panics").push_str(&line);
            eprintln!("{line}");
        }
    });
    receiver.recv_timeout(PATIENCE).expect("it listens: see what it logged")
}

impl Usher {
    /// An HTTP/1.1 connection without a client certificate.
    pub(crate) fn connect(&self) -> Raw {
        Raw::connect(self.address, self.tls(None, &[b"http/1.1"]))
    }

    /// One with that client certificate.
    pub(crate) fn connect_as(&self, credential: Credential) -> Raw {
        Raw::connect(self.address, self.tls(Some(credential), &[b"http/1.1"]))
    }

    /// A client configuration that trusts it.
    pub(crate) fn tls(&self, credential: Option<Credential>, protocols: &[&[u8]]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.certificate.clone()).expect("an authority");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions that the provider has")
            .with_root_certificates(roots);
        let mut config = match credential {
            Some((certificate, key)) => builder
                .with_client_auth_cert(vec![certificate], key)
                .expect("a key that fits its certificate"),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }

    /// The authority that its `--client-ca-file` names.
    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The folder of its flow control objects.
    pub(crate) fn objects(&self) -> PathBuf {
        self.folder.path().join("objects")
    }

    /// Its process.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: our own child, not yet reaped, so the pid is still its.
        let sent = unsafe { libc::kill(self.pid(), signal) };
        assert_eq!(sent, 0, "the signal reaches our child");
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("usher ends", || {
            status = self.child.try_wait().expect("a child to ask");
            status.is_some()
        });
        status.expect("it ended")
    }

    /// Status and body of a GET on the admin port; `None` if it does not answer.
    pub(crate) fn ask_admin(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.admin).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// Whether it has said that in its log.
    pub(crate) fn logged(&self, words: &str) -> bool {
        self.log.lock().expect("no holder panics").contains(words)
    }

    /// The sum of all samples of a metric whose labels contain `labels`.
    pub(crate) fn metric(&self, name: &str, labels: &str) -> f64 {
        let (status, text) = self.ask_admin("/metrics").expect("the admin port answers");
        assert_eq!(status, 200, "{text}");
        text.lines()
            .filter_map(|line| line.strip_prefix(name))
            .filter(|rest| rest.starts_with(['{', ' ']) && rest.contains(labels))
            .map(|rest| {
                let value = rest.rsplit_once(['}', ' ']).expect("a sample").1.trim();
                value.parse::<f64>().unwrap_or_else(|_| panic!("{rest}"))
            })
            .sum()
    }

    /// Requests executing and waiting, and seats in use.
    pub(crate) fn occupied(&self) -> [f64; 3] {
        [
            self.metric("apiserver_flowcontrol_current_executing_requests", ""),
            self.metric("apiserver_flowcontrol_current_inqueue_requests", ""),
            self.metric("apiserver_flowcontrol_current_executing_seats", ""),
        ]
    }

    /// Waits until that many requests wait in queues.
    pub(crate) fn until_waiting(&self, requests: f64) {
        until("so many requests wait", || {
            (self.metric("apiserver_flowcontrol_current_inqueue_requests", "") - requests).abs() < 0.5
        });
    }

    /// Waits until that many requests execute.
    pub(crate) fn until_executing(&self, requests: f64) {
        until("so many requests execute", || {
            (self.metric("apiserver_flowcontrol_current_executing_requests", "") - requests).abs() < 0.5
        });
    }

    /// The last question of every test: nothing executes, nothing waits, every seat is back, it still serves.
    pub(crate) fn all_seats_are_back(&self) {
        until("all seats are back", || self.occupied() == [0.0; 3]);
        let (status, _) = self.ask_admin("/livez").expect("it is alive");
        assert_eq!(status, 200);
    }
}

impl Drop for Usher {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Authority {
    /// A new one.
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let (der, pem) = (certificate.der().clone(), certificate.pem());
        Self { issuer: Issuer::new(params, key), certificate: der, pem }
    }

    /// Its certificate.
    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.clone()
    }

    /// Its certificate as a file has it.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// A server's certificate for loopback, and its key.
    pub(crate) fn server(&self) -> (String, String) {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(names).expect("names");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// A client certificate valid between those days from now.
    pub(crate) fn client(&self, user: &str, groups: &[&str], days: std::ops::Range<i64>) -> Credential {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, user);
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let now = std::time::UNIX_EPOCH + since_epoch();
        let at = |day: i64| {
            let span = Duration::from_secs(day.unsigned_abs() * 86_400);
            if day < 0 { now - span } else { now + span }
        };
        (params.not_before, params.not_after) = (at(days.start).into(), at(days.end).into());
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.der().clone(), PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())))
    }
}

/// Polls until it is so; panics after [`PATIENCE`].
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "the bound of a poll")]
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[expect(clippy::disallowed_methods, reason = "certificates are dated")]
fn since_epoch() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970")
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path
}

pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind(("127.0.0.1", 0)).and_then(|socket| socket.local_addr()).expect("a free port")
}

/// The usher program beside this test's own: `cargo test --workspace` builds both.
fn program() -> PathBuf {
    let own = std::env::current_exe().expect("a path of our own");
    let program = own.parent().and_then(Path::parent).expect("target/…/deps").join("usher");
    assert!(program.exists(), "{} is not built: run `cargo build -p usher` first", program.display());
    program
}

const TOKENS: &str = "alice,alice,1,\"people\"\nmaster,root,2,\"system:masters\"\n";

/// Everything that is not `system:masters` goes to one level: one seat, one queue of two.
pub(crate) fn one_seat() -> String {
    "apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: one-seat, uid: 11111111-1111-1111-1111-111111111111}
spec:
  type: Limited
  limited:
    nominalConcurrencyShares: 1
    lendablePercent: 0
    borrowingLimitPercent: 0
    limitResponse: {type: Queue, queuing: {queues: 1, handSize: 1, queueLengthLimit: 2}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: one-seat, uid: 22222222-2222-2222-2222-222222222222}
spec:
  matchingPrecedence: 3
  priorityLevelConfiguration: {name: one-seat}
  rules:
  - subjects:
    - {kind: Group, group: {name: '*'}}
    resourceRules:
    - {verbs: ['*'], apiGroups: ['*'], resources: ['*'], clusterScope: true, namespaces: ['*']}
    nonResourceRules:
    - {verbs: ['*'], nonResourceURLs: ['*']}
"
    .to_owned()
}
