//! Ushers: started, one after the other, and their files.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, KeyPair};

use crate::PATIENCE;
use crate::apiserver::Apiserver;

/// Certificate, key and runtime directory.
pub(crate) struct Folder {
    folder: tempfile::TempDir,
    pub(crate) certificate: rustls_pki_types::CertificateDer<'static>,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let folder = Self { folder: tempfile::tempdir().unwrap(), certificate: certificate.der().clone() };
        folder.put("tls.crt", &certificate.pem());
        folder.put("tls.key", &key.serialize_pem());
        folder.put("sa.pub", &key.public_key_pem());
        folder
    }

    pub(crate) fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A folder of objects that give everybody one seat, for which others wait.
    pub(crate) fn one_seat(&self) -> PathBuf {
        let folder = self.folder.path().join("objects");
        std::fs::create_dir(&folder).unwrap();
        // 20 seats over 246 shares: a level with one share has one seat.
        let objects = "apiVersion: flowcontrol.apiserver.k8s.io/v1\n\
            kind: PriorityLevelConfiguration\n\
            metadata: {name: one-seat}\n\
            spec:\n  type: Limited\n  limited:\n    nominalConcurrencyShares: 1\n    lendablePercent: 0\n    \
            borrowingLimitPercent: 0\n    \
            limitResponse: {type: Queue, queuing: {queues: 1, handSize: 1, queueLengthLimit: 2}}\n\
            ---\n\
            apiVersion: flowcontrol.apiserver.k8s.io/v1\n\
            kind: FlowSchema\n\
            metadata: {name: one-seat}\n\
            spec:\n  matchingPrecedence: 3\n  priorityLevelConfiguration: {name: one-seat}\n  rules:\n  \
            - subjects: [{kind: Group, group: {name: '*'}}]\n    \
            nonResourceRules: [{verbs: ['*'], nonResourceURLs: [/hold/*]}]\n";
        std::fs::write(folder.join("one-seat.yaml"), objects).unwrap();
        folder
    }

    pub(crate) fn runtime_dir(&self) -> PathBuf {
        self.folder.path().join("run")
    }
}

/// `usher serve`, on the addresses of `before` if there is one, taking over from it.
pub(crate) fn command(
    folder: &Folder,
    apiserver: &Apiserver,
    before: Option<&Serving>,
    flags: &[&str],
) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
    let at = |name: &str| folder.folder.path().join(name).display().to_string();
    let (port, admin) = before
        .map_or((0, "127.0.0.1:0".to_owned()), |before| (before.secure.port(), before.admin.to_string()));
    command
        .arg("serve")
        .args(["--bind-address=127.0.0.1", "--log-format=json", "--upstream-http2=watches"])
        .args([
            "--service-account-issuer=https://here",
            &format!("--service-account-key-file={}", at("sa.pub")),
        ])
        .arg(format!("--secure-port={port}"))
        .arg(format!("--admin-bind-address={admin}"))
        .arg(format!("--runtime-dir={}", folder.runtime_dir().display()))
        .arg(format!("--upstream={}", apiserver.url))
        .args(before.map(|_| "--hand-over=required"));
    // A flag is given once: that of the test wins.
    let defaults = [("tls-cert-file", at("tls.crt")), ("tls-private-key-file", at("tls.key"))];
    for (flag, value) in defaults {
        if !flags.iter().any(|given| given.starts_with(&format!("--{flag}="))) {
            command.arg(format!("--{flag}={value}"));
        }
    }
    command.args(flags).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit code and log of one that ends by itself.
pub(crate) fn ends(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// An usher that serves.
pub(crate) struct Serving {
    child: Child,
    log: Option<BufReader<ChildStderr>>,
    pub(crate) secure: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Serving {
    /// The first.
    pub(crate) fn start(folder: &Folder, apiserver: &Apiserver, flags: &[&str]) -> Self {
        Self::run(command(folder, apiserver, None, flags))
    }

    /// One that takes over; back when it has.
    pub(crate) fn after(former: &Self, folder: &Folder, apiserver: &Apiserver, flags: &[&str]) -> Self {
        let mut serving = Self::run(command(folder, apiserver, Some(former), flags));
        serving.line("has taken over; the former usher drains");
        serving
    }

    /// Until it has all addresses.
    pub(crate) fn run(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let log = Some(BufReader::new(child.stderr.take().unwrap()));
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut serving = Self { child, log, secure: nowhere, admin: nowhere };
        let line = serving.line("listening");
        serving.secure = line["secure"].as_str().unwrap().parse().unwrap();
        serving.admin = line["admin"].as_str().unwrap().parse().unwrap();
        serving
    }

    /// The next log line with that message. Warnings before it are shown.
    pub(crate) fn line(&mut self, message: &str) -> serde_json::Value {
        let log = self.log.as_mut().unwrap();
        let mut text = String::new();
        loop {
            text.clear();
            assert_ne!(log.read_line(&mut text).unwrap(), 0, "the log ended without {message:?}");
            let line: serde_json::Value = serde_json::from_str(&text).unwrap();
            if line["level"] != "INFO" {
                eprint!("{text}");
            }
            if line["message"] == message {
                return line;
            }
        }
    }

    /// Waits until it has the apiserver's port, which is after it listens.
    pub(crate) fn has_taken_the_port(&mut self) {
        self.line("takeover: the apiserver's port is usher's now");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What `usher status` says of whoever serves in that folder.
    pub(crate) fn status(&self, folder: &Folder) -> serde_json::Value {
        let output = Command::new(env!("CARGO_BIN_EXE_usher"))
            .args(["status", "-o", "json", "--runtime-dir"])
            .arg(folder.runtime_dir())
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
    }

    /// What the admin port says.
    pub(crate) fn ask_admin(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.admin).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Its exit code once it ends.
    pub(crate) fn ended(mut self) -> Option<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                let mut rest = String::new();
                self.log.take().unwrap().read_to_string(&mut rest).unwrap();
                rest.lines().filter(|line| !line.contains("\"INFO\"")).for_each(|line| eprintln!("{line}"));
                return status.code();
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Tells it to end.
    pub(crate) fn end(self) -> i32 {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.ended().unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
