//! From options to what each room is started with.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use core_affinity::CoreId;
use usher_flowcontrol::units::Seats;

use crate::config::objects::{Followed, Source};
use crate::config::options::{Limits, Options};
use crate::coordinator::{self, Configuration};
use crate::crew::cores::{self, Places};
use crate::crew::{Member, Posts};
use crate::handover::{self, Taken, what};
use crate::identity::{self, Authenticator, FrontProxyOptions};
use crate::observe::hdr::files::Keep;
use crate::observe::{self, hdr};
use crate::reload::Reload;
use crate::ring;
use crate::steering::Steering;
use crate::takeover::{self, Mode, Takeover};
use crate::worker::{self, AdmissionSettings, Command, Listen, Together};
use crate::{tls, upstream};

/// What is made of the files.
pub(super) struct Rooms {
    pub(super) authenticator: Arc<Authenticator>,
    pub(super) objects: Arc<Followed>,
    pub(super) configuration: Configuration,
    server: Option<Arc<tls::Server>>,
    client: Option<Arc<tls::Client>>,
}

impl Rooms {
    /// Reads every file. The first that is no good ends it, by name.
    pub(super) fn furnish(options: &Options) -> Result<Self, String> {
        let authenticator =
            Authenticator::new(&identity_options(options)).map_err(|fault| fault.to_string())?;
        let source = Source {
            folder: options.flow_control.flow_control_dir.clone(),
            suggested: options.flow_control.flow_control_suggested,
        };
        let configuration = Configuration::default();
        let tell = configuration.clone();
        let objects = Followed::new(source, move |change| {
            if let Ok(objects) = change {
                tell.put_in_force(objects);
            }
        });
        let objects = objects.map_err(|refusal| format!("--flow-control-dir is no good:\n{refusal}"))?;
        Ok(Self {
            authenticator: Arc::new(authenticator),
            objects: Arc::new(objects),
            configuration,
            server: server(options)?,
            client: client(options)?,
        })
    }

    /// Everything that follows files.
    pub(super) fn files(&self) -> Vec<Arc<dyn Reload>> {
        let mut files = self.authenticator.reloads();
        files.extend(self.server.as_ref().map(|server| server.reload()));
        files.extend(self.client.as_ref().map(|client| client.reload()));
        files.push(Arc::clone(&self.objects) as Arc<dyn Reload>);
        files
    }

    /// `memory`: the limit in bytes, if there is one.
    pub(super) fn worker_settings(
        &self,
        options: &Options,
        memory: Option<u64>,
        workers: usize,
        together: Option<Together>,
        takeover: Option<&Takeover>,
    ) -> worker::Settings {
        let flow_control = &options.flow_control;
        let (reading, writing) =
            (flow_control.max_requests_inflight, flow_control.max_mutating_requests_inflight);
        let admission = if flow_control.enable_priority_and_fairness {
            AdmissionSettings::FlowControl { server_limit: server_limit(options), together }
        } else {
            AdmissionSettings::InFlight { reading_max: reading as usize, writing_max: writing as usize }
        };
        let mut upstream = upstream::Settings::new(options.upstream.upstream.clone(), self.client.clone());
        upstream.connect_timeout = options.upstream.upstream_connect_timeout;
        upstream.handshake_timeout = options.upstream.upstream_connect_timeout;
        upstream.http1 = options.observation.http1;
        upstream.http2 = options.upstream.upstream_http2;
        upstream.passage = takeover.map(Takeover::passage);
        upstream.idle_connections_max = (upstream.idle_connections_max / workers).max(IDLE_LEAST);
        worker::Settings {
            relays: takeover.map(Takeover::relays),
            http1: options.observation.http1,
            limits: limits(&options.limits, memory),
            request_timeout: flow_control.request_timeout,
            watch_quiet: flow_control.watch_quiet_period,
            watch_initialised_max: flow_control.watch_init_timeout,
            consistent_reads: options.upstream.upstream_consistent_reads,
            ..worker::Settings::new(Vec::new(), Arc::clone(&self.authenticator), upstream, admission)
        }
    }

