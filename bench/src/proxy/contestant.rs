//! Who is measured: HAProxy, nginx, and usher in its variants, configured alike.
//!
//! One thread each, kept on the same core; the same certificate (ECDSA P-256), TLS 1.3 only; connections kept on
//! both sides; no log of requests; no header added that the others do not add.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum as _;

use super::upstream::nginx_common;
use super::{Bench, Failure, put};
use crate::ask;
use crate::process::Process;
use crate::relay::Way;

/// One column of the table.
#[derive(Clone, Debug)]
pub(super) struct Contestant {
    pub(super) name: String,
    kind: Kind,
    /// On how many cores it is.
    cores: u32,
}

#[derive(Clone, Debug)]
enum Kind {
    HaProxy,
    Nginx,
    Usher {
        program: PathBuf,
        flags: Vec<String>,
    },
    /// The smallest relay on this way of I/O.
    Relay(Way),
}

/// What stands behind the proxies.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    /// Its process.
    pub(super) pid: u32,
    /// The authority that vouches for it; plain HTTP without one.
    pub(super) authority: Option<PathBuf>,
    /// More flags for usher: how it knows the users of that upstream.
    pub(super) usher_flags: Vec<String>,
}

/// A contestant that runs.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) name: String,
    pub(super) process: Process,
    pub(super) plain: SocketAddr,
    pub(super) tls: SocketAddr,
    /// usher's admin port.
    pub(super) admin: Option<SocketAddr>,
}

/// The name that all others are compared with.
pub(super) const BASE: &str = "haproxy";

/// Connections that HAProxy and nginx may have: two descriptors each stay below the 20 000 that some machines
/// have as their hard limit, and no cell needs more but those of idle connections, which are usher's alone.
const CONNECTIONS_MAX: usize = 8192;

impl Contestant {
    /// Everyone that this machine and this usher can be, or of those the ones in `only`.
    pub(super) fn all(usher: &Path, also: &[String], only: &[String]) -> Result<Vec<Self>, Failure> {
        let mut all = vec![
            Self { name: BASE.into(), kind: Kind::HaProxy, cores: 1 },
            Self { name: "nginx".into(), kind: Kind::Nginx, cores: 1 },
        ];
        for (name, flags) in variants(&help(usher)?) {
            all.push(Self::usher(&format!("usher-{name}"), usher, flags));
        }
        for other in also {
            let (name, command) = other.split_once('=').ok_or("--also: wanted NAME=PROGRAM FLAG…")?;
            let mut words = command.split_whitespace();
            let program = words.next().ok_or("--also: wanted NAME=PROGRAM FLAG…")?;
            all.push(Self::usher(name, Path::new(program), words));
        }
        let (unwanted, wanted): (Vec<_>, Vec<_>) = only.iter().partition(|name| name.starts_with('-'));
        if let Some(unknown) =
            only.iter().find(|name| !all.iter().any(|one| one.name == name.trim_start_matches('-')))
        {
            let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
            return Err(format!("there is no contestant {unknown:?}; there are {}", names.join(", ")).into());
        }
        all.retain(|one| wanted.is_empty() || wanted.contains(&&one.name));
        all.retain(|one| !unwanted.iter().any(|name| name[1..] == one.name));
        Ok(all)
    }

    /// HAProxy to compare with, and the smallest relay on every way of I/O.
    pub(super) fn relays() -> Vec<Self> {
        let base = Self { name: BASE.into(), kind: Kind::HaProxy, cores: 1 };
        let ways = [
            ("relay-tokio", Way::Tokio),
            ("relay-tokio-uring", Way::TokioUring),
            ("relay-ring-epoll", Way::RingEpoll),
            ("relay-ring-uring", Way::RingUring),
        ];
        let relay = |(name, way): (&str, Way)| Self { name: name.into(), kind: Kind::Relay(way), cores: 1 };
        std::iter::once(base).chain(ways.map(relay)).collect()
    }

