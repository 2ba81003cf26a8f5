//! The upstream: one nginx that answers from memory, on the generator's core.

use std::net::SocketAddr;
use std::path::Path;

use super::cells::Size;
use super::contestant::Target;
use super::files::{SMALL_BYTES, document};
use super::{Bench, Failure, put};
use crate::ask;
use crate::process::Process;

/// A running upstream.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) address: SocketAddr,
    process: Process,
}

impl Upstream {
    pub(super) async fn start(bench: &Bench) -> Result<Self, Failure> {
        let room = bench.room("upstream")?;
        let address = ask::free_address()?;
        let configuration = room.join("nginx.conf");
        put(&configuration, configure(&room, address, bench.files.large.path()))?;
        let arguments = ["-c", &configuration.display().to_string()].map(str::to_owned);
        let core = bench.options.load_core;
        let mut process =
            Process::start("upstream", &[core], Path::new("nginx"), &arguments, &room.join("log"))?;
        process.wait_for(async || ask::get(address, "/readyz").await.is_ok()).await?;
        Ok(Self { address, process })
    }

    /// It, to be put behind a proxy.
    pub(super) fn target(&self) -> Target {
        Target { address: self.address, pid: self.process.pid(), authority: None, usher_flags: Vec::new() }
    }
}

/// What both nginxes begin with: one process, no daemon, nothing outside of `room`, no log of requests,
/// connections that are kept for as long as a run takes.
pub(super) fn nginx_common(room: &Path) -> String {
    let room = room.display();
    format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid {room}/pid;\nerror_log {room}/error.log;\n\
         events {{ worker_connections 16384; }}\n\
         http {{\n  access_log off;\n  keepalive_timeout 1h;\n  keepalive_requests 1000000000;\n  \
         default_type application/json;\n  \
         client_body_temp_path {room}/1;\n  proxy_temp_path {room}/2;\n  fastcgi_temp_path {room}/3;\n  \
         uwsgi_temp_path {room}/4;\n  scgi_temp_path {room}/5;\n"
    )
}

fn configure(room: &Path, address: SocketAddr, large: &Path) -> String {
    let (common, small, large) = (nginx_common(room), document(SMALL_BYTES), large.display());
    let (small_path, large_path) = (Size::Small.path(), Size::Large.path());
    format!(
        "{common}  sendfile on;\n  tcp_nopush on;\n  open_file_cache max=16 inactive=1h;\n  server {{\n    \
         listen {address};\n    \
         location = {small_path} {{ return 200 '{small}'; }}\n    \
         location = {large_path} {{ alias {large}; }}\n    \
         location = /readyz {{ return 200 ok; }}\n    \
         location = /metrics {{ return 200 ''; }}\n    \
         location / {{ return 404; }}\n  }}\n}}\n"
    )
}
