//! usher as it is started for a run, with its files.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, KeyPair};

use super::{Capacity, cast};
use crate::process::{Process, Usage};
use crate::report::put;
use crate::{Failure, ask};

/// A running usher.
#[derive(Debug)]
pub(super) struct Gateway {
    /// Its TLS port.
    pub(super) address: SocketAddr,
    admin: SocketAddr,
    process: Process,
}

/// How usher runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner<'a> {
    pub(super) cores: &'a [usize],
    /// `None`: an usher that has no such flag.
    pub(super) workers: Option<usize>,
    pub(super) admission: bool,
    /// `--steering`; `None`: as it is by default.
    pub(super) steering: Option<&'static str>,
}

/// Requests that workers started at levels which they share, by `usher_shared_starts_total`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Starts {
    pub(super) all: f64,
    /// By another worker, who had to tell theirs.
    pub(super) by_others: f64,
}

/// What all runs share.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    tokens: PathBuf,
    objects: PathBuf,
}

impl Files {
    pub(super) fn write(folder: &Path) -> Result<Self, Failure> {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certificate = CertificateParams::new(names)?.self_signed(&key)?;
        let files = Self {
            folder: folder.to_owned(),
            certificate: folder.join("tls.crt"),
            key: folder.join("tls.key"),
            tokens: folder.join("tokens.csv"),
            objects: folder.join("objects"),
        };
        put(&files.certificate, certificate.pem())?;
        put(&files.key, key.serialize_pem())?;
        put(&files.tokens, cast::tokens())?;
        std::fs::create_dir_all(&files.objects)?;
        for (number, object) in cast::objects().iter().enumerate() {
            put(&files.objects.join(format!("{number}.json")), format!("{object:#}\n"))?;
        }
        Ok(files)
    }
}

impl Starts {
    /// Those after an earlier count.
    pub(super) fn since(self, before: Self) -> Self {
        Self { all: self.all - before.all, by_others: self.by_others - before.by_others }
    }
}

impl Gateway {
    /// Starts it in front of `upstream` and waits until it is ready. With admission it has as many seats as the upstream
    /// has; without it there is no limit at all.
    pub(super) async fn start(
        program: &Path,
        files: &Files,
        manner: Manner<'_>,
        capacity: Capacity,
        upstream: SocketAddr,
    ) -> Result<Self, Failure> {
        let (address, admin) = (ask::free_address()?, ask::free_address()?);
        let seats = if manner.admission { capacity.seats } else { 0 };
        let mut flags = vec![
            "serve".into(),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={}", address.port()),
            format!("--admin-bind-address={admin}"),
            format!("--upstream=http://{upstream}"),
            format!("--tls-cert-file={}", files.certificate.display()),
            format!("--tls-private-key-file={}", files.key.display()),
            format!("--token-auth-file={}", files.tokens.display()),
            // Some key, so that usher does not ask the stand-in for one.
            format!("--service-account-key-file={}", files.key.display()),
            "--service-account-issuer=https://bench".into(),
            format!("--flow-control-dir={}", files.objects.display()),
            "--flow-control-suggested=false".into(),
            format!("--enable-priority-and-fairness={}", manner.admission),
            format!("--max-requests-inflight={seats}"),
            "--max-mutating-requests-inflight=0".into(),
            "--log-level=warn".into(),
        ];
        flags.extend(manner.workers.map(|workers| format!("--workers={workers}")));
        flags.extend(manner.steering.map(|steering| format!("--steering={steering}")));
        let log = files.folder.join("usher.log");
        let mut process = Process::start("usher", manner.cores, program, &flags, &log)?;
        process.wait_for(async || matches!(ask::get(admin, "/readyz").await, Ok((200, _)))).await?;
        Ok(Self { address, admin, process })
    }

    /// What its workers have started together; nothing where there is one, or usher does not tell.
    pub(super) async fn starts(&self) -> Result<Starts, Failure> {
        let (_, text) = ask::get(self.admin, "/metrics").await?;
        let mut starts = Starts::default();
        for line in text.lines().filter(|line| line.starts_with("usher_shared_starts_total{")) {
            let count: f64 = line.rsplit(' ').next().unwrap_or_default().parse()?;
            starts.all += count;
            if line.contains("other-worker") {
                starts.by_others += count;
            }
        }
        Ok(starts)
    }

    /// What it has used; an error if it has ended.
    pub(super) fn usage(&mut self) -> Result<Usage, Failure> {
        self.process.check()?;
        self.process.usage()
    }
}

/// Whether this usher has a flag of that name.
pub(super) fn has_flag(program: &Path, flag: &str) -> Result<bool, Failure> {
    let output = std::process::Command::new(program)
        .args(["serve", "--help"])
        .output()
        .map_err(|error| format!("{}: {error}; build it or name one with --usher", program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).contains(&format!("{flag} ")))
}