    /// Who watches over the levels that so many workers share; `None`: there is one, or no flow control.
    pub(super) fn seats(options: &Options, workers: usize) -> Option<Arc<coordinator::Seats>> {
        let given = &options.flow_control;
        let seats = || coordinator::Seats::new(server_limit(options), workers, given.flow_control_exact);
        (workers > 1 && given.enable_priority_and_fairness).then(seats).map(Arc::new)
    }

    /// Sockets for so many workers: for TLS, for plain HTTP, and those that only takeover needs. On each address one for each, or more if more were handed over, which must not be closed
    /// while connections may wait there. First those of the first address.
    pub(super) fn listeners(
        &self,
        options: &Options,
        workers: usize,
        mut taken: Option<&mut Taken>,
    ) -> Result<Vec<Vec<Listen>>, String> {
        let serving = &options.serving;
        let mut listeners = vec![Vec::new(); workers];
        let mut add = |what, address: SocketAddr, tls: Option<&Arc<tls::Server>>, flags| {
            let taken = taken.as_mut().map_or_else(Vec::new, |taken| taken.listeners(what, address));
            for (index, socket) in listen(address, workers, taken, flags)?.enumerate() {
                listeners[index % workers].push(Listen { socket, tls: tls.cloned() });
            }
            Ok::<_, String>(())
        };
        if let Some(tls) = &self.server {
            let address = SocketAddr::new(serving.bind_address, serving.secure_port);
            add(what::SECURE, address, Some(tls), ["--bind-address", "--secure-port"])?;
        }
        if let Some(port) = serving.insecure_port {
            let address = SocketAddr::new(serving.insecure_bind_address, port);
            add(what::INSECURE, address, None, ["--insecure-bind-address", "--insecure-port"])?;
        }
        if options.takeover.takeover != Mode::Off {
            self.listen_for_takeover(&mut listeners, taken)?;
        }
        Ok(listeners)
    }

    /// A connection over IPv6 cannot be handed to a socket of IPv4, nor the other way round: what the port for TLS does not
    /// take gets a port on loopback. A host without that family has no such connections.
    fn listen_for_takeover(
        &self,
        listeners: &mut [Vec<Listen>],
        mut taken: Option<&mut Taken>,
    ) -> Result<(), String> {
        let Some(tls) = &self.server else { return Ok(()) };
        let workers = listeners.len();
        for address in sockets(listeners).lacking() {
            let address = SocketAddr::new(address, 0);
            let taken = taken.as_mut().map_or_else(Vec::new, |taken| taken.listeners(what::SPARE, address));
            match listen(address, workers, taken, ["--takeover", "--takeover-address"]) {
                Ok(sockets) => {
                    for (index, socket) in sockets.enumerate() {
                        listeners[index % workers].push(Listen { socket, tls: Some(Arc::clone(tls)) });
                    }
                }
                Err(error) => tracing::warn!(%address, error, "takeover: not for this family of addresses"),
            }
        }
        Ok(())
    }

    pub(super) fn coordinator_settings(
        &self,
        options: &Options,
        posts: Posts,
        takeover: Option<&Takeover>,
    ) -> coordinator::Settings {
        let fetch_keys = options.authentication.service_account_key_file.is_empty();
        coordinator::Settings {
            passage: takeover.map(Takeover::passage),
            upstreams: options.upstream.upstream.clone(),
            tls: self.client.clone(),
            front_proxy: options.upstream.proxy_client_cert_file.is_some(),
            groups: options.upstream.upstream_groups.clone(),
            keys_for: fetch_keys.then(|| Arc::clone(&self.authenticator)),
            issuer_too: options.authentication.service_account_issuer.is_empty(),
            statistics_for: options.flow_control.enable_priority_and_fairness.then_some(posts),
        }
    }

