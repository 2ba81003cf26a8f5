//! The control socket of `usher serve`: where it is, and what can be asked there.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;

use crate::config::options::{Options, RUNTIME_DIR, RuntimeDir};
use crate::control::status::{self, Process, Section, Status};
use crate::control::{self, Desk, Socket};
use crate::observe::{Everybody, Workers as _};
use crate::ring;

/// A room's part of the status.
pub(super) type Tells = (&'static str, Box<dyn Fn() -> Section + Send + Sync>);

/// The socket to listen on; `None`: there is to be none, or none can be had and nobody has asked for it by name.
///
/// # Errors
/// The folder that was named cannot be used, or another usher has it.
pub(super) fn socket(given: Option<&RuntimeDir>) -> Result<Option<Socket>, String> {
    match given {
        Some(RuntimeDir::Nowhere) => Ok(None),
        Some(RuntimeDir::At(dir)) => match Socket::bind(dir)? {
            Some(socket) => Ok(Some(socket)),
            None => Err(occupied(dir)),
        },
        None => Ok(match Socket::bind(Path::new(RUNTIME_DIR)) {
            Ok(Some(socket)) => Some(socket),
            Ok(None) => {
                tracing::warn!("no control socket: {}", occupied(Path::new(RUNTIME_DIR)));
                None
            }
            Err(problem) => {
                tracing::info!("no control socket: {problem}");
                None
            }
        }),
    }
}

/// What an operator is told who starts a second usher beside the first.
fn occupied(dir: &Path) -> String {
    let first = control::connect(dir).map_err(|nobody| nobody.to_string());
    let first = first.and_then(|mut line| control::ask(&mut line, "status", Value::Null));
    let who = match first.map(serde_json::from_value::<Status>) {
        Ok(Ok(Status { process: Process { pid, since, .. }, .. })) => format!("process {pid}, since {since}"),
        _ => "it does not say who it is".to_owned(),
    };
    format!(
        "an usher ({who}) has --runtime-dir={dir} already; end it first, or give this one a folder of its own",
        dir = dir.display()
    )
}

/// What does not change from now on.
pub(super) fn process(
    options: &Options,
    addresses: &[SocketAddr],
    admin: SocketAddr,
    io: ring::Io,
) -> Process {
    let (secure, insecure) = super::secure_and_insecure(options, addresses);
    Process {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        since: status::this_moment(),
        io: io.name().to_owned(),
        secure,
        insecure,
        admin,
    }
}

/// What can be asked. Rooms that have verbs of their own put them on it.
pub(super) fn desk(process: Process, workers: Everybody, tells: Vec<Tells>) -> Desk {
    let mut desk = Desk::default();
    desk.on("status", move |_| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let look = runtime.map_err(|error| error.to_string())?.block_on(workers.look());
        let view = look.map_err(|error| error.to_string())?;
        let sections: BTreeMap<_, _> =
            tells.iter().map(|(name, tell)| ((*name).to_owned(), tell())).collect();
        serde_json::to_value(Status::of(process.clone(), &view, sections)).map_err(|error| error.to_string())
    });
    for verb in ["release", "take"] {
        desk.on(verb, |_| {
            Err("this usher has taken nobody's port (--takeover=off): there is nothing to release or to take"
                .into())
        });
    }
    desk
}
