//! `usher serve`: puts the rooms together, says what was chosen, and waits for the end.
//!
//! Everything that can be refused is looked at before the first thread starts. The admin port opens last, so
//! whoever is told that usher is ready finds workers that have their configuration.

mod assembly;
mod control;
mod descriptors;
mod estate;
mod retire;
mod signals;

use std::process::ExitCode;
use std::sync::Arc;

use crate::config::objects::FOLDER_POLL;
use crate::config::options::Options;
use crate::coordinator;
use crate::crew::{self, Crew, Order};
use crate::handover::what;
use crate::memory::{self, Limit};
use crate::observe::{self, Everybody, Process, hdr, logging};
use crate::reload::Watch;
use crate::ring;
use crate::takeover::{self, Takeover};
use assembly::Rooms;
use estate::Estate;
use signals::{End, Ending, Signals};

/// Serves until a signal says stop.
pub(super) fn run(options: &Options) -> ExitCode {
    let observation = &options.observation;
    let flush = match logging::start(observation.log_format, &observation.log_level) {
        Ok(flush) => flush,
        Err(problem) => return super::failed(&problem),
    };
    logging::panics();
    let code = match start(options) {
        Ok(running) => match running.until_the_end() {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem) => failed(&problem),
        },
        Err(problem) => failed(&problem),
    };
    drop(flush);
    code
}

/// The last line of the log.
fn failed(problem: &str) -> ExitCode {
    tracing::error!("{problem}");
    ExitCode::from(super::FAILED)
}

/// All threads are at work.
struct Running {
    crew: Crew,
    histograms: hdr::Handle,
    /// Follows the files; told of SIGHUP.
    watch: Watch,
    signals: Signals,
    /// What another usher may take over.
    estate: estate::Open,
    end: End,
    takeover: Option<Arc<Takeover>>,
}

/// Looks at everything, then starts everything. Errors name the flag or the file, and what to do.
fn start(options: &Options) -> Result<Running, String> {
    let signals = Signals::listen().map_err(|error| format!("signals: {error}"))?;
    let cores = assembly::cores(options)?;
    let connections = descriptors::raise(options.limits.max_connections, cores.len());
    let rooms = Rooms::furnish(options)?;
    let thread = |error: std::io::Error| {
        format!("a thread cannot be started: {error}; look at the limits on processes")
    };
    let limit = Limit::find(options.limits.memory_limit);
    let memory_limit = limit.as_ref().map(|limit| limit.bytes);
    match &limit {
        Some(limit) => tracing::info!(bytes = limit.bytes, source = limit.source, "memory limit"),
        None => tracing::info!("no memory limit"),
    }
    let ring_settings = options.ring.settings(connections);
    let io = ring::choose(&ring_settings).map_err(|unavailable| unavailable.to_string())?;
    tracing::info!(io = io.io.name(), reason = io.reason, "way of I/O");
    let hdr_settings = assembly::hdr_settings(options, io.io)?;
    // From here on another usher may be waiting for this one.
    let mut beginning = control::begin(&options.serving)?;
    let admin = assembly::admin(options, beginning.taken())?;
    let admin_address = admin.local_addr().map_err(|error| format!("--admin-bind-address: {error}"))?;
    let (feeds, filled) = hdr::feeds(cores.len());
    let listeners = rooms.listeners(options, cores.len(), beginning.taken())?;
    let takeover = assembly::takeover(options, &listeners, beginning.taken())?;
    // Else Takeover goes on with it.
    let unwanted = beginning.taken().and_then(|taken| taken.all(what::TAKEOVER_LINK).pop());
    let seats = Rooms::seats(options, cores.len());
    let together = seats.as_ref().map(|seats| seats.together());
    let mut worker = rooms.worker_settings(options, memory_limit, cores.len(), together, takeover.as_deref());
    worker.io = io.settings(ring_settings);
    worker.limits.connections = connections;
    let shared = beginning.taken().is_some();
    let (members, steering) = assembly::members(options, listeners, shared, &cores, feeds)?;
    let (socket, taken) = beginning.settle()?;
    let secure = retire::Secure::of(&members);
    let estate =
        Estate::of(&members, &admin, socket.as_ref(), takeover.clone(), &steering, io.io).map_err(thread)?;
    let bury = bury(seats.clone());
    let crew = crew::start(crew::Settings { worker, members, bury, shut: shared }).map_err(thread)?;
    let posts = crew.posts();
    let histograms = hdr::start(hdr_settings, filled, assembly::hdr_asks(&posts)).map_err(thread)?;
    let myself = control::process(options, crew.addresses(), admin_address, io.io);
    let ledger = Arc::clone(&estate.ledger);
    let tight = posts.clone();
    let process = Process {
        io,
        files: rooms.files(),
        authenticator: Arc::clone(&rooms.authenticator),
        handover: Arc::clone(&ledger),
        hdr: Some(histograms.desk()),
        steering: Arc::clone(&steering),
        takeover: takeover.clone(),
        memory: memory::start(limit, move |rung| tight.tell(&Order::Memory(rung)).is_empty())
            .map_err(thread)?,
    };

    rooms.configuration.connect(posts.clone(), seats.clone());
    rooms.configuration.put_in_force(&rooms.objects.current());
    let watch = Watch::start(process.files.clone(), FOLDER_POLL).map_err(thread)?;
    let control = rooms.coordinator_settings(options, posts.clone(), takeover.as_deref());
    coordinator::start(control).map_err(|error| format!("the control thread cannot be started: {error}"))?;
    if let Some(seats) = &seats {
        let posts = posts.clone();
        seats.start(move || posts.tidy()).map_err(thread)?;
    }
    let everybody = Everybody { posts, seats };
    let admin = observe::server::start(admin, everybody.clone(), process).map_err(thread)?;
    announce(options, &rooms, crew.addresses(), admin_address, &cores);
    if let Some(taken) = taken {
        control::look(&everybody)?; // all workers are at work
        let former = taken.ready()?;
        estate.succeed(former, &crew).map_err(thread)?;
    }
    if let Some(takeover) = &takeover {
        takeover.begin().map_err(|problem| format!("--takeover: {problem}"))?;
    } else if let Some(link) = unwanted {
        takeover::give_back(link, &options.takeover.takeover_pin_dir);
    }
    let retire = retire::Desk {
        retiring: crew.retiring(),
        sockets: secure,
        steering: Arc::clone(&steering),
        takeover: takeover.clone(),
        ledger: Arc::clone(&ledger),
        grace: options.serving.shutdown_grace_period,
    };
    let mut tells = control::tells(steering, takeover.as_ref());
    tells.push(("hand_over", Box::new(move || ledger.section())));
    let mut desk = control::desk(myself, everybody.clone(), tells, takeover.clone());
    desk.on("drain", move |with| retire.drain(with));
    let estate = estate.open(admin, socket, desk, everybody).map_err(thread)?;
    let end = End { grace: options.serving.shutdown_grace_period, stays: options.serving.hand_over_wait };
    Ok(Running { crew, histograms, watch, signals, estate, end, takeover })
}