    /// What works, but perhaps not as meant.
    pub(super) fn warn(&self, options: &Options) {
        let authentication = &options.authentication;
        let vouches =
            authentication.client_ca_file.is_some() || authentication.requestheader_client_ca_file.is_some();
        if vouches && options.upstream.proxy_client_cert_file.is_none() {
            tracing::warn!(
                "the apiserver cannot be told who users with certificates are: \
                 give --proxy-client-cert-file and --proxy-client-key-file (kubeadm: front-proxy-client)"
            );
        }
        for warning in &self.objects.current().warnings {
            tracing::warn!(%warning, "flow-control objects");
        }
    }
}

/// The admin port's socket.
pub(super) fn admin(options: &Options, taken: Option<&mut Taken>) -> Result<TcpListener, String> {
    let address = options.observation.admin_bind_address;
    match taken.and_then(|taken| taken.listeners(what::ADMIN, address).pop()) {
        Some(socket) => {
            handover::suit(&socket, ring::Io::Epoll).map_err(|error| format!("the admin port: {error}"))?;
            Ok(socket)
        }
        None => observe::server::bind(address),
    }
}

/// What each worker has for itself, and who brings connections to them; if the sockets are `shared` with a former usher, from
/// the moment when that lets go.
pub(super) fn members(
    options: &Options,
    listeners: Vec<Vec<Listen>>,
    shared: bool,
    cores: &[Option<CoreId>],
    feeds: Vec<hdr::Feed>,
) -> Result<(Vec<Member>, Arc<Steering>), String> {
    let steering = steering(options, &listeners, shared)?;
    let own = listeners.into_iter().zip(cores).zip(feeds).enumerate();
    let members = own.map(|(worker, ((listeners, core), feed))| Member {
        listeners,
        line: steering.line(worker),
        core: *core,
        hdr: Some(feed),
    });
    Ok((members.collect(), Arc::new(steering)))
}

/// What is needed to take over the apiserver's port with the first worker's sockets; `None`: it is not to be.
///
/// `taken`: an usher before this one may have it already; this one goes on with the same.
pub(super) fn takeover(
    options: &Options,
    listeners: &[Vec<Listen>],
    taken: Option<&mut Taken>,
) -> Result<Option<Arc<Takeover>>, String> {
    let Some(plan) = takeover::Plan::of(options)? else {
        let left = takeover::left_behind(&options.takeover.takeover_pin_dir);
        if let Some(left) = left.filter(|_| taken.is_none()) {
            let left = left.display();
            tracing::warn!(%left, "an usher that was fail-closed still keeps a port: `usher release` gives it back");
        }
        return Ok(None);
    };
    let mode = options.takeover.takeover.name();
    let before = taken.and_then(|taken| {
        let descriptors = taken.all(what::TAKEOVER);
        let (link, since) = (taken.all(what::TAKEOVER_LINK).pop(), taken.takeover_since());
        (!descriptors.is_empty()).then_some(takeover::Exported { descriptors, link, since })
    });
    let sockets = sockets(listeners);
    let made = match before {
        Some(before) => Takeover::adopt(plan, sockets, before),
        None => Takeover::load(plan, sockets),
    };
    made.map(Some).map_err(|problem| format!("--takeover={mode}: {problem}; or use --takeover=off"))
}

/// The first worker's sockets for TLS stand for all workers'.
fn sockets(listeners: &[Vec<Listen>]) -> takeover::Sockets {
    let first = listeners.iter().take(1).flatten().filter(|listen| listen.tls.is_some());
    takeover::Sockets::among(first.map(|listen| &listen.socket))
}

/// Seats of the server.
fn server_limit(options: &Options) -> Seats {
    let given = &options.flow_control;
    Seats(u64::from(given.max_requests_inflight) + u64::from(given.max_mutating_requests_inflight))
}

