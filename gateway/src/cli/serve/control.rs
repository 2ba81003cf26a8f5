//! The control socket of `usher serve`: whether another usher has it, where it is, and what can be asked there.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::config::options::{HandOver, Options, RUNTIME_DIR, RuntimeDir, Serving};
use crate::control::{self, Desk, Section, Socket};
use crate::handover::{self, Report, Taken, what};
use crate::observe::status::{self, Process, Status};
use crate::observe::{Everybody, State, View, Workers as _};
use crate::ring;
use crate::steering::Steering;
use crate::takeover::{self, Takeover};

/// A room's part of the status.
pub(super) type Tells = (&'static str, Box<dyn Fn() -> Section + Send + Sync>);

/// How this usher begins.
pub(super) enum Beginning {
    /// Nobody was here; this is the control socket, if there is to be one.
    Fresh(Option<Socket>),
    /// Somebody is here and hands over.
    After(Box<Taken>, PathBuf),
    /// Somebody is here and does not; once this one has its addresses all the same it is the one to be asked there.
    Instead(PathBuf),
}

/// Looks whether an usher runs here, and has it hand over if that is wanted.
///
/// # Errors
/// The folder that was named cannot be used, or another usher has it, or does not hand over.
pub(super) fn begin(serving: &Serving) -> Result<Beginning, String> {
    let (dir, is_named) = match &serving.runtime_dir {
        Some(RuntimeDir::Nowhere) if serving.hand_over == HandOver::Required => {
            return Err("--hand-over=required needs a --runtime-dir".into());
        }
        Some(RuntimeDir::Nowhere) => return Ok(Beginning::Fresh(None)),
        Some(RuntimeDir::At(dir)) => (dir.as_path(), true),
        None => (Path::new(RUNTIME_DIR), false),
    };
    let is_needed = is_named || serving.hand_over == HandOver::Required;
    match Socket::bind(dir) {
        Ok(Some(socket)) if serving.hand_over == HandOver::Required => {
            socket.remove();
            Err(format!("--hand-over=required: no usher runs with --runtime-dir={}", dir.display()))
        }
        Ok(Some(socket)) => Ok(Beginning::Fresh(Some(socket))),
        Ok(None) => match serving.hand_over {
            HandOver::Off if is_named => Err(occupied(dir)),
            HandOver::Off => {
                tracing::warn!("no control socket: {}", occupied(dir));
                Ok(Beginning::Fresh(None))
            }
            HandOver::Auto | HandOver::Required => take_over(dir, serving.hand_over),
        },
        Err(problem) if is_needed => Err(problem),
        Err(problem) => {
            tracing::info!("no control socket: {problem}");
            Ok(Beginning::Fresh(None))
        }
    }
}

fn take_over(dir: &Path, how: HandOver) -> Result<Beginning, String> {
    let line = control::connect(dir).map_err(|nobody| nobody.to_string());
    match line.and_then(handover::ask) {
        Ok(taken) => {
            tracing::info!(former = taken.pid(), "taking over");
            Ok(Beginning::After(Box::new(taken), dir.to_owned()))
        }
        Err(why) if how == HandOver::Required => {
            Err(format!("--hand-over=required: the usher that runs does not hand over: {why}"))
        }
        Err(why) => {
            tracing::warn!(
                why,
                "the usher that runs does not hand over; this one starts if its addresses are free"
            );
            Ok(Beginning::Instead(dir.to_owned()))
        }
    }
}

impl Beginning {
    /// What was handed over.
    pub(super) fn taken(&mut self) -> Option<&mut Taken> {
        match self {
            Self::After(taken, _) => Some(taken),
            Self::Fresh(_) | Self::Instead(_) => None,
        }
    }

    /// The control socket, once all other addresses are there; and what is to be told when this one is ready.
    pub(super) fn settle(self) -> Result<(Option<Socket>, Option<Taken>), String> {
        match self {
            Self::Fresh(socket) => Ok((socket, None)),
            Self::Instead(dir) => Ok((Some(Socket::bind_anyway(&dir)?), None)),
            Self::After(mut taken, dir) => {
                let descriptor = taken.all(what::CONTROL).pop();
                let socket = descriptor.ok_or("the former usher has not handed over its control socket")?;
                let socket =
                    Socket::adopt(&dir, socket).map_err(|error| format!("the control socket: {error}"))?;
                Ok((Some(socket), Some(*taken)))
            }
        }
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
        "an usher ({who}) has --runtime-dir={dir} already: take over from it with --hand-over=auto, end it first, or give \
         this one a folder of its own",
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
        pid_namespace: status::pid_namespace(),
        since: status::this_moment(),
        io: io.name().to_owned(),
        secure,
        insecure,
        admin,
    }
}

/// What all workers look like now; for threads that may wait.
pub(super) fn look(workers: &Everybody) -> Result<View, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let looked = runtime.map_err(|error| error.to_string())?.block_on(workers.look());
    looked.map_err(|error| error.to_string())
}

/// How a process drains whose workers look like that.
pub(super) fn report(view: &View) -> Report {
    let levels = || view.snapshot.iter().flat_map(|snapshot| &snapshot.levels);
    Report {
        stopped: view.workers.iter().all(|worker| worker.state != State::Serving),
        connections: view.counters.connections_open,
        executing: levels().map(|level| level.executing as u64).sum(),
        waiting: levels().map(|level| level.waiting as u64).sum(),
    }
}

/// What rooms say of themselves.
pub(super) fn tells(steering: Arc<Steering>, takeover: Option<&Arc<Takeover>>) -> Vec<Tells> {
    let mut tells: Vec<Tells> = vec![("steering", Box::new(move || steering.section()))];
    if let Some(takeover) = takeover.cloned() {
        tells.push(("takeover", Box::new(move || takeover.look().section())));
    }
    tells
}

/// What can be asked. Rooms that have verbs of their own put them on it.
pub(super) fn desk(
    process: Process,
    workers: Everybody,
    tells: Vec<Tells>,
    takeover: Option<Arc<Takeover>>,
) -> Desk {
    let mut desk = Desk::default();
    desk.on("status", move |_| {
        let view = look(&workers)?;
        let sections: BTreeMap<_, _> =
            tells.iter().map(|(name, tell)| ((*name).to_owned(), tell())).collect();
        serde_json::to_value(Status::of(process.clone(), &view, sections)).map_err(|error| error.to_string())
    });
    type Does = fn(&Takeover) -> Result<bool, takeover::Problem>;
    let verbs: [(&str, Does, [&str; 2]); 2] = [
        (
            "release",
            Takeover::release,
            ["the port is the apiserver's again", "the port is the apiserver's already"],
        ),
        (
            "take",
            Takeover::take,
            ["the apiserver's port is usher's again", "the apiserver's port is usher's already"],
        ),
    ];
    for (verb, does, [done, already]) in verbs {
        let takeover = takeover.clone();
        desk.on(verb, move |_| {
            let Some(takeover) = &takeover else {
                return Err(
                    "this usher has taken nobody's port (--takeover=off): there is nothing to release or to \
                            take"
                        .into(),
                );
            };
            let changed = does(takeover).map_err(|problem| problem.to_string())?;
            Ok(Value::from(if changed { done } else { already }))
        });
    }
    desk
}