    fn usher<'a>(name: &str, program: &Path, flags: impl IntoIterator<Item = &'a str>) -> Self {
        let flags = flags.into_iter().map(str::to_owned).collect();
        Self { name: name.into(), kind: Kind::Usher { program: program.into(), flags }, cores: 1 }
    }

    /// The same usher with so many workers, on as many cores.
    pub(super) fn with_workers(&self, name: &str, workers: u32) -> Self {
        let mut with = Self { name: name.into(), cores: workers, ..self.clone() };
        if let Kind::Usher { flags, .. } = &mut with.kind {
            flags.push(format!("--workers={workers}"));
        }
        with
    }

    /// Whether it is an usher that can be told so.
    pub(super) fn has_workers(&self) -> Result<bool, Failure> {
        match &self.kind {
            Kind::Usher { program, .. } => Ok(help(program)?.contains("--workers ")),
            _ => Ok(false),
        }
    }

    pub(super) fn is_usher(&self) -> bool {
        matches!(self.kind, Kind::Usher { .. })
    }

    /// The program that must be installed for it.
    pub(super) fn package_program(&self) -> Option<&'static str> {
        match self.kind {
            Kind::HaProxy => Some("haproxy"),
            Kind::Nginx => Some("nginx"),
            Kind::Usher { .. } | Kind::Relay(_) => None,
        }
    }

    /// What it is, for the result: program, version, flags.
    pub(super) fn description(&self) -> String {
        let (program, argument, flags) = match &self.kind {
            Kind::HaProxy => (Path::new("haproxy"), "-v", ""),
            Kind::Nginx => (Path::new("nginx"), "-v", ""),
            Kind::Usher { program, flags } => (program.as_path(), "--version", &*flags.join(" ")),
            Kind::Relay(way) => return format!("{way:?}"),
        };
        let version = Command::new(program).arg(argument).output().map_or_else(
            |error| error.to_string(),
            |output| {
                // nginx says it on standard error.
                let text = [output.stdout, output.stderr].concat();
                String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_owned()
            },
        );
        format!("{version} {flags}").trim_end().to_owned()
    }

    /// Starts it in front of `target` and waits until it answers.
    pub(super) async fn start(&self, bench: &Bench, target: &Target) -> Result<Proxy, Failure> {
        let room = bench.room(&self.name)?;
        let (plain, tls) = (ask::free_address()?, ask::free_address()?);
        let mut admin = None;
        let (program, arguments) = match &self.kind {
            Kind::HaProxy => {
                let file = room.join("haproxy.cfg");
                put(&file, haproxy(bench, target, plain, tls))?;
                (PathBuf::from("haproxy"), vec!["-db".into(), "-f".into(), file.display().to_string()])
            }
            Kind::Nginx => {
                let file = room.join("nginx.conf");
                put(&file, nginx(bench, target, plain, tls, &room))?;
                (PathBuf::from("nginx"), vec!["-c".into(), file.display().to_string()])
            }
            Kind::Usher { program, flags } => {
                let address = *admin.insert(ask::free_address()?);
                let mut all = usher(bench, target, plain, tls, address);
                all.extend(flags.iter().cloned());
                (program.clone(), all)
            }
            Kind::Relay(way) => {
                let way = way.to_possible_value().map_or_else(String::new, |way| way.get_name().to_owned());
                let upstream = target.address;
                let flags = [("io", way), ("listen", plain.to_string()), ("upstream", upstream.to_string())];
                let flags = flags.iter().map(|(flag, value)| format!("--{flag}={value}")).collect();
                (std::env::current_exe()?.with_file_name("usher-relay"), flags)
            }
        };
        let both = [bench.options.proxy_core, bench.options.load_core];
        let cores = if self.cores == 1 { &both[..1] } else { &both[..] };
        let process = Process::start(&self.name, cores, &program, &arguments, &room.join("log"))?;
        let mut proxy = Proxy { name: self.name.clone(), process, plain, tls, admin };
        let (address, path) = admin.map_or((plain, "/readyz"), |admin| (admin, "/readyz"));
        let ready = async || matches!(ask::get(address, path).await, Ok((status, _)) if status < 500);
        proxy.process.wait_for(ready).await?;
        Ok(proxy)
    }
}