/// The folder of the log is made, if it is to be had. The log goes by io_uring where the workers do.
pub(super) fn hdr_settings(options: &Options, io: ring::Io) -> Result<hdr::Settings, String> {
    let given = &options.histograms;
    let log = given.hdr_log_dir.clone().map(|folder| Keep {
        folder,
        size_max: given.hdr_log_max_size,
        age_max: given.hdr_log_max_age,
        files_max: given.hdr_log_max_files,
    });
    log.as_ref().map_or(Ok(()), Keep::prepare)?;
    Ok(hdr::Settings { interval: given.hdr_log_interval, log, uring: io == ring::Io::Uring })
}

/// How each worker is asked for its histograms.
pub(super) fn hdr_asks(posts: &Posts) -> Vec<hdr::Ask> {
    let ask = |worker| {
        let posts = posts.clone();
        Box::new(move |fresh| posts.send(worker, Command::Histograms(fresh))) as hdr::Ask
    };
    (0..posts.count()).map(ask).collect()
}

/// The core of each worker.
pub(super) fn cores(options: &Options) -> Result<Vec<Option<CoreId>>, String> {
    let given = &options.workers;
    let Places { cores, crowded } = cores::place(given.workers, &given.exclude_cores, given.pin_worker)
        .map_err(|error| error.to_string())?;
    if crowded {
        tracing::warn!(
            workers = cores.len(),
            "there are more workers than cores: they take turns, which serves nobody; lower --workers"
        );
    }
    Ok(cores)
}

fn identity_options(options: &Options) -> identity::Options {
    let given = &options.authentication;
    identity::Options {
        client_ca_file: given.client_ca_file.clone(),
        front_proxy: FrontProxyOptions {
            client_ca_file: given.requestheader_client_ca_file.clone(),
            allowed_names: given.requestheader_allowed_names.clone(),
            username_headers: given.requestheader_username_headers.clone(),
            uid_headers: given.requestheader_uid_headers.clone(),
            group_headers: given.requestheader_group_headers.clone(),
            extra_headers_prefixes: given.requestheader_extra_headers_prefix.clone(),
        },
        token_auth_file: given.token_auth_file.clone(),
        service_account_key_files: given.service_account_key_file.clone(),
        service_account_issuers: given.service_account_issuer.clone(),
        api_audiences: given.api_audiences.clone(),
        anonymous_auth: given.anonymous_auth,
    }
}

/// TLS towards clients, if there is a certificate.
fn server(options: &Options) -> Result<Option<Arc<tls::Server>>, String> {
    let (Some(certificate), Some(private_key)) =
        (&options.serving.tls_cert_file, &options.serving.tls_private_key_file)
    else {
        return Ok(None);
    };
    let files = tls::ServerFiles {
        certificate: certificate.clone(),
        private_key: private_key.clone(),
        client_ca: options.authentication.client_ca_file.clone(),
        requestheader_client_ca: options.authentication.requestheader_client_ca_file.clone(),
    };
    tls::Server::new(files).map(|server| Some(Arc::new(server))).map_err(|fault| fault.to_string())
}

/// TLS towards the apiservers, if one has it.
fn client(options: &Options) -> Result<Option<Arc<tls::Client>>, String> {
    let given = &options.upstream;
    let Some(ca) = given.upstream_ca_file.clone().filter(|_| given.upstream.iter().any(|server| server.tls))
    else {
        return Ok(None);
    };
    let proxy_client = given.proxy_client_cert_file.clone().zip(given.proxy_client_key_file.clone());
    let files = tls::ClientFiles { ca, proxy_client, server_name: given.upstream_server_name.clone() };
    tls::Client::new(files).map(|client| Some(Arc::new(client))).map_err(|fault| fault.to_string())
}