/// What is done after a worker has died: what it held of shared levels is given back.
fn bury(seats: Option<Arc<coordinator::Seats>>) -> Box<dyn Fn(usize) -> bool + Send> {
    Box::new(move |worker| seats.as_ref().is_none_or(|seats| seats.bury(worker)))
}

/// Which of the workers' addresses is with TLS, and which without.
fn secure_and_insecure(
    options: &Options,
    addresses: &[std::net::SocketAddr],
) -> (Option<std::net::SocketAddr>, Option<std::net::SocketAddr>) {
    let mut addresses = addresses.iter().copied();
    let secure = options.serving.tls_cert_file.as_ref().and_then(|_| addresses.next());
    (secure, options.serving.insecure_port.and_then(|_| addresses.next()))
}

/// What was chosen, in lines for people whose fields programs can read.
fn announce(
    options: &Options,
    rooms: &Rooms,
    addresses: &[std::net::SocketAddr],
    admin: std::net::SocketAddr,
    cores: &[Option<core_affinity::CoreId>],
) {
    let (secure, insecure) = secure_and_insecure(options, addresses);
    let (secure, insecure) = (secure.map(|it| it.to_string()), insecure.map(|it| it.to_string()));
    let ids: Vec<String> = cores.iter().flatten().map(|core| core.id.to_string()).collect();
    let (workers, cores) = (cores.len(), (!ids.is_empty()).then(|| ids.join(",")));
    tracing::info!(secure, insecure, admin = %admin, workers, cores, "listening");
    for upstream in &options.upstream.upstream {
        let certificate = options.upstream.proxy_client_cert_file.as_deref();
        let certificate = certificate.map(|path| path.display().to_string());
        tracing::info!(server = %upstream, certificate, "upstream");
    }
    let flow_control = &options.flow_control;
    if flow_control.enable_priority_and_fairness {
        let objects = rooms.objects.current();
        tracing::info!(
            seats = flow_control.max_requests_inflight + flow_control.max_mutating_requests_inflight,
            levels = objects.levels.len(),
            schemas = objects.schemas.len(),
            folder = flow_control.flow_control_dir.as_deref().map(|folder| folder.display().to_string()),
            suggested = flow_control.flow_control_suggested,
            "priority and fairness"
        );
    } else {
        tracing::info!(
            reading = flow_control.max_requests_inflight,
            writing = flow_control.max_mutating_requests_inflight,
            "priority and fairness is off; limits on requests in flight hold (0: none)"
        );
    }
    rooms.warn(options);
}

impl Running {
    /// Until a signal says stop and the workers have drained, or cannot go on.
    fn until_the_end(self) -> Result<(), String> {
        let Self { crew, histograms, watch, signals, mut estate, end, takeover } = self;
        let ending = signals.wait(crew, &watch, &mut estate, takeover.as_deref(), end);
        estate.close();
        histograms.finish();
        match ending {
            Ending::Drained => {
                tracing::info!("drained");
                Ok(())
            }
            Ending::CutShort => Err("ended before everything was drained: a second signal came".into()),
            Ending::ByItself(why) => Err(why),
        }
    }
}