/// What a program calls itself able to.
fn help(usher: &Path) -> Result<String, Failure> {
    let output = Command::new(usher)
        .args(["serve", "--help"])
        .output()
        .map_err(|error| format!("{}: {error}; build it or name one with --usher", usher.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Names and flags of the variants that an usher with this help has: each way of I/O, and on the first of them
/// HTTP/1.1 by hyper where it has one of its own.
fn variants(help: &str) -> Vec<(&'static str, Vec<&'static str>)> {
    let mut variants = Vec::new();
    if help.contains("uring") {
        variants.push(("uring", vec!["--io=uring"]));
    }
    variants.push(("epoll", vec!["--io=epoll"]));
    if help.contains("--http1 ") {
        let (first, mut flags) = variants[0].clone();
        flags.push("--http1=hyper");
        variants.push((if first == "uring" { "uring-hyper" } else { "epoll-hyper" }, flags));
    }
    variants
}

fn haproxy(bench: &Bench, target: &Target, plain: SocketAddr, tls: SocketAddr) -> String {
    let upstream = match &target.authority {
        None => target.address.to_string(),
        Some(authority) => {
            format!("{} ssl verify required ca-file {}", target.address, authority.display())
        }
    };
    let pair = bench.files.pair.display();
    format!(
        "global\n  nbthread 1\n  maxconn {CONNECTIONS_MAX}\n  ssl-default-bind-options ssl-min-ver TLSv1.3\n\
         defaults\n  mode http\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n  \
         timeout http-keep-alive 1h\n  http-reuse always\n\
         frontend clients\n  bind {plain}\n  bind {tls} ssl crt {pair} alpn h2,http/1.1\n  \
         default_backend upstream\n\
         backend upstream\n  server upstream {upstream}\n"
    )
}

fn nginx(bench: &Bench, target: &Target, plain: SocketAddr, tls: SocketAddr, room: &Path) -> String {
    let (scheme, trust) = match &target.authority {
        None => ("http", String::new()),
        Some(authority) => (
            "https",
            format!(
                "proxy_ssl_trusted_certificate {};\n    proxy_ssl_verify on;\n    proxy_ssl_name localhost;\n    \
                 proxy_ssl_protocols TLSv1.3;\n    ",
                authority.display()
            ),
        ),
    };
    let (common, upstream) = (nginx_common(room), target.address);
    let (certificate, key) = (bench.files.certificate.display(), bench.files.key.display());
    // Buffers for a whole large answer, so that none goes through a file.
    format!(
        "{common}  upstream upstream {{\n    server {upstream};\n    keepalive 256;\n    \
         keepalive_requests 1000000000;\n    keepalive_timeout 1h;\n  }}\n  \
         ssl_certificate {certificate};\n  ssl_certificate_key {key};\n  ssl_protocols TLSv1.3;\n  server {{\n    \
         listen {plain};\n    listen {tls} ssl http2;\n    http2_max_concurrent_streams 256;\n    location / {{\n    \
         {trust}proxy_pass {scheme}://upstream;\n    proxy_http_version 1.1;\n    \
         proxy_set_header Connection '';\n    proxy_buffers 16 16k;\n    proxy_max_temp_file_size 0;\n  }}\n  }}\n}}\n"
    )
}

fn usher(
    bench: &Bench,
    target: &Target,
    plain: SocketAddr,
    tls: SocketAddr,
    admin: SocketAddr,
) -> Vec<String> {
    let scheme = if target.authority.is_some() { "https" } else { "http" };
    let mut flags = vec![
        "serve".into(),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={}", tls.port()),
        format!("--insecure-port={}", plain.port()),
        format!("--admin-bind-address={admin}"),
        format!("--upstream={scheme}://{}", target.address),
        format!("--tls-cert-file={}", bench.files.certificate.display()),
        format!("--tls-private-key-file={}", bench.files.key.display()),
        // Nothing here may end while it is idle.
        "--idle-timeout=1h".into(),
        "--log-level=warn".into(),
    ];
    flags.extend(target.authority.iter().map(|file| format!("--upstream-ca-file={}", file.display())));
    if target.usher_flags.is_empty() {
        flags.push(format!("--token-auth-file={}", bench.files.tokens.display()));
        // Some key, so that usher does not ask nginx for one.
        flags.push(format!("--service-account-key-file={}", bench.files.key.display()));
        flags.push("--service-account-issuer=https://bench".into());
    }
    flags.extend(target.usher_flags.iter().cloned());
    flags
}

#[cfg(test)]
mod tests {
    use super::variants;

    #[test]
    fn variants_are_what_the_help_offers() {
        let names = |help: &str| variants(help).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names("--io <DRIVER>  How the worker does its I/O"), ["epoll"]);
        assert_eq!(names("--io <DRIVER>  auto, uring or epoll"), ["uring", "epoll"]);
        let help = "--io <DRIVER>  auto, uring or epoll\n --http1 <CODEC>";
        assert_eq!(names(help), ["uring", "epoll", "uring-hyper"]);
        assert_eq!(variants(help)[2].1, ["--io=uring", "--http1=hyper"]);
    }
}