/// Address by address, each worker's socket. A worker that was handed over several on one has the first of them steered: the
/// others serve what they have ready.
pub(super) fn by_address<'a>(
    workers: impl Iterator<Item = &'a [Listen]> + Clone,
) -> Vec<Vec<Arc<TcpListener>>> {
    let address = |listen: &Listen| listen.socket.local_addr().ok();
    let first = workers.clone().next().unwrap_or_default();
    let mut addresses: Vec<Option<SocketAddr>> = first.iter().map(address).collect();
    addresses.dedup();
    let of = |wanted: Option<SocketAddr>| {
        let own = workers.clone().filter_map(move |own| own.iter().find(|listen| address(listen) == wanted));
        own.map(|listen| Arc::clone(&listen.socket)).collect()
    };
    addresses.into_iter().map(of).collect()
}

/// As those want it who only look at them.
pub(super) fn refs(sockets: &[Arc<TcpListener>]) -> Vec<&TcpListener> {
    sockets.iter().map(|socket| &**socket).collect()
}

/// Who brings connections to the workers, given their sockets.
fn steering(options: &Options, listeners: &[Vec<Listen>], shared: bool) -> Result<Steering, String> {
    let settings = options.steering.settings();
    let addresses = by_address(listeners.iter().map(Vec::as_slice));
    let addresses: Vec<Vec<&TcpListener>> = addresses.iter().map(|sockets| refs(sockets)).collect();
    let choose = if shared { Steering::prepare } else { Steering::choose };
    let steering = choose(settings, &addresses).map_err(|fault| {
        let verifier = fault.log().map(|log| format!("\n{log}")).unwrap_or_default();
        format!("--steering=on: {fault}{verifier}")
    })?;
    tracing::info!(steering = steering.mode(), reason = steering.reason(), "steering");
    if settings.budget.rate > 0 && !steering.is_on() {
        tracing::warn!("--connection-budget-per-source is not in force: connections are not steered");
    }
    Ok(steering)
}

fn listen(
    address: SocketAddr,
    workers: usize,
    mut taken: Vec<TcpListener>,
    [address_flag, port_flag]: [&str; 2],
) -> Result<impl Iterator<Item = Arc<TcpListener>>, String> {
    let sockets = match taken.first() {
        None => ring::bind_shared(address, workers),
        Some(first) => ring::bind_beside(first, workers.saturating_sub(taken.len())).map(|further| {
            taken.extend(further);
            taken
        }),
    };
    let (address, port) = (address.ip(), address.port());
    let sockets = sockets.map_err(|error| {
        format!(
            "{address_flag}={address} {port_flag}={port}: {error}; give another, port 0 chooses a free one"
        )
    })?;
    Ok(sockets.into_iter().map(Arc::new))
}

/// Unused connections to an apiserver that a worker may keep, however many workers there are: enough for the bursts of one.
const IDLE_LEAST: usize = 32;
/// What is held for stalled answers is this part of all memory at most.
const STALLED_PART: u64 = 8;
/// What is taken ahead of bodies is this part of all memory at most.
const BODIES_PART: u64 = 4;

pub(super) fn limits(limits: &Limits, memory: Option<u64>) -> worker::Limits {
    worker::Limits {
        connections: limits.max_connections,
        handshakes: limits.max_handshakes,
        handshake_timeout: limits.handshake_timeout,
        header_timeout: limits.header_timeout,
        body_timeout: limits.request_body_timeout,
        idle_timeout: limits.idle_timeout,
        header_bytes: limits.max_header_bytes,
        header_lines: limits.max_header_lines,
        streams: limits.http2_max_streams_per_connection,
        body_bytes: limits.max_body_buffer_bytes,
        body_bytes_total: limits.max_body_buffer_total_bytes.min(memory.unwrap_or(u64::MAX) / BODIES_PART),
        slow_reader_grace: limits.slow_reader_grace,
        stalled_streams: limits.stalled_streams_max,
        stalled_bytes: limits.stalled_bytes_max.min(memory.unwrap_or(u64::MAX) / STALLED_PART),
        waiting: limits.max_waiting_requests,
        glitches: limits.max_glitches,
    }
}
